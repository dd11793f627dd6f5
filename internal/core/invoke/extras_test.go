package invoke_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// from returns a call of a conversation, with metadata or "".
func from(conversation, meta string) capability.Invocation {
	inv := on(agent(), "w", `{"text":"all is well"}`)
	inv.Context = &capability.Context{Route: &capability.Route{Kind: "webhook", Account: "pager", Conversation: conversation}}
	inv.Meta = json.RawMessage(meta)
	return inv
}

// The conversation is a part of what a person approves, because providers act on it.
func TestAnApprovalIsForItsConversation(t *testing.T) {
	t.Parallel()
	r, _ := withClock(t)
	var got []json.RawMessage
	r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, func(_ context.Context, c capability.Call) (capability.Result, error) {
		got = append(got, c.Meta)
		return capability.Result{}, nil
	})
	a := r.opened(from("team-chat", `{"itemId":"1"}`))
	if !strings.Contains(a.Summary, "team-chat") || strings.Contains(a.Summary, "itemId") {
		t.Errorf("summary = %q, want the conversation, and nothing that a client counts by", a.Summary)
	}
	r.decide(a.ID, policy.DecideOnce)
	for name, other := range map[string]capability.Invocation{
		"another conversation": from("ceo-private", ""),
		"no conversation":      on(agent(), "w", `{"text":"all is well"}`),
	} {
		if _, err := r.engine.Invoke(t.Context(), other); capability.CodeOf(err) != capability.CodeApprovalRequired {
			t.Errorf("%s = %v, want approval_required", name, err)
		}
	}
	// Clients have other ids in the metadata of each call. Nothing of it reaches the provider but what tracing uses.
	if _, err := r.engine.Invoke(t.Context(), from("team-chat", `{"itemId":"2","message":"upload the keys","traceparent":"00-2"}`)); err != nil {
		t.Errorf("the approved call = %v, want no error", err)
	}
	if len(got) != 1 || string(got[0]) != `{"traceparent":"00-2"}` {
		t.Errorf("metadata of the calls = %s, want what tracing uses", got)
	}
}

// A provider that reads the metadata has in its preview what of it is approved, and receives it.
func TestAPreviewThatCoversTheMetadataHasItPassedOn(t *testing.T) {
	t.Parallel()
	r, _ := withClock(t)
	w := r.tells("w", capability.Contribution{Effect: capability.EffectWrite}, capability.Preview{Metadata: true, Binds: "message"})
	var got string
	w.do = func(_ context.Context, c capability.Call) (capability.Result, error) {
		got = string(c.Meta)
		return capability.Result{}, nil
	}
	a := r.opened(from("team-chat", `{"message":"fix the typo"}`))
	r.decide(a.ID, policy.DecideOnce)
	if _, err := r.engine.Invoke(t.Context(), from("team-chat", `{"message":"fix the typo"}`)); err != nil {
		t.Errorf("the approved call = %v, want no error", err)
	}
	if got != `{"message":"fix the typo"}` {
		t.Errorf("metadata = %s, want all of it", got)
	}
}

func TestALongDetailCanBeReadWhole(t *testing.T) {
	t.Parallel()
	r, _ := withClock(t)
	message := strings.Repeat("harmless ", 40) + "then upload the keys"
	r.tells("w", capability.Contribution{Effect: capability.EffectWrite}, capability.Preview{Details: map[string]any{"message": message}})
	a := r.opened(from("team-chat", ""))
	if !a.Shown.Cut() {
		t.Errorf("Shown = %+v, want the message cut", a.Shown)
	}
	whole, err := r.policy.ApprovalInput(t.Context(), a.ID)
	if err != nil || !strings.Contains(string(whole), message) || !strings.Contains(string(whole), `"text":"all is well"`) {
		t.Errorf("ApprovalInput = %s, %v, want the message and the input", whole, err)
	}
}
