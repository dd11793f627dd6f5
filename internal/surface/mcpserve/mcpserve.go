// Package mcpserve is /mcp.
package mcpserve

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/invoke"
	"github.com/junctor-run/junctor/internal/surface/door"
)

// Config is what the surface needs.
type Config struct {
	Door      *door.Door
	Engine    *invoke.Engine
	Catalog   *catalog.Catalog
	Version   string
	MaxBody   int64
	PageSize  int
	CursorKey []byte
	Logger    *slog.Logger
}

// Surface serves MCP.
type Surface struct{ cfg Config }

// New returns the surface.
func New(cfg Config) *Surface { return &Surface{cfg: cfg} }

// Routes adds /mcp and /mcp/{view} to mux.
func (s *Surface) Routes(*http.ServeMux) {}

// Run owns what happens without a request; it returns when ctx ends.
func (s *Surface) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// CatalogChanged says that there is a new snapshot or that rules changed.
func (s *Surface) CatalogChanged() {}

// Drain ends the open streams so that the server can stop.
func (s *Surface) Drain() {}

// Versions lists the MCP versions served, newest first.
func Versions() []string { return []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"} }
