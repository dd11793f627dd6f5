// Command bundle makes the files of the web console from its sources: bundle DIR reads
// DIR/src and DIR/node_modules and replaces DIR/dist. The same sources give the same bytes.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: bundle DIR")
		os.Exit(2)
	}
	if err := bundle(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "bundle:", err)
		os.Exit(1)
	}
}

func bundle(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	dist := filepath.Join(abs, "dist")
	result := api.Build(api.BuildOptions{
		AbsWorkingDir: abs,
		// The worker is an entry point of its own, because it runs apart from the page.
		EntryPoints: []string{"src/main.tsx", "src/worker.ts", "src/console.css"},
		Outdir:      dist, EntryNames: "assets/[name]-[hash]", ChunkNames: "assets/[name]-[hash]",
		Bundle: true, Splitting: true, Format: api.FormatESModule, Target: api.ES2022, Platform: api.PlatformBrowser,
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true,
		JSX: api.JSXAutomatic, JSXImportSource: "preact", Charset: api.CharsetUTF8, LegalComments: api.LegalCommentsNone,
		Metafile: true, LogLevel: api.LogLevelWarning,
	})
	if len(result.Errors) > 0 {
		return errors.New("the sources have errors")
	}
	var meta struct {
		Outputs map[string]struct {
			EntryPoint string `json:"entryPoint"`
		} `json:"outputs"`
	}
	if err := json.Unmarshal([]byte(result.Metafile), &meta); err != nil {
		return err
	}
	page, err := os.ReadFile(filepath.Join(abs, "src", "index.html"))
	if err != nil {
		return err
	}
	text := string(page)
	for out, from := range meta.Outputs {
		if from.EntryPoint != "" {
			name := "/console/" + strings.TrimPrefix(filepath.ToSlash(out), "dist/")
			text = strings.ReplaceAll(text, "{"+filepath.Base(from.EntryPoint)+"}", name)
		}
	}
	if err := os.RemoveAll(filepath.Join(dist, "assets")); err != nil {
		return err
	}
	for _, f := range result.OutputFiles {
		if err := errors.Join(os.MkdirAll(filepath.Dir(f.Path), 0o755), os.WriteFile(f.Path, f.Contents, 0o644)); err != nil {
			return err
		}
	}
	// The worker of notifications has a fixed name, by which browsers find its next version, and
	// stands where its scope begins.
	push := api.Build(api.BuildOptions{
		AbsWorkingDir: abs, EntryPoints: []string{"src/push.ts"}, Outdir: dist, Bundle: true, Format: api.FormatIIFE, Target: api.ES2022,
		Platform: api.PlatformBrowser, MinifyWhitespace: true, MinifySyntax: true, Charset: api.CharsetUTF8, Write: true, LogLevel: api.LogLevelWarning,
	})
	if len(push.Errors) > 0 {
		return errors.New("the sources of notifications have errors")
	}
	// Scripts of frames have fixed names, because each frame has a folder of its own.
	framed := api.Build(api.BuildOptions{
		AbsWorkingDir: abs, EntryPoints: []string{"src/frame/frame.ts", "src/frame/react.ts", "src/frame/frame.css"},
		Outdir: filepath.Join(dist, "frame"), Bundle: true, Format: api.FormatESModule, Target: api.ES2022, Platform: api.PlatformBrowser,
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true, Charset: api.CharsetUTF8, LegalComments: api.LegalCommentsNone,
		External: []string{"react-at-runtime"}, Define: map[string]string{"process.env.NODE_ENV": `"production"`}, Write: true, LogLevel: api.LogLevelWarning,
	})
	if len(framed.Errors) > 0 {
		return errors.New("the sources of frames have errors")
	}
	// The page is written last: with it the build is complete.
	return os.WriteFile(filepath.Join(dist, "index.html"), []byte(text), 0o644)
}
