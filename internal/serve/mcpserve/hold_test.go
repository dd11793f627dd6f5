package mcpserve

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

const heldCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs_writeText","arguments":{"path":"x","text":"y","selector":{"endpoint":"a"}}}}`

// pending waits for the only pending approval and returns its id.
func (st *stack) pending() string {
	st.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		list, err := st.policy.Approvals(st.t.Context(), policy.ApprovalPending, "", 10)
		ok(st.t, err)
		if len(list) == 1 {
			return list[0].ID
		}
	}
	st.t.Fatal("no approval became pending")
	return ""
}

// held sends the call in its own goroutine.
func (st *stack) held(ctx context.Context, session string) <-chan string {
	answer := make(chan string, 1)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, st.url, strings.NewReader(heldCall))
	ok(st.t, err)
	for name, value := range map[string]string{
		"Authorization": "Bearer " + st.agent, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		mcpwire.HeaderSession: session,
	} {
		req.Header.Set(name, value)
	}
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		var a json.RawMessage
		if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
			answer <- err.Error()
			return
		}
		answer <- string(a)
	}()
	return answer
}

func TestHeldCallContinuesWithTheDecision(t *testing.T) {
	for decision, want := range map[policy.Decision]string{
		policy.DecideOnce:   `"provider":"fs:endpoint:a"`,
		policy.DecideAlways: `"provider":"fs:endpoint:a"`,
		policy.DecideDeny:   "confirmation_rejected",
	} {
		t.Run(string(decision), func(t *testing.T) {
			st := newStack(t, stackOptions{approvalWait: time.Hour})
			answer := st.held(t.Context(), st.open(st.agent, mcpwire.Version20250618))
			_, _, err := st.policy.Decide(t.Context(), st.admin, st.pending(), decision)
			ok(t, err)
			if got := <-answer; !strings.Contains(got, want) {
				t.Errorf("answer after %s = %s, want %s in it", decision, got, want)
			}
		})
	}
}

func TestHeldCallEndsWithTheErrorThatNamesItsApproval(t *testing.T) {
	st := newStack(t, stackOptions{approvalWait: time.Millisecond})
	answer := <-st.held(t.Context(), st.open(st.agent, mcpwire.Version20250618))
	if id := st.pending(); !strings.Contains(answer, "approval_required") || !strings.Contains(answer, id) {
		t.Errorf("answer = %s, want approval_required with %s", answer, id)
	}
}

func TestACallIsHeldAsLongAsItsPrincipalIsConfigured(t *testing.T) {
	st := newStack(t, stackOptions{waitFor: func(principal string) time.Duration {
		if principal == "agent:one" {
			return 0
		}
		return time.Hour
	}})
	answer := <-st.held(t.Context(), st.open(st.agent, mcpwire.Version20250618))
	if id := st.pending(); !strings.Contains(answer, "approval_required") || !strings.Contains(answer, id) {
		t.Errorf("answer = %s, want approval_required with %s at once", answer, id)
	}
	_, _, err := st.policy.Decide(t.Context(), st.admin, st.pending(), policy.DecideDeny)
	ok(t, err)
	st.agent = st.agent2 // agent:two, which is held
	held := st.held(t.Context(), st.open(st.agent, mcpwire.Version20250618))
	_, _, err = st.policy.Decide(t.Context(), st.admin, st.pending(), policy.DecideOnce)
	ok(t, err)
	if got, want := <-held, `"provider":"fs:endpoint:a"`; !strings.Contains(got, want) {
		t.Errorf("answer of agent:two = %s, want %s in it", got, want)
	}
}

func TestApprovalOfACallWhoseClientLeftCoversTheNextCall(t *testing.T) {
	st := newStack(t, stackOptions{approvalWait: time.Hour})
	session := st.open(st.agent, mcpwire.Version20250618)
	ctx, leave := context.WithCancel(t.Context())
	answer := st.held(ctx, session)
	id := st.pending()
	r := st.do("POST", st.agent, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		mcpwire.HeaderSession, session)
	if r.status != 202 {
		t.Fatalf("cancelled: %d %s; want r.status = 202", r.status, r.body)
	}
	leave()
	<-answer
	for deadline := time.Now().Add(time.Minute); st.surface.holds.count() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the cancelled call is still held")
		}
	}
	if a, err := st.policy.Approval(t.Context(), id); err != nil || a.State != policy.ApprovalPending {
		t.Errorf("approval after the client left = %v, %v; want it pending", a.State, err)
	}
	_, _, err := st.policy.Decide(t.Context(), st.admin, id, policy.DecideOnce)
	ok(t, err)
	if got := <-st.held(t.Context(), session); !strings.Contains(got, `"provider":"fs:endpoint:a"`) {
		t.Errorf("the same call after the approval = %s, want its result", got)
	}
}

func (h *holds) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all
}

func TestHeldCallsAreBounded(t *testing.T) {
	var h holds
	for i := range maxHeldOf {
		if !h.enter("one") {
			t.Fatalf("call %d of a principal is not held, want %d held", i+1, maxHeldOf)
		}
	}
	if h.enter("one") {
		t.Errorf("call %d of a principal is held, want it refused", maxHeldOf+1)
	}
	h.leave("one")
	if !h.enter("one") {
		t.Error("no call is held after another has ended")
	}
	for i := 0; h.count() < maxHeld; i++ {
		if !h.enter(strings.Repeat("x", 1+i/maxHeldOf)) {
			t.Fatalf("%d calls are held, want %d", h.count(), maxHeld)
		}
	}
	if h.enter("another") {
		t.Errorf("call %d is held, want it refused", maxHeld+1)
	}
}

// undecided is a Policy whose approvals stay pending.
type undecided struct{ Policy }

func (undecided) Decided(ctx context.Context, _ string) (policy.Approval, error) {
	<-ctx.Done()
	return policy.Approval{}, context.Cause(ctx)
}

func TestHeldCallSendsProgressUntilItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Surface{cfg: Config{Policy: undecided{}}}
		var got []float64
		state, err := s.awaitDecision(t.Context(), voice{heard: func(c capability.Chunk) {
			got = append(got, c.Progress)
			if c.Total != 17 || !strings.Contains(c.Message, "apr_1") {
				t.Errorf("chunk = %+v, want the total 17 and the id", c)
			}
		}}, "apr_1", 17*time.Second)
		if err != nil || state != policy.ApprovalPending || len(got) != 3 || got[2] != 15 {
			t.Errorf("awaitDecision = %q, %v with progress %v; want pending with 5, 10, 15", state, err, got)
		}
	})
}
