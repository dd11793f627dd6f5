package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestStartOfTheShellIsNamed(t *testing.T) {
	t.Parallel()
	const agent, shell = "start a coding agent", "run the text as shell commands"
	for _, tt := range []struct{ body, want string }{
		{`{"task":"ls"}`, agent},
		{`{"task":"ls","agentType":"codex"}`, agent},
		{`{"task":"ls","agentType":"shell"}`, shell},
		{`{"task":"ls","AgentType":"Bash"}`, shell},
		{`{"task":"ls","agents":[{"agentType":"codex"},{"agentType":"shell"}]}`, shell},
		{`{"task":`, agent},
	} {
		for _, path := range []string{"/api/coding-agents/coordinator/threads", "/api/task-agents/spawn"} {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(tt.body))
			if got := dangerous(r, []byte(tt.body)); got != tt.want {
				t.Errorf("dangerous(POST %s, %s) = %q, want %q", path, tt.body, got, tt.want)
			}
		}
	}
}

func TestDiscardingWorkNeedsConfirmation(t *testing.T) {
	for _, tt := range []struct{ method, path, want string }{
		{http.MethodDelete, "/api/workspace/ws-1?force=true", "discard workspace/ws-1"},
		{http.MethodGet, "/api/workspace/ws-1", ""},
		{http.MethodPost, "/api/coding-agents/s-1/scratch/delete", "discard coding-agents/s-1/scratch"},
		{http.MethodPost, "/api/coding-agents/coordinator/threads/thr_1/discard", "discard the work of coding-agents/coordinator/threads/thr_1"},
	} {
		if got := dangerous(httptest.NewRequest(tt.method, tt.path, nil), nil); got != tt.want {
			t.Errorf("dangerous(%s %s) = %q, want %q", tt.method, tt.path, got, tt.want)
		}
	}
}
