package config

import (
	"strings"
	"testing"
)

func TestAModelIsOneWordThatIsNoOption(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"claude-opus-4.5": true, "openrouter/meta/llama": true, "模型": true, strings.Repeat("é", 200): true,
		"": false, "-model": false, "two words": false, "a\nb": false, "a\u200bb": false, strings.Repeat("é", 201): false,
	} {
		if ValidModel(name) != want {
			t.Errorf("%q: %v; want ValidModel(name) = %v", name, !want, want)
		}
	}
}
