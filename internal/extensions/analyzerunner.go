package extensions

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/extensions/exec/analyze"
	"github.com/junctor-run/junctor/internal/extensions/runner"
	"github.com/junctor-run/junctor/internal/platform/llm"
	"github.com/junctor-run/junctor/internal/platform/roots"
)

// newAnalyzer returns an Analyzer that compiles schemas as the catalog does and uses the
// model unless it is nil.
func newAnalyzer(model *llm.Model) *analyze.Analyzer {
	cfg := analyze.Config{Compile: func(schema []byte) (analyze.Checker, error) { return catalog.CompileSchema(schema) }}
	if model != nil {
		cfg.Model, cfg.ModelName = model, model.Model()
	}
	return analyze.New(cfg)
}

// analyzeRunner runs the analyze actions.
type analyzeRunner struct{ family }

// Needs implements runner.Executor: a plain extract needs no model.
func (*analyzeRunner) Needs(*command.Action) []string { return nil }

// Execute implements runner.Executor.
func (a *analyzeRunner) Execute(ctx context.Context, r runner.Run) (runner.Outcome, error) {
	x, err := a.installed(r)
	if err != nil {
		return runner.Outcome{}, err
	}
	req, schema := analyze.FromRoute(r.Route)
	req.AllowModel = slices.Contains(r.Permissions, "llm")
	req.Last = func(ctx context.Context) (string, error) {
		last, err := a.last(ctx, r)
		return last.Text, err
	}
	req.Read = func(_ context.Context, name string) ([]byte, error) {
		if !slices.Contains(r.Permissions, "filesystem.read") && !slices.Contains(r.Permissions, "filesystem.write") {
			return nil, fault.PermissionDenied("filesystem.read", "the action does not declare it, and reads a file of the working folder")
		}
		return readBelow(filepath.Join(a.dir, x.ID, "work"), name)
	}
	var got analyze.Result
	if r.Route.Action.Runner == "analyze.schema" {
		schema.Source, schema.AllowModel = req.Source, req.AllowModel
		schema.Resolve = func(_ context.Context, id string) ([]byte, error) { return schemaOf(filepath.Join(a.dir, x.ID), id) }
		got, err = a.analyzer.Schema(ctx, schema)
	} else {
		if req.Usage, err = a.manager.Usage(x.ID); err != nil {
			return runner.Outcome{}, err
		}
		got, err = a.analyzer.Response(ctx, req)
	}
	return runner.Outcome{Output: got.Output, Metadata: got.Metadata}, err
}

// schemaOf returns the schema of an id: the file schemas/ID.json of the package, or else
// the input schema of the canonical action of that name. Otherwise not_found.
func schemaOf(dir, id string) ([]byte, error) {
	if len(id) <= 200 && filepath.Base(id) == id {
		if doc, err := readBelow(dir, "schemas/"+id+".json"); capability.CodeOf(err) != capability.CodeNotFound {
			return doc, err
		}
		if row, ok := actions.Lookup(capability.Action(id)); ok && len(row.InputSchema) > 0 {
			return row.InputSchema, nil
		}
	}
	return nil, capability.Errorf(capability.CodeNotFound, "runner",
		"there is no schema %.100q: neither schemas/ID.json in the package nor a canonical action", id).With("not_found", "")
}

// readBelow reads a file in a folder that an untrusted program may change at the same
// time. It refuses paths that leave the folder, links, files with several hard links
// (denied), and more than analyze.MaxInput bytes (too_large).
func readBelow(dir, name string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "runner", "the folder cannot be opened", err)
	}
	defer root.Close()
	if name = filepath.FromSlash(name); !filepath.IsLocal(name) {
		return nil, roots.Escape()
	}
	f, err := root.OpenFile(name, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, roots.Explain("runner", name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if there, err := root.Lstat(name); err != nil || !os.SameFile(info, there) || !info.Mode().IsRegular() || linked(info) {
		return nil, fault.SecurityViolation(name + " is not a plain file of the folder")
	}
	data, err := io.ReadAll(io.LimitReader(f, analyze.MaxInput+1))
	if err != nil {
		return nil, roots.Explain("runner", name, err)
	}
	if len(data) > analyze.MaxInput {
		return nil, capability.Errorf(capability.CodeTooLarge, "runner", "%s has more than %d bytes", name, analyze.MaxInput)
	}
	return data, nil
}
