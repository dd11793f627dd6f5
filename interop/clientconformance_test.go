package interop

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestClientConformance runs the official suite against our side towards upstreams:
// the client, the provider and the OAuth client, in a small program that does what
// each scenario wants done. All that a revision requires has to pass; the extensions
// that do not are in conformance/client.yml.
func TestClientConformance(t *testing.T) {
	node := installed(t)
	program := filepath.Join(t.TempDir(), "conformanceclient")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../internal/testkit/conformanceclient")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*waitTimeout)
			defer cancel()
			conclude(t, exec.CommandContext(ctx, node, filepath.Join("node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js"),
				"client", "--command", program, "--requirements", revision, "--expected-failures", filepath.Join("conformance", "client.yml"), "-o",
				t.TempDir()))
		})
	}
}
