package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// contents is what a binary says was linked into it.
type contents struct {
	program   []byte
	goVersion string // such as go1.26.8
	modules   []module
}

type module struct{ path, version, sum string }

func readContents(binary string) (contents, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return contents{}, err
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return contents{}, err
	}
	return contents{program: program, goVersion: info.GoVersion, modules: linked(info.Deps)}, nil
}

// linked are the modules whose code it is, which a replacement changes.
func linked(deps []*debug.Module) []module {
	var list []module
	for _, d := range deps {
		if d.Replace != nil {
			d = d.Replace
		}
		list = append(list, module{d.Path, d.Version, d.Sum})
	}
	return list
}

// The document, as CycloneDX 1.6 has it; only what we fill in.
type (
	document struct {
		Schema       string       `json:"$schema"`
		Format       string       `json:"bomFormat"`
		Spec         string       `json:"specVersion"`
		Serial       string       `json:"serialNumber"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		PURL       string     `json:"purl"`
		Licenses   []licensed `json:"licenses,omitempty"`
		Hashes     []hash     `json:"hashes,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	licensed struct {
		License struct {
			ID string `json:"id"`
		} `json:"license"`
	}
	hash struct {
		Alg     string `json:"alg"`
		Content string `json:"content"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn"`
	}
)

// bill writes the bill of materials of a binary: itself with its sum, each module in it,
// and Go's own library. A binary does not say which module needed which, so all of them
// are the program's.
func (c contents) bill(version, commit string, at time.Time, t target) ([]byte, error) {
	ours := component{
		Type: "application", Name: "junctor", Version: version, PURL: purl("github.com/junctor-run/junctor", "v"+version),
		Hashes:     []hash{{"SHA-256", sum(c.program)}},
		Properties: []property{{"junctor:commit", commit}, {"junctor:go", c.goVersion}, {"junctor:system", t.String()}},
	}
	ours.Ref = ours.PURL
	ours.Licenses = make([]licensed, 1)
	ours.Licenses[0].License.ID = "Apache-2.0"
	doc := document{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", Spec: "1.6", Version: 1,
		Serial: serial(c.program), Metadata: metadata{at.Format(time.RFC3339), ours},
	}
	needs := []string{}
	for _, m := range append([]module{{path: "std", version: strings.TrimPrefix(c.goVersion, "go")}}, c.modules...) {
		part := component{Type: "library", Ref: purl(m.path, m.version), Name: m.path, Version: m.version, PURL: purl(m.path, m.version)}
		if m.sum != "" { // of the module's files, as go.sum has it; no hash of one file
			part.Properties = []property{{"junctor:go.sum", m.sum}}
		}
		doc.Components = append(doc.Components, part)
		needs = append(needs, part.Ref)
	}
	doc.Dependencies = []dependency{{ours.Ref, needs}}
	data, err := json.MarshalIndent(doc, "", "  ")
	return append(data, '\n'), err
}

// purl names a module as package-url's golang type does.
func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + url.QueryEscape(version)
}

// serial is a UUID that follows from the binary.
func serial(program []byte) string {
	s := sha256.Sum256(append([]byte("junctor bill of materials\n"), program...))
	u := s[:16]
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80 // version 8: of our own making
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
