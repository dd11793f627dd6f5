package attack

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestF9 greps the live files as the seed tells people to.
func TestF9(t *testing.T) {
	t.Parallel()
	s := anywhere(t)
	c := s.somebody(t, "admin")
	p := pack{
		id: "tools.fnine", permissions: []string{"exec"},
		actions: "    - {id: say, description: Say, runner: exec.echo, argv: ['{args}']}\n    - {id: bad, description: Fail, runner: exec.ls, argv: [/nonexistent]}\n    - {id: up, description: Rights, runner: exec.sudo, argv: [id]}\n",
	}
	if err := s.install(t.Context(), c, p, t); err != nil {
		t.Fatal(err)
	}
	for _, action := range []string{"say", "bad", "up"} {
		r := s.run(t.Context(), c, "f9", "/fnine "+action)
		if (r.Err == nil) != (action == "say") {
			t.Errorf(`%s: %v; want (r.Err == nil) = (action == "say")`, action, r.Err)
		}
	}

	logs := filepath.Join(s.home, "logs")
	for _, one := range []struct{ pattern, file string }{
		{"capability_executed", "capabilities.log"},
		{"capability_failed", "capabilities.log"},
		{`"extension_id": "tools.fnine"`, "capabilities.log"},
		{"security_violation", "security.log"},
		{`"event": "security_violation"`, "capabilities.log"},
	} {
		until(t, fmt.Sprintf("grep %q %s", one.pattern, one.file), func() bool { // the copies follow the chain within moments
			out, err := exec.CommandContext(t.Context(), "grep", one.pattern, filepath.Join(logs, one.file)).CombinedOutput()
			return err == nil && strings.Contains(string(out), "tools.fnine")
		})
	}
	if out, code := s.command(t, s.home, "audit", "verify"); code != 0 {
		t.Errorf("audit verify: %d %s; want code = 0", code, out)
	}
	if err := s.uninstall(t.Context(), c, p.id); err != nil {
		t.Error(err)
	}
}

// TestF11 spends a grant for one call from fifty sides.
func TestF11(t *testing.T) {
	t.Parallel()
	s := anywhere(t)
	admin, agent := s.somebody(t, "admin"), s.somebody(t, "agent")
	p := pack{id: "tools.once", permissions: []string{"exec"}, actions: "    - {id: say, description: Say, runner: exec.echo, argv: ['{args}']}\n"}
	if err := s.install(t.Context(), admin, p, t); err != nil {
		t.Fatal(err)
	}
	if r := s.run(t.Context(), agent, "f11", "/once say x"); r.Err == nil || r.Err.Code != "approval_required" {
		t.Fatalf(`without a grant: %v; want r.Err not nil, r.Err.Code = "approval_required"`, r.Err)
	}
	if err := admin.Do(t.Context(), http.MethodPost, "/api/v1/grants",
		map[string]any{"role": "agent", "module": p.id, "max_uses": 1, "expires": "10m"}, nil); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ran := make(chan run, 50)
	for i := range 50 {
		all.Go(func() { ran <- s.run(t.Context(), agent, fmt.Sprint("f11-", i), fmt.Sprint("/once say ", i)) })
	}
	all.Wait()
	close(ran)
	good, refused := 0, 0
	for r := range ran {
		switch {
		case r.Err == nil:
			good++
		case r.Err.Code == "overloaded":
			refused++
		case r.Err.Code != "approval_required":
			t.Errorf("%v", r.Err)
		}
	}
	if want := 50 - 1 - 31; refused != want { // 32 approvals may be open, and one is
		t.Errorf("%d calls were refused for too many open approvals, want %d", refused, want)
	}
	if good != 1 {
		t.Errorf("a grant for one call let %d through; want good = 1", good)
	}
	s.recorded(t, "event=grant_used", "grant_used")
	if err := s.uninstall(t.Context(), admin, p.id); err != nil {
		t.Error(err)
	}
}

// TestF12 holds the queue's limits from outside: one run of a session at a time,
// and a caller that gives up leaves the queue.
func TestF12(t *testing.T) {
	t.Parallel()
	s := anywhere(t)
	c := s.somebody(t, "admin")
	p := pack{
		id: "tools.places", permissions: []string{"exec"},
		actions: "    - {id: nap, description: Sleep, runner: exec.sleep, argv: ['1.5']}\n    - {id: long, description: Sleep, runner: exec.sleep, argv: ['{arg:0}'], args: [{name: n, required: true}]}\n",
	}
	if err := s.install(t.Context(), c, p, t); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if r := s.run(t.Context(), c, "same", "/places nap"); r.Err != nil {
				t.Errorf("r.Err = %v, want nil", r.Err)
			}
		})
	}
	both.Wait()
	if took := time.Since(began); took < 3*time.Second {
		t.Errorf("two runs of a session went on at once: %s; want took at least 3 * time.Second", took)
	}
	// Two of the extension run; the third waits, and is cancelled from outside.
	seconds := "86.0" + fmt.Sprint(s.pid)
	var three sync.WaitGroup
	for i := range 3 {
		three.Go(func() {
			if r := s.run(t.Context(), c, fmt.Sprint("s", i), "/places long "+seconds); r.Err == nil {
				t.Error("it slept to its end; want r.Err not nil")
			}
		})
	}
	until(t, "two run", func() bool { return len(processes("sleep\x00"+seconds)) == 2 })
	if err := c.Do(t.Context(), http.MethodPost, extensionsDoor+"/"+p.id+"/disable?kill=true", nil, nil); err != nil {
		t.Error(err)
	}
	three.Wait()
	if left := processes("sleep\x00" + seconds); len(left) > 0 {
		t.Errorf("alive: %v; want len(left) at most 0", left)
	}
	if err := s.uninstall(t.Context(), c, p.id); err != nil {
		t.Error(err)
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s; want not time.Now().After(deadline)", what)
		}
	}
}

// TestF13 holds that a dry run states what would run, and runs nothing.
func TestF13(t *testing.T) {
	t.Parallel()
	s := shell{t, anywhere(t)}
	c := s.somebody(t, "admin")
	p := pack{
		id: "tools.dry", permissions: []string{"exec", "filesystem.write"},
		actions: "    - {id: make, description: Make, runner: exec.touch, argv: ['--', '{work_dir}/{arg:0}'], args: [{name: n, required: true}]}\n",
	}
	if err := s.install(t.Context(), c, p, t); err != nil {
		t.Fatal(err)
	}
	var plan struct {
		Argv, Permissions []string
		Runner            string
		Sandbox           struct{ Tier, Network string }
	}
	if err := json.Unmarshal([]byte(s.ok("run", "/dry make it", "--dry-run")), &plan); err != nil {
		t.Fatal(err)
	}
	if len(plan.Argv) != 3 || !strings.HasSuffix(plan.Argv[2], "/it") ||
		!slices.Equal(plan.Permissions, []string{"exec", "filesystem.write"}) || plan.Sandbox.Tier != s.tier || plan.Sandbox.Network != "none" ||
		plan.Runner != "exec.touch" {
		t.Errorf(`%+v; want len(plan.Argv) = 3, plan.Argv[2] ending with "/it", plan.Permissions = []string{"exec", `+
			`"filesystem.write"}, plan.Sandbox.Tier = %v, plan.Sandbox.Network = "none", plan.Runner = "exec.touch"`, plan, s.tier)
	}
	if _, err := os.Stat(filepath.Join(s.home, "extensions", p.id, "work", "it")); err == nil {
		t.Error("it was made; want an error")
	}
	if got := s.records(t, "event=capability_executed&ext="+p.id); len(got) > 0 {
		t.Errorf("it is on record: %s; want len(got) at most 0", got)
	}
	s.fails(2, "", "run", "/dry make", "--dry-run") // a word is missing
	s.ok("extensions", "disable", p.id)
	s.fails(5, "disabled", "run", "/dry make it", "--dry-run")
	s.ok("extensions", "uninstall", p.id)
}

// TestF14 takes the walls away one by one: status says so, and nothing runs below
// the tier that is demanded.
func TestF14(t *testing.T) {
	t.Parallel()
	best := anywhere(t)
	if best.tier != "T3" {
		t.Skip("SKIPPED: there is no T3 to take walls from")
	}
	home, err := best.newHome("f14")
	if err != nil {
		t.Fatal(err)
	}
	for layer, tier := range map[string]string{
		"namespaces": "T2", "root": "T2", "network": "T2", "proc": "T3", "landlock": "T3",
		"seccomp": "T1", "cgroup": "T3",
	} {
		out, code := best.commandWith(t, home, []string{"JUNCTOR_SANDBOX_OFF=" + layer}, "sandbox", "status", "--json")
		var got sandboxStatus
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
			t.Errorf("%s: %d %v %s; want no error, code = 0", layer, code, err, out)
			continue
		}
		if got.Tier != tier || !strings.Contains(got.Layers[layer], "switched off") {
			t.Errorf(`without %s: tier %s, %q; want got.Tier = %v, got.Layers[layer] with "switched off"`,
				layer, got.Tier, got.Layers[layer], tier)
		}
		for name, state := range got.Layers {
			if tier == "T1" && state == "active" && name != "hygiene" || tier == "T2" && state == "active" &&
				slices.Contains([]string{"namespaces", "root", "network", "proc"}, name) {
				t.Errorf("without %s: %s is said to be %s", layer, name, state)
			}
		}
	}
	for off, least := range map[string]string{"namespaces": "T3", "seccomp": "T2"} {
		p := place{best.tier, best.user}
		home, err := p.newHome("f14")
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.start(home, "JUNCTOR_SANDBOX_OFF="+off, "JUNCTOR_SANDBOX_MIN_TIER="+least)
		if err != nil {
			t.Fatal(err)
		}
		x := pack{
			id: "tools.walls", permissions: []string{"exec"},
			actions: "    - {id: say, description: Say, runner: exec.echo, argv: ['it ran']}\n",
		}
		err = s.install(t.Context(), s.admin, x, t)
		r := s.run(t.Context(), s.admin, "f14", "/walls say")
		if reasonOf(err) != "sandbox_unavailable" && (r.Err == nil || r.Err.Reason != "sandbox_unavailable") ||
			strings.Contains(r.Output, "it ran") {
			t.Errorf("without %s below %s: %v, %q %v", off, least, err, r.Output, r.Err)
		}
		s.stop()
	}
}
