package extensionserve

import (
	"context"
	"net/http"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/command"
	"github.com/junctor-run/junctor/internal/invoke"
	"github.com/junctor-run/junctor/internal/jsonx"
	"github.com/junctor-run/junctor/internal/surface/door"
)

// Engine is the one governed path.
type Engine interface {
	Invoke(ctx context.Context, inv capability.Invocation) (invoke.Reply, error)
}

// execution is the body of POST …/execute.
type execution struct {
	Command string `json:"command"` // as typed, with its slash
	Session string `json:"session_id,omitempty"`
	DryRun  bool   `json:"dry_run,omitempty"`
	NoCache bool   `json:"no_cache,omitempty"`
}

// execute runs a slash command.
func (s *Surface) execute(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var req execution
	if err := door.Decode(w, r, &req); err != nil {
		return err
	}
	router := s.Extensions.Commands()
	route, is, err := router.Route(req.Command)
	if err != nil {
		return err
	}
	if !is {
		return capability.Errorf(capability.CodeInvalidInput, "execute", "%q is no command", excerpt(req.Command)).With("invalid_args", "a command begins with a slash; /help lists them")
	}
	if req.DryRun {
		door.WriteJSON(w, http.StatusOK, dry(route))
		return nil
	}
	words := struct {
		Args    []string `json:"args"`
		NoCache bool     `json:"no_cache,omitempty"`
	}{append([]string{}, route.Args...), req.NoCache}
	input, err := jsonx.Marshal(words)
	if err != nil {
		return capability.Wrap(capability.CodeInvalidInput, "execute", "the words cannot be written", err)
	}
	reply, err := s.Engine.Invoke(r.Context(), capability.Invocation{
		Surface: "slash", Client: r.UserAgent(), Principal: who, Session: req.Session, Input: input,
		Audience: capability.AudienceInternal, Target: capability.Target{Member: member(route)},
	})
	w.Header().Set("X-Junctor-Invocation", reply.Invocation)
	if err != nil {
		e := capability.AsError(err)
		door.WriteJSON(w, e.Code.Row().HTTP, map[string]any{"error": e, "invocation": reply})
		return nil
	}
	door.WriteJSON(w, http.StatusOK, map[string]any{"ok": true, "result": jsonx.Raw(reply.Result), "invocation": reply})
	return nil
}

// member is what a route runs: the action's own entry, by the names the package
// declares.
func member(r *command.Route) capability.Member {
	declared := strings.ToLower(strings.TrimPrefix(r.Command.Declared, "/"))
	return capability.Member{Module: r.Command.Extension, Kind: "command", Name: declared + "." + r.Action.ID}
}

// dry says what would run, without what must not be seen.
func dry(r *command.Route) map[string]any {
	return map[string]any{
		"dry_run": true, "command": "/" + r.Command.Name, "extension_id": r.Command.Extension, "action": r.Action.ID, "runner": r.Action.Runner,
		"args": append([]string{}, r.RecordableArgs()...), "permissions": append([]string{}, r.Permissions()...), "target": member(r).String(),
	}
}

func (s *Surface) commands(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	enabled, err := flag(r, "enabled_only")
	if err != nil {
		return err
	}
	router := s.Extensions.Commands()
	list := []command.Entry{}
	for _, e := range router.List() {
		if e.Enabled || !enabled {
			list = append(list, e)
		}
	}
	door.WriteJSON(w, http.StatusOK, map[string]any{"commands": list, "help": router.Help()})
	return nil
}

func excerpt(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}
