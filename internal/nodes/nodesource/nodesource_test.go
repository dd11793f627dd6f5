package nodesource_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/nodesource"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
	"github.com/junctor-run/junctor/protocol/cmp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// said is a gateway that answers what the test says.
type said func(context.Context, gateway.Request) (gateway.Result, error)

func (s said) Do(ctx context.Context, _ fleet.Request, r gateway.Request) (gateway.Result, error) {
	return s(ctx, r)
}

// rig is a source over a real fleet and a real catalog.
type rig struct {
	testing.TB
	fleet   *fleet.Table
	catalog *catalog.Catalog
	source  *nodesource.Source
}

func newRig(t testing.TB, cfg nodesource.Config) *rig {
	t.Helper()
	r := &rig{TB: t, fleet: fleet.New(fleet.Config{Gateway: "g"}), catalog: catalogtest.New(t)}
	cfg.Fleet = r.fleet
	r.source = nodesource.New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.source.Run(ctx, func(b capability.Batch) error {
			_, _, err := r.catalog.Replace(b)
			return err
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return r
}

func (r *rig) join(m fleet.Member) {
	r.Helper()
	if m.Session == "" {
		m.Session = "session-" + m.ID
	}
	m.Instance = "instance"
	rec, err := r.fleet.Propose(m)
	if err != nil {
		r.Fatal(err)
	}
	r.fleet.Take(rec)
	r.settle(m.ID)
}

func (r *rig) settle(id string) {
	r.source.Changed(id)
	r.source.Settled(r.Context())
}

// entries are the functions in the catalog, as module/name, with their effect.
func (r *rig) entries() map[string]*catalog.Entry {
	out := make(map[string]*catalog.Entry)
	for e := range r.catalog.Snapshot().Entries() {
		if _, is := nodesource.NodeOf(e.Key()); is {
			out[e.Module.Extension+"/"+e.Contribution.Member.Name] = e
		}
	}
	return out
}

func offers(names ...string) (list []fleet.Function) {
	for _, n := range names {
		list = append(list, fleet.Function{Name: n, Owner: "node"})
	}
	return list
}

// TestClaimedEffectsCountWhereTrusted: what a skill says of its functions spares agents
// an approval only if the node's token reports that it may; what a device says of its own
// does.
func TestClaimedEffectsCountWhereTrusted(t *testing.T) {
	r := newRig(t, nodesource.Config{})
	for _, c := range []struct {
		granted       []string
		owner, claim  string
		want          capability.Effect
		claimsLabelTo bool
	}{
		{nil, "node", cmp.EffectRead, capability.EffectRead, false},
		{nil, "node", "", capability.EffectExternal, false},
		{nil, "node", "nonsense", capability.EffectExternal, false},
		{nil, "skill:s", cmp.EffectRead, capability.EffectExternal, false},
		{nil, "orphan:s", cmp.EffectWrite, capability.EffectExternal, false},
		{nil, "skill:s", "", capability.EffectExternal, false},
		{nil, "skill:s", cmp.EffectAdminister, capability.EffectAdmin, false}, // more care is always taken
		{nil, "skill:s", cmp.EffectRead, capability.EffectExternal, true},     // a label of its own making
		{[]string{nodesource.TrustEffects}, "skill:s", cmp.EffectRead, capability.EffectRead, false},
		{[]string{nodesource.TrustEffects}, "skill:s", cmp.EffectWrite, capability.EffectWrite, false},
		{[]string{nodesource.TrustEffects}, "skill:s", "", capability.EffectExternal, false},
	} {
		m := fleet.Member{ID: "n", Granted: c.granted, Functions: []fleet.Function{{Name: "f", Effect: c.claim, Owner: c.owner}}}
		if c.claimsLabelTo {
			m.Labels = []string{nodesource.TrustEffects}
		}
		r.join(m)
		found := false
		for _, e := range r.entries() {
			if e.Contribution.Member.Name == "f" {
				if found = true; e.Effect != c.want {
					t.Errorf("%+v: %v; want e.Effect = %v", c, e.Effect, c.want)
				}
			}
		}
		if !found {
			t.Errorf("%+v is not in the catalog; want found = true", c)
		}
	}
}

// TestUsersAreThoseOfTheCredential: a node that does not say whose it is remains
// theirs.
func TestUsersAreThoseOfTheCredential(t *testing.T) {
	r := newRig(t, nodesource.Config{})
	r.join(fleet.Member{ID: "n", Granted: []string{"user:ann", "gpu"}, Functions: []fleet.Function{
		{Name: "f", Owner: "node"}, {Name: "g", Owner: "skill:pack"},
	}})
	for name, e := range r.entries() {
		if !slices.Equal(e.Module.Users, []string{"ann"}) {
			t.Errorf(`%s is for %v; want e.Module.Users = []string{"ann"}`, name, e.Module.Users)
		}
	}
}

// TestNamesOfNodesAndSkillsDoNotMeet: no node can name itself, its functions or its
// skills such that another node's are refused, or that its own door is.
func TestNamesOfNodesAndSkillsDoNotMeet(t *testing.T) {
	r := newRig(t, nodesource.Config{})
	r.join(fleet.Member{ID: "a", Functions: []fleet.Function{
		{Name: "invoke", Owner: "node"},
		{Name: "device.function.invoke", Owner: "node"},
		{Name: "fs.list", Owner: "node"},
		{Name: "f", Owner: "skill:b.c"},
	}})
	r.join(fleet.Member{ID: "a.b", Functions: []fleet.Function{
		{Name: "f", Owner: "skill:c"},
		{Name: "f2", Owner: "skill:c~2e"},
		{Name: "f3", Owner: "skill:c."},
	}})
	if refused := r.source.Refused(); len(refused) != 0 {
		t.Fatalf("len(refused) = %v, want 0; refused = %v", len(refused), refused)
	}
	got := r.entries()
	for _, want := range []string{
		"node.a/invoke", "node.a/fs.list", "skill.a.b~2ec/f", "skill.a.b.c/f", "skill.a.b.c~7e2e/f2", "skill.a.b.c~2e/f3",
		"node.a.b/device.function.invoke",
	} {
		if got[want] == nil {
			t.Errorf("%s is not in the catalog; want got[want] not nil", want)
		}
	}
	doors := 0
	for e := range r.catalog.Snapshot().Entries() {
		if e.Action == "device.function.invoke" {
			doors++
		}
		if e.Action == "fs.list" && e.Module.Extension == "node.a" {
			t.Error(`a function takes part in a core action by its name; want not (e.Action == "fs.list" && e.Module.Extension ` +
				`== "node.a")`)
		}
	}
	if doors != 2 {
		t.Errorf("%d doors of two nodes; want doors = 2", doors)
	}
}

// TestRefusedNodeComesBack: a node whose module another source has is told of, takes
// nothing from others, and is in the catalog as soon as it can be.
func TestRefusedNodeComesBack(t *testing.T) {
	r := newRig(t, nodesource.Config{})
	r.join(fleet.Member{ID: "laptop", Functions: offers("f")})
	r.join(fleet.Member{ID: "LAPTOP", Functions: offers("g")})
	if refused := r.source.Refused(); len(refused) != 1 || !strings.Contains(refused["LAPTOP"], "node/laptop") {
		t.Fatalf(`len(refused) = %v, want 1; refused["LAPTOP"] = %q, want it to contain "node/laptop"`, len(refused), refused["LAPTOP"])
	}
	if got := r.entries(); got["node.laptop/f"] == nil || got["node.LAPTOP/g"] != nil {
		t.Fatalf(`got["node.laptop/f"] = %v, want a value; got["node.LAPTOP/g"] = %v, want nil`, got["node.laptop/f"], got["node.LAPTOP/g"])
	}
	n, _ := r.fleet.Get("laptop")
	r.fleet.Drop("laptop", n.Epoch, "gone", true)
	r.settle("laptop")
	r.settle("laptop") // what was freed was taken in the pass after, at the latest
	if got := r.entries(); got["node.LAPTOP/g"] == nil || len(r.source.Refused()) != 0 {
		t.Fatalf(`got["node.LAPTOP/g"] = %v, want a value; len(r.source.Refused()) = %v, want 0; r.source.Refused() = %v`,
			got["node.LAPTOP/g"], len(r.source.Refused()), r.source.Refused())
	}
}

// TestSettledDoesNotWaitForEver: no more messages are published.
func TestSettledDoesNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := nodesource.New(nodesource.Config{Fleet: fleet.New(fleet.Config{Gateway: "g"})})
		s.Changed("n")
		began := time.Now()
		s.Settled(t.Context())
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("time.Since(began) = %v, want at most 5*time.Second", took)
		}
	})
}

// call calls a function of the node n.
func (r *rig) call(name, input string, progress func(capability.Chunk)) (capability.Result, error) {
	r.Helper()
	e := r.entries()["node.n/"+name]
	if e == nil {
		r.Fatalf("no function %s", name)
	}
	c := capability.Call{
		Member: e.Contribution.Member, Input: json.RawMessage(input),
		Principal: capability.Principal{ID: "agent:claude", Role: capability.RoleAgent},
		Watched:   progress != nil, Progress: progress,
	}
	if progress == nil {
		c.Progress = func(capability.Chunk) {}
	}
	return e.Provider.Invoke(r.Context(), c)
}

func TestCall(t *testing.T) {
	var asked gateway.Request
	r := newRig(t, nodesource.Config{
		MaxResult: 100,
		Asset:     func(context.Context, cmp.Asset) ([]byte, error) { return []byte(`{"whole":true}`), nil },
		Caller: said(func(_ context.Context, q gateway.Request) (gateway.Result, error) {
			asked = q
			switch q.Function {
			case "large":
				return gateway.Result{Value: json.RawMessage(`{"$asset":{"digest":"sha256:` + strings.Repeat("a", 64) +
					`","size":14,"media_type":"application/json"}}`)}, nil
			case "larger":
				return gateway.Result{Value: json.RawMessage(`{"$asset":{"digest":"sha256:` + strings.Repeat("a", 64) +
					`","size":101,"media_type":"application/json"}}`)}, nil
			case "lost":
				return gateway.Result{}, cmp.Errorf(cmp.ReasonNodeLost, "gone")
			case "stream":
				if q.Chunk == nil {
					return gateway.Result{Value: json.RawMessage(`[1]`)}, nil
				}
				for i := range 3 {
					if err := q.Chunk(json.RawMessage(fmt.Sprint(i))); err != nil {
						return gateway.Result{}, err
					}
				}
				return gateway.Result{}, nil
			case "flood":
				for range 100_000 {
					if err := q.Chunk(json.RawMessage(`1`)); err != nil {
						return gateway.Result{}, err
					}
				}
				return gateway.Result{}, nil
			}
			return gateway.Result{Value: json.RawMessage(`"done"`)}, nil
		}),
	})
	list := offers("f", "large", "larger", "lost", "stream", "flood")
	list[4].Stream, list[5].Stream = true, true
	r.join(fleet.Member{ID: "n", Functions: list})

	t.Run("arguments by place", func(t *testing.T) {
		got, err := r.call("f", `[1,"two"]`, nil)
		if err != nil || string(got.Value) != `"done"` || len(asked.Arguments.Args) != 2 || asked.Caller.ID != "agent:claude" ||
			asked.Caller.Kind != "agent" {
			t.Fatalf("value = %s, err = %v, call = %+v; want done, two arguments, caller agent:claude", got.Value, err, asked)
		}
		if got.Ran == nil || got.Ran.Node.ID != "n" || got.Ran.Node.Function != "f" {
			t.Fatalf(`got.Ran = %v, want a value and got.Ran.Node.ID = "n" and got.Ran.Node.Function = "f"`, got.Ran)
		}
	})
	t.Run("arguments that are none", func(t *testing.T) {
		if _, err := r.call("f", `{"__args__":3}`, nil); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Fatalf("%v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
		}
	})
	t.Run("large result is fetched", func(t *testing.T) {
		if got, err := r.call("large", `{}`, nil); err != nil || string(got.Value) != `{"whole":true}` {
			t.Fatalf("r.call: err = %v, want nil; string(got.Value) = %q, want \"{\\\"whole\\\":true}\"", err, string(got.Value))
		}
	})
	t.Run("larger one stays a reference", func(t *testing.T) {
		if got, err := r.call("larger", `{}`, nil); err != nil || !strings.Contains(string(got.Value), "$asset") {
			t.Fatalf(`r.call: err = %v, want nil; string(got.Value) = %q, want it to contain "$asset"`, err, string(got.Value))
		}
	})
	t.Run("failure names the node for the record", func(t *testing.T) {
		got, err := r.call("lost", `{}`, nil)
		if e, ok := errors.AsType[*capability.Error](err); !ok || e.Reason != string(cmp.ReasonNodeLost) || got.Ran == nil {
			t.Fatalf("result = %+v, err = %v; want node_lost, with the node that ran it", got, err)
		}
	})
	t.Run("stream is heard in order, and its list is the result", func(t *testing.T) {
		var heard []string
		got, err := r.call("stream", `{}`, func(c capability.Chunk) { heard = append(heard, string(c.Data)) })
		if err != nil || string(got.Value) != `[0,1,2]` || !slices.Equal(heard, []string{"0", "1", "2"}) {
			t.Fatalf(`err = %v, want nil; string(got.Value) = %q, want "[0,1,2]"; heard = %q, want []string{"0", "1", "2"}`,
				err, string(got.Value), heard)
		}
	})
	t.Run("stream that nobody hears is its list", func(t *testing.T) {
		if got, err := r.call("stream", `{}`, nil); err != nil || string(got.Value) != `[1]` {
			t.Fatalf(`r.call: err = %v, want nil; string(got.Value) = %q, want "[1]"`, err, string(got.Value))
		}
	})
	t.Run("many small chunks do not pile up", func(t *testing.T) {
		got, err := r.call("flood", `{}`, func(capability.Chunk) {})
		var end struct {
			ChunkCount int
			Chunks     []int
			Truncated  bool
		}
		if err != nil || json.Unmarshal(got.Value, &end) != nil || !end.Truncated || end.ChunkCount != 100_000 || len(end.Chunks) > 20_000 {
			t.Fatalf("err = %v, %d chunks, %d kept; want 100000, at most 20000, truncated", err, end.ChunkCount, len(end.Chunks))
		}
	})
}

// TestInstallIsRecorded: what the node says of an install goes into the record within
// bounds.
func TestInstallIsRecorded(t *testing.T) {
	for _, c := range []struct{ name, answer, skill, digest string }{
		{"install", `{"installed_skill":"p","installed_skills":{"p":{"sha256":"ab"}}}`, "p", "ab"},
		{"uninstall", `{"skill_name":"p","uninstalled":true}`, "p", ""},
		{"a name without end", `{"installed_skill":"` + strings.Repeat("x", 10_000) + `"}`, "", ""},
		{"a digest without end", `{"installed_skill":"p","installed_skills":{"p":{"sha256":"` + strings.Repeat("a", 10_000) + `"}}}`, "", ""},
		{"nonsense", `[1]`, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nodesource.Config{Caller: said(func(context.Context, gateway.Request) (gateway.Result, error) {
				return gateway.Result{Value: json.RawMessage(c.answer)}, nil
			})})
			r.join(fleet.Member{ID: "n", Functions: offers(cmp.InstallSkill)})
			got, err := r.call(cmp.InstallSkill, `{}`, nil)
			if err != nil || got.Ran.Node.Skill != c.skill || got.Ran.Node.PayloadDigest != c.digest {
				t.Fatalf("%+v %v; want no error, got.Ran.Node.Skill = %v, got.Ran.Node.PayloadDigest = %v",
					got.Ran.Node, err, c.skill, c.digest)
			}
		})
	}
}

func TestOrder(t *testing.T) {
	r := newRig(t, nodesource.Config{Unhealthy: func(function, node string) bool { return function == "f" && node == "c" }})
	for _, id := range []string{"a", "b", "c"} {
		r.join(fleet.Member{ID: id, Labels: []string{"on-" + id}, Functions: offers("f")})
	}
	var all []*catalog.Entry
	for _, id := range []string{"a", "b", "c"} {
		all = append(all, r.entries()["node."+id+"/f"])
	}
	first := func(b capability.Balance, among []*catalog.Entry) string {
		t.Helper()
		order, err := r.source.Order(b, among)
		if err != nil {
			return capability.AsError(err).Reason
		}
		node, _ := nodesource.NodeOf(order[0].Key())
		return node
	}
	for _, c := range []struct {
		name  string
		b     capability.Balance
		among []*catalog.Entry
		want  string
	}{
		{"preferred", capability.Balance{Preferred: []string{"b"}}, all, "b"},
		{"excluded", capability.Balance{Excluded: []string{"a"}}, all, "b"},
		{"label", capability.Balance{Labels: []string{"on-b"}}, all, "b"},
		{"label nobody has", capability.Balance{Labels: []string{"on-z"}}, all, string(cmp.ReasonNoNodes)},
		{"only among those permitted", capability.Balance{Preferred: []string{"a"}}, all[1:2], "b"},
		{"unknown strategy is the default", capability.Balance{Strategy: "psychic", Excluded: []string{"b"}}, all, "a"},
		{"nobody", capability.Balance{}, nil, string(cmp.ReasonNoNodes)},
	} {
		if got := first(c.b, c.among); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	order, err := r.source.Order(capability.Balance{}, all)
	if err != nil || slices.ContainsFunc(order, func(e *catalog.Entry) bool { return e == all[2] }) && order[0] == all[2] {
		t.Error("a node whose circuit is open comes first", err)
	}
}

// TestReferencesOfCallersAreRefused holds that a caller cannot put the content of a call into an asset, of
// which an approver would be shown the digest only.
func TestReferencesOfCallersAreRefused(t *testing.T) {
	sent := 0
	r := newRig(t, nodesource.Config{Caller: said(func(context.Context, gateway.Request) (gateway.Result, error) {
		sent++
		return gateway.Result{Value: json.RawMessage(`1`)}, nil
	})})
	r.join(fleet.Member{ID: "n", Functions: offers("f")})
	p, ok := r.entries()["node.n/f"].Provider.(capability.Previewer)
	if !ok {
		t.Fatalf("%T is not a capability.Previewer, so nothing is refused before the approval", r.entries()["node.n/f"].Provider)
	}
	ref := `{"$asset":{"digest":"sha256:` + strings.Repeat("a", 64) + `","size":14,"media_type":"application/json"}}`
	escaped := strings.Replace(ref, "$asset", `\u0024asset`, 1)
	for _, c := range []struct {
		input   string
		refused bool
	}{
		{`{"doc":` + ref + `}`, true},
		{`{"doc":` + escaped + `}`, true},
		{`{"doc":{"list":[1,` + ref + `]}}`, true},
		{`[` + ref + `]`, true},
		{ref, true},
		{`{"__args__":[` + ref + `],"__kwargs__":{}}`, true},
		{`{"doc":{` + strings.Repeat(" ", 100) + ref[1:] + `}`, true},
		{`{"doc":"$asset"}`, false},
		{`{"doc":{"$assets":{}, "asset":"\u0024asset"}}`, false},
	} {
		_, err := p.Preview(t.Context(), capability.Call{Input: json.RawMessage(c.input)})
		sent = 0
		_, called := r.call("f", c.input, nil)
		for step, err := range map[string]error{"Preview": err, "Invoke": called} {
			if refused := capability.CodeOf(err) == capability.CodeInvalidInput && err != nil; refused != c.refused {
				t.Errorf("%s(%.200s) = %v, want invalid_input: %v", step, c.input, err, c.refused)
			}
		}
		if want := map[bool]int{true: 0, false: 1}[c.refused]; sent != want {
			t.Errorf("%.200s: %d calls reached the node, want %d", c.input, sent, want)
		}
	}
}
