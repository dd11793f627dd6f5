package server

import (
	"cmp"
	"context"
	"encoding/hex"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/setup"
	"github.com/junctor-run/junctor/internal/setup/declared"
	"github.com/junctor-run/junctor/internal/upstreams"
	"github.com/junctor-run/junctor/internal/upstreams/mcpclient"
)

// openSetup creates the service that connects MCP clients of the user who runs the server.
func (s *Server) openSetup() error {
	user, _ := os.UserHomeDir() // "" for a service account without a home: no client is found
	program, err := os.Executable()
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "setup", "the path of this program is not known", err)
	}
	gateway := ""
	if s.shared.Shared() {
		id, err := s.home.key("gateway.id") // unlike the gateway's name it never changes
		if err != nil {
			return capability.Wrap(capability.CodeFailed, "home", "the gateway's id cannot be kept", err)
		}
		gateway = hex.EncodeToString(id[:8])
	}
	s.setup, err = setup.New(setup.Config{
		Dir: s.home.Path("clients"), UserHome: cmp.Or(user, "/"), Env: os.Getenv, Command: BridgeCommand(program, s.home.Dir),
		Upstreams: movedServers{s.upstreams}, Secrets: s.secrets, URL: setup.LocalURL(s.Address()) + "/mcp",
		URLEnds: strings.HasSuffix(s.cfg.Listen, ":0"), Tokens: s.policy, Door: s.door, Logger: s.logger,
		Declared: declared.Config{
			Home: s.home.Dir, Gateway: gateway, Upstreams: s.upstreams.Declarations(), Endpoints: s.endpoints.Declarations(), Logger: s.logger,
		},
	})
	return err
}

// BridgeCommand returns the command of the stdio bridge to the server of a home, for programs that
// do not have this environment.
func BridgeCommand(program, home string) []string {
	if usual, err := FindHome(""); err != nil || usual != home || os.Getenv("JUNCTOR_HOME") != "" {
		return []string{program, "--home", home, "mcp"}
	}
	return []string{program, "mcp"}
}

// movedServers implements setup.Upstreams.
type movedServers struct{ *upstreams.Service }

func (m movedServers) Find(d setup.Definition) (out []setup.Definition) {
	for _, r := range m.Records() {
		same := r.URL == d.URL && r.Dir == d.Dir && slices.Equal(r.Command, d.Program())
		if same && maps.Equal(r.Env, d.Env) && maps.Equal(r.Headers, d.Headers) {
			out = append(out, setup.Definition{Name: r.Name, EnvSecrets: r.EnvSecrets, HeaderSecrets: r.HeaderSecrets})
		}
	}
	return out
}

func (m movedServers) Has(name string) bool {
	return slices.ContainsFunc(m.Records(), func(r upstreams.Record) bool { return r.Name == name })
}

func (m movedServers) Check(d setup.Definition) error {
	return m.Confinable(upstreams.Record{Name: d.Name, Command: d.Program(), ReadOnly: d.ReadOnly, ReadWrite: d.ReadWrite})
}

func (m movedServers) Add(ctx context.Context, by capability.Principal, d setup.Definition) (int, error) {
	tools, err := m.Service.Add(ctx, by, upstreams.Record{
		Name: d.Name, Command: d.Program(), Dir: d.Dir, URL: d.URL, Env: d.Env, EnvSecrets: d.EnvSecrets, Headers: d.Headers,
		HeaderSecrets: d.HeaderSecrets, HintsTrusted: d.TrustHints, ReadOnly: d.ReadOnly, ReadWrite: d.ReadWrite,
	})
	return tools, loginOf(d, err)
}

// loginOf replaces the error of a server that requires a login by one that names the commands for it,
// because the login that the client holds cannot be moved.
func loginOf(d setup.Definition, err error) error {
	e := capability.AsError(err)
	if e == nil || e.Reason != mcpclient.ReasonCredentials || d.URL == "" || len(d.HeaderSecrets) > 0 {
		return err
	}
	return capability.Wrap(e.Code, "setup", "it requires a login, which the client holds; to move it, run: junctor mcp add "+d.Name+" --url "+
		d.URL+" --oauth, and: junctor mcp login "+d.Name, err).With(mcpclient.ReasonCredentials, "")
}
