// Package stdiobridge carries MCP between a program's standard streams and the
// /mcp door of a running server: newline-delimited JSON-RPC on one side, the
// streamable HTTP transport on the other. It decides nothing and starts no
// server; catalog, grants and audit stay where they are shared (spec
// mcp-and-a2a, section 2.1).
package stdiobridge

import (
	"context"
	"errors"
	"io"

	"github.com/junctor-run/junctor/secret"
)

// Config is what a bridge needs. In, Out, URL and Token are required.
type Config struct {
	In  io.Reader // one JSON-RPC message a line
	Out io.Writer // MCP messages and nothing else
	Err io.Writer // words for people; nil: nobody reads them
	// URL is the address of the server, "http://127.0.0.1:7411"; the bridge adds
	// /mcp and the view.
	URL   string
	Token secret.Value
	View  string // "": the token's default view
}

// Run bridges until In ends or ctx does.
func Run(_ context.Context, cfg Config) error {
	if cfg.In == nil || cfg.Out == nil || cfg.URL == "" {
		return errors.New("the bridge needs an input, an output and the server's address")
	}
	return errors.New("the bridge is not built yet")
}
