package chatserve

import (
	"net/http"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/chat/engine"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// execution is the body of POST …/extensions/execute.
type execution struct {
	Command string `json:"command"` // as typed, with the slash
	Session string `json:"session_id,omitempty"`
	DryRun  bool   `json:"dry_run,omitempty"`
	NoCache bool   `json:"no_cache,omitempty"`
	Async   bool   `json:"async,omitempty"` // answer as soon as the run has started
}

// execute runs a slash command outside a conversation. With dry_run it runs nothing and
// returns what would run. With async it answers 202 and the run's id. If a started run
// fails, the answer holds both the error and the invocation.
func (s *Surface) execute(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var req execution
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	if req.DryRun {
		return s.dry(w, r, who, req)
	}
	done, err := s.Chat.Command(r.Context(), engine.Run{
		Message: engine.Message{Principal: who, Session: req.Session, Text: req.Command, Client: r.UserAgent(), NoCache: req.NoCache},
		Async:   req.Async,
	})
	switch {
	case err != nil && done.Reply.Invocation == "":
		return err // nothing was invoked
	case err != nil:
		w.Header().Set("X-Junctor-Invocation", done.Reply.Invocation)
		e := capability.AsError(err)
		httpapi.WriteJSON(w, e.Code.Row().HTTP, map[string]any{"error": e, "invocation": done.Reply})
	case done.Started != nil:
		httpapi.WriteJSON(w, http.StatusAccepted, map[string]any{"ok": true, "run_id": done.Started.ID, "status": done.Started.Status})
	case done.Reply.Invocation == "":
		httpapi.WriteJSON(w, http.StatusOK, map[string]any{"ok": true, "result": map[string]any{"success": true, "output": done.Text}})
	default:
		w.Header().Set("X-Junctor-Invocation", done.Reply.Invocation)
		httpapi.WriteJSON(w, http.StatusOK, map[string]any{
			"ok": true, "run_id": done.Reply.Invocation, "status": tasks.RunSucceeded, "result": jsonx.Raw(done.Reply.Result),
			"invocation": done.Reply,
		})
	}
	return nil
}

// dry answers with what a command would run, its sensitive arguments masked.
func (s *Surface) dry(w http.ResponseWriter, r *http.Request, who capability.Principal, req execution) error {
	route, err := s.Chat.Route(req.Command)
	if err != nil {
		return err
	}
	out := map[string]any{
		"dry_run": true, "command": "/" + route.Command.Name, "action": route.Action.ID, "runner": route.Action.Runner,
		"args": append([]string{}, route.RecordableArgs()...),
	}
	if !route.Command.Builtin {
		p, err := s.Preview(r.Context(), who, req.Session, route)
		if err != nil {
			return err
		}
		out["extension_id"], out["permissions"], out["target"] = route.Command.Extension, append([]string{}, route.Permissions()...),
			engine.Member(route).String()
		out["what"] = p.What
		for key, value := range p.Details {
			out[key] = value
		}
		if p.Confirm != "" {
			out["confirm"], out["confirm_reason"] = p.Confirm, p.Why
		}
	}
	httpapi.WriteJSON(w, http.StatusOK, out)
	return nil
}

// runs lists the runs that the principal may see, filtered by extension_id, session_id and
// status. Error: invalid_input for an unknown status.
func (s *Surface) runs(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	q := r.URL.Query()
	limit, err := httpapi.Number(r, "limit", 100, 0, maxLimit)
	if err != nil {
		return err
	}
	status := tasks.RunStatus(strings.ToUpper(q.Get("status")))
	if status != "" && !slices.Contains(tasks.RunStatuses(), status) {
		return capability.Errorf(capability.CodeInvalidInput, "decode",
			"%q is not a status of a run; use pending, running, succeeded, failed, timeout or canceled", q.Get("status"))
	}
	httpapi.WriteJSON(w, http.StatusOK, map[string]any{
		"runs": s.Runs.List(who, tasks.RunFilter{
			Extension: q.Get("extension_id"), Session: q.Get("session_id"), Status: status,
			Limit: min(limit, tasks.MaxEndedRuns),
		}),
	})
	return nil
}

func (s *Surface) run(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	one, err := s.Runs.Get(who, r.PathValue("id"))
	return answer(w, one, err)
}

func (s *Surface) cancel(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	err := s.Runs.Cancel(who, r.PathValue("id"))
	return answer(w, map[string]any{"ok": true}, err)
}
