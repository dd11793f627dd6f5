package server_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

type shownApproval struct {
	ID, Kind, State, Session, Principal, Decision, Summary string
	DecidedBy                                              string `json:"decided_by"`
	Shown                                                  struct {
		Choices []struct {
			N             int
			Label, Effect string
		}
	}
}

// waits returns the approval that the only waiting program waits for.
func (n *node) waits(t *testing.T) shownApproval {
	t.Helper()
	var list struct{ Approvals []shownApproval }
	eventually(t, "one approval is pending", func() bool {
		n.ask(t, "GET", "/api/v1/approvals?state=pending", "", http.StatusOK, &list)
		return len(list.Approvals) == 1
	})
	return list.Approvals[0]
}

// decidedApproval returns an approval when it is not pending.
func (n *node) decidedApproval(t *testing.T, id string) shownApproval {
	t.Helper()
	var one struct{ Approval shownApproval }
	eventually(t, "the approval is decided", func() bool {
		n.ask(t, "GET", "/api/v1/approvals/"+id, "", http.StatusOK, &one)
		return one.Approval.State != "pending"
	})
	return one.Approval
}

func TestPermissionOfATaskAgentIsAnApproval(t *testing.T) {
	t.Parallel()
	_, env := agentHome(t)
	n := serve(t, t.TempDir(), env...)
	const ask = `{"agentType":"claude","mode":"structured","task":"say hello","approvalPreset":"standard",` +
		`"metadata":{"keepAliveAfterComplete":true}}`
	s := n.spawnAgent(t, ask)
	first := n.waits(t)
	var session struct {
		Owner   string
		Blocker struct{ ID string }
	}
	n.ask(t, "GET", "/api/task-agents/"+s.ID, "", http.StatusOK, &session)
	if first.ID != session.Blocker.ID || first.Kind != "terminal" || first.Session != s.ID || first.Principal != session.Owner {
		t.Errorf("the approval is %+v, want the blocker %s of session %s, of %s", first, session.Blocker.ID, s.ID, session.Owner)
	}
	var deny int
	for _, c := range first.Shown.Choices {
		if c.Effect == "deny" {
			deny = c.N
		}
	}
	if deny == 0 || len(first.Shown.Choices) < 2 {
		t.Fatalf("the choices are %+v, want some, one of which denies", first.Shown.Choices)
	}
	n.ask(t, "POST", "/api/v1/approvals/"+first.ID, `{"decision":"timed"}`, http.StatusBadRequest, nil)
	n.ask(t, "POST", "/api/v1/approvals/"+first.ID, `{"decision":"once","answer":"1"}`, http.StatusBadRequest, nil)
	n.ask(t, "POST", "/api/v1/approvals/"+first.ID, `{"answer":"no such answer"}`, http.StatusBadRequest, nil)
	var done struct{ Approval shownApproval }
	n.ask(t, "POST", "/api/v1/approvals/"+first.ID, `{"decision":"once"}`, http.StatusOK, &done)
	if done.Approval.State != "approved" || done.Approval.DecidedBy != session.Owner {
		t.Errorf("the approval is %+v, want approved by %s", done.Approval, session.Owner)
	}
	eventually(t, "the file is written", func() bool {
		data, _ := os.ReadFile(filepath.Join(s.Workdir, "hello.txt"))
		return string(data) == "hello"
	})
	n.ask(t, "POST", "/api/v1/approvals/"+first.ID, `{"decision":"once"}`, http.StatusConflict, nil)
	eventually(t, "the turn is done", func() bool { return n.shown(t, s.ID).Phase == "done" })

	n.ask(t, "POST", "/api/coding-agents/"+s.ID+"/send", `{"input":"again"}`, http.StatusOK, nil)
	second := n.waits(t)
	if second.ID == first.ID {
		t.Errorf("the second question has the id of the first, %s; want second.ID other than %v", first.ID, first.ID)
	}
	n.ask(t, "POST", "/api/coding-agents/"+s.ID+"/answer", fmt.Sprintf(`{"blocker":"%s","answer":"%d"}`, second.ID, deny), http.StatusOK, nil)
	if got := n.decidedApproval(t, second.ID); got.State != "denied" || got.Decision != "deny" {
		t.Errorf("the approval that was answered at the session is %+v, want denied", got)
	}
	eventually(t, "the second turn is done", func() bool { return n.shown(t, s.ID).Phase == "done" && n.shown(t, s.ID).CompletedTurns == 2 })

	n.ask(t, "POST", "/api/coding-agents/"+s.ID+"/send", `{"input":"a third time"}`, http.StatusOK, nil)
	third := n.waits(t)
	n.ask(t, "POST", "/api/coding-agents/"+s.ID+"/stop", "", http.StatusOK, nil)
	if got := n.decidedApproval(t, third.ID); got.State != "ended" || got.DecidedBy != "" {
		t.Errorf("the approval of the stopped program is %+v, want ended without a decision", got)
	}
	n.ask(t, "POST", "/api/v1/approvals/"+third.ID, `{"decision":"once"}`, http.StatusConflict, nil)
	n.terminate(t)
}
