package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryPartNamesABenchmarkThatExists reads the tests of each package that `make bench` runs.
func TestEveryPartNamesABenchmarkThatExists(t *testing.T) {
	t.Parallel()
	for _, p := range partsList() {
		name, _, _ := strings.Cut(p.bench, "/")
		declaration := regexp.MustCompile(`(?m)^func Benchmark` + name + `\(`)
		files, err := filepath.Glob(filepath.Join("..", p.pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || declaration.Match(data)
		}
		if !found {
			t.Errorf("%s: got no Benchmark%s in %s, want one", p.what, name, p.pkg)
		}
	}
}
