package policyfiles_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/policyfiles"
	"github.com/junctor-run/junctor/internal/store"
)

// BenchmarkReload1000 measures the reload of ten files with 1,000 rules in all after one has changed:
// reading, checking, and putting the rules into force.
func BenchmarkReload1000(b *testing.B) {
	dir := b.TempDir()
	file := func(n, generation int) {
		var text strings.Builder
		fmt.Fprintf(&text, "// generation %d\n", generation)
		for i := range 100 {
			fmt.Fprintf(&text, "@id(\"rule-%d-%d\")\npermit (principal == Principal::\"agent:local-agent\", action, resource == Tool::\"files/tool_%d\");\n", n, i, i)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("team-%d.cedar", n)), []byte(text.String()), 0o600); err != nil {
			b.Fatalf("writing the rules: %v", err)
		}
	}
	for n := range 10 {
		file(n, 0)
	}
	files, docs, err := policyfiles.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatalf("opening the files: %v", err)
	}
	db, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "junctor.db"))
	if err != nil {
		b.Fatalf("opening the database: %v", err)
	}
	defer db.Close()
	rules, err := policy.New(b.Context(), policy.Config{Documents: docs, Store: db})
	if err != nil {
		b.Fatalf("loading the rules: %v", err)
	}
	files.Use(rules, func() {})
	generation := 0
	for b.Loop() {
		b.StopTimer()
		generation++
		file(generation%10, generation)
		b.StartTimer()
		files.Reload(b.Context(), capability.Principal{ID: "server", Role: capability.RoleAdmin})
		if err := files.Fault(); err != nil {
			b.Fatalf("reloading: %v", err)
		}
	}
	if got := len(rules.Rules()); got != 1000 {
		b.Fatalf("%d rules are in force, want 1000", got)
	}
}
