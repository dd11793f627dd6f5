package server

import (
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/exec/files"
	"github.com/junctor-run/junctor/internal/exec/gitops"
	"github.com/junctor-run/junctor/internal/exec/terminal"
)

// host carries what this machine can do itself. A new executor is one line here.
func (s *Server) host() (*host.Host, error) {
	h := host.New(host.Config{})
	var functions []host.Function
	functions = append(functions, files.Functions(s.filesConfig())...)
	functions = append(functions, gitops.Functions(s.gitConfig())...)
	functions = append(functions, terminal.Functions(s.terminalConfig())...)
	return h, h.Register(functions...)
}
