package scenario_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/node"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/internal/testkit/programfile"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// real is a device as people run it: the binary, in a home of its own.
type real struct {
	*process
	id, home string
}

// action writes an action of the device: a program that answers with a text.
func action(t testing.TB, home, name, script string) {
	t.Helper()
	dir := filepath.Join(home, "node", "actions")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		name + ".sh": "#!/bin/sh\n" + script + "\n", name + ".sh.action.json": `{"name":"` + name + `","description":"does ` + name +
			`","output":"text"}`,
	} {
		programfile.Write(t, filepath.Join(dir, file), text, 0o755)
	}
}

// joinReal starts the binary as a node.
func (p *plane) joinReal(t testing.TB, home, id string, args ...string) *real {
	t.Helper()
	all := []string{"node", "join", p.url, "--home", home, "--id", id, "--json"}
	if _, err := os.Stat(filepath.Join(home, "node", "key")); err != nil {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(p.newToken(t, "node")), 0o600); err != nil {
			t.Fatal(err)
		}
		all = append(all, "--node-token-file", file)
	}
	r := &real{process: spawn(t, nil, append(all, args...)...), id: id, home: home}
	p.known(t, id)
	return r
}

func (p *plane) status(t testing.TB, id string) string {
	t.Helper()
	return p.nodes(t, p.admin, "")[id].Status
}

func TestScenario31JoinedIsListedAtOnce(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	p.join(t, options{id: "a", labels: []string{"gpu", "device"}})
	// Join returns when the gateway has answered: the list has it from then on.
	n := p.nodes(t, p.admin, "label=gpu&function="+cmp.InstallSkill)["a"]
	if !slices.Equal(n.Capabilities, []string{"device", "gpu"}) || n.Status != "connected" {
		t.Errorf(`%+v; want n.Capabilities = []string{"device", "gpu"}, n.Status = "connected"`, n)
	}
	if len(p.nodes(t, p.admin, "label=gpu&label=none")) != 0 || len(p.nodes(t, p.agent, "")) != 1 {
		t.Error(`filters are subset tests, and agents see it; want len(p.nodes(t, p.admin, "label=gpu&label=none")) = 0, ` +
			`len(p.nodes(t, p.agent, "")) = 1`)
	}
}

func TestScenario32KilledIsNotRoutedToAndGoneAfterTheGrace(t *testing.T) {
	t.Parallel()
	// The end of its session reports it, not its lease.
	p := serve(t, t.TempDir(), "", "JUNCTOR_GATEWAY_GRACE=500ms", "JUNCTOR_GATEWAY_HEARTBEAT_TIMEOUT=1h")
	d := p.joinReal(t, t.TempDir(), "a")
	d.kill()
	eventually(t, "it is suspect", func() bool { return p.status(t, "a") != "connected" })
	if _, err := p.call(t, "a", cmp.HostStatus, nil); err == nil {
		t.Error("a dead node is routed to; want an error")
	}
	if len(p.nodes(t, p.agent, "")) != 0 {
		t.Error(`agents see a suspect node; want len(p.nodes(t, p.agent, "")) = 0`)
	}
	eventually(t, "it is unlisted", func() bool { return len(p.nodes(t, p.admin, "")) == 0 })
}

func TestScenario33FrozenIsUnlistedAndComesBack(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "", "JUNCTOR_GATEWAY_HEARTBEAT=500ms", "JUNCTOR_GATEWAY_HEARTBEAT_TIMEOUT=2s", "JUNCTOR_GATEWAY_GRACE=500ms")
	home := t.TempDir()
	action(t, home, "hello", "echo hi")
	d := p.joinReal(t, home, "a")
	install := func() error {
		_, err := ask(t.Context(), p.admin, "device.skill.install", map[string]any{"skill_payload": pack("s", "hello")}, "a")
		return err
	}
	if err := install(); err != nil {
		t.Fatal(err)
	}
	epoch := p.nodes(t, p.admin, "")["a"].Epoch
	if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is unlisted", func() bool { return len(p.nodes(t, p.admin, "")) == 0 })
	if err := d.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is back", func() bool { return p.status(t, "a") == "connected" })
	p.known(t, "a")
	if out, err := p.call(t, "a", "user.hello", nil); err != nil || string(out) != `"hi\n"` && string(out) != `"hi"` {
		t.Errorf("%s %v; want no error, not (string(out) != `\"hi\\n\"` && string(out) != `\"hi\"`)", out, err)
	}
	if again := p.nodes(t, p.admin, "")["a"].Epoch; again <= epoch {
		t.Errorf("epoch %d after %d; want again more than %v", again, epoch, epoch)
	}
}

func TestScenario35GatewayRestart(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	p := serve(t, home, "")
	const many = 5
	var devices []*device
	running := make(chan struct{}, many)
	for i := range many {
		devices = append(devices, p.join(t, options{id: fmt.Sprintf("n%d", i), before: func(d *device) {
			d.does(functions.Function{
				Name: "wait", Effect: cmp.EffectRead,
				Handle: func(ctx context.Context, _ functions.Call) (json.RawMessage, error) {
					running <- struct{}{}
					<-ctx.Done()
					return nil, ctx.Err()
				},
			})
		}}))
	}
	ended := make(chan error, 1)
	go func() {
		_, err := p.call(t, "n0", "wait", nil)
		ended <- err
	}()
	<-running
	address := strings.TrimPrefix(p.url, "http://")
	p.kill()
	if err := <-ended; err == nil {
		t.Error("a call outlived its gateway; want an error")
	}
	again := serve(t, home, address)
	eventually(t, "all are back", func() bool {
		all := again.nodes(t, again.admin, "status=connected")
		return len(all) == many
	})
	for _, d := range devices {
		again.known(t, d.id)
	}
	for _, d := range devices {
		if out, err := again.call(t, d.id, cmp.HostStatus, nil); err != nil || !strings.Contains(string(out), `"node_id":"`+d.id+`"`) {
			t.Errorf("%s: %s %v; want no error, string(out) with `\"node_id\":\"` + d.id + `\"`", d.id, out, err)
		}
	}
}

func TestScenario36TheNewerServes(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	token := p.newToken(t, "node")
	entered, release := make(chan struct{}), make(chan struct{})
	old := p.join(t, options{id: "a", token: token, before: func(d *device) {
		d.says("who", "old")
		d.does(functions.Function{Name: "late", Effect: cmp.EffectRead, Handle: func(context.Context, functions.Call) (json.RawMessage, error) {
			close(entered)
			<-release
			return json.RawMessage(`"stale"`), nil
		}})
	}})
	late := make(chan error, 1)
	go func() {
		_, err := p.call(t, "a", "late", nil)
		late <- err
	}()
	<-entered
	p.join(t, options{id: "a", token: token, before: func(d *device) { d.says("who", "new") }})
	if err := <-late; reason(err) != cmp.ReasonNodeLost {
		t.Errorf("the call to the older: %v; want reason(err) = cmp.ReasonNodeLost", err)
	}
	close(release)
	if err := <-old.ended; reason(err) != node.ReasonSuperseded {
		t.Errorf("the older: %v; want reason(err) = node.ReasonSuperseded", err)
	}
	old.ended <- nil
	if out, err := p.call(t, "a", "who", nil); err != nil || string(out) != `"new"` {
		t.Errorf(`%s %v; want no error, string(out) = "\"new\""`, out, err)
	}
}

func TestScenario37AClockThatIsOff(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "", "JUNCTOR_GATEWAY_HEARTBEAT=200ms", "JUNCTOR_GATEWAY_HEARTBEAT_TIMEOUT=4s", "JUNCTOR_GATEWAY_GRACE=500ms")
	d := p.join(t, options{
		id: "a", now: func() time.Time { return time.Now().Add(-time.Hour) },
		before: func(d *device) { d.says("hello", "hi") },
	})
	beats := d.Status().Beats
	eventually(t, "it beats for longer than its lease", func() bool { return d.Status().Beats > beats+22 })
	if out, err := p.call(t, "a", "hello", nil); err != nil || string(out) != `"hi"` || d.Status().Joins != 1 {
		t.Errorf(`%s %v %+v; want no error, string(out) = "\"hi\"", d.Status().Joins = 1`, out, err, d.Status())
	}
}

func TestScenario38Drain(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	entered, release := make(chan struct{}), make(chan struct{})
	d := p.join(t, options{id: "a", before: func(d *device) {
		d.does(functions.Function{Name: "slow", Effect: cmp.EffectRead, Handle: func(context.Context, functions.Call) (json.RawMessage, error) {
			close(entered)
			<-release
			return json.RawMessage(`"done"`), nil
		}})
	}})
	slow := make(chan string, 1)
	go func() {
		out, err := p.call(t, "a", "slow", nil)
		slow <- fmt.Sprint(string(out), err)
	}()
	<-entered
	if err := p.admin.Do(t.Context(), http.MethodPost, "/api/v1/nodes/a/drain", nil, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it drains", func() bool { return p.status(t, "a") == "draining" })
	if _, err := p.call(t, "a", "slow", nil); err == nil {
		t.Error("a draining node took a call; want an error")
	}
	close(release)
	if got := <-slow; got != `"done"<nil>` {
		t.Errorf("got = %q, want \"\\\"done\\\"<nil>\"", got)
	}
	if err := <-d.ended; err != nil {
		t.Error(err)
	}
	d.ended <- nil
	eventually(t, "it is gone", func() bool { return len(p.nodes(t, p.admin, "")) == 0 })
}

func TestScenario39SomebodyElsesLabel(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	d := p.join(t, options{
		id: "a", token: p.newToken(t, "node", "user:alice", "site:lab"),
		labels: []string{"user:alice", "user:bob", "tenant:x", "gpu"}, before: func(d *device) { d.says("hello", "hi") },
	})
	if got := d.Status().RejectedLabels; !slices.Equal(got, []string{"tenant:x", "user:bob"}) {
		t.Errorf(`got = %q, want []string{"tenant:x", "user:bob"}`, got)
	}
	if n := p.nodes(t, p.admin, "")["a"]; !slices.Equal(n.Capabilities, []string{"gpu", "user:alice"}) {
		t.Errorf(`%+v; want n.Capabilities = []string{"gpu", "user:alice"}`, n)
	}
	// It is alice's: no other user's agent sees it, until a grant names it.
	alice, bob := p.client(t, p.newToken(t, "agent", "user:alice")), p.agent
	if out, err := ask(t.Context(), alice, "fn.hello", map[string]any{}, "a"); err != nil || string(out) != `"hi"` {
		t.Errorf(`%s %v; want no error, string(out) = "\"hi\""`, out, err)
	}
	if _, err := ask(t.Context(), bob, "fn.hello", map[string]any{}, "a"); err == nil || len(p.nodes(t, bob, "")) != 0 {
		t.Errorf(`bob: %v; want an error, len(p.nodes(t, bob, "")) = 0`, err)
	}
	if err := p.admin.Do(t.Context(), http.MethodPost, "/api/v1/grants",
		map[string]any{"principal": "agent:local-agent", "module": "node.a", "action": "*", "scope": "global"}, nil); err != nil {
		t.Fatal(err)
	}
	if out, err := ask(t.Context(), bob, "fn.hello", map[string]any{}, "a"); err != nil || string(out) != `"hi"` {
		t.Errorf(`with a grant: %s %v; want no error, string(out) = "\"hi\""`, out, err)
	}
}

func TestARevokedTokenEndsTheSession(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "", "JUNCTOR_GATEWAY_GRACE=300ms", "JUNCTOR_GATEWAY_HEARTBEAT_TIMEOUT=1h")
	var made struct{ ID, Token string }
	if err := p.admin.Do(t.Context(), http.MethodPost, "/api/v1/tokens", map[string]any{"role": "node", "name": "fleet"}, &made); err != nil {
		t.Fatal(err)
	}
	d := p.join(t, options{id: "a", token: made.Token})
	if err := p.admin.Do(t.Context(), http.MethodDelete, "/api/v1/tokens/"+made.ID, nil, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is unlisted", func() bool { return len(p.nodes(t, p.admin, "")) == 0 })
	// It was let in once, so that it tries again, and is not.
	eventually(t, "it is refused", func() bool { return strings.Contains(d.Status().Error, "credential") })
	if s := d.Status(); s.State == node.Connected || s.Joins != 1 {
		t.Errorf("%+v; want s.State other than node.Connected, s.Joins = 1", s)
	}
	if !slices.ContainsFunc(p.audit(t, "limit=100"), func(r auditRow) bool { return r.Event == "node_revoked" && r.Metadata.Node == "a" }) {
		t.Error("the record is missing")
	}
}

func TestANodeIDBelongsToItsFirstCredential(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	p.join(t, options{id: "a"})
	home, file := t.TempDir(), filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(p.newToken(t, "node")), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := p.cli(t, "node", "join", p.url, "--home", home, "--id", "a", "--node-token-file", file)
	if code != 1 || !strings.Contains(stderr, "belongs to another credential") || !strings.Contains(stderr, "--id") {
		t.Errorf(`%d %s; want code = 1, stderr with "belongs to another credential", stderr with "--id"`, code, stderr)
	}
	if _, err := os.Stat(filepath.Join(home, "node", "state.json")); err == nil {
		t.Error("a refused join left a state behind; want an error")
	}
	if out, _, code := p.cli(t, "nodes", "remove", "a"); code != 0 {
		t.Errorf(`p.cli(t, "nodes", "remove", "a"): code = %v, want 0; out = %q`, code, out)
	}
	p.joinReal(t, home, "a")
	eventually(t, "it is listed", func() bool { return p.status(t, "a") == "connected" })
}

// cable is a connection that can be unplugged: bytes vanish without an error.
type cable struct {
	net.Listener
	cut chan struct{}
}

func TestScenario34CablePulled(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "", "JUNCTOR_GATEWAY_HEARTBEAT=300ms", "JUNCTOR_GATEWAY_HEARTBEAT_TIMEOUT=1s", "JUNCTOR_GATEWAY_GRACE=300ms")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{l, make(chan struct{})}
	t.Cleanup(func() { l.Close() })
	go c.carry(strings.TrimPrefix(p.url, "http://"))
	direct := p.url
	p.url = "http://" + l.Addr().String()
	d := p.join(t, options{id: "a", before: func(d *device) { d.says("hello", "hi") }})
	p.url = direct
	close(c.cut)
	took := eventually(t, "it is unlisted", func() bool { return len(p.nodes(t, p.admin, "")) == 0 })
	t.Logf("unlisted after %s with a lease of 1 s", took)
	// The node finds out by its own pings and comes back over a new connection.
	eventually(t, "it is back", func() bool { return p.status(t, "a") == "connected" })
	p.known(t, "a")
	if out, err := p.call(t, "a", "hello", nil); err != nil || string(out) != `"hi"` || d.Status().Joins < 2 {
		t.Errorf(`%s %v; want no error, string(out) = "\"hi\"", d.Status().Joins at least 2`, out, err)
	}
}

// carry copies both ways; what came before the cut goes nowhere after it.
func (c *cable) carry(to string) {
	for {
		in, err := c.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", to)
		if err != nil {
			in.Close()
			continue
		}
		dead := c.cut
		select {
		case <-c.cut: // a new connection is plugged in
			dead = nil
		default:
		}
		for from, to := range map[net.Conn]net.Conn{in: out, out: in} {
			go func() {
				buf := make([]byte, 32<<10)
				for {
					n, err := from.Read(buf)
					select {
					case <-dead:
						if err == nil {
							continue
						}
						return
					default:
					}
					if n > 0 {
						if _, err := to.Write(buf[:n]); err != nil {
							return
						}
					}
					if err != nil {
						to.Close()
						return
					}
				}
			}()
		}
	}
}
