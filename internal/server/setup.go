package server

import (
	"context"
	"encoding/hex"
	"maps"
	"os"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/setup"
	"github.com/junctor-run/junctor/internal/setup/declared"
	"github.com/junctor-run/junctor/internal/upstreams"
)

// openSetup creates the service that connects MCP clients of the user who runs the server.
func (s *Server) openSetup() error {
	user, err := os.UserHomeDir()
	if err != nil {
		user = "/" // a service account without a home: no client is found
	}
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
	command := []string{program, "mcp"}
	if usual, err := FindHome(""); err != nil || usual != s.home.Dir || os.Getenv("JUNCTOR_HOME") != "" {
		command = []string{program, "--home", s.home.Dir, "mcp"} // clients do not have this environment
	}
	s.setup, err = setup.New(setup.Config{
		Dir: s.home.Path("clients"), UserHome: user, Env: os.Getenv, Command: command, Upstreams: movedServers{s.upstreams}, Secrets: s.secrets,
		Tokens: s.policy, Door: s.door, Logger: s.logger,
		Declared: declared.Config{
			Home: s.home.Dir, Gateway: gateway, Upstreams: s.upstreams.Declarations(), Endpoints: s.endpoints.Declarations(), Logger: s.logger,
		},
	})
	return err
}

// movedServers implements setup.Upstreams.
type movedServers struct{ *upstreams.Service }

func (m movedServers) Find(d setup.Definition) (out []setup.Definition) {
	for _, r := range m.Records() {
		same := r.URL == d.URL && r.Dir == d.Dir && slices.Equal(r.Command, commandOf(d))
		if same && maps.Equal(r.Env, d.Env) && maps.Equal(r.Headers, d.Headers) {
			out = append(out, setup.Definition{Name: r.Name, EnvSecrets: r.EnvSecrets, HeaderSecrets: r.HeaderSecrets})
		}
	}
	return out
}

func (m movedServers) Has(name string) bool {
	return slices.ContainsFunc(m.Records(), func(r upstreams.Record) bool { return r.Name == name })
}

func (m movedServers) Add(ctx context.Context, by capability.Principal, d setup.Definition) (int, error) {
	return m.Service.Add(ctx, by, upstreams.Record{
		Name: d.Name, Command: commandOf(d), Dir: d.Dir, URL: d.URL, Env: d.Env, EnvSecrets: d.EnvSecrets, Headers: d.Headers,
		HeaderSecrets: d.HeaderSecrets, HintsTrusted: d.TrustHints, ReadOnly: d.ReadOnly, ReadWrite: d.ReadWrite,
	})
}

func commandOf(d setup.Definition) []string {
	if d.Command == "" {
		return nil
	}
	return append([]string{d.Command}, d.Args...)
}
