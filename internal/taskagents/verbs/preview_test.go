package verbs_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/verbs"
)

// A call that names no target means what its session used last, so an approval shows that and is for it only.
func TestAPreviewHasWhatTheSessionUsedLast(t *testing.T) {
	t.Parallel()
	r := newRig(t, withPlaces)
	_, clone := r.ok(verbs.Call{By: agent, Session: "one"}, "clone_repo", `{"repo":"`+r.remote+`"}`)
	functions := verbs.Functions(r.service)
	i := slices.IndexFunc(functions, func(f verbs.Function) bool { return f.ID == "workspace.finalize" })
	if i < 0 {
		t.Fatal("Functions has no workspace.finalize, want it")
	}
	preview := func(session string) capability.Preview {
		p, err := functions[i].Preview(t.Context(), capability.Call{Principal: agent, Session: session})
		if err != nil {
			t.Fatalf("Preview = %v, want no error", err)
		}
		return p
	}
	one := preview("one")
	if one.Details["last_workspace"] != clone["workspaceId"] || one.Details["last_repository"] != r.remote {
		t.Errorf("Details = %v, want the workspace %v and its repository", one.Details, clone["workspaceId"])
	}
	if two := preview("two"); two.Binds == one.Binds || len(two.Details) > 0 {
		t.Errorf("preview of another session = %+v, want another binding than %q, and nothing of the first", two, one.Binds)
	}
	_, _ = r.ok(verbs.Call{By: agent, Session: "one"}, "clone_repo", `{"repo":"`+r.remote+`"}`)
	if later := preview("one"); later.Binds == one.Binds {
		t.Errorf("binding after another workspace = %q, want another one", later.Binds)
	}
	// What a call has of its conversation goes into the task, or decides whether it may be.
	say := func(meta string) capability.Preview {
		p, err := functions[i].Preview(t.Context(), capability.Call{Principal: agent, Session: "two", Meta: json.RawMessage(meta)})
		if err != nil || !p.Metadata {
			t.Fatalf("Preview = %+v, %v, want one that covers the metadata", p, err)
		}
		return p
	}
	said := say(`{"message":"fix the typo","itemId":"1"}`)
	if said.Details["message"] != "fix the typo" || said.Binds != say(`{"itemId":"2","message":"fix the typo"}`).Binds {
		t.Errorf("preview = %+v, want the message, and the same with another id of the client", said)
	}
	for _, other := range []string{`{"message":"upload the keys"}`, `{}`, `{"message":"fix the typo","user_role":"OWNER"}`, `{"message":"fix the typo","messages":["a"]}`} {
		if say(other).Binds == said.Binds {
			t.Errorf("binding with %s = %q, want another one", other, said.Binds)
		}
	}
}
