package attack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestKills is F10: the server is killed at random points of installing,
// upgrading, running and removing, a few times; make soak does it at length.
func TestKills(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	killAtRandom(t, anywhere(t).place, rounds)
}

// killAtRandom kills a server of its own that often and looks after each restart
// for what is half there, for processes that outlived it, and at the audit.
func killAtRandom(t *testing.T, p place, rounds int) {
	t.Helper()
	home, err := p.newHome("kill")
	if err != nil {
		t.Fatal(err)
	}
	mark := "killed-" + canaryMark + "-" + filepath.Base(home)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // not for secrets
	s, err := p.start(home)
	if err != nil {
		t.Fatal(err)
	}
	began, killed := time.Now(), map[string]int{}
	for round := range rounds {
		doing := &activity{}
		ctx, cancel := context.WithCancel(t.Context())
		var busy sync.WaitGroup
		busy.Go(func() { changeForever(ctx, t, s, round, doing) })
		busy.Go(func() { runForever(ctx, s, mark) })
		target := []string{"install", "upgrade", "enable", "run", "uninstall"}[random.IntN(5)]
		for deadline := time.Now().Add(4 * time.Second); doing.now() != target && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // another goroutine's work
		}
		span := 120
		if target == "enable" || target == "run" || target == "uninstall" { // they take less
			span = 12
		}
		<-time.After(time.Duration(random.IntN(span*1000)) * time.Microsecond) // somewhere in the middle of it
		killed[doing.now()]++
		if len(processes(mark)) > 0 {
			killed["with programs running"]++
		}
		s.kill()
		cancel()
		busy.Wait()
		until(t, "no process of the killed server is left", func() bool { return len(processes(mark)) == 0 && len(children(s.pid)) == 0 })
		if round%5 == 4 { // and once more while it repairs what the first kill left
			dieStarting(t, p, home, time.Duration(5+random.IntN(250))*time.Millisecond)
		}
		if s, err = p.start(home); err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
		whole(t, s, fmt.Sprintf("seed %d, round %d", seed, round))
		if t.Failed() {
			break
		}
	}
	if left, _ := filepath.Glob(filepath.Join(home, "run", "junctor-run-*")); len(left) > 0 {
		t.Errorf("temporary folders are left: %v; want len(left) at most 0", left)
	}
	s.stop()
	t.Logf("%d kills at %s as %s in %s, while: %v", rounds, p.tier, p.user, time.Since(began).Round(time.Second), killed)
}

// activity is what the server is asked for at the moment.
type activity struct {
	mu   sync.Mutex
	name string
}

func (a *activity) is(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.name = name
}

func (a *activity) now() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.name
}

func killed(version string) pack {
	return pack{
		id: "tools.killed", version: version, permissions: []string{"exec", "filesystem.write"}, hostile: true, timeout: 20,
		plan: "{id: one, type: exec.shell, command: 'echo a > one; sleep 0.05'}, {id: two, type: exec.shell, command: 'echo b > two'}, {id: conf, type: write.config, config_key: word, config_value: x}",
	}
}

// changeForever installs, upgrades, enables, runs and removes until the server is
// gone.
func changeForever(ctx context.Context, t *testing.T, s *server, round int, doing *activity) {
	for i := 0; ctx.Err() == nil; i++ {
		doing.is("")
		data, word := killed(fmt.Sprintf("1.%d.%d", round+1, i)).zip(t), "install"
		if i%2 == 1 {
			word = "upgrade"
		}
		doing.is(word)
		err := agreed(ctx, s.admin, data)
		if err == nil {
			doing.is("enable")
			_ = s.enable(ctx, s.admin, "tools.killed")
			doing.is("run")
			s.run(ctx, s.admin, "changes", "/killed fine")
		}
		if i%2 == 1 {
			doing.is("uninstall")
			_ = s.uninstall(ctx, s.admin, "tools.killed")
		}
		if err != nil && asError(err) != nil && asError(err).Code == "unavailable" {
			return
		}
	}
}

// runForever has something running that leaves daemons behind.
func runForever(ctx context.Context, s *server, mark string) {
	for i := 0; ctx.Err() == nil; i++ {
		r := s.run(ctx, s.admin, fmt.Sprint("runs", i), fmt.Sprintf(`/killed go a22hang '{"Names":[%q]}'`, mark))
		if r.Err != nil && r.Err.Reason == "service_unavailable" {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// children are the helpers that a server has started, by their parent.
func children(pid int) (found []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		data, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		if len(fields) > 1 && fields[1] == fmt.Sprint(pid) && fields[0] != "Z" {
			found = append(found, name)
		}
	}
	return found
}

// dieStarting starts a server and kills it before it is ready, or soon after.
func dieStarting(t *testing.T, p place, home string, after time.Duration) {
	t.Helper()
	cmd := exec.Command(filepath.Join(base, "bin", "junctor"), "serve", "--home", home, "--listen", "127.0.0.1:0") //nolint:gosec // ours
	cmd.Env, cmd.SysProcAttr, cmd.Dir = p.environment(), p.credential(), "/"
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-time.After(after)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// whole holds that nothing is half there.
func whole(t *testing.T, s *server, when string) {
	t.Helper()
	ctx := t.Context()
	var found struct{ Findings []any }
	if err := s.admin.Do(ctx, http.MethodGet, extensionsDoor+"/doctor", nil, &found); err != nil || len(found.Findings) != 0 {
		t.Errorf("%s: the doctor says %v %v; want no error, len(found.Findings) = 0", when, found.Findings, err)
	}
	var list struct {
		Extensions []struct {
			ID, Status string
			Enabled    bool
		}
	}
	if err := s.admin.Do(ctx, http.MethodGet, extensionsDoor, nil, &list); err != nil {
		t.Fatal(err)
	}
	for _, x := range list.Extensions {
		if x.Status != "INSTALLED" {
			t.Errorf(`%s: %+v; want x.Status = "INSTALLED"`, when, x)
		}
		if !x.Enabled {
			if err := s.enable(ctx, s.admin, x.ID); err != nil {
				t.Errorf("%s: what is there cannot be enabled: %v", when, err)
			}
		}
		if r := s.run(ctx, s.admin, "whole", "/killed fine"); r.Err != nil || strings.TrimSpace(r.Output) != "fine" {
			t.Errorf(`%s: what is there does not run: %q %v; want r.Err = nil, strings.TrimSpace(r.Output) = "fine"`,
				when, r.Output, r.Err)
		}
		for name, text := range map[string]string{"one": "a\n", "two": "b\n"} {
			if data, err := os.ReadFile(filepath.Join(s.home, "extensions", x.ID, "work", name)); err != nil || string(data) != text {
				t.Errorf("%s: %s of the plan holds %q, %v; want no error, string(data) = %v", when, name, data, err, text)
			}
		}
	}
	left, err := os.ReadDir(filepath.Join(s.home, "extensions"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		if !strings.HasPrefix(f.Name(), ".") {
			if len(list.Extensions) == 0 {
				t.Errorf("%s: %s is there, and nothing is installed; want len(list.Extensions) other than 0", when, f.Name())
			}
			continue
		}
		if inside, _ := os.ReadDir(filepath.Join(s.home, "extensions", f.Name())); len(inside) > 0 {
			t.Errorf("%s: %s holds %v; want len(inside) at most 0", when, f.Name(), inside)
		}
	}
	var chain struct {
		Records  uint64
		FirstBad any `json:"first_bad"`
	}
	if err := s.admin.Do(ctx, http.MethodGet, "/api/v1/audit/verify", nil, &chain); err != nil || chain.FirstBad != nil || chain.Records == 0 {
		t.Errorf("%s: the audit: %+v %v; want no error, chain.FirstBad = nil, chain.Records other than 0", when, chain, err)
	}
}
