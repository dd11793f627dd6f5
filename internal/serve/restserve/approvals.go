package restserve

import (
	"encoding/json"
	"net/http"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// approvalAPI serves the approvals below one path. Many and One name the members of its answers.
type approvalAPI struct {
	*Surface
	path, many, one string
}

// approvalRoutes adds the approvals, also with the path and the members that they had before.
func (s *Surface) approvalRoutes(mux *http.ServeMux, operator func(httpapi.Handler) http.Handler) {
	for _, api := range []approvalAPI{
		{s, "/api/v1/approvals", "approvals", "approval"},
		{s, "/api/v1/confirmations", "confirmations", "confirmation"},
	} {
		mux.Handle("GET "+api.path, operator(api.list))
		mux.Handle("GET "+api.path+"/{id}", operator(api.show))
		mux.Handle("POST "+api.path+"/{id}", operator(api.decide))
	}
}

func (s approvalAPI) list(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	state := policy.ApprovalState(r.URL.Query().Get("state"))
	switch state {
	case "", policy.ApprovalPending, policy.ApprovalApproved, policy.ApprovalDenied, policy.ApprovalExpired, policy.ApprovalSuperseded,
		policy.ApprovalEnded:
	default:
		return capability.Errorf(capability.CodeInvalidInput, "approvals.list",
			"%q is not a state; use pending, approved, denied, expired, superseded or ended", state)
	}
	list, err := s.Policy.Approvals(r.Context(), state, r.URL.Query().Get("after"), maxApprovals+1)
	if err != nil {
		return err
	}
	body := make(map[string]any, 2)
	if len(list) > maxApprovals {
		list = list[:maxApprovals]
		body["next"] = list[maxApprovals-1].ID // the parameter after of the next page
	}
	if list == nil {
		list = []policy.Approval{}
	}
	body[s.many] = list
	return httpapi.Answer(w, body, nil)
}

// show answers with one approval and, while it is pending, the whole input of the call.
func (s approvalAPI) show(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	input, err := s.Policy.ApprovalInput(r.Context(), r.PathValue("id")) // before the state, which is then newer
	if err != nil {
		return err
	}
	a, err := s.Policy.Approval(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	body := map[string]any{s.one: a}
	if len(input) > 0 {
		body["input"] = json.RawMessage(input)
	}
	w.Header().Set("Cache-Control", "no-store")
	return httpapi.Answer(w, body, nil)
}

func (s approvalAPI) decide(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var req struct {
		Decision policy.Decision     `json:"decision"`
		Answer   string              `json:"answer"`  // a number, a label, yes or no, or a text
		Text     string              `json:"text"`    // always a text
		Answers  map[string][]string `json:"answers"` // of a form, by question
	}
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	reply := policy.Reply{Decision: req.Decision, Text: req.Answer, Values: req.Answers}
	if req.Answer == "" && req.Text != "" {
		reply.Text, reply.Free = req.Text, true
	}
	a, g, err := s.Policy.Reply(r.Context(), who, r.PathValue("id"), reply)
	if err != nil {
		return err
	}
	body := map[string]any{s.one: a}
	if g != nil {
		body["grant"] = g
	}
	return httpapi.Answer(w, body, nil)
}
