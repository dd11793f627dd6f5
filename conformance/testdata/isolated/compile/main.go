// Command compile makes the browser bundle: the source of a view with its
// imports put in the place of the import lines, so that one file is all there is
// to load.
//
//	compile <source> <bundle>
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var importLine = regexp.MustCompile(`(?m)^import .* from "(\./[a-z-]+\.js)";\n`)

func main() {
	if err := compile(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func compile(source, bundle string) error {
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	var failed error
	out := importLine.ReplaceAllStringFunc(string(text), func(line string) string {
		name := filepath.Join(filepath.Dir(source), importLine.FindStringSubmatch(line)[1])
		part, err := os.ReadFile(name)
		if err != nil {
			failed = err
		}
		return strings.ReplaceAll(string(part), "export ", "")
	})
	if failed != nil {
		return failed
	}
	return os.WriteFile(bundle, []byte("// compiled from "+filepath.Base(source)+"\n"+out), 0o644)
}
