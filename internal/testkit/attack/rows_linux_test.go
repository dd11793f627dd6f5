package attack

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/client"
)

// lab is one attack at one place.
type lab struct {
	*testing.T
	*server
	p     pack
	v     *victims
	who   *client.Client // runs the attack
	other *client.Client // another user
}

// attack is one attempt of a hostile extension.
type attack struct {
	name        string
	permissions []string // beside exec
	network     []string
	limits      map[string]int
	timeout     int
	tiers       string // "T3 T2" if empty
	process     bool   // a foreign process is among the victims
	alone       bool   // it bounds a time, so that it runs before those that exhaust the machine
	do          func(l *lab)
}

func places() []place {
	return []place{{"T3", "root"}, {"T3", "unprivileged"}, {"T2", "root"}, {"T2", "unprivileged"}}
}

// tryAll runs attacks as subtests named row/tier/user: first those that need to be alone, then all
// others in parallel, also with other tests.
func tryAll(t *testing.T, list []attack) {
	t.Helper()
	for _, a := range list {
		if a.alone {
			a.try(t)
		}
	}
	t.Parallel()
	for _, a := range list {
		if !a.alone {
			a.try(t)
		}
	}
}

// try runs an attack at all places, which run in parallel.
func (a attack) try(t *testing.T) {
	t.Helper()
	t.Run(a.name, func(t *testing.T) {
		if !a.alone {
			t.Parallel()
		}
		for _, p := range places() {
			t.Run(p.tier+"/"+p.user, func(t *testing.T) {
				t.Parallel()
				if a.tiers != "" && !strings.Contains(a.tiers, p.tier) {
					t.Skipf("SKIPPED: the row is for %s", a.tiers)
				}
				a.at(t, p.at(t))
			})
		}
	})
}

func (a attack) at(t *testing.T, s *server) {
	t.Helper()
	l := &lab{T: t, server: s, who: s.somebody(t, "admin"), other: s.somebody(t, "operator"), v: makeVictims(t, s)}
	l.p = pack{
		id: "tools." + strings.ToLower(a.name), permissions: append([]string{"exec"}, a.permissions...), network: a.network, limits: a.limits,
		timeout: a.timeout, hostile: true,
	}
	if err := s.install(t.Context(), l.who, l.p, t); err != nil {
		t.Fatal(err)
	}
	if a.process {
		l.v.startProcess(t, l.programUser())
	}
	a.do(l)
	if t.Failed() {
		t.Logf("the server says:\n%.3000s", tail(s.stderr.String()))
	}
	// The server is well: another user's run still succeeds, and what was
	// installed can be removed.
	if r := l.fine("afterwards"); r.Err != nil || strings.TrimSpace(r.Output) != "fine" {
		t.Errorf(`afterwards, somebody else's run: %q %v; want r.Err = nil, strings.TrimSpace(r.Output) = "fine"`, r.Output, r.Err)
	}
	if err := s.uninstall(t.Context(), l.who, l.p.id); err != nil {
		t.Errorf("uninstall: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(s.home, "extensions", l.p.id)); err == nil {
		t.Error("something of the extension is left; want an error")
	}
	for line := range strings.Lines(s.stderr.String()) {
		if strings.Contains(line, "extension="+l.p.id) && strings.Contains(line, "still in the trash") {
			t.Errorf("what was removed is not gone: %s", line)
		}
	}
	l.v.untouched(t)
}

// programUser is who the extension's programs run as.
func (l *lab) programUser() int {
	l.Helper()
	l.fine("first") // gives the working folder to them
	info, err := os.Stat(filepath.Join(l.home, "extensions", l.p.id, "work"))
	if err != nil {
		l.Fatal(err)
	}
	return owner(info)
}

// fine is another user's run. Without namespaces the kernel counts the processes of all
// runs of a user together: a run that starts while those of another multiply may be refused
// a process or, once it runs, a thread. Then it has to come again.
func (l *lab) fine(session string) (r run) {
	for range 5 {
		r = l.run(l.Context(), l.other, session, l.p.command()+" fine")
		if r.Err == nil || l.tier != "T2" || l.user == "root" ||
			r.Err.Reason != "sandbox_setup_failed" && !strings.Contains(r.Output, "failed to create new OS thread") {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	return r
}

func tail(s string) string { return s[max(0, len(s)-3000):] }

// task runs one task of the hostile program and returns what came of it.
func (l *lab) task(name string) run {
	return l.run(l.Context(), l.who, "attacker", fmt.Sprintf("%s go %s '%s'", l.p.command(), name, jsonText(l.v)))
}

// verdicts reads what the program says of its acts.
type verdicts struct {
	held, claimed int
	broken, says  []string
}

func read(output string) (v verdicts) {
	for line := range strings.Lines(output) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "HELD":
			v.held++
		case "CLAIMS":
			v.claimed++
		case "BROKE":
			v.broken = append(v.broken, rest)
		case "SAYS":
			v.says = append(v.says, rest)
		}
	}
	return v
}

// stopped runs a task of acts that must all fail; at least that many are tried.
func (l *lab) stopped(task string, acts int) verdicts {
	l.Helper()
	r := l.task(task)
	if r.Err != nil {
		l.Errorf("%s: %v %v", task, r.Err, r.Err.Details)
	}
	v := read(r.Output)
	for _, b := range v.broken {
		l.Errorf("%s got through: %s", task, b)
	}
	if v.held+v.claimed < acts {
		l.Errorf("%s: only %d acts were tried: %s", task, v.held+v.claimed, r.Output)
	}
	l.recordedRun(r, "capability_executed")
	return v
}

// recordedRun holds that the audit has the run with that event and tier.
func (l *lab) recordedRun(r run, event string, holds ...string) {
	l.Helper()
	if r.Invocation == "" {
		l.recorded(l.T, "event="+event+"&ext="+l.p.id, holds...)
		return
	}
	l.recorded(l.T, "event="+event+"&run="+r.Invocation, append(holds, `"sandbox":"`+l.tier+`"`)...)
}

// limited holds that a run ended for a limit.
func (l *lab) limited(r run, reason, kind string) {
	l.Helper()
	if r.Err == nil || r.Err.Reason != reason || kind != "" && r.Err.Details["kind"] != kind {
		l.Errorf("%s %s was wanted; it ended with %v %v: %.300s", reason, kind, r.Err, detailsOf(r), r.Output)
	}
	l.recordedRun(run{}, "capability_failed", reason)
}

func detailsOf(r run) any {
	if r.Err == nil {
		return nil
	}
	return r.Err.Details
}

// other installs an extension whose working folder others may want to see.
func (l *lab) neighbour() {
	l.Helper()
	neighbours.Lock()
	defer neighbours.Unlock()
	if _, err := os.Stat(l.v.OtherWork); err == nil {
		return
	}
	p := pack{
		id: "tools.other", permissions: []string{"exec", "filesystem.write"},
		actions: "    - {id: say, description: Say, runner: exec.echo, argv: ['{args}']}\n",
	}
	if err := l.install(l.Context(), l.who, p, l.T); err != nil {
		l.Fatal(err)
	}
	if err := os.WriteFile(l.v.OtherWork, []byte(canaryText), 0o666); err != nil {
		l.Fatal(err)
	}
	if err := os.Chmod(l.v.OtherWork, 0o666); err != nil { //nolint:gosec // a victim
		l.Fatal(err)
	}
}

// config asks the server to write the extension's settings.
func (l *lab) configure(doc any) error {
	ctx, cancel := context.WithTimeout(l.Context(), 20*time.Second)
	defer cancel()
	return l.who.Do(ctx, http.MethodPut, extensionsDoor+"/"+l.p.id+"/config", doc, nil)
}
