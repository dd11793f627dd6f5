package agents

import (
	"slices"
	"testing"
)

func TestWhatOfAnEnvironmentIsMasked(t *testing.T) {
	env := []string{"ANTHROPIC_API_KEY=one", "ELIZA_HOOK_TOKEN=two", "HOME=/home/me", "MY_WORD=three", "PATH=/bin", "db_password=four=4"}
	want := []string{"one", "two", "three", "four=4"}
	if got := credentials(env, map[string]string{"MY_WORD": "three"}); !slices.Equal(got, want) {
		t.Errorf("%q; want got = %v", got, want)
	}
}
