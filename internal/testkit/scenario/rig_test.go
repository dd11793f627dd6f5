// Package scenario_test carries out the acceptance scenarios of nodes
// against what people run: the binary as the server, and devices that
// join it over its one port. Tests are named by the number of their scenario.
package scenario_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/internal/nodes/node"
	"github.com/junctor-run/junctor/internal/nodes/skill"
	"github.com/junctor-run/junctor/internal/nodes/skill/deviceaction"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/internal/testkit/built"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

// binary is the program, built once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "junctor-scenario")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "junctor")
	return path, built.Copy(path)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// plane is a running server.
type plane struct {
	*process
	home, url    string
	admin, agent *client.Client
}

// process is a child of the test; its first line reports that it is ready.
type process struct {
	cmd    *exec.Cmd
	first  string
	stderr *output
	over   chan struct{}
}

// output is what a child says, while it says it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// spawn starts the binary and waits for its first line.
func spawn(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(path, args...), stderr: new(output), over: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1)
	go func() {
		r := bufio.NewReader(out)
		line, _ := r.ReadString('\n')
		lines <- line
		_, _ = io.Copy(io.Discard, r)
		_ = p.cmd.Wait()
		close(p.over)
	}()
	t.Cleanup(func() { p.kill() })
	select {
	case p.first = <-lines:
	case <-time.After(60 * time.Second):
	}
	if p.first == "" {
		p.kill()
		t.Fatalf(`%v said nothing: %s; want p.first other than ""`, args, p.stderr)
	}
	return p
}

// kill ends the process at once.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Kill()
	<-p.over
}

// serve starts a server; listen "" is a free port.
func serve(t testing.TB, home, listen string, env ...string) *plane {
	t.Helper()
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	p := &plane{home: home, process: spawn(t, env, "serve", "--home", home, "--listen", listen)}
	var ready struct{ URL string }
	if err := json.Unmarshal([]byte(p.first), &ready); err != nil {
		t.Fatalf("ready line %q: %v", p.first, err)
	}
	p.url = ready.URL
	p.admin, p.agent = p.client(t, p.file(t, "admin.token")), p.client(t, p.file(t, "agent.token"))
	return p
}

func (p *plane) file(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(p.home, "run", name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func (p *plane) client(t testing.TB, token string) *client.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New(client.Config{URL: p.url, Token: secret.New(token), Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newToken makes a token.
func (p *plane) newToken(t testing.TB, role string, labels ...string) string {
	t.Helper()
	if role == "node" { // what these devices say of their functions is true
		labels = append(labels, "trust:effects")
	}
	var out struct{ Token string }
	if err := p.admin.Do(t.Context(), http.MethodPost, "/api/v1/tokens", map[string]any{"role": role, "labels": labels}, &out); err != nil {
		t.Fatal(err)
	}
	return out.Token
}

// cli runs a command against the server.
func (p *plane) cli(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{"--home", p.home}, args...)...)
	var out, diagnostics bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	err = cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("%v; want not (err != nil && !exited)", err)
	}
	return out.String(), diagnostics.String(), cmd.ProcessState.ExitCode()
}

// ask runs one invocation as a given principal.
func ask(ctx context.Context, c *client.Client, target string, input any, nodeID string) (json.RawMessage, error) {
	raw, err := json.Marshal(input)
	if err != nil {
		return nil, err
	}
	inv := client.Invocation{Target: target, Input: raw}
	if nodeID != "" {
		inv.Select = map[string]string{"node": nodeID}
	}
	var out client.Invoked
	err = c.Invoke(ctx, inv, &out)
	return out.Result, err
}

// call calls a function of a node.
func (p *plane) call(t testing.TB, nodeID, function string, args any) (json.RawMessage, error) {
	t.Helper()
	return ask(t.Context(), p.admin, "device.function.invoke", map[string]any{"function": function, "args": args}, nodeID)
}

// listed is a node as lists show it.
type listed struct {
	NodeID       string   `json:"node_id"`
	Status       string   `json:"status"`
	Capabilities []string `json:"capabilities"`
	Functions    []string `json:"functions"`
	Epoch        int64    `json:"epoch"`
	Active       int      `json:"active"`
}

func (p *plane) nodes(t testing.TB, c *client.Client, query string) map[string]listed {
	t.Helper()
	var out struct{ Nodes []listed }
	if err := c.Do(t.Context(), http.MethodGet, "/api/v1/nodes?"+query, nil, &out); err != nil {
		t.Fatal(err)
	}
	m := make(map[string]listed)
	for _, n := range out.Nodes {
		m[n.NodeID] = n
	}
	return m
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}

// waitTimeout is how long a test waits for what must happen. A cluster of NATS may take 4 to 9 s to
// elect who writes, first for itself and then for each bucket, and again where the votes are split,
// which a busy machine makes likelier; a node whose server ended cannot join again before that.
const waitTimeout = 2 * time.Minute

// eventually waits until ok holds, which asks another process, and returns how long that took.
func eventually(t testing.TB, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > waitTimeout {
			t.Fatalf("not within %s: %s", waitTimeout, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

// device is a node inside the test, so that it can be made to misbehave.
type device struct {
	*node.Node
	t         testing.TB
	id        string
	functions *functions.Registry
	actions   *deviceaction.Set
	exec      *functions.Executor
	host      *skill.Host
	stop      context.CancelFunc
	ended     chan error
}

// options say how a device is unlike the others.
type options struct {
	id, token string
	labels    []string
	dir       string // of its skills; "": a new one
	host      func(*skill.Config)
	max       int
	queue     int
	before    func(*device) // registers what it offers
	now       func() time.Time
}

// join starts a device and waits until it is let in.
func (p *plane) join(t testing.TB, o options) *device {
	t.Helper()
	d := p.device(t, o)
	select {
	case <-d.Joined():
	case err := <-d.ended:
		t.Fatalf("%s did not join: %v", d.id, err)
	case <-time.After(time.Minute):
		t.Fatalf("%s has not joined: %+v", d.id, d.Status())
	}
	p.known(t, d.id)
	return d
}

// known waits until the catalog has a node: it follows the list of nodes by a moment.
func (p *plane) known(t testing.TB, id string) {
	t.Helper()
	inv := client.Invocation{Target: "device.status.get", Select: map[string]string{"node": id}, DryRun: true}
	eventually(t, id+" is in the catalog", func() bool {
		var plan struct{ OK bool }
		return p.admin.Invoke(t.Context(), inv, &plan) == nil && plan.OK
	})
}

func (p *plane) device(t testing.TB, o options) *device {
	t.Helper()
	if o.token == "" {
		o.token = p.newToken(t, "node")
	}
	if o.id == "" {
		o.id = "laptop"
	}
	if o.dir == "" {
		o.dir = t.TempDir()
	}
	dial, err := natsdial.Dialer(p.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &device{t: t, id: o.id, functions: functions.New(0), actions: new(deviceaction.Set), ended: make(chan error, 1)}
	d.exec = functions.NewExecutor(functions.Config{Node: o.id, Functions: d.functions, MaxConcurrent: o.max, Queue: o.queue})
	store, err := skill.OpenFiles(o.dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg := skill.Config{
		Node: o.id, Functions: d.functions, Actions: d.actions, Store: store, Version: "test",
		Refresh: func(ctx context.Context) error { return d.Refresh(ctx) },
	}
	if o.host != nil {
		o.host(&cfg)
	}
	d.host = skill.New(cfg)
	if o.before != nil {
		o.before(d)
	}
	if err := d.host.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := skill.RegisterReserved(d.host, d.functions, "server-agent", false); err != nil {
		t.Fatal(err)
	}
	d.Node, err = node.New(node.Config{
		Dial: dial, Token: secret.New(o.token), ID: o.id, Labels: o.labels, Software: wire.Software{Name: "test", Version: "1"},
		Functions: d.functions, Executor: d.exec, MaxConcurrent: o.max, Queue: o.queue, Now: o.now,
		HostStatus:    func() cmp.Status { return d.host.Status(false, false) },
		ReconnectWait: 100 * time.Millisecond, ReconnectMax: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	d.stop = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.ended <- d.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		d.host.Close()
	})
	return d
}

// says registers a function that answers a text.
func (d *device) says(name, answer string) {
	d.t.Helper()
	d.does(functions.Function{Name: name, Effect: cmp.EffectRead, Handle: func(context.Context, functions.Call) (json.RawMessage, error) {
		return json.Marshal(answer)
	}})
}

func (d *device) does(f functions.Function) {
	d.t.Helper()
	if err := d.functions.Register(f, true); err != nil {
		d.t.Fatal(err)
	}
}

// acts registers a device action that answers a text.
func (d *device) acts(name, answer string) {
	d.t.Helper()
	err := d.actions.Register(deviceaction.Action{
		Name: name, Description: "does " + name,
		Handle: func(context.Context, functions.Call) (json.RawMessage, error) {
			return json.Marshal(answer)
		},
	})
	if err != nil {
		d.t.Fatal(err)
	}
}
