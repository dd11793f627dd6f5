package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
)

const formulaName = "junctor.rb"

//go:embed junctor.rb.tmpl
var formulaText string

type formulaSystem struct {
	Brew     string // Homebrew's name
	Archives []formulaArchive
}

type formulaArchive struct{ Brew, Name, Sum string }

// formula returns a formula of Homebrew for the archives in sums, or nil if one of the four
// systems that Homebrew runs on was not built. The archives are below p.downloads or, if that
// is empty, where the host of the module keeps the files of a release.
func (p product) formula(sums map[string]string) ([]byte, error) {
	module, err := p.module()
	if err != nil {
		return nil, err
	}
	downloads := p.downloads
	if downloads == "" {
		downloads = "https://" + module + "/releases/download/v" + p.version
	}
	if u, err := url.Parse(downloads); err != nil || u.Scheme != "https" || u.Host == "" || strings.ContainsAny(downloads, "\"\\#\n") {
		return nil, fmt.Errorf("the downloads %q are not an https URL", downloads)
	}
	var systems []formulaSystem
	for _, system := range []struct{ brew, goos string }{{"macos", "darwin"}, {"linux", "linux"}} {
		list := formulaSystem{Brew: system.brew}
		for _, arch := range []struct{ brew, goarch string }{{"arm", "arm64"}, {"intel", "amd64"}} {
			name := p.name(system.goos + "_" + arch.goarch + ".tar.gz")
			if sums[name] == "" {
				return nil, nil
			}
			list.Archives = append(list.Archives, formulaArchive{arch.brew, name, sums[name]})
		}
		systems = append(systems, list)
	}
	t, err := template.New(formulaName).Parse(formulaText)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, map[string]any{
		"Module": module, "Version": p.version, "Downloads": strings.TrimSuffix(downloads, "/"), "Systems": systems,
	})
	return b.Bytes(), err
}

// module returns the module path of the source.
func (p product) module() (string, error) {
	data, err := os.ReadFile(filepath.Join(p.source, "go.mod"))
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(`(?m)^module (\S+)$`).FindSubmatch(data)
	if m == nil {
		return "", errors.New("go.mod has no module path")
	}
	return string(m[1]), nil
}
