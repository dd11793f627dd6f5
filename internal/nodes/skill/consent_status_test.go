package skill_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/nodes/skill"
	"github.com/junctor-run/junctor/internal/nodes/skill/deviceaction"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	wire "github.com/junctor-run/junctor/protocol/cmp"
)

func actionOf(name string, handle functions.Handler) deviceaction.Action {
	return deviceaction.Action{Name: name, Handle: handle}
}

func digestOf(b []byte) (string, error) {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

func consenting() map[string]any { return entry("a", "f.a", "requires_user_consent", true) }

func TestScenario22NobodyToAsk(t *testing.T) {
	t.Parallel()
	r := device(t, nil)
	r.action("a", "x")
	_, err := r.install(pack("s", consenting()))
	w := wire.FromError(err, "", "", false)
	if w == nil || w.Code != wire.ReasonConsentRequired || w.Type != "PermissionError" || w.Details["request_id"] == "" {
		t.Errorf(`%+v; want w not nil, w.Code = wire.ReasonConsentRequired, w.Type = "PermissionError", w.Details["request_id"] `+
			`other than ""`, w)
	}
	same(t, "functions", r.names(), five())
	r = device(t, func(c *skill.Config) { c.Owner = &owner{err: skill.ErrNobody} })
	r.action("a", "x")
	_, err = r.install(pack("s", consenting()))
	same(t, "not now", reason(err), wire.ReasonConsentRequired)
	r = device(t, func(c *skill.Config) { c.AutoConsent = true })
	r.action("a", "x")
	out := r.must(pack("s", consenting()))
	if c := out.InstalledSkills["s"].Consent; !c.Required || c.By != "auto" || c.GrantedAt == "" {
		t.Errorf(`%+v; want c.Required = true, c.By = "auto", c.GrantedAt other than ""`, c)
	}
}

func TestScenario23TheOwnerDecides(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"deny": wire.ReasonConsentDenied, "": wire.ReasonConsentDenied,
		"perhaps": wire.ReasonConsentDenied, "grant": "", "grant_once": "",
	} {
		r := device(t, func(c *skill.Config) { c.AutoConsent, c.Owner = true, &owner{answer: answer} })
		r.action("a", "x")
		_, err := r.install(pack("s", consenting()))
		same(t, answer, []any{reason(err), len(r.host.Installed())}, []any{want, map[bool]int{true: 1}[want == ""]})
		same(t, "events", len(r.received("confirmation_requested"))+len(r.received("confirmation_answered")), 2)
	}
}

func TestScenario24AskedBeforeCodeIsLoaded(t *testing.T) {
	t.Parallel()
	o := &owner{answer: "grant"}
	r := device(t, func(c *skill.Config) { c.AllowCode, c.Owner = true, o })
	o.during = func(skill.Question) {
		if loads, _ := r.runtime.counts(); loads != len(o.asked)-1 {
			t.Errorf("code was loaded before the owner was asked; got loads = %v; want loads = len(o.asked) - 1", loads)
		}
	}
	p := pack("s", consenting(), entry("b", "f.b", "requires_user_consent", true, "code_binding", code("x")),
		entry("c", "f.c", "code_binding", code("x")), module("x: 1"))
	r.action("a", "x")
	r.must(p)
	q := o.questions()
	if len(q) != 1 || len(q[0].Capabilities) != 2 || len(q[0].Code) != 1 || q[0].Code[0].Bytes != 4 || q[0].NodeID != "n1" ||
		q[0].SHA256 == "" || q[0].RequestID == "" || !q[0].ExpiresAt.After(time.Now()) {
		t.Fatalf("%+v", q)
	}
	r.must(p)
	same(t, "the same payload", len(o.questions()), 1)
	p["description"] = "changed"
	r.must(p)
	same(t, "another payload", len(o.questions()), 2)

	o.answer, o.during = "deny", nil
	p["description"] = "again"
	loads, _ := r.runtime.counts()
	_, err := r.install(p)
	after, _ := r.runtime.counts()
	same(t, "refused", []any{reason(err), after}, []any{wire.ReasonConsentDenied, loads})
	same(t, "the old one stays", r.answers("f.c"), `"1"`)
}

func TestConsentForEveryCall(t *testing.T) {
	t.Parallel()
	o := &owner{answer: "grant"}
	r := device(t, func(c *skill.Config) { c.Owner = o })
	r.action("a", "x")
	r.must(pack("s", entry("a", "f.a", "consent_every_call", true)))
	same(t, "granted", r.answers("f.a"), `"x"`)
	o.answer = "deny"
	same(t, "denied", r.answers("f.a"), wire.ReasonConsentDenied)
	q := o.questions()
	same(t, "questions", []any{len(q), q[0].Call, q[0].Capabilities[0].Alias}, []any{2, true, "a"})
	if q[0].Caller == "" || !json.Valid(q[0].Arguments) {
		t.Errorf("the question is %+v, want its caller and arguments", q[0])
	}
}

type silent struct{ wait time.Duration }

func (s *silent) Interactive() bool { return true }

func (s *silent) Ask(ctx context.Context, q skill.Question) (skill.Answer, error) {
	s.wait = time.Until(q.ExpiresAt)
	<-ctx.Done()
	return skill.Answer{}, ctx.Err()
}

func TestSilenceIsNo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(silent)
		r := device(t, func(c *skill.Config) { c.Owner = s })
		r.action("a", "x")
		began := time.Now()
		_, err := r.install(pack("s", consenting()))
		same(t, "two minutes", []any{reason(err), time.Since(began)}, []any{wire.ReasonConsentDenied, skill.AskTimeout})
		began = time.Now()
		_, err = r.install(pack("s", consenting()), "wait_for_consent_seconds", 3)
		same(t, "as long as the caller waits", []any{reason(err), time.Since(began)}, []any{wire.ReasonConsentDenied, 3 * time.Second})
	})
}

func TestASecondInstallWaitsTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := device(t, func(c *skill.Config) { c.Owner = new(silent) })
		r.action("a", "x")
		first := make(chan error, 1)
		go func() {
			_, err := r.install(pack("s", consenting()))
			first <- err
		}()
		synctest.Wait()
		began := time.Now()
		_, err := r.install(pack("t", entry("a", "f.t")))
		same(t, "second", []any{reason(err), time.Since(began)}, []any{wire.ReasonInstalling, 10 * time.Second})
		same(t, "first", reason(<-first), wire.ReasonConsentDenied)
	})
}

func TestScenario25FreshHost(t *testing.T) {
	t.Parallel()
	r := device(t, nil)
	raw, err := r.call(wire.HostStatus, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"node_id":"n1",
 "flags":{"auto_refresh_registration":true,"prefer_transferred_code":false,"allow_transferred_code":false,"auto_consent":false,"consent_interactive":false},
 "action_count":0,"installed_skill_count":0,
 "sandbox":{"attempted":false,"path":null,"loaded":false,"actions_registered":0,"error":null,"error_type":null,"attempted_at":null},
 "sandbox_module_count":0,
 "languages":{"javascript":{"available":true},"wasm":{"available":true},"python":{"available":false,"reason":"it is not allowed here"}},
 "limits":{"max_runtime_modules":8,"max_runtime_module_source_bytes":200000,"max_total_runtime_source_bytes":800000,"max_payload_bytes":1048576},
 "os":"` + goruntime.GOOS + `","arch":"` + goruntime.GOARCH + `","version":"test","protocol_version":1,"degraded_skills":[],"epoch":0}`
	var got, expected any
	if json.Unmarshal(raw, &got) != nil || json.Unmarshal([]byte(want), &expected) != nil {
		t.Fatal("no JSON; want json.Unmarshal(raw, &got) = nil, json.Unmarshal([]byte(want), &expected) = nil")
	}
	if diff := gocmp.Diff(expected, got); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	nameless := device(t, func(c *skill.Config) { c.Node = "" })
	same(t, "no node", nameless.host.Status(false, false).NodeID == nil, true)
	raw, _ = nameless.call(wire.ListSkills, nil)
	same(t, "nothing installed", string(raw), "{}")
}

func (r *rig) status(kwargs any) (s wire.Status, members map[string]json.RawMessage) {
	r.t.Helper()
	raw, err := r.call(wire.HostStatus, kwargs)
	if err != nil || jsonx.Unmarshal(raw, &s) != nil || jsonx.Unmarshal(raw, &members) != nil {
		r.t.Fatalf("%v; want no error, jsonx.Unmarshal(raw, &s) = nil, jsonx.Unmarshal(raw, &members) = nil", err)
	}
	return s, members
}

func TestScenario26MissingFolder(t *testing.T) {
	t.Parallel()
	r := device(t, nil)
	r.action("a", "x")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "missing"), file} {
		r.actions.TryLoad(t.Context(), deviceaction.Folder{Path: path})
		s, _ := r.status(nil)
		if b := s.Sandbox; !b.Attempted || b.Loaded || b.ErrorType == nil || *b.ErrorType != "NotADirectoryError" ||
			*b.Path != filepath.Base(path) || b.AttemptedAt == nil || b.Error == nil {
			t.Errorf(`%+v; want b.Attempted = true, b.Loaded = false, b.ErrorType not nil, *b.ErrorType = "NotADirectoryError", `+
				"*b.Path = filepath.Base(path), b.AttemptedAt not nil, b.Error not nil", b)
		}
	}
	r.must(pack("s", entry("a", "f.a")))
	same(t, "it serves", r.answers("f.a"), `"x"`)
}

func TestScenario28IncludeFlags(t *testing.T) {
	t.Parallel()
	r := device(t, nil)
	r.action("b", "x")
	r.action("a", "x")
	r.must(pack("s", entry("a", "f.a")))
	for name, c := range map[string]struct {
		kwargs          map[string]any
		actions, skills bool
	}{
		"none": {nil, false, false}, "actions": {map[string]any{"include_actions": true}, true, false},
		"skills": {map[string]any{"include_installed_skills": "true"}, false, true},
		"both":   {map[string]any{"include_actions": 1, "include_installed_skills": true}, true, true},
	} {
		s, members := r.status(c.kwargs)
		_, actions := members["actions"]
		_, skills := members["installed_skills"]
		same(t, name, []bool{actions, skills}, []bool{c.actions, c.skills})
		if c.actions && (*s.Actions)["a"].Description != "does a" {
			t.Errorf(`%+v; want not (c.actions && (*s.Actions)["a"].Description != "does a")`, s.Actions)
		}
	}
	_, err := r.call(wire.HostStatus, map[string]any{"include_all": true})
	same(t, "unknown", reason(err), wire.ReasonParams)
}

func TestScenario29ListsFunctions(t *testing.T) {
	t.Parallel()
	r := device(t, nil)
	r.action("a", "x")
	r.must(pack("s", entry("a", "a.first"), entry("z", "z.last", "device_action", "a")))
	raw, err := r.call(wire.ListFunctions, nil)
	var out wire.Functions
	if err != nil || jsonx.UnmarshalStrict(raw, &out) != nil {
		t.Fatalf("%v; want no error, jsonx.UnmarshalStrict(raw, &out) = nil", err)
	}
	var names []string
	for _, f := range out.Functions {
		names = append(names, f.Name)
		if f.Version != "1.0.0" || f.Priority != 5 || f.ExecutionMode != "normal" || f.TimeoutSeconds != nil || f.Tags == nil {
			t.Errorf(`%+v; want f.Version = "1.0.0", f.Priority = 5, f.ExecutionMode = "normal", f.TimeoutSeconds = nil, f.Tags not nil`,
				f)
		}
	}
	if !slices.IsSorted(names) || out.FunctionCount != 7 || len(names) != 7 || out.NodeID != "n1" {
		t.Errorf(`%+v; want slices.IsSorted(names), out.FunctionCount = 7, len(names) = 7, out.NodeID = "n1"`, names)
	}
	for _, reserved := range wire.Reserved() {
		at := slices.Index(names, reserved.Name)
		if at < 0 || out.Functions[at].Owner != "host" || out.Functions[at].Effect != reserved.Effect ||
			!slices.Equal(out.Functions[at].Tags, reserved.Tags) {
			t.Errorf(`%s: %+v; want at at least 0, out.Functions[at].Owner = "host", out.Functions[at].Effect = %v, `+
				"out.Functions[at].Tags = %v", reserved.Name, out.Functions, reserved.Effect, reserved.Tags)
		}
	}
	same(t, "owner", out.Functions[0].Owner, "skill:s")
	same(t, "twice", skill.RegisterReserved(r.host, r.functions, "", false) != nil, true)
	same(t, "twice, replacing", skill.RegisterReserved(r.host, r.functions, "", true), nil)
}

// Consent to an addition is not consent to the whole payload.
func TestAYesToAPartIsNoneToTheWhole(t *testing.T) {
	t.Parallel()
	o := &owner{answer: "grant"}
	with := func(c *skill.Config) { c.Owner = o }
	r := device(t, with)
	r.action("a", "x")
	r.action("b", "y")
	r.must(pack("s", entry("a", "f.a")))
	both := pack("s", consenting(), entry("b", "f.b", "requires_user_consent", true))
	r.must(both, "replace_existing_skill", false)
	same(t, "asked", len(o.questions()[0].Capabilities), 1)
	less := device(t, nil)
	again := restarted(t, r.dir, less.actions, with) // degraded: no action is there
	again.action("a", "x")
	again.action("b", "y")
	again.must(both)
	same(t, "asked for the whole", []int{len(o.questions()), len(o.questions()[1].Capabilities)}, []int{2, 2})
}
