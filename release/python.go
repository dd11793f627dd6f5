package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// pythonName is the name of the Python SDK's distribution. Its import name is always junctor.
const pythonName = "junctor"

const (
	pythonSource  = "sdk/python"
	pythonVersion = "junctor/_version.py"
)

// isPythonPackage reports whether a file has the name of a wheel or a source distribution of ours.
func isPythonPackage(name string) bool {
	return regexp.MustCompile(`^` + pythonName + `-\d[^/]*(-py3-none-any\.whl|\.tar\.gz)$`).MatchString(name)
}

// writePython writes the wheel and the source distribution of the Python SDK. Both are made here, from
// the commit and without a build backend, so that the same commit is the same bytes.
func (m *maker) writePython() error {
	license, err := os.ReadFile(filepath.Join(m.source, "LICENSE"))
	if err != nil {
		return err
	}
	sdk, err := readPython(filepath.Join(m.source, filepath.FromSlash(pythonSource)))
	if err != nil {
		return err
	}
	for _, make := range []func([]packed, []byte, string, time.Time) (string, []byte, error){wheel, sdist} {
		name, data, err := make(sdk, license, m.version, m.at)
		if err != nil {
			return err
		}
		if err := m.write(name, data); err != nil {
			return err
		}
	}
	return nil
}

// readPython returns the files of the SDK in the order of their names, without caches and hidden files.
func readPython(dir string) ([]packed, error) {
	var files []packed
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "__pycache__":
			return fs.SkipDir
		case d.IsDir() || strings.HasPrefix(d.Name(), "."):
			return nil
		}
		data, err := fs.ReadFile(root, name)
		files = append(files, packed{name: name, data: data})
		return err
	})
	return files, err
}

var preRelease = regexp.MustCompile(`^(alpha|beta|rc)\.?(\d+)$`)

// pythonVersionOf returns a version of ours in the form of PEP 440. A pre-release that has no equivalent
// there is a development release, which sorts before the release as well.
func pythonVersionOf(version string) string {
	core, pre, found := strings.Cut(version, "-")
	switch m := preRelease.FindStringSubmatch(pre); {
	case !found:
		return core
	case m != nil:
		return core + map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[m[1]] + m[2]
	case pre == "dev":
		return core + ".dev0"
	}
	return core + ".dev0+" + strings.ToLower(strings.ReplaceAll(pre, "-", "."))
}

// withVersion returns the files with the version of the release in them.
func withVersion(files []packed, version string) ([]packed, error) {
	line := regexp.MustCompile(`(?m)^__version__ = ".*"$`)
	out := slices.Clone(files)
	for i, f := range out {
		if f.name == pythonVersion && line.Match(f.data) {
			out[i].data = line.ReplaceAllLiteral(f.data, fmt.Appendf(nil, "__version__ = %q", version))
			return out, nil
		}
	}
	return nil, fmt.Errorf("%s/%s has no version", pythonSource, pythonVersion)
}

// pythonMetadata returns the description of the distribution, whose dependencies are those of pyproject.toml.
func pythonMetadata(files []packed, version string) ([]byte, error) {
	at := func(name string) []byte {
		for _, f := range files {
			if f.name == name {
				return f.data
			}
		}
		return nil
	}
	project := at("pyproject.toml")
	text := func(key string) string {
		m := regexp.MustCompile(`(?m)^` + key + ` = "(.*)"$`).FindSubmatch(project)
		if m == nil {
			return ""
		}
		return string(m[1])
	}
	if text("requires-python") == "" || text("description") == "" {
		return nil, fmt.Errorf("%s/pyproject.toml has no description or requires-python", pythonSource)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "Metadata-Version: 2.1\nName: %s\nVersion: %s\nSummary: %s\nLicense: Apache-2.0\nRequires-Python: %s\n", pythonName, version,
		text("description"), text("requires-python"))
	_, extras, _ := strings.Cut(string(project), "[project.optional-dependencies]\n")
	extras, _, _ = strings.Cut(extras, "\n\n")
	for _, m := range regexp.MustCompile(`(?m)^(\w+) = \[(.*)\]$`).FindAllStringSubmatch(extras, -1) {
		fmt.Fprintf(&b, "Provides-Extra: %s\n", m[1])
		for _, requirement := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(m[2], -1) {
			fmt.Fprintf(&b, "Requires-Dist: %s; extra == %q\n", requirement[1], m[1])
		}
	}
	fmt.Fprintf(&b, "Description-Content-Type: text/markdown\n\n%s", at("README.md"))
	return b.Bytes(), nil
}

// wheel returns the name and the bytes of the wheel: the package, its metadata, and the digest of each file.
func wheel(files []packed, license []byte, version string, at time.Time) (name string, data []byte, err error) {
	version = pythonVersionOf(version)
	if files, err = withVersion(files, version); err != nil {
		return "", nil, err
	}
	about, err := pythonMetadata(files, version)
	if err != nil {
		return "", nil, err
	}
	base := pythonName + "-" + version
	info := base + ".dist-info/"
	var all []packed
	for _, f := range files {
		if strings.HasPrefix(f.name, "junctor/") {
			all = append(all, f)
		}
	}
	all = append(all,
		packed{name: info + "LICENSE", data: license},
		packed{name: info + "METADATA", data: about},
		packed{name: info + "WHEEL", data: []byte("Wheel-Version: 1.0\nGenerator: junctor-release\nRoot-Is-Purelib: true\nTag: py3-none-any\n")},
	)
	var record bytes.Buffer
	for _, f := range all {
		digest := sha256.Sum256(f.data)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(digest[:]), len(f.data))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	all = append(all, packed{name: info + "RECORD", data: record.Bytes()})
	var buf bytes.Buffer
	if err := writeZip(&buf, "", all, at); err != nil {
		return "", nil, err
	}
	return base + "-py3-none-any.whl", buf.Bytes(), nil
}

// sdist returns the name and the bytes of the source distribution.
func sdist(files []packed, license []byte, version string, at time.Time) (name string, data []byte, err error) {
	version = pythonVersionOf(version)
	if files, err = withVersion(files, version); err != nil {
		return "", nil, err
	}
	about, err := pythonMetadata(files, version)
	if err != nil {
		return "", nil, err
	}
	all := append(files, packed{name: "LICENSE", data: license}, packed{name: "PKG-INFO", data: about})
	slices.SortFunc(all, func(a, b packed) int { return strings.Compare(path.Clean(a.name), path.Clean(b.name)) })
	base := pythonName + "-" + version
	var buf bytes.Buffer
	if err := writeTar(&buf, base, all, at); err != nil {
		return "", nil, err
	}
	return base + ".tar.gz", buf.Bytes(), nil
}
