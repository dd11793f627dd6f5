package nodeserve

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// Held keeps calls for nodes that are away.
type Held interface {
	Hold(ctx context.Context, c tasks.HeldCall, hold time.Duration) (tasks.HeldCall, error)
	Cancel(ctx context.Context, c tasks.HeldCall) error
	// Call and List see what is kept; principal "" is everybody's.
	Call(ctx context.Context, id string) (c tasks.HeldCall, ok bool, err error)
	List(ctx context.Context, principal, node string, limit int) ([]tasks.HeldCall, error)
}

func (s *Surface) heldRoutes(mux *http.ServeMux) {
	mux.Handle("POST /api/v1/nodes/{id}/calls", s.Door.Guard(s.hold))
	mux.Handle("GET /api/v1/calls", s.Door.Guard(s.heldList))
	mux.Handle("GET /api/v1/calls/{id}", s.Door.Guard(s.heldShow))
	mux.Handle("DELETE /api/v1/calls/{id}", s.Door.Guard(s.heldCancel))
}

// heldView is a held call on the wire.
type heldView struct {
	tasks.HeldCall
	Result jsonx.Raw `json:"result,omitempty"`
}

// hold takes a call for a node that was let in, whether it is there or not.
func (s *Surface) hold(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var in struct {
		Function string    `json:"function"`
		Args     jsonx.Raw `json:"args"`
		Hold     string    `json:"hold"`
		Timeout  string    `json:"timeout"`
	}
	if err := httpapi.Decode(w, r, &in); err != nil {
		return err
	}
	id := r.PathValue("id")
	if !s.MayHold(r.Context(), who, id) {
		return cmp.Errorf(cmp.ReasonNodeNotFound, "there is no node %q", id).With(cmp.ReasonNodeNotFound, listNodes)
	}
	var hold, timeout time.Duration
	for _, d := range []struct {
		name, text string
		to         *time.Duration
	}{{"hold", in.Hold, &hold}, {"timeout", in.Timeout, &timeout}} {
		if d.text == "" {
			continue
		}
		v, err := time.ParseDuration(d.text)
		if err != nil || v <= 0 {
			return capability.Errorf(capability.CodeInvalidInput, "decode", "%s: %q is not a duration above 0; write 30m or 24h", d.name, d.text)
		}
		*d.to = v
	}
	c, err := s.Held.Hold(r.Context(), tasks.HeldCall{
		Node: id, Function: in.Function, Arguments: json.RawMessage(in.Args), Principal: who.ID,
		Timeout: timeout,
	}, hold)
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusAccepted, heldView{HeldCall: c})
	return nil
}

// own finds a held call of who asks; people see everybody's.
func (s *Surface) own(r *http.Request, who capability.Principal) (tasks.HeldCall, error) {
	id := r.PathValue("id")
	c, ok, err := s.Held.Call(r.Context(), id)
	if err == nil && (!ok || c.Principal != who.ID && !people(who)) {
		err = capability.Errorf(capability.CodeNotFound, "calls", "there is no held call %q", id).With("",
			"what has ended is forgotten after a day")
	}
	return c, err
}

func (s *Surface) heldShow(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	c, err := s.own(r, who)
	if err != nil {
		return err
	}
	return httpapi.Answer(w, heldView{c, jsonx.Raw(c.Result)}, nil)
}

func (s *Surface) heldList(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	of := who.ID
	if people(who) {
		of = ""
	}
	list, err := s.Held.List(r.Context(), of, r.URL.Query().Get("node"), maxHeldList)
	if err != nil {
		return err
	}
	out := make([]heldView, len(list))
	for i := range list {
		out[i] = heldView{HeldCall: list[i]}
	}
	return httpapi.Answer(w, map[string]any{"calls": out}, nil)
}

func (s *Surface) heldCancel(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	c, err := s.own(r, who)
	if err == nil {
		err = s.Held.Cancel(r.Context(), c)
	}
	return httpapi.Answer(w, map[string]any{"ok": true}, err)
}

func people(who capability.Principal) bool {
	return who.Role == capability.RoleAdmin || who.Role == capability.RoleOperator
}
