package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

var at = time.Date(2026, 3, 4, 5, 6, 8, 0, time.UTC)

func TestAVersionWithoutAnEntryIsNotReleased(t *testing.T) {
	t.Parallel()
	const log = "# Changelog\n\n## [Unreleased]\n\n- later\n\n## [1.1.0]\n\n## [1.0.0] - 2026-01-01\n\n### Added\n\n- this\n\n## [0.9.0-rc.1]\n\n- that\n"
	for version, want := range map[string]string{
		"1.0.0":      "## [1.0.0] - 2026-01-01\n\n### Added\n\n- this\n",
		"1.0.0-rc.2": "## [1.0.0] - 2026-01-01\n\n### Added\n\n- this\n",
		"0.9.0-rc.1": "## [0.9.0-rc.1]\n\n- that\n",
	} {
		if got, err := entry(log, version); err != nil || got != want {
			t.Errorf("%s: %q, %v; want no error, got = %v", version, got, err, want)
		}
	}
	for _, version := range []string{"1.1.0", "1.2.0", "0.9.0", "1.0"} {
		if got, err := entry(log, version); err == nil {
			t.Errorf("%s has the entry %q; want an error", version, got)
		}
	}
}

func TestTheChangelogHasAnEntryForWhatIsBuiltNow(t *testing.T) {
	t.Parallel()
	version := regexp.MustCompile(`(?m)^VERSION .*,(\S+)\)$`).FindSubmatch(read(t, "../Makefile"))
	if version == nil {
		t.Fatal("the Makefile has no version; want version not nil")
	}
	if _, err := entry(string(read(t, "../CHANGELOG.md")), string(version[1])); err != nil {
		t.Error(err)
	}
}

func TestVersionsAreSemantic(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"1.2.3": true, "0.1.0-dev": true, "1.0.0-rc.1": true, "": false, "v1.2.3": false, "1.2": false, "1.2.3-": false,
		"1.2.3 -X main.x=y": false, "1.2.3-a b": false,
	} {
		if validVersion(version) != want {
			t.Errorf("%q: %v; want validVersion(version) = %v", version, !want, want)
		}
	}
}

func TestArchivesAreTheSameForTheSameFiles(t *testing.T) {
	t.Parallel()
	files := []packed{{"junctor", []byte("program"), true}, {"README.md", []byte("text"), false}}
	for _, system := range []target{{"linux", "amd64"}, {"windows", "amd64"}} {
		name, first, err := pack("base", system, files, at)
		if err != nil {
			t.Fatal(err)
		}
		_, second, err := pack("base", system, files, at.In(time.FixedZone("elsewhere", 3600)))
		if err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s differs when packed again, %v; want no error, first = %v", name, err, second)
		}
		got := unpacked(t, name, first)
		for _, f := range files {
			if e := got["base/"+f.name]; string(e.data) != string(f.data) || e.run != f.run || !e.at.Equal(at) {
				t.Errorf("%s: base/%s is %+v; want string(e.data) = %v, e.run = %v, e.at.Equal(at)",
					name, f.name, e, string(f.data), f.run)
			}
		}
	}
}

type unpackedFile struct {
	data []byte
	run  bool
	at   time.Time
}

func unpacked(t *testing.T, name string, data []byte) map[string]unpackedFile {
	t.Helper()
	got := make(map[string]unpackedFile)
	if strings.HasSuffix(name, ".zip") {
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			got[f.Name] = unpackedFile{text, f.Mode()&0o100 != 0, f.Modified}
		}
		return got
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Uname != "" {
			t.Errorf(`%s belongs to %d %s; want h.Uid = 0, h.Uname = ""`, h.Name, h.Uid, h.Uname)
		}
		got[h.Name] = unpackedFile{text, h.Mode&0o100 != 0, h.ModTime}
	}
}

// TestTheBillNamesEverythingThatIsLinked is made of this test's own binary. What the
// schema of CycloneDX 1.6 demands is checked by its rules for the parts that we write.
func TestTheBillNamesEverythingThatIsLinked(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := readContents(self)
	if err != nil {
		t.Fatal(err)
	}
	c.modules = append(c.modules, linked([]*debug.Module{
		{Path: "example.com/a", Version: "v1.0.0+incompatible", Sum: "h1:abc"},
		{Path: "example.com/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/c", Version: "v2.0.0"}},
	})...)
	bill, err := c.bill("1.2.3", "0123456789ab", at, target{"linux", "arm64"})
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := c.bill("1.2.3", "0123456789ab", at, target{"linux", "arm64"}); !bytes.Equal(bill, again) {
		t.Errorf("it differs when written again; want bill = %v", again)
	}
	var doc map[string]any
	if err := json.Unmarshal(bill, &doc); err != nil {
		t.Fatal(err)
	}
	// bom-1.6.schema.json: required are bomFormat and specVersion; of a component type and
	// name, of a hash alg and content, of a dependency ref; references are unique and lead
	// somewhere; the serial number and the time have their forms.
	if doc["bomFormat"] != "CycloneDX" || doc["specVersion"] != "1.6" || doc["version"] != 1.0 {
		t.Errorf(`%v %v %v; want doc["bomFormat"] = "CycloneDX", doc["specVersion"] = "1.6", doc["version"] = 1.0`,
			doc["bomFormat"], doc["specVersion"], doc["version"])
	}
	if s, _ := doc["serialNumber"].(string); !regexp.MustCompile(
		`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(s) {
		t.Errorf("serial number %q", s)
	}
	meta, _ := doc["metadata"].(map[string]any)
	if meta["timestamp"] != "2026-03-04T05:06:08Z" {
		t.Errorf(`time %v; want meta["timestamp"] = "2026-03-04T05:06:08Z"`, meta["timestamp"])
	}
	refs := map[string]bool{}
	ours, _ := meta["component"].(map[string]any)
	parts, _ := doc["components"].([]any)
	var names []string
	for _, p := range append([]any{ours}, parts...) {
		part, _ := p.(map[string]any)
		ref, _ := part["bom-ref"].(string)
		name, _ := part["name"].(string)
		if kind := part["type"]; kind != "application" && kind != "library" || name == "" || ref == "" || refs[ref] || ref != part["purl"] {
			t.Errorf("a component is %v", part)
		}
		refs[ref] = true
		names = append(names, name)
	}
	if hashes, _ := ours["hashes"].([]any); len(hashes) != 1 || hashes[0].(map[string]any)["alg"] != "SHA-256" ||
		hashes[0].(map[string]any)["content"] != sum(c.program) {
		t.Errorf(`the program's hash is %v; want len(hashes) = 1, hashes[0].(map[string]any)["alg"] = "SHA-256", `+
			`hashes[0].(map[string]any)["content"] = sum(c.program)`, ours["hashes"])
	}
	for _, name := range []string{"junctor", "std", "example.com/a", "example.com/c"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not named in %v; want names with %v", name, names, name)
		}
	}
	if slices.Contains(names, "example.com/b") || !refs["pkg:golang/example.com/a@v1.0.0%2Bincompatible"] {
		t.Errorf("references are %v", refs)
	}
	needs, _ := doc["dependencies"].([]any)[0].(map[string]any)["dependsOn"].([]any)
	if len(needs) != len(parts) {
		t.Errorf("%d are needed, %d are there; want len(needs) = %v", len(needs), len(parts), len(parts))
	}
	for _, ref := range needs {
		if !refs[ref.(string)] {
			t.Errorf("%v leads nowhere", ref)
		}
	}
}

func TestWhatHasNoLicenceIsNotGivenAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "README"), "text")
	var b bytes.Buffer
	if err := addLicences(&b, "example.com/a", dir); err == nil {
		t.Error("a module without a licence was taken; want an error")
	}
	write(t, filepath.Join(dir, "LICENCE.md"), "may be copied")
	write(t, filepath.Join(dir, "NOTICE"), "was made by somebody")
	write(t, filepath.Join(dir, "license.go"), "package a")
	if err := addLicences(&b, "example.com/a", dir); err != nil || !strings.Contains(b.String(), "may be copied") ||
		!strings.Contains(b.String(), "was made by somebody") {
		t.Errorf(`%v: %s; want no error, b.String() with "may be copied", b.String() with "was made by somebody"`, err, b.String())
	}
	if strings.Contains(b.String(), "package a") {
		t.Error("a source file was taken for a licence")
	}
}

func TestOnlyWhatAReleaseLeftIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{
		"junctor_1.0.0_linux_amd64.tar.gz", "junctor-1.0.0-py3-none-any.whl", "SHA256SUMS", "SHA256SUMS.minisig", "junctor.rb", "mine.txt",
	} {
		write(t, filepath.Join(dir, name), "x")
	}
	if err := emptied(dir); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "mine.txt" {
		t.Errorf(`%v, %v; want no error, len(left) = 1, left[0].Name() = "mine.txt"`, left, err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestNPMPackageIsTheSameForTheSameFiles(t *testing.T) {
	t.Parallel()
	source := fstest.MapFS{
		"LICENSE":                        {Data: []byte("licence")},
		"sdk/typescript/README.md":       {Data: []byte("readme")},
		"sdk/typescript/package.json":    {Data: []byte(`{"name": "junctor", "version": "0.0.0"}`)},
		"sdk/typescript/dist/index.js":   {Data: []byte("export {}")},
		"sdk/typescript/dist/index.d.ts": {Data: []byte("export {}")},
		"sdk/typescript/src/index.ts":    {Data: []byte("export {}")},
	}
	first, err := packTypeScript(source, "1.2.3", at)
	if err != nil {
		t.Fatalf("pack the TypeScript SDK: got %v, want no error", err)
	}
	second, err := packTypeScript(source, "1.2.3", at.In(time.FixedZone("elsewhere", 3600)))
	if err != nil || !bytes.Equal(first, second) {
		t.Errorf("packTypeScript() differs when packed again, %v; want the same bytes", err)
	}
	got := unpacked(t, "x.tar.gz", first)
	for name, want := range map[string]string{
		"package/package.json": `{"name": "junctor", "version": "1.2.3"}`, "package/README.md": "readme", "package/LICENSE": "licence",
		"package/dist/index.js": "export {}", "package/dist/index.d.ts": "export {}",
	} {
		if e := got[name]; string(e.data) != want || e.run || !e.at.Equal(at) {
			t.Errorf("%s = %q, program %v, time %v; want %q, false, %v", name, e.data, e.run, e.at, want, at)
		}
	}
	if _, found := got["package/src/index.ts"]; found {
		t.Error("the package has src/index.ts; want compiled files only")
	}
	delete(source, "sdk/typescript/dist/index.js")
	delete(source, "sdk/typescript/dist/index.d.ts")
	if _, err := packTypeScript(source, "1.2.3", at); err == nil {
		t.Error("packTypeScript(without compiled files) succeeded; want an error")
	}
}

// TestTypeScriptManifestsAgree verifies what a release relies on: the version that is replaced,
// and the versions of the compiler, which the test of the SDK has installed for interop.
func TestTypeScriptManifestsAgree(t *testing.T) {
	t.Parallel()
	type manifest struct {
		Version                       string
		Dependencies, DevDependencies map[string]string
	}
	var sdk, interop manifest
	for path, into := range map[string]*manifest{"../sdk/typescript/package.json": &sdk, "../interop/package.json": &interop} {
		if err := json.Unmarshal(read(t, path), into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	if sdk.Version != "0.0.0" {
		t.Errorf("version = %q, want 0.0.0, which a release replaces", sdk.Version)
	}
	for name, want := range sdk.DevDependencies {
		if got := interop.DevDependencies[name]; got != want {
			t.Errorf("interop has %s %q, want %q as in sdk/typescript", name, got, want)
		}
	}
	for name, accepted := range sdk.Dependencies {
		if got := interop.DevDependencies[name]; "^"+got != accepted {
			t.Errorf("interop tests %s %q, want the lowest version of %q", name, got, accepted)
		}
	}
}
