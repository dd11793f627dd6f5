package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
)

// instant is a provider that costs nothing.
type instant struct{ key capability.ProviderKey }

func (p instant) Key() capability.ProviderKey { return p.key }

func (p instant) Invoke(context.Context, capability.Call) (capability.Result, error) {
	return capability.Result{Value: json.RawMessage(`{"ok":true}`)}, nil
}

// engineAlone measures the path without any network: Cedar, selection between
// two providers, and the audit log on this machine's disk.
func engineAlone(sh *sheet) error {
	dir, err := os.MkdirTemp("", "junctor-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	engine, log, db, err := newEngine(ctx, dir)
	if err != nil {
		return err
	}
	defer db.Close()
	defer log.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = log.Run(ctx) // ends with ctx
	}()
	defer func() {
		cancel()
		<-ended
	}()
	fmt.Fprintln(sh.out, "### The engine alone (no network): policy, selection, audit on disk")
	fmt.Fprintln(sh.out)
	fmt.Fprintln(sh.out, "| call | p50 | p99 |")
	fmt.Fprintln(sh.out, "|---|---|---|")
	who := capability.Principal{ID: "operator:bench", Role: capability.RoleOperator}
	for _, c := range []struct {
		name, action string
		budget       float64 // µs
	}{
		{"read", "bench.read", 50},
		{"write (one fsync)", "bench.write", 0},
	} {
		const calls = 4000
		took := make([]time.Duration, 0, calls)
		for range calls {
			began := time.Now()
			_, err := engine.Invoke(ctx, capability.Invocation{
				Surface: "http", Principal: who, Audience: capability.AudienceAgent,
				Target: capability.Target{Action: capability.Action(c.action)}, Input: json.RawMessage(`{"path":"hello.txt","limit":10}`),
			})
			if err != nil {
				return err
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		sh.budget("the engine alone, a "+c.name+": policy, choice, audit", "µs", c.budget, micros(took[calls/2]), "make bench")
		fmt.Fprintf(sh.out, "| %s | %.1f µs | %.1f µs |\n", c.name, micros(took[calls/2]), micros(took[calls*99/100]))
	}
	fmt.Fprintln(sh.out)
	return nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func newEngine(ctx context.Context, dir string) (*invoke.Engine, *audit.Log, *store.DB, error) {
	db, err := store.Open(ctx, filepath.Join(dir, "bench.db"))
	if err != nil {
		return nil, nil, nil, err
	}
	segments, err := segment.Open(filepath.Join(dir, "audit"), segment.Config{})
	if err != nil {
		return nil, nil, nil, err
	}
	mirror, err := segment.OpenMirror(filepath.Join(dir, "logs"), segment.MirrorConfig{})
	if err != nil {
		return nil, nil, nil, err
	}
	log, err := audit.Open(ctx, audit.Config{Segments: segments, Mirror: mirror, Index: db.Audit(""), Key: make([]byte, 32)})
	if err != nil {
		return nil, nil, nil, err
	}
	rules := []policy.Document{{Name: "default.cedar", Text: []byte(policy.DefaultRules())}}
	p, err := policy.New(ctx, policy.Config{Documents: rules, Store: db, Log: log})
	if err != nil {
		return nil, nil, nil, err
	}
	cat, err := catalog.New(catalog.Settings{}, 0)
	if err != nil {
		return nil, nil, nil, err
	}
	for rank, instance := range []string{"near", "far"} {
		key := capability.NewProviderKey("bench", "node", instance)
		var list []capability.Contribution
		for _, effect := range []capability.Effect{capability.EffectRead, capability.EffectWrite} {
			list = append(list, capability.Contribution{
				ID: string(effect), Kind: "capability.agent-tool", Action: capability.Action("bench." + string(effect)),
				Provider: key, Rank: rank, Effect: effect,
			})
		}
		_, _, err := cat.Replace(capability.Batch{
			Source: instance, Providers: []capability.Provider{instant{key}},
			Modules: []capability.Module{{Extension: "bench." + instance, ID: instance, Origin: "node", Contributions: list}},
		})
		if err != nil {
			return nil, nil, nil, err
		}
	}
	return invoke.New(invoke.Config{Catalog: cat, Policy: p, Log: log}), log, db, nil
}
