package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// licenceFile are the names of files that have to go along with what is linked.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|copyright)([._-].*)?$`)

// licences returns the licences and notices of everything that is linked into a binary,
// Go's own first. A module without one is an error: it may not be given away.
func (m *maker) licences(ctx context.Context, t target, c contents) ([]byte, error) {
	root, err := output(ctx, m.source, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	said, err := output(ctx, m.source, "env", "GOOS="+t.os, "GOARCH="+t.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off",
		"go", "list", "-deps", "-f", "{{with .Module}}{{with .Replace}}{{.Path}}{{else}}{{.Path}}{{end}}\t{{.Dir}}{{end}}", "./cmd/junctor")
	if err != nil {
		return nil, err
	}
	dirs := make(map[string]string)
	for line := range strings.Lines(said) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		dirs[path] = dir
	}
	var b bytes.Buffer
	b.WriteString("junctor contains code of others, under these licences.\n")
	if err := addLicences(&b, "the Go standard library, "+c.goVersion, strings.TrimSpace(root)); err != nil {
		return nil, err
	}
	for _, mod := range c.modules {
		if err := addLicences(&b, mod.path+" "+mod.version, dirs[mod.path]); err != nil {
			return nil, err
		}
	}
	packages, err := m.consolePackages()
	if err != nil {
		return nil, err
	}
	for name, dir := range packages {
		if err := addLicences(&b, name+", in the web console", dir); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func addLicences(b *bytes.Buffer, name, dir string) error {
	if dir == "" {
		return fmt.Errorf("%s is linked, and is not in the module cache", name)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, f := range files {
		if f.IsDir() || filepath.Ext(f.Name()) == ".go" || !licenceFile.MatchString(f.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(b, "\n%s\n%s: %s\n%s\n\n%s\n", strings.Repeat("=", 78), name, f.Name(), strings.Repeat("=", 78), bytes.TrimSpace(text))
	}
	if !found {
		return fmt.Errorf("%s is linked, and comes without a licence", name)
	}
	return nil
}
