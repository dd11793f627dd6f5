package skill_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/nodes/skill"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	wire "github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
)

func TestScenario01BoundToAnAction(t *testing.T) {
	t.Parallel()
	r := device(t, nil)
	r.action("cam", "photo")
	out := r.must(pack("s", entry("take", "user.take", "device_action", "cam", "tags", []string{"b", "a"})))
	rec := out.InstalledSkills["s"].Capabilities["take"]
	if rec.ActionName == nil || *rec.ActionName != "cam" || rec.BindingMode != "device_action" || !rec.Registered || rec.CodeBinding != nil ||
		rec.MediaType != "application/json" {
		t.Errorf(`%+v; want rec.ActionName not nil, *rec.ActionName = "cam", rec.BindingMode = "device_action", rec.Registered `+
			`= true, rec.CodeBinding = nil, rec.MediaType = "application/json"`, rec)
	}
	same(t, "answer", r.answers("user.take"), `"photo"`)
	same(t, "refreshes", r.refreshes.Load(), 1)
	same(t, "functions", out.NodeFunctions, append(five(), "user.take"))
	f, _ := r.functions.Get("user.take")
	same(t, "tags", f.Tags, []string{"a", "b", "remote-agent", "s"})
	same(t, "description", f.Description, "does cam")
	same(t, "source", out.InstalledSkills["s"].Source, "server-agent")
	if out.NodeID != "n1" || !out.Changed || out.CapabilityHostStatus.InstalledSkillCount != 1 || len(r.received("skill_installed")) != 1 {
		t.Errorf(`%+v; want out.NodeID = "n1", out.Changed = true, out.CapabilityHostStatus.InstalledSkillCount = 1, `+
			`len(r.received("skill_installed")) = 1`, out)
	}
}

func TestScenario02UnknownAction(t *testing.T) {
	t.Parallel()
	r := device(t, nil)
	_, err := r.install(pack("s", entry("a", "f.a"), entry("b", "f.b")))
	w := wire.FromError(err, "n1", "", false)
	if w == nil || w.Code != wire.ReasonUnknownAction || w.Type != "KeyError" || w.Details["problems"] == nil {
		t.Errorf(`%+v; want w not nil, w.Code = wire.ReasonUnknownAction, w.Type = "KeyError", w.Details["problems"] not nil`, w)
	}
	same(t, "functions", r.names(), five())
	same(t, "skills", len(r.host.Installed()), 0)
}

func TestScenario03CodeTransferDisabled(t *testing.T) {
	t.Parallel()
	for _, prefers := range []bool{false, true} {
		r := device(t, func(c *skill.Config) { c.PreferCode = prefers })
		_, err := r.install(pack("s", entry("a", "f.a", "code_binding", code("x")), module("x: hi")))
		same(t, "reason", reason(err), wire.ReasonCodeDisabled)
		raw, err := r.call(wire.HostStatus, nil)
		var s wire.Status
		if err != nil || jsonx.Unmarshal(raw, &s) != nil || s.Flags.AllowTransferredCode || s.Flags.PreferTransferredCode != prefers {
			t.Errorf("%s %v; want no error, jsonx.Unmarshal(raw, &s) = nil, s.Flags.AllowTransferredCode = false, "+
				"s.Flags.PreferTransferredCode = %v", raw, err, prefers)
		}
		// With an action of its own it needs no code.
		r.action("a", "local")
		r.must(pack("s", entry("a", "f.a", "code_binding", code("x")), module("x: hi")))
		same(t, "answer", r.answers("f.a"), `"local"`)
	}
}

func TestScenario04BoundToCode(t *testing.T) {
	t.Parallel()
	r := device(t, allow)
	out := r.must(pack("s", entry("a", "f.a", "code_binding", code("x")), module("x: hi")))
	s := out.InstalledSkills["s"]
	c := s.Capabilities["a"]
	if c.BindingMode != "code_transfer" || c.ActionName != nil || c.CodeBinding == nil ||
		*c.CodeBinding != (wire.CodeBinding{ModuleID: "m", Export: "x"}) {
		t.Errorf(`%+v; want c.BindingMode = "code_transfer", c.ActionName = nil, c.CodeBinding not nil, *c.CodeBinding = `+
			`(wire.CodeBinding{ModuleID: "m", Export: "x"})`, c)
	}
	same(t, "modules", s.Metadata.RuntimeModules, []string{"m"})
	f, _ := r.functions.Get("f.a")
	same(t, "tags", f.Tags, []string{"code-transfer", "remote-agent", "s"})
	same(t, "description", f.Description, "Transferred runtime code from remote agent")
	same(t, "answer", r.answers("f.a"), `"hi"`)
	if f.Digest == "" || r.received("skill_installed")[0].Modules["m"] != f.Digest {
		t.Errorf(`the digest of the code that runs is known; want f.Digest other than "", `+
			`r.received("skill_installed")[0].Modules["m"] = %v`, f.Digest)
	}
}

// The test has a case for every row of the decision table of bindings.
func TestScenario05WhoWins(t *testing.T) {
	t.Parallel()
	const ok, missing, none = "ok", "missing", "none"
	for _, c := range []struct {
		prefer, allow, action bool
		binding               string
		want, warning         string
	}{
		{false, false, true, ok, "local", ""},
		{false, true, true, ok, "local", ""},
		{false, true, true, missing, "local", ""},
		{false, true, false, ok, "code", ""},
		{false, true, false, missing, wire.ReasonBinding, ""},
		{false, false, false, ok, wire.ReasonCodeDisabled, ""},
		{false, true, false, none, wire.ReasonUnknownAction, ""},
		{true, true, true, ok, "code", ""},
		{true, true, false, ok, "code", ""},
		{true, true, true, none, "local", ""},
		{true, true, true, missing, "local", wire.ReasonBinding},
		{true, true, false, none, wire.ReasonUnknownAction, ""},
		{true, true, false, missing, wire.ReasonBinding, ""},
		{true, false, true, ok, "local", ""},
		{true, false, false, ok, wire.ReasonCodeDisabled, ""},
		{true, false, false, none, wire.ReasonUnknownAction, ""},
	} {
		r := device(t, func(cfg *skill.Config) { cfg.AllowCode, cfg.PreferCode = c.allow, c.prefer })
		if c.action {
			r.action("a", "local")
		}
		e := entry("a", "f.a")
		switch c.binding {
		case ok:
			e = entry("a", "f.a", "code_binding", code("x"))
		case missing:
			e = entry("a", "f.a", "code_binding", code("not_there"))
		}
		out, err := r.install(pack("s", e, module("x: code")))
		got := reason(err)
		if err == nil {
			got = strings.Trim(r.answers("f.a"), `"`)
		}
		warning := ""
		if out != nil && len(out.Warnings) > 0 {
			warning = out.Warnings[0].Code
		}
		if got != c.want || warning != c.warning {
			t.Errorf("%+v: %s, %q; want got = %v, warning = %v", c, got, warning, c.want, c.warning)
		}
	}
}

func TestScenario06SecondCapabilityFails(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]map[string]any{
		"no action": entry("b", "f.b"), "export not there": entry("b", "f.b", "code_binding", code("y")),
		"reserved": entry("b", wire.HostStatus, "device_action", "a"),
	} {
		r := device(t, allow)
		r.action("a", "x")
		revision := r.functions.Revision()
		if out, err := r.install(pack("s", entry("a", "f.a"), second, module("x: 1"))); err == nil {
			t.Errorf("%s: %+v; want an error", name, out)
		}
		same(t, name, []any{r.names(), len(r.host.Installed()), r.refreshes.Load(), r.functions.Revision()}, []any{five(), 0, 0, revision})
		again := restarted(t, r.dir, r.actions, allow)
		same(t, name+", after a restart", len(again.host.Installed()), 0)
	}
}

func TestScenario07UpdateFails(t *testing.T) {
	t.Parallel()
	r := device(t, allow)
	r.action("a", "old")
	before := r.must(pack("s", entry("a", "f.a")))
	if _, err := r.install(pack("s", entry("a", "f.a"), entry("z", "f.z"))); reason(err) != wire.ReasonUnknownAction {
		t.Errorf("%v; want reason(err) = wire.ReasonUnknownAction", err)
	}
	if _, err := r.install(pack("s", entry("z", "f.z", "code_binding", code("y")), module("x: 1"))); reason(err) != wire.ReasonBinding {
		t.Errorf("%v; want reason(err) = wire.ReasonBinding", err)
	}
	same(t, "answer", r.answers("f.a"), `"old"`)
	same(t, "record", r.host.Installed()["s"], before.InstalledSkills["s"])
	if loads, released := r.runtime.counts(); loads != released {
		t.Errorf("what was loaded for nothing is released: %d %d; want loads = %v", loads, released, released)
	}
}

func TestScenario08UpdateDropsAnAlias(t *testing.T) {
	t.Parallel()
	r := device(t, nil)
	r.action("a", "kept")
	r.action("b", "dropped")
	r.must(pack("s", entry("a", "f.a"), entry("b", "f.b")))
	stop, done := make(chan struct{}), make(chan string, 1)
	go func() { // a caller that calls all the time
		for {
			select {
			case <-stop:
				done <- ""
				return
			default:
			}
			if got := r.answers("f.a"); got != `"kept"` {
				done <- got
				return
			}
		}
	}()
	for i := range 20 {
		p := pack("s", entry("a", "f.a"))
		p["description"] = fmt.Sprint(i)
		r.must(p)
	}
	close(stop)
	same(t, "the caller saw", <-done, "")
	same(t, "functions", r.names(), append(five(), "f.a"))
	same(t, "revision", r.host.Installed()["s"].Revision, 21)
}

func TestScenario09SamePayloadTwice(t *testing.T) {
	t.Parallel()
	r := device(t, nil)
	r.action("a", "x")
	first := r.must(pack("s", entry("a", "f.a")))
	revision := r.functions.Revision()
	p := pack("s", entry("a", "f.a"))
	p["created_at"] = "2026-11-20T15:17:19+00:00"
	second := r.must(p)
	if second.Changed || r.functions.Revision() != revision || second.InstalledSkills["s"].Revision != 1 || r.refreshes.Load() != 1 {
		t.Errorf(`%+v; want second.Changed = false, r.functions.Revision() = %v, second.InstalledSkills["s"].Revision = 1, `+
			"r.refreshes.Load() = 1", second, revision)
	}
	same(t, "record", second.InstalledSkills["s"], first.InstalledSkills["s"])
}

func TestScenario10KeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	r := device(t, allow)
	r.action("a", "old")
	r.action("gone", "stays")
	r.must(pack("s", entry("a", "f.a"), entry("gone", "f.gone")))
	r.action("a", "new")
	out := r.must(pack("s", entry("a", "f.a"), entry("b", "f.b", "code_binding", code("x")), module("x: added")), "replace_existing_skill",
		false)
	same(t, "answers", []string{r.answers("f.a"), r.answers("f.gone"), r.answers("f.b")}, []string{`"old"`, `"stays"`, `"added"`})
	if len(out.InstalledSkills["s"].Capabilities) != 3 || len(out.Warnings) != 1 || out.Warnings[0].Code != "kept" {
		t.Errorf(`%+v; want len(out.InstalledSkills["s"].Capabilities) = 3, len(out.Warnings) = 1, out.Warnings[0].Code = "kept"`, out)
	}
	again := restarted(t, r.dir, r.actions, allow)
	same(t, "after a restart", []string{again.answers("f.a"), again.answers("f.gone"), again.answers("f.b")},
		[]string{`"new"`, `"stays"`, `"added"`})
	gone := again.uninstall("s")
	same(t, "functions", gone.NodeFunctions, five())
}

func TestScenario11NameOfTheNode(t *testing.T) {
	t.Parallel()
	r := device(t, nil)
	r.action("a", "skill")
	if err := r.functions.Register(functions.Function{Name: "f.a", Handle: says("node")}, false); err != nil {
		t.Fatal(err)
	}
	out := r.must(pack("s", entry("a", "f.a"), entry("twin", "f.twin", "device_action", "a"), entry("twin2", "f.twin", "device_action", "a")))
	caps := out.InstalledSkills["s"].Capabilities
	if c := caps["a"]; c.Registered || !c.Conflict || len(out.Warnings) != 1 || out.Warnings[0].Code != "function_name_taken" ||
		!strings.Contains(out.Warnings[0].Message, "node") {
		t.Errorf("%+v; want c.Registered = false, c.Conflict = true, len(out.Warnings) = 1, out.Warnings[0].Code = "+
			`"function_name_taken", out.Warnings[0].Message with "node"`, out)
	}
	if !caps["twin"].Registered || caps["twin2"].Registered || caps["twin2"].Conflict {
		t.Errorf(`the first of two aliases has the name: %+v; want caps["twin"].Registered = true, caps["twin2"].Registered = `+
			`false, caps["twin2"].Conflict = false`, caps)
	}
	r.action("other", "x")
	out = r.must(pack("t", entry("other", "f.twin")))
	if c := out.InstalledSkills["t"].Capabilities["other"]; c.Registered || !c.Conflict {
		t.Errorf("another skill's name is left to it: %+v; want c.Registered = false, c.Conflict = true", c)
	}
	r.uninstall("t")
	r.uninstall("s")
	same(t, "answer", r.answers("f.a"), `"node"`)
}

func TestScenario12ReservedName(t *testing.T) {
	t.Parallel()
	r := device(t, nil)
	r.action("a", "x")
	if err := r.functions.Register(functions.Function{Name: "device.own", Owner: functions.OwnerHost, Handle: says("host")},
		false); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(five(), "device.own") {
		_, err := r.install(pack("s", entry("a", name)))
		same(t, name, reason(err), wire.ReasonReserved)
	}
	r.must(pack("s", entry("a", "device.camera.take_photo")))
	same(t, "others", r.answers("device.camera.take_photo"), `"x"`)
}

func TestScenario13TextAndBytes(t *testing.T) {
	t.Parallel()
	object, _ := jsonx.Marshal(pack("s", entry("a", "f.a")))
	var want string
	for name, p := range map[string]any{"object": json.RawMessage(object), "text": string(object), "bytes": wire.BytesValue(object)} {
		r := device(t, nil)
		r.action("a", "x")
		rec := r.must(p).InstalledSkills["s"]
		got := fmt.Sprint(rec.SHA256, rec.Capabilities["a"].FunctionName, rec.Capabilities["a"].Registered)
		if want == "" {
			want = got
		}
		same(t, name, got, want)
	}
	r := device(t, nil)
	for _, p := range []any{[]int{1}, 7, "{", "[]", true} {
		_, err := r.install(p)
		same(t, fmt.Sprint(p), reason(err), wire.ReasonPayload)
	}
	_, err := r.call(wire.InstallSkill, map[string]any{})
	same(t, "nothing", reason(err), wire.ReasonParams)
	_, err = r.call(wire.InstallSkill, map[string]any{"skill_payload": 1, "other": 1})
	same(t, "an argument that is not known", reason(err), wire.ReasonParams)
}

func TestScenario14EachItsCode(t *testing.T) {
	t.Parallel()
	r := device(t, nil)
	r.action("a", "x")
	for want, change := range map[string]func(p map[string]any){
		wire.ReasonSchema:  func(p map[string]any) { p["schema"] = "x" },
		wire.ReasonVersion: func(p map[string]any) { p["version"] = "9.9" },
		wire.ReasonPayload: func(p map[string]any) { p["capabilities"] = map[string]any{} },
		wire.ReasonDuplicateAlias: func(p map[string]any) {
			p["capabilities"] = []any{entry("a", "f.a"), entry("a", "f.b")}
		},
	} {
		p := pack("s", entry("a", "f.a"))
		change(p)
		_, err := r.install(p)
		same(t, want, reason(err), want)
	}
	_, err := r.install(pack("s", entry("a", "f.a")), "expected_sha256", strings.Repeat("0", 64))
	same(t, "expected digest", reason(err), wire.ReasonDigest)
	_, err = r.install(pack("s", entry("a", "f.a")), "replace_existing_skill", "no")
	same(t, "boolean", reason(err), wire.ReasonParams)
	same(t, "nothing happened", []any{r.names(), len(r.host.Installed())}, []any{five(), 0})
}

func TestScenario15NoCodeRan(t *testing.T) {
	t.Parallel()
	wrong := module("x: 1")
	wrong["sha256"] = strings.Repeat("0", 64)
	cobol := module("x: 1")
	cobol["language"] = "cobol"
	python := module("x: 1")
	delete(python, "language")
	large := module("x: " + strings.Repeat("x", 200_000))
	var nine, five []map[string]any
	for i := range 9 {
		m := module("x: 1")
		m["module_id"] = fmt.Sprint("m", i)
		nine = append(nine, m)
	}
	for i := range 5 {
		m := module("x: " + strings.Repeat("x", 165_000))
		m["module_id"] = fmt.Sprint("m", i)
		five = append(five, m)
	}
	for name, c := range map[string]struct {
		modules []map[string]any
		want    string
	}{
		"hash": {[]map[string]any{wrong}, wire.ReasonDigest}, "nine": {nine, wire.ReasonCodeTooLarge},
		"large": {[]map[string]any{large}, wire.ReasonCodeTooLarge},
		"total": {five, wire.ReasonCodeTooLarge}, "cobol": {[]map[string]any{cobol}, wire.ReasonLanguage},
		"python by default": {[]map[string]any{python}, wire.ReasonLanguage},
	} {
		r := device(t, prefer)
		id := c.modules[0]["module_id"]
		all := append([]map[string]any{entry("a", "f.a", "code_binding", map[string]any{"module_id": id, "export": "x"})}, c.modules...)
		_, err := r.install(pack("s", all...))
		loads, _ := r.runtime.counts()
		same(t, name, []any{reason(err), loads}, []any{c.want, 0})
		// Where none of it is used, it does not matter.
		r.action("a", "local")
		quiet := device(t, nil)
		quiet.action("a", "local")
		quiet.must(pack("s", all...))
		same(t, name+" unused", quiet.answers("f.a"), `"local"`)
	}
}

func TestScenario16TwoInstallsAtOnce(t *testing.T) {
	t.Parallel()
	r := device(t, allow)
	var inside, most int
	var mu sync.Mutex
	r.runtime.loading = func() {
		mu.Lock()
		inside++
		most = max(most, inside)
		mu.Unlock()
		goruntime.Gosched() // so that another could come in
		mu.Lock()
		inside--
		mu.Unlock()
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if _, err := r.install(pack(fmt.Sprint("s", i), entry("a", fmt.Sprint("f.", i), "code_binding", code("x")),
				module("x: hi"))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	same(t, "at once", most, 1)
	same(t, "skills and functions", []int{len(r.host.Installed()), len(r.names())}, []int{8, 13})
}

func TestScenario17Restart(t *testing.T) {
	t.Parallel()
	o := &owner{answer: "grant"}
	with := func(c *skill.Config) { c.AllowCode, c.Owner = true, o }
	r := device(t, with)
	r.action("a", "here")
	r.action("b", "soon gone")
	r.must(pack("one", entry("a", "f.a", "requires_user_consent", true), entry("b", "f.b")))
	r.must(pack("two", entry("c", "f.c", "code_binding", code("x")), module("x: code")))
	r.uninstall("three")
	before := r.host.Installed()

	again := restarted(t, r.dir, r.actions, with)
	same(t, "records", again.host.Installed(), before)
	same(t, "answers", []string{again.answers("f.a"), again.answers("f.b"), again.answers("f.c")}, []string{`"here"`, `"soon gone"`, `"code"`})
	same(t, "questions", len(o.questions()), 1)

	later := device(t, nil)
	later.action("a", "here")
	less := restarted(t, r.dir, later.actions, func(c *skill.Config) { c.Owner = o }) // the action b and code are gone
	one, two := less.host.Installed()["one"], less.host.Installed()["two"]
	same(t, "states", []string{one.State, two.State}, []string{"degraded", "degraded"})
	same(t, "errors", []string{one.Capabilities["b"].Error.Code, two.Capabilities["c"].Error.Code},
		[]string{wire.ReasonUnknownAction, wire.ReasonCodeDisabled})
	same(t, "others", []any{less.answers("f.a"), less.answers("f.b"), one.Capabilities["a"].Error == nil},
		[]any{`"here"`, wire.ReasonFunctionNotFound, true})
	same(t, "status", less.host.Status(false, false).DegradedSkills, []string{"one", "two"})

	less.action("b", "back")
	out := less.must(pack("one", entry("a", "f.a", "requires_user_consent", true), entry("b", "f.b")))
	same(t, "mended", []any{out.Changed, out.InstalledSkills["one"].State, less.answers("f.b"), len(o.questions())},
		[]any{true, "active", `"back"`, 1})
}

func TestScenario18Uninstall(t *testing.T) {
	t.Parallel()
	r := device(t, allow)
	r.action("a", "x")
	r.must(pack("s", entry("a", "f.a"), entry("b", "f.b", "code_binding", code("x")), module("x: 1")))
	out := r.uninstall(" s ")
	if out.SkillName != "s" || !out.Uninstalled || len(out.InstalledSkills) != 0 || out.CapabilityHostStatus.InstalledSkillCount != 0 {
		t.Errorf(`%+v; want out.SkillName = "s", out.Uninstalled = true, len(out.InstalledSkills) = 0, `+
			"out.CapabilityHostStatus.InstalledSkillCount = 0", out)
	}
	same(t, "functions", []any{out.NodeFunctions, r.names(), r.answers("f.a")}, []any{five(), five(), wire.ReasonFunctionNotFound})
	same(t, "refreshes", r.refreshes.Load(), 2)
	_, released := r.runtime.counts()
	same(t, "released", released, 1)
	same(t, "after a restart", len(restarted(t, r.dir, r.actions, allow).host.Installed()), 0)
}

func TestScenario19UninstallUnknown(t *testing.T) {
	t.Parallel()
	r := device(t, nil)
	out := r.uninstall("nobody")
	if out.Uninstalled || out.SkillName != "nobody" || r.refreshes.Load() != 0 {
		t.Errorf(`%+v; want out.Uninstalled = false, out.SkillName = "nobody", r.refreshes.Load() = 0`, out)
	}
	for _, kwargs := range []any{map[string]any{"skill_name": "  "}, map[string]any{}, map[string]any{"skill_name": 1}} {
		_, err := r.call(wire.UninstallSkill, kwargs)
		same(t, "empty", reason(err), wire.ReasonParams)
	}
	r.action("a", "x")
	r.must(pack("s", entry("a", "f.a")))
	raw, err := r.call(wire.UninstallSkill, []any{"s", 0}) // by place
	if err != nil || !strings.Contains(string(raw), `"uninstalled":true`) || r.answers("f.a") != `"x"` {
		t.Errorf(`%s %v; want no error, string(raw) with "\"uninstalled\":true", r.answers("f.a") = "\"x\""`, raw, err)
	}
}

func TestScenario20LeavesFunctions(t *testing.T) {
	t.Parallel()
	r := device(t, allow)
	p := pack("s", entry("b", "f.b", "code_binding", code("x")), module("x: still here"))
	r.must(p)
	out := r.uninstall("s", "unregister_functions", false)
	same(t, "left", []any{out.NodeFunctions, r.answers("f.b")}, []any{append(five(), "f.b"), `"still here"`})
	list, _ := r.functions.List(false)
	same(t, "owner", list[len(list)-1].Owner, "orphan:s")
	_, released := r.runtime.counts()
	same(t, "released", released, 0)
	r.action("b2", "x")
	taken := r.must(pack("other", entry("b2", "f.b")))
	same(t, "another skill cannot have it", taken.InstalledSkills["other"].Capabilities["b2"].Registered, false)
	again := r.must(p)
	same(t, "adopted", again.InstalledSkills["s"].Capabilities["b"].Registered, true)
	r.uninstall("s")
	same(t, "gone", r.names(), five())
	loads, released := r.runtime.counts()
	same(t, "released", []int{loads, released}, []int{2, 2})
}

func TestScenario21UninstallDuringACall(t *testing.T) {
	t.Parallel()
	r := device(t, nil)
	running, finish := make(chan struct{}), make(chan struct{})
	err := r.actions.Register(actionOf("slow", func(ctx context.Context, _ functions.Call) (json.RawMessage, error) {
		close(running)
		select {
		case <-finish:
			return json.RawMessage(`"done"`), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	r.must(pack("s", entry("slow", "f.slow")))
	got := make(chan string, 1)
	go func() { got <- r.answers("f.slow") }()
	<-running
	r.uninstall("s")
	same(t, "new calls", r.answers("f.slow"), wire.ReasonFunctionNotFound)
	close(finish)
	same(t, "the running call", <-got, `"done"`)
}

func TestScenario30WhatIsReturnedIsACopy(t *testing.T) {
	t.Parallel()
	r := device(t, allow)
	r.must(pack("s", entry("b", "f.b", "k", 1, "code_binding", code("x")), module("x: 1")))
	before, _ := jsonx.Marshal(r.host.Installed())
	got := r.host.Installed()
	c := got["s"].Capabilities["b"]
	c.Metadata[1] = 'X'
	c.CodeBinding.Export = "other"
	got["s"].Metadata.RuntimeModules[0] = "other"
	got["s"].Capabilities["new"] = c
	delete(got, "s")
	list := r.host.ListFunctions()
	list.Functions[0].Tags[0] = "other"
	status := r.host.Status(true, true)
	(*status.InstalledSkills)["x"] = wire.Record{}
	after, _ := jsonx.Marshal(r.host.Installed())
	same(t, "records", string(after), string(before))
	same(t, "tags", slices.Contains(r.host.ListFunctions().Functions[0].Tags, "other"), false)
}

func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	o := &owner{answer: "deny"}
	r := device(t, func(c *skill.Config) { c.AllowCode, c.Owner = true, o })
	out := r.must(pack("s", entry("a", "f.a", "requires_user_consent", true, "code_binding", code("x")), module("x: 1")), "dry_run", true)
	if !out.DryRun || !out.Changed || !out.InstalledSkills["s"].Capabilities["a"].Registered {
		t.Errorf(`%+v; want out.DryRun = true, out.Changed = true, out.InstalledSkills["s"].Capabilities["a"].Registered = true`, out)
	}
	loads, _ := r.runtime.counts()
	same(t, "nothing", []any{r.names(), len(r.host.Installed()), loads, len(o.questions()), r.refreshes.Load()}, []any{five(), 0, 0, 0, 0})
}

func TestAFailedRefreshIsAWarning(t *testing.T) {
	t.Parallel()
	r := device(t, func(c *skill.Config) {
		c.Refresh = func(context.Context) error { return fmt.Errorf("the gateway is away") }
	})
	r.action("a", "x")
	out := r.must(pack("s", entry("a", "f.a")))
	same(t, "warning", out.Warnings[0].Code, "registration_refresh_failed")
	same(t, "installed", r.answers("f.a"), `"x"`)
}

func TestStreamMismatchIsAWarning(t *testing.T) {
	t.Parallel()
	r := device(t, nil)
	r.action("a", "x")
	e := entry("a", "f.a")
	e["stream"], e["timeout"] = true, 1.5
	out := r.must(pack("s", e))
	f, _ := r.functions.Get("f.a")
	if len(out.Warnings) != 1 || out.Warnings[0].Code != "stream_mismatch" || f.Stream || !slices.Contains(f.Tags, "stream") ||
		f.Timeout != 1500*time.Millisecond || !out.InstalledSkills["s"].Capabilities["a"].Stream {
		t.Errorf(`%+v %+v; want len(out.Warnings) = 1, out.Warnings[0].Code = "stream_mismatch", f.Stream = false, f.Tags with `+
			`"stream", f.Timeout = 1500 * time.Millisecond, out.InstalledSkills["s"].Capabilities["a"].Stream = true`, out.Warnings,
			f.Function)
	}
}

func TestCodeByReference(t *testing.T) {
	t.Parallel()
	source := []byte("x: from afar")
	m := module(string(source))
	fetched := 0
	with := func(c *skill.Config) {
		c.AllowCode = true
		c.Assets = func(context.Context, wire.Asset) ([]byte, error) { fetched++; return source, nil }
	}
	r := device(t, with)
	digest, _ := digestOf(source)
	delete(m, "source")
	m["asset"] = map[string]any{"digest": "sha256:" + digest, "size": len(source)}
	p := pack("s", entry("a", "f.a", "code_binding", code("x")), m)
	r.must(p)
	same(t, "answer", r.answers("f.a"), `"from afar"`)
	again := restarted(t, r.dir, r.actions, allow) // the gateway may be away then
	same(t, "after a restart", []any{again.answers("f.a"), fetched}, []any{`"from afar"`, 1})
	source = []byte("x: from elsew")
	_, err := device(t, with).install(p)
	same(t, "other bytes", reason(err), wire.ReasonDigest)
	_, err = device(t, allow).install(p)
	same(t, "nobody fetches", reason(err), wire.ReasonPayload)
}

func TestLimitsOfAHost(t *testing.T) {
	t.Parallel()
	r := device(t, func(c *skill.Config) { c.AllowCode, c.Limits = true, &wire.Limits{Payload: 2000} })
	_, err := r.install(pack("s", entry("a", "f.a", "code_binding", code("x")), module("x: 1")))
	same(t, "no module", reason(err), wire.ReasonCodeTooLarge)
	p := pack("s")
	p["description"] = strings.Repeat("x", 2000)
	_, err = r.install(p)
	same(t, "payload", reason(err), wire.ReasonTooLarge)
	same(t, "shown", r.host.Status(false, false).Limits, wire.Limits{Payload: 2000})
}

func TestAddingToADegradedSkillMendsIt(t *testing.T) {
	t.Parallel()
	r := device(t, nil)
	r.action("a", "x")
	r.action("b", "y")
	r.must(pack("s", entry("a", "f.a"), entry("b", "f.b")))
	less := device(t, nil)
	less.action("a", "x")
	again := restarted(t, r.dir, less.actions, nil)
	same(t, "degraded", again.host.Installed()["s"].State, "degraded")
	p := pack("s", entry("a", "f.a"))
	p["description"] = "b is not in it"
	same(t, "still", again.must(p, "replace_existing_skill", false).InstalledSkills["s"].State, "degraded")
	again.action("b", "back")
	out := again.must(pack("s", entry("a", "f.a"), entry("b", "f.b")), "replace_existing_skill", false)
	same(t, "mended", []any{out.InstalledSkills["s"].State, again.answers("f.a"), again.answers("f.b")}, []any{"active", `"x"`, `"back"`})
}

func TestSignaturesOfKnownKeys(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	o := &owner{answer: "grant"}
	r := device(t, func(c *skill.Config) {
		c.Owner = o
		c.Keys = func(id string) ed25519.PublicKey {
			return map[string]ed25519.PublicKey{"ours": public}[id]
		}
	})
	r.action("a", "x")
	sign := func(name, key string) json.RawMessage {
		raw, _ := jsonx.Marshal(pack(name, consenting()))
		signed, err := payload.Sign(raw, key, private)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	r.must(sign("one", "ours"))
	r.must(sign("two", "theirs"))
	q := o.questions()
	same(t, "signed by", []string{q[0].SignedBy, q[1].SignedBy}, []string{"ours", ""})
	_, err = r.install(json.RawMessage(strings.Replace(string(sign("three", "ours")), `"f.a"`, `"f.b"`, 1)))
	same(t, "changed", reason(err), wire.ReasonDigest)
}
