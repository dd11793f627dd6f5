package local

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/testkit/providertest"
)

func tool(id string, handle func(context.Context, capability.Call) (capability.Result, error)) host.Function {
	return host.Function{ID: id, Tool: id, Effect: capability.EffectRead, Handle: handle}
}

func echo(_ context.Context, c capability.Call) (capability.Result, error) {
	return capability.Result{Value: append([]byte(nil), c.Input...)}, nil
}

func member(name string) capability.Call {
	return capability.Call{Member: capability.Member{Module: "local", Kind: "function", Name: name}}
}

func TestContract(t *testing.T) {
	providertest.Run(t, func(t *testing.T) providertest.Harness {
		h := host.New(host.Config{})
		var report func(capability.Chunk)
		err := h.Register(
			tool("echo", echo),
			tool("block", func(ctx context.Context, _ capability.Call) (capability.Result, error) {
				<-ctx.Done()
				return capability.Result{}, ctx.Err()
			}),
			tool("chatty", func(_ context.Context, c capability.Call) (capability.Result, error) {
				report = c.Progress
				report(capability.Chunk{Progress: 1})
				report(capability.Chunk{Progress: 2})
				return capability.Result{Value: []byte(`{}`)}, nil
			}),
		)
		if err != nil {
			t.Fatal(err)
		}
		return providertest.Harness{
			Source: New(h), Echo: member("echo"), Block: member("block"), Chatty: member("chatty"), Unknown: member("gone"),
			Late: func() { report(capability.Chunk{Progress: 3}) },
			Change: func() {
				if err := h.Register(tool("more", echo)); err != nil {
					t.Error(err)
				}
			},
		}
	})
}

// one runs the source for its first batch only.
func one(t *testing.T, h *host.Host) capability.Batch {
	t.Helper()
	var got capability.Batch
	enough := errors.New("enough")
	err := New(h).Run(t.Context(), func(b capability.Batch) error { got = b; return enough })
	if !errors.Is(err, enough) {
		t.Fatalf("%v; want err is %v", err, enough)
	}
	return got
}

func TestCanonicalActionsTakeTheirFormFromTheRegistry(t *testing.T) {
	t.Parallel()
	h := host.New(host.Config{})
	err := h.Register(
		host.Function{ID: "fs.list", Action: "fs.list", Handle: echo},
		host.Function{ID: "fs.writeText", Action: "fs.writeText", Effect: capability.EffectRead, Handle: echo},
		host.Function{ID: "git.status", Action: "git.status", Unavailable: "no root directory is configured"},
		tool("hello", echo),
	)
	if err != nil {
		t.Fatal(err)
	}
	batch := one(t, h)
	if len(batch.Modules) != 1 || batch.Source != "local" || batch.Modules[0].Extension != "local" {
		t.Fatalf(`got %+v; want len(batch.Modules) = 1, batch.Source = "local", batch.Modules[0].Extension = "local"`, batch)
	}
	type row struct {
		ID       string
		Provider capability.ProviderKey
		Effect   capability.Effect
		State    capability.State
		Reason   string
		Rank     int
		Member   string
	}
	var got []row
	for _, c := range batch.Modules[0].Contributions {
		got = append(got, row{c.ID, c.Provider, c.Effect, c.Availability.State, c.Availability.Reason, c.Rank, c.Member.String()})
		if canonical, known := actions.Lookup(c.Action); known &&
			(c.Title != canonical.Title || string(c.InputSchema) != string(canonical.InputSchema)) {
			t.Errorf("%s does not have its registry form", c.ID)
		}
	}
	want := []row{
		{"fs.list", "fs:node:local", "read", "ready", "", 50, "local:function:fs.list"},
		{"fs.writeText", "fs:node:local", "write", "ready", "", 50, "local:function:fs.writeText"},
		{"git.status", "git:node:local", "read", "unconfigured", "no root directory is configured", 50, "local:function:git.status"},
		{"hello", "ext:node:local", "read", "ready", "", 50, "local:function:hello"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	if len(batch.Providers) != 3 {
		t.Errorf("%d providers, want fs, git and ext", len(batch.Providers))
	}
}

func TestAnEmptyHostWithdrawsTheModule(t *testing.T) {
	t.Parallel()
	if batch := one(t, host.New(host.Config{})); batch.Source != "local" || len(batch.Modules) != 0 {
		t.Errorf(`got %+v; want batch.Source = "local", len(batch.Modules) = 0`, batch)
	}
}
