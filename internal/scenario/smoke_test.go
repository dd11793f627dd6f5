package scenario_test

import "testing"

func TestSmoke(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	p.join(t, options{id: "laptop", labels: []string{"gpu"}, before: func(d *device) { d.says("hello.world", "hi") }})
	for name, n := range p.nodes(t, p.admin, "") {
		t.Log(name, n)
	}
	out, err := p.call(t, "laptop", "hello.world", nil)
	t.Log(string(out), err)
	out, err = ask(t.Context(), p.agent, "fn.hello.world", map[string]any{}, "")
	t.Log(string(out), err)
	so, se, code := p.cli(t, "nodes", "list")
	t.Log(so, se, code)
	so, se, code = p.cli(t, "nodes", "show", "laptop")
	t.Log(so, se, code)
	so, se, code = p.cli(t, "call", "laptop", "hello.world")
	t.Log(so, se, code)
	so, se, code = p.cli(t, "call", "any", "hello.world")
	t.Log(so, se, code)
	so, se, code = p.cli(t, "skill", "list", "laptop")
	t.Log(so, se, code)
	so, se, code = p.cli(t, "invoke", "device.status.get")
	t.Log(so, se, code)
	so, se, code = p.cli(t, "call", "laptop", "nothing")
	t.Log(so, se, code)
	so, se, code = p.cli(t, "catalog", "agent")
	t.Log(so, se, code)
	t.Log(p.stderr)
}
