package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// typeScriptDir is the folder of the TypeScript SDK below the source.
const typeScriptDir = "sdk/typescript"

// undefinedVersion is the version of the SDK in its package.json. A release has the server's.
const undefinedVersion = `"version": "0.0.0"`

// makeTypeScript compiles the TypeScript SDK and writes its npm package.
func (m *maker) makeTypeScript(ctx context.Context) error {
	dir := filepath.Join(m.source, filepath.FromSlash(typeScriptDir))
	if _, err := output(ctx, dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"); err != nil {
		return fmt.Errorf("the compiler of the TypeScript SDK: %w", err)
	}
	if _, err := output(ctx, dir, "npm", "run", "--silent", "build"); err != nil {
		return fmt.Errorf("the TypeScript SDK: %w", err)
	}
	data, err := packTypeScript(os.DirFS(m.source), m.version, m.at)
	if err != nil {
		return err
	}
	return m.write("junctor_"+m.version+"_npm.tgz", data)
}

// packTypeScript returns the npm package of a compiled SDK, below the folder package as npm
// requires. The same files result in the same bytes.
func packTypeScript(source fs.FS, version string, at time.Time) ([]byte, error) {
	manifest, err := fs.ReadFile(source, typeScriptDir+"/package.json")
	if err != nil {
		return nil, err
	}
	if strings.Count(string(manifest), undefinedVersion) != 1 {
		return nil, fmt.Errorf("%s/package.json must have %s once", typeScriptDir, undefinedVersion)
	}
	manifest = bytes.Replace(manifest, []byte(undefinedVersion), fmt.Appendf(nil, `"version": %q`, version), 1)
	files := []packed{{name: "package.json", data: manifest}}
	compiled, err := fs.Glob(source, typeScriptDir+"/dist/*") // sorted
	if err != nil {
		return nil, err
	}
	if len(compiled) == 0 {
		return nil, fmt.Errorf("%s is not compiled", typeScriptDir)
	}
	for _, name := range append(compiled, typeScriptDir+"/README.md", "LICENSE") {
		data, err := fs.ReadFile(source, name)
		if err != nil {
			return nil, err
		}
		files = append(files, packed{name: strings.TrimPrefix(name, typeScriptDir+"/"), data: data})
	}
	var buf bytes.Buffer
	err = writeTar(&buf, "package", files, at)
	return buf.Bytes(), err
}
