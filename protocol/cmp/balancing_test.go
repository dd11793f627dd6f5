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
			On: true, Strategy: "random", Preferred: []string{"a"}, Excluded: []string{"b"}, Labels: []string{"gpu"}, Tags: []string{"t"}, NeedsGPU: true, MinMemory: 512, Timeout: 1500 * time.Millisecond,
		},
		`{"strategy":"random","timeout_seconds":2,"requirements":{"strategy":"rr"}}`: {On: true, Strategy: "rr", Labels: []string{}, Tags: []string{}, Timeout: 2 * time.Second},
	} {
		got, err := cmp.ParseBalancing(json.RawMessage(in))
		if d := gocmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v %s", in, err, d)
		}
	}
	for _, bad := range []string{`3`, `[]`, `{"strategy":1}`, `{"timeout_ms":-1}`, `{"preferred_node_ids":"a"}`, `{"requirements":{"min_memory_mb":-5}}`, `"fastest_response"`, `{"strategy":"cost_optimized"}`} {
		if _, err := cmp.ParseBalancing(json.RawMessage(bad)); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
}
