package cmp_test

import (
	"encoding/json"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/protocol/cmp"
)

func TestBalancingIsReadInEveryForm(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]cmp.Balancing{
		``: {}, `null`: {}, `false`: {},
		`true`:        {On: true},
		`" rr "`:      {On: true, Strategy: "rr"},
		`"broadcast"`: {On: true, All: true},
		`{}`:          {On: true, Labels: []string{}, Tags: []string{}},
		`{"strategy":"random","cost_limit":3,"timeout_ms":1500,"preferred_node_ids":["a"],"excluded_node_ids":["b"],"requirements":{"labels":["gpu"," "],"tags":["t"],"gpu_required":true,"min_memory_mb":512}}`: {
			On: true, Strategy: "random", Preferred: []string{"a"}, Excluded: []string{"b"}, Labels: []string{"gpu"}, Tags: []string{"t"},
			NeedsGPU: true, MinMemory: 512, Timeout: 1500 * time.Millisecond,
		},
		`{"strategy":"random","timeout_seconds":2,"requirements":{"strategy":"rr"}}`: {
			On: true, Strategy: "rr", Labels: []string{},
			Tags: []string{}, Timeout: 2 * time.Second,
		},
	} {
		got, err := cmp.ParseBalancing(json.RawMessage(in))
		if d := gocmp.Diff(want, got); err != nil || d != "" {
			t.Errorf(`%s: %v %s; want no error, d = ""`, in, err, d)
		}
	}
	for _, bad := range []string{
		`3`, `[]`, `{"strategy":1}`, `{"timeout_ms":-1}`, `{"preferred_node_ids":"a"}`,
		`{"requirements":{"min_memory_mb":-5}}`, `"fastest_response"`, `{"strategy":"cost_optimized"}`,
	} {
		if _, err := cmp.ParseBalancing(json.RawMessage(bad)); err == nil {
			t.Errorf("%s is read; want an error", bad)
		}
	}
}

// FuzzParseBalancing: whatever comes, what is taken is within the limits.
func FuzzParseBalancing(f *testing.F) {
	for _, seed := range []string{
		`true`, `"random"`, `{"strategy":"rr","preferred_node_ids":["a"],"timeout_ms":1e300,"requirements":{"labels":["x"],"min_memory_mb":1e300}}`, `{"timeout_seconds":-1}`, `[]`, `nul`, `t`, `"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := cmp.ParseBalancing(data)
		if err != nil {
			return
		}
		if !b.On && (b.Strategy != "" || b.Preferred != nil || b.Timeout != 0) {
			t.Fatalf(`%+v; want not (!b.On && (b.Strategy != "" || b.Preferred != nil || b.Timeout != 0))`, b)
		}
		if b.Timeout < 0 || b.Timeout > 24*time.Hour || b.MinMemory < 0 || len(b.Preferred) > 256 || len(b.Labels) > 256 {
			t.Fatalf("%+v; want b.Timeout at least 0, b.Timeout at most 24 * time.Hour, b.MinMemory at least 0, "+
				"len(b.Preferred) at most 256, len(b.Labels) at most 256", b)
		}
	})
}
