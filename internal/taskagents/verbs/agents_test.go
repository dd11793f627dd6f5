package verbs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/verbs"
)

func TestTellingAnAgent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fails(call(""), "SEND_TO_AGENT", `{"input":"hello"}`, verbs.NoSession)
	r.fails(call(""), "SEND_TO_AGENT", `{"sessionId":"pty-1-00000009","input":"hello"}`, verbs.SessionNotFound)
	r.ok(call(""), "SPAWN_AGENT", `{}`)
	r.ok(verbs.Call{By: agent, Session: "other"}, "SPAWN_AGENT", `{}`)
	r.fails(call(""), "SEND_TO_AGENT", `{"input":"  "}`, verbs.NoInput)

	// The conversation's own, not the newest.
	_, data := r.ok(call(""), "TELL_CODING_AGENT", `{"input":"hello"}`)
	if data["sessionId"] != r.fleet.infos[0].ID || data["outcome"] != "delivered" || r.fleet.typed[0] != "hello" {
		t.Errorf(`%v %v; want data["sessionId"] = r.fleet.infos[0].ID, data["outcome"] = "delivered", r.fleet.typed[0] = "hello"`,
			data, r.fleet.typed)
	}
	// Who was in no conversation means the newest.
	_, data = r.ok(verbs.Call{By: agent}, "SEND_TO_AGENT", `{"keys":["down","enter"]}`)
	if data["sessionId"] != r.fleet.infos[1].ID || r.fleet.typed[1] != "[down enter]" {
		t.Errorf(`%v %v; want data["sessionId"] = r.fleet.infos[1].ID, r.fleet.typed[1] = "[down enter]"`, data, r.fleet.typed)
	}
	r.fails(call(""), "SEND_TO_AGENT", `{"keys":"nokey"}`, "UNKNOWN_KEY")
	// A task is one of its own.
	_, data = r.ok(call(""), "SEND_TO_AGENT", `{"task":"now write tests","label":"tests"}`)
	s, err := r.registry.Session(t.Context(), r.fleet.infos[0].ID)
	if err != nil || s.ThreadID != data["threadId"] || s.Label != "tests" || s.OriginalTask != "now write tests" || len(r.fleet.typed) != 3 ||
		r.fleet.typed[2] != "now write tests" {
		t.Errorf(`%+v %v; want no error, s.ThreadID = data["threadId"], s.Label = "tests", s.OriginalTask = "now write tests", `+
			`len(r.fleet.typed) = 3, r.fleet.typed[2] = "now write tests"`, s, err)
	}
	r.fleet.set(0, func(i *agents.Info) { i.Status = detect.Stopped })
	r.fails(call(""), "SEND_TO_AGENT", `{"sessionId":"`+r.fleet.infos[0].ID+`","input":"hello"}`, verbs.SessionNotFound)
}

func TestAnAgentThatAsksIsAnswered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ok(call(""), "SPAWN_AGENT", `{}`)
	r.fleet.set(0, func(i *agents.Info) {
		i.Status = detect.Blocked
		i.Blocker = &detect.Blocker{
			Type: "permission", Prompt: "May I write x?",
			Options: []string{"Yes", "Yes, and do not ask again", "No, tell me what to do"}, Fingerprint: "f",
		}
	})
	for _, c := range []struct{ input, label string }{
		{"yes", "Yes"},
		{"Y", "Yes"},
		{"2", "Yes, and do not ask again"},
		{"no.", "No, tell me what to do"},
		{"Yes, and", "Yes, and do not ask again"},
		{"go on with the tests", ""},
		{"4", ""},
		{"0", ""},
		{"ye", ""},
		{".", ""},
	} {
		r.fleet.typed = nil
		if c.label == "" {
			got, data := r.fails(call(""), "SEND_TO_AGENT", `{"input":"`+c.input+`"}`, verbs.AgentBlocked)
			if data["dialog"].(map[string]any)["fingerprint"] != "f" || !strings.Contains(got.Text, "No, tell me") || len(r.fleet.typed) != 0 {
				t.Errorf(`%q: %+v %v; want data["dialog"].(map[string]any)["fingerprint"] = "f", got.Text with "No, tell me", `+
					"len(r.fleet.typed) = 0", c.input, got, r.fleet.typed)
			}
			continue
		}
		r.ok(call(""), "SEND_TO_AGENT", `{"input":"`+c.input+`"}`)
		if !slices.Equal(r.fleet.typed, []string{"choose f " + c.label}) {
			t.Errorf(`%q: %q; want r.fleet.typed = []string{"choose f " + c.label}`, c.input, r.fleet.typed)
		}
	}
	got, data := r.ok(call(""), "LIST_AGENTS", `{}`)
	if s := data["sessions"].([]any)[0].(map[string]any); s["status"] != "blocked" || s["dialog"] == nil ||
		!strings.Contains(got.Text, "it asks: May I write x?") {
		t.Errorf(`%+v; want s["status"] = "blocked", s["dialog"] not nil, got.Text with "it asks: May I write x?"`, got)
	}
}

func TestNobodyFindsWhatOthersBegan(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, made := r.ok(call(""), "CREATE_TASK", `{"agents":"codex: write x"}`)
	thread := made["threadId"].(string)
	id := r.fleet.infos[0].ID
	other := verbs.Call{By: capability.Principal{ID: "agent:b", Role: capability.RoleAgent}}
	for _, c := range []struct {
		name, params string
		code         verbs.Code
	}{
		{"SEND_TO_AGENT", `{"sessionId":"` + id + `","input":"hello"}`, verbs.SessionNotFound},
		{"SEND_TO_AGENT", `{"input":"hello"}`, verbs.NoSession},
		{"STOP_AGENT", `{"sessionId":"` + id + `"}`, verbs.SessionNotFound},
		{"STOP_AGENT", `{"all":true}`, verbs.NoSession},
		{"TASK_CONTROL", `{"operation":"stop","threadId":"` + thread + `"}`, verbs.ThreadNotFound},
		{"TASK_CONTROL", `{"operation":"stop","sessionId":"` + id + `"}`, verbs.ThreadNotFound},
		{"TASK_CONTROL", `{"operation":"stop","search":"write"}`, verbs.ThreadNotFound},
		{"TASK_SHARE", `{"threadId":"` + thread + `"}`, verbs.ThreadNotFound},
	} {
		r.fails(other, c.name, c.params, c.code)
	}
	_, data := r.ok(other, "LIST_AGENTS", `{}`)
	if len(data["sessions"].([]any)) != 0 || len(data["tasks"].([]any)) != 0 {
		t.Errorf(`%v; want len(data["sessions"].([]any)) = 0, len(data["tasks"].([]any)) = 0`, data)
	}
	if got, _ := r.ok(other, "TASK_HISTORY", `{"metric":"count"}`); strings.Contains(got.Text, "1") {
		t.Errorf(`%+v; want got.Text without "1"`, got)
	}
	operator := verbs.Call{By: capability.Principal{ID: "operator:o", Role: capability.RoleOperator}}
	if _, data := r.ok(operator, "LIST_AGENTS", `{}`); len(data["sessions"].([]any)) != 1 {
		t.Errorf(`%v; want len(data["sessions"].([]any)) = 1`, data)
	}
}

func TestWhoIsAtWork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got, data := r.ok(call(""), "LIST_AGENTS", ``)
	if got.Text != "No agent is running." || len(data["sessions"].([]any)) != 0 ||
		data["preferredTaskAgent"].(map[string]any)["id"] != "codex" {
		t.Errorf(`%+v; want got.Text = "No agent is running.", len(data["sessions"].([]any)) = 0, `+
			`data["preferredTaskAgent"].(map[string]any)["id"] = "codex"`, got)
	}
	r.fails(call(""), "STOP_AGENT", `{}`, verbs.NoSession)
	r.fails(call(""), "STOP_AGENT", `{"all":true}`, verbs.NoSession)
	r.ok(call(""), "CREATE_TASK", `{"agents":"codex: write x | codex: write y"}`)
	r.ok(call(""), "SPAWN_AGENT", `{"agentType":"shell","label":"sh"}`)
	for at, state := range []detect.State{detect.Ready, detect.Busy} {
		r.fleet.set(at, func(i *agents.Info) { i.Status, i.ResumeToken, i.Metadata = state, "resume", []byte(`{"inner":1}`) })
	}
	if err := r.registry.PutPending(t.Context(), row.PendingDecision{
		SessionID: r.fleet.infos[0].ID, PromptText: "Overwrite?",
		LLMDecision: []byte(`{"action":"respond"}`),
	}); err != nil {
		t.Fatal(err)
	}
	got, data = r.ok(call(""), "show coding sessions", `{}`)
	var states []string
	for _, s := range data["sessions"].([]any) {
		one := s.(map[string]any)
		states = append(states, one["status"].(string))
		if one["resumeToken"] != nil || one["metadata"] != nil {
			t.Errorf(`%v; want one["resumeToken"] = nil, one["metadata"] = nil`, one)
		}
	}
	if !slices.Equal(states, []string{"idle", "working", "starting"}) || len(data["tasks"].([]any)) != 1 ||
		len(data["pendingConfirmations"].([]any)) != 1 || !strings.Contains(got.Text, "- write y: codex, working, in ") {
		t.Errorf(`%+v; want states = []string{"idle", "working", "starting"}, len(data["tasks"].([]any)) = 1, `+
			`len(data["pendingConfirmations"].([]any)) = 1, got.Text with "- write y: codex, working, in "`, got)
	}
	_, data = r.ok(call(""), "CANCEL_AGENT", `{}`)
	if data["sessionId"] != r.fleet.infos[2].ID || r.fleet.infos[2].Status != detect.Stopped {
		t.Errorf(`%v; want data["sessionId"] = r.fleet.infos[2].ID, r.fleet.infos[2].Status = detect.Stopped`, data)
	}
	if _, data = r.ok(call(""), "STOP_AGENT", `{"sessionId":"`+r.fleet.infos[2].ID+`"}`); len(data["stopped"].([]any)) != 0 {
		t.Errorf(`%v; want len(data["stopped"].([]any)) = 0`, data)
	}
	if _, data = r.ok(call(""), "STOP_AGENT", `{"all":true}`); len(data["stopped"].([]any)) != 2 {
		t.Errorf(`%v; want len(data["stopped"].([]any)) = 2`, data)
	}
}

func TestEveryNameIsOneVerbs(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, row := range verbs.Table() {
		for _, name := range append([]string{string(row.Name), string(row.Action)}, row.Aliases...) {
			if seen[name] {
				t.Errorf("%s is two", name)
			}
			seen[name] = true
			for _, spelled := range []string{name, strings.ToLower(name), " " + name + " "} {
				if spelled != name && name == string(row.Action) {
					continue
				}
				if got, _, ok := verbs.Lookup(spelled); !ok || got.Name != row.Name {
					t.Errorf("%q: %s; want ok = true, got.Name = %v", spelled, got.Name, row.Name)
				}
			}
		}
	}
	if _, _, ok := verbs.Lookup("MAKE_COFFEE"); ok {
		t.Error("MAKE_COFFEE")
	}
	if len(seen) != 11*2+70 {
		t.Errorf("%d names; want len(seen) = 11*2 + 70", len(seen))
	}
}

func TestTheAccessPolicyComesFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) { r.cfg.Policy = verbs.Parse(`{"default":{"create":"ADMIN","interact":"USER"}}`, "") })
	guest, user := call(""), call("")
	guest.UserRole, user.UserRole = "GUEST", "USER"
	for _, row := range verbs.Table() {
		r.fails(guest, string(row.Name), `{}`, verbs.Forbidden)
		_, err := r.service.Run(t.Context(), user, string(row.Name), nil)
		if forbidden := err != nil && capability.AsError(err).Reason == "forbidden"; forbidden != (row.Ability == verbs.Create) {
			t.Errorf("%s: %v; want forbidden = (row.Ability == verbs.Create)", row.Name, err)
		}
	}
	if _, err := r.service.Run(t.Context(), guest, "MAKE_COFFEE", nil); capability.CodeOf(err) != capability.CodeUnknownCapability {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnknownCapability", err)
	}
}

func TestWithoutItsPartsAVerbSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.service = verbs.New(verbs.Config{Choice: r.programs})
	for _, row := range verbs.Table() {
		r.fails(call(""), string(row.Name), `{}`, verbs.ServiceUnavailable)
	}
}

func TestThePromptsOfWhoDelegates(t *testing.T) {
	t.Parallel()
	r := newRig(t, withPlaces)
	r.ok(call(""), "PROVISION_WORKSPACE", `{"repo":"`+r.remote+`","label":"Widget"}`)
	r.ok(call(""), "CREATE_TASK", `{"task":"write the parser"}`)
	r.fleet.set(0, func(i *agents.Info) { i.Status, i.Blocker = detect.Blocked, &detect.Blocker{Prompt: "Overwrite?"} })
	if err := r.registry.PutPending(t.Context(), row.PendingDecision{
		SessionID: r.fleet.infos[0].ID, PromptText: "Say yes?",
		LLMDecision: []byte(`{}`),
	}); err != nil {
		t.Fatal(err)
	}
	text, err := r.service.Context(t.Context(), agent)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		": Say yes?\n", "blocked, asks: Overwrite?\n", "- write the parser (", "- Widget (", "- codex: installed",
		"Preferred program: codex",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s\nwant text with %v", part, text, part)
		}
	}
	if text, err = r.service.Examples(t.Context(), agent); err != nil || !strings.Contains(text, `"agentType": "codex"`) {
		t.Errorf(`%s %v; want no error, text with "\"agentType\": \"codex\""`, text, err)
	}
	if text, err = verbs.New(verbs.Config{Choice: r.programs}).Context(t.Context(), agent); err != nil ||
		!strings.Contains(text, "No agent is at work") {
		t.Errorf(`%s %v; want no error, text with "No agent is at work"`, text, err)
	}
}
