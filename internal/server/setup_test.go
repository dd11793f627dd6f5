package server

import (
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/setup"
	"github.com/junctor-run/junctor/internal/upstreams/mcpclient"
)

func TestAMovedServerThatRequiresALoginNamesTheCommands(t *testing.T) {
	t.Parallel()
	refused := capability.Errorf(capability.CodeUnavailable, "mcp.call", "x does not accept our credentials").
		With(mcpclient.ReasonCredentials, "")
	d := setup.Definition{Name: "notes", URL: "https://notes.example/mcp"}
	if got := loginOf(d, refused).Error(); !strings.Contains(got, "junctor mcp add notes --url https://notes.example/mcp --oauth") {
		t.Errorf("loginOf = %q, want the command", got)
	}
	d.HeaderSecrets = map[string]string{"Authorization": "notes-authorization"}
	for _, err := range []error{nil, refused, capability.Errorf(capability.CodeUnavailable, "mcp.call", "unreachable")} {
		if got := loginOf(d, err); got != err { //nolint:errorlint // the same value
			t.Errorf("loginOf(%v) with a credential = %v, want the error itself", err, got)
		}
	}
}
