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
