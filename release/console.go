package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// consoleDir is the folder of the web console below the source.
const consoleDir = "internal/console/web"

// makeConsole makes the page of the web console in a source tree, where go build embeds it. A
// release needs it, so npm is required.
func makeConsole(ctx context.Context, source string) error {
	if _, err := exec.LookPath("npm"); err != nil {
		return fmt.Errorf("npm is needed for the page of the web console: %w", err)
	}
	install := []string{"ci", "--prefix", consoleDir, "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"}
	if _, err := output(ctx, source, "npm", install...); err != nil {
		return fmt.Errorf("the packages of the web console: %w", err)
	}
	_, err := output(ctx, source, "go", "-C", "tools", "run", "-buildvcs=false", "./bundle", filepath.Join(source, consoleDir))
	return err
}

// consolePackages yields the packages in the page with the folder of each, in the order of their
// names. The lock file lists them; those that only checks and tests use are marked dev.
func (m *maker) consolePackages() (iter.Seq2[string, string], error) {
	data, err := os.ReadFile(filepath.Join(m.source, consoleDir, "package-lock.json"))
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			Version string
			Dev     bool
		}
	}
	if err := json.Unmarshal(data, &lock); err != nil {
		return nil, fmt.Errorf("package-lock.json of the web console: %w", err)
	}
	return func(yield func(string, string) bool) {
		for _, path := range slices.Sorted(maps.Keys(lock.Packages)) {
			name, ok := strings.CutPrefix(path, "node_modules/")
			if !ok || lock.Packages[path].Dev {
				continue
			}
			if !yield(name+" "+lock.Packages[path].Version, filepath.Join(m.source, consoleDir, path)) {
				return
			}
		}
	}, nil
}
