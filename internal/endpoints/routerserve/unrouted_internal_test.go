package routerserve

import (
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

// TestOnlyAConfiguredPrimaryTakesUnroutedCalls tests every mix of providers of one
// low-level call.
func TestOnlyAConfiguredPrimaryTakesUnroutedCalls(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		offers map[capability.ProviderKey]int // → rank
		want   string                         // the selector's value; "" for none, "!" for a refusal
	}{
		"nobody":                          {nil, ""},
		"this machine":                    {map[capability.ProviderKey]int{"fs:node:local": 50}, "local"},
		"an endpoint beside this machine": {map[capability.ProviderKey]int{"fs:node:local": 50, "fs:endpoint:a": 0}, "local"},
		"a primary beside both": {
			map[capability.ProviderKey]int{"fs:node:local": 50, "fs:endpoint:a": 0, "fs:endpoint:b": 100},
			"fs:endpoint:b",
		},
		"one endpoint that is not primary": {map[capability.ProviderKey]int{"fs:endpoint:a": 0}, "!"},
		"another node":                     {map[capability.ProviderKey]int{"fs:node:phone": 200}, "!"},
		"a primary that is alone":          {map[capability.ProviderKey]int{"fs:endpoint:b": 100}, "fs:endpoint:b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := catalogtest.New(t)
			m := capability.Module{Extension: "x", ID: "x", Origin: "endpoint"}
			for key, rank := range tt.offers {
				m.Contributions = append(m.Contributions, capability.Contribution{
					ID: "fs", Kind: "capability.agent-tool", Action: "fs.list", Provider: key, Rank: rank,
				})
			}
			if _, _, err := c.Replace(capability.Batch{Source: "x", Modules: []capability.Module{m}}); err != nil {
				t.Fatal(err)
			}
			b := &backend{Surface: &Surface{Config: Config{Catalog: c}}}
			got, err := b.unrouted("fs.list")
			if tt.want == "!" {
				if capability.CodeOf(err) != capability.CodeUnavailable || capability.AsError(err).Reason != "no_primary" {
					t.Errorf("%v %v; want capability.CodeOf(err) = capability.CodeUnavailable, capability.AsError(err).Reason = "+
						`"no_primary"`, got, err)
				}
				return
			}
			value := got["node"] + got["provider"]
			if err != nil || value != tt.want {
				t.Errorf("%v %v; want no error, value = %v", got, err, tt.want)
			}
		})
	}
}
