package cmp

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Balancing is a request to choose one of several nodes for a call.
type Balancing struct {
	On        bool
	All       bool   // call every node that offers the function (strategy broadcast)
	Strategy  string // as received; an unknown one counts as the default
	Preferred []string
	Excluded  []string
	Labels    []string
	Tags      []string
	NeedsGPU  bool
	MinMemory int           // MiB
	Timeout   time.Duration // 0: not set
}

// ParseBalancing parses a load_balancing value. Absent, null and false request no balancing; true and
// the name of a strategy request it, and an object has further settings, of which unknown
// members are ignored. Errors are invalid_params.
func ParseBalancing(v json.RawMessage) (b Balancing, err error) {
	if len(v) == 0 || string(v) == "null" {
		return b, nil
	}
	switch v[0] {
	case 't', 'f':
		b.On, err = Bool(v, "load_balancing", false)
		return b, err
	case '"':
		b.On = true
		b.Strategy, err = String(v, "load_balancing")
		b.Strategy = strings.TrimSpace(b.Strategy)
		if err == nil {
			err = b.strategy()
		}
		return b, err
	case '{':
	default:
		return b, Errorf(ReasonParams, "load_balancing must be true, false, the name of a strategy or an object")
	}
	var in struct {
		Strategy     string   `json:"strategy"`
		Preferred    []string `json:"preferred_node_ids"`
		Excluded     []string `json:"excluded_node_ids"`
		TimeoutMS    float64  `json:"timeout_ms"`
		TimeoutS     float64  `json:"timeout_seconds"`
		Requirements struct {
			Labels    []string `json:"labels"`
			Tags      []string `json:"tags"`
			GPU       bool     `json:"gpu_required"`
			MinMemory float64  `json:"min_memory_mb"`
			Override  string   `json:"load_balancing_strategy"`
			Strategy  string   `json:"strategy"`
		} `json:"requirements"`
	}
	if err := jsonx.Unmarshal(v, &in); err != nil {
		return b, Errorf(ReasonParams, "load_balancing: %s", err)
	}
	need := in.Requirements
	for name, list := range map[string][]string{
		"preferred_node_ids": in.Preferred, "excluded_node_ids": in.Excluded, "requirements.labels": need.Labels, "requirements.tags": need.Tags,
	} {
		if len(list) > maxNodes || slices.ContainsFunc(list, func(s string) bool { return len(s) > MaxName }) {
			return b, Errorf(ReasonParams, "load_balancing.%s has more than %d entries, or one of more than %d bytes", name, maxNodes, MaxName)
		}
	}
	if in.TimeoutMS < 0 || in.TimeoutS < 0 || need.MinMemory < 0 {
		return b, Errorf(ReasonParams, "load_balancing: times and sizes are not negative")
	}
	b = Balancing{
		On: true, Strategy: in.Strategy, Preferred: in.Preferred, Excluded: in.Excluded, Labels: Words(need.Labels), Tags: Words(need.Tags),
		NeedsGPU: need.GPU, MinMemory: int(min(need.MinMemory, 1<<30)),
	}
	for _, s := range []string{need.Strategy, need.Override} { // the last one that is set applies
		if s != "" {
			b.Strategy = s
		}
	}
	seconds := in.TimeoutS
	if in.TimeoutMS > 0 {
		seconds = in.TimeoutMS / 1000
	}
	b.Timeout = time.Duration(min(seconds, 86400) * float64(time.Second))
	return b, b.strategy()
}

// strategy replaces the strategy broadcast by All, and returns invalid_params for two strategies that
// the original declares but does not implement.
func (b *Balancing) strategy() error {
	switch b.Strategy {
	case "broadcast":
		b.All, b.Strategy = true, ""
	case "fastest_response", "cost_optimized":
		return Errorf(ReasonParams, "load_balancing: the strategy %s is not offered; there are resource_aware, round_robin, random and broadcast", b.Strategy)
	}
	return nil
}
