package skill_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/nodes/node"
	"github.com/junctor-run/junctor/internal/nodes/skill"
	"github.com/junctor-run/junctor/internal/nodes/skill/deviceaction"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	wire "github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
)

// rig is a device: everything but a network.
type rig struct {
	t         *testing.T
	host      *skill.Host
	functions *functions.Registry
	actions   *deviceaction.Set
	exec      *functions.Executor
	runtime   *runtime
	dir       string // of the store
	refreshes atomic.Int64
	bus       *bus // nil: calls are carried out at once
	busID     string
	session   *node.Node
	mu        sync.Mutex
	events    []skill.Event
}

func device(t *testing.T, change func(*skill.Config)) *rig {
	t.Helper()
	return restarted(t, t.TempDir(), new(deviceaction.Set), change)
}

// restarted is a device whose store is there already.
func restarted(t *testing.T, dir string, actions *deviceaction.Set, change func(*skill.Config)) *rig {
	t.Helper()
	r := &rig{t: t, functions: functions.New(0), actions: actions, runtime: new(runtime), dir: dir}
	store, err := skill.OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg := skill.Config{
		Node: "n1", Functions: r.functions, Actions: r.actions, Store: store, Runtime: r.runtime, Version: "test",
		Refresh: func(ctx context.Context) error { return r.refresh(ctx) },
		Event: func(_ context.Context, e skill.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
		},
	}
	if change != nil {
		change(&cfg)
	}
	r.host = skill.New(cfg)
	if err := r.host.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := skill.RegisterReserved(r.host, r.functions, "server-agent", false); err != nil {
		t.Fatal(err)
	}
	r.exec = functions.NewExecutor(functions.Config{Node: "n1", Functions: r.functions})
	t.Cleanup(r.host.Close)
	if overBus != nil && !inBubble() {
		overBus.carry(r)
	}
	return r
}

func (r *rig) action(name, answer string) {
	r.t.Helper()
	err := r.actions.Register(deviceaction.Action{Name: name, Description: "does " + name, Handle: says(answer)})
	if err != nil {
		r.t.Fatal(err)
	}
}

func says(answer string) functions.Handler {
	return func(context.Context, functions.Call) (json.RawMessage, error) { return jsonx.Marshal(answer) }
}

// call calls a function as an agent would, with arguments by name.
func (r *rig) call(function string, kwargs any) (json.RawMessage, error) {
	r.t.Helper()
	raw, err := jsonx.Marshal(kwargs)
	if err != nil {
		r.t.Fatal(err)
	}
	args, err := wire.ParseArguments(raw)
	if err != nil {
		return nil, err
	}
	if r.bus != nil {
		return r.callOverBus(function, args)
	}
	out, err := r.exec.Do(r.t.Context(), functions.Request{ID: "c", Function: function, Args: args, Caller: "agent:a"})
	return out.Value, err
}

func (r *rig) install(p any, more ...any) (*wire.Installed, error) {
	r.t.Helper()
	kwargs := map[string]any{"skill_payload": p}
	for i := 0; i < len(more); i += 2 {
		kwargs[more[i].(string)] = more[i+1]
	}
	raw, err := r.call(wire.InstallSkill, kwargs)
	if err != nil {
		return nil, err
	}
	var out wire.Installed
	if err := jsonx.UnmarshalStrict(raw, &out); err != nil {
		r.t.Fatal(err)
	}
	return &out, nil
}

func (r *rig) must(p any, more ...any) *wire.Installed {
	r.t.Helper()
	out, err := r.install(p, more...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) uninstall(name string, more ...any) *wire.Uninstalled {
	r.t.Helper()
	kwargs := map[string]any{"skill_name": name}
	for i := 0; i < len(more); i += 2 {
		kwargs[more[i].(string)] = more[i+1]
	}
	raw, err := r.call(wire.UninstallSkill, kwargs)
	if err != nil {
		r.t.Fatal(err)
	}
	var out wire.Uninstalled
	if err := jsonx.UnmarshalStrict(raw, &out); err != nil {
		r.t.Fatal(err)
	}
	return &out
}

// answers states what a function answers, or the reason why it does not.
func (r *rig) answers(function string) string {
	r.t.Helper()
	v, err := r.call(function, nil)
	if err != nil {
		return reason(err)
	}
	return string(v)
}

func (r *rig) names() []string { return r.functions.Names() }

func (r *rig) received(name string) (out []skill.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Name == name {
			out = append(out, e)
		}
	}
	return out
}

func reason(err error) string {
	if e := capability.AsError(err); e != nil {
		return e.Reason
	}
	return ""
}

func five() []string {
	var out []string
	for _, f := range wire.Reserved() {
		out = append(out, f.Name)
	}
	return out
}

// entry is a capability: alias, function, and members of its metadata in pairs.
func entry(alias, function string, meta ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i < len(meta); i += 2 {
		m[meta[i].(string)] = meta[i+1]
	}
	return map[string]any{"alias": alias, "function_name": function, "metadata": m}
}

func code(export string) map[string]any { return map[string]any{"module_id": "m", "export": export} }

// pack is a payload; the values of entries are capabilities or modules.
func pack(name string, entries ...map[string]any) map[string]any {
	var caps, modules []any
	for _, e := range entries {
		if _, ok := e["module_id"]; ok {
			modules = append(modules, e)
		} else {
			caps = append(caps, e)
		}
	}
	return map[string]any{"schema": payload.Schema, "version": "1.0", "skill_name": name, "capabilities": caps, "runtime_modules": modules}
}

// module is code of the test's runtime: a line "name: what it says" is an export.
func module(lines ...string) map[string]any {
	return map[string]any{"module_id": "m", "language": "javascript", "source": strings.Join(lines, "\n")}
}

// runtime is one that runs lines "name: answer", and remembers what it did.
type runtime struct {
	mu       sync.Mutex
	loads    int
	released int
	loading  func() // called while it loads
}

func (*runtime) Languages() map[string]string {
	return map[string]string{"javascript": "", "wasm": "", "python": "it is not allowed here"}
}

func (f *runtime) Load(_ context.Context, modules []payload.Source, _ []wire.CodeBinding) (skill.Program, error) {
	if f.loading != nil {
		f.loading()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loads++
	p := &program{of: f, exports: make(map[wire.CodeBinding]string)}
	for _, m := range modules {
		for line := range strings.Lines(string(m.Code)) {
			if name, answer, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
				p.exports[wire.CodeBinding{ModuleID: m.ModuleID, Export: name}] = answer
			}
		}
	}
	return p, nil
}

func (f *runtime) counts() (loads, released int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loads, f.released
}

type program struct {
	of      *runtime
	exports map[wire.CodeBinding]string
}

func (p *program) Export(b wire.CodeBinding) (functions.Handler, bool, bool) {
	answer, ok := p.exports[b]
	return says(answer), false, ok
}

func (p *program) Release() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.released++
}

// owner answers what it is told to, and remembers what it was asked.
type owner struct {
	mu     sync.Mutex
	asked  []skill.Question
	answer string
	err    error
	during func(skill.Question)
}

func (o *owner) Ask(_ context.Context, q skill.Question) (skill.Answer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, q)
	if o.during != nil {
		o.during(q)
	}
	return skill.Answer{Decision: o.answer, By: "alice"}, o.err
}

func (o *owner) Interactive() bool { return true }

func (o *owner) questions() []skill.Question {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.asked)
}

func allow(c *skill.Config)  { c.AllowCode = true }
func prefer(c *skill.Config) { c.AllowCode, c.PreferCode = true, true }

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	g, _ := jsonx.Marshal(got)
	if w, _ := jsonx.Marshal(want); string(g) != string(w) {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}
