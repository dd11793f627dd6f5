package deviceaction

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// SideFile is the ending of the file that declares an action. The code is the file
// beside it of the same name without the ending, or with .wasm, .js or .py.
const SideFile = ".action.json"

// Folder states how the actions of a folder are found and run.
type Folder struct {
	// Path is the folder; Shown is what the status says of it, "" for its last
	// part.
	Path, Shown string
	// Load prepares a module of code (wasm, javascript, python) and its exports; the
	// handler calls one. If nil, the skill cannot have modules.
	Load func(ctx context.Context, language string, code []byte, export string) (handle functions.Handler, streams bool, err error)
	// Now is the clock; nil: the system's.
	Now func() time.Time
}

// declaration is a side file.
type declaration struct {
	Name        string          `json:"name"` // "": the file's
	Description string          `json:"description"`
	Metadata    json.RawMessage `json:"metadata"`
	Argv        []string        `json:"argv"`
	Input       string          `json:"input"`  // json-stdin (default), args
	Output      string          `json:"output"` // json (default), text
	Stream      bool            `json:"stream"`
	Timeout     float64         `json:"timeout"` // seconds; 0: none of its own
	Export      string          `json:"export"`  // of a module; "": the name
}

// problem is why an attempt came to nothing; kind is the original's word for it.
type problem struct {
	kind string
	code string
	text string
}

func (p *problem) Error() string { return p.text }

func failed(kind, format string, args ...any) error {
	code := map[string]string{
		"NotADirectoryError": "folder_missing", "PermissionError": "denied", "SyntaxError": cmp.ReasonPayload,
		"ValueError": cmp.ReasonParams, "ImportError": cmp.ReasonBinding,
	}[kind]
	return &problem{kind, code, fmt.Sprintf(format, args...)}
}

// Load reads the folder and puts its actions in the place of those it had before,
// all or, on an error, none. It returns how many there are.
func (s *Set) Load(ctx context.Context, f Folder) (int, error) {
	found, modules, err := f.read(ctx)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found, s.modules = found, modules
	return len(found), nil
}

// TryLoad is Load that never fails: the status states how it went.
func (s *Set) TryLoad(ctx context.Context, f Folder) {
	if f.Now == nil {
		f.Now = time.Now
	}
	at, shown := cmp.Time(f.Now()), f.Shown
	if shown == "" {
		shown = filepath.Base(f.Path)
	}
	status := cmp.Sandbox{Attempted: true, Path: &shown, AttemptedAt: &at}
	n, err := s.Load(ctx, f)
	if err == nil {
		status.Loaded, status.ActionsRegistered = true, n
	} else {
		kind, code, text := "OSError", "failed", "the folder could not be read"
		if p, ok := errors.AsType[*problem](err); ok {
			kind, code, text = p.kind, p.code, p.text
		}
		status.Error, status.ErrorType, status.ErrorCode = &text, &kind, code
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = status
}

func (f *Folder) read(ctx context.Context) (map[string]Action, int, error) {
	info, err := os.Stat(f.Path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, 0, failed("PermissionError", "the folder of actions may not be read")
	case err != nil || !info.IsDir():
		return nil, 0, failed("NotADirectoryError", "the folder of actions does not exist, or is not a folder")
	case info.Mode().Perm()&0o002 != 0:
		return nil, 0, failed("PermissionError", "everybody may write in the folder of actions")
	}
	root, err := os.OpenRoot(f.Path)
	if err != nil {
		return nil, 0, failed("PermissionError", "the folder of actions may not be read")
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".") // sorted by name
	if err != nil {
		return nil, 0, failed("PermissionError", "the folder of actions may not be read")
	}
	if len(entries) > maxEntries {
		return nil, 0, failed("ValueError", "the folder of actions has more than %d files", maxEntries)
	}
	found := make(map[string]Action)
	from := make(map[string]string)
	modules := 0
	for _, e := range entries {
		name := e.Name()
		stem, side := strings.CutSuffix(name, SideFile)
		if !side {
			if err := orphan(name, entries); err != nil {
				return nil, 0, err
			}
			continue
		}
		a, code, err := f.action(ctx, root, stem, name)
		if err != nil {
			return nil, 0, err
		}
		if other, twice := from[a.Name]; twice {
			return nil, 0, failed("ValueError", "%s: the action %s is declared by %s too", name, a.Name, other)
		}
		if len(found) >= MaxActions {
			return nil, 0, failed("ValueError", "the folder has more than %d actions", MaxActions)
		}
		if code {
			modules++
		}
		found[a.Name], from[a.Name] = a, name
	}
	return found, modules, nil
}

// languages are those of modules, by the ending of their files.
func languages() map[string]string {
	return map[string]string{".wasm": "wasm", ".js": "javascript", ".py": "python"}
}

// orphan refuses a module that nothing declares: it would be there and not work.
func orphan(name string, entries []fs.DirEntry) error {
	ext := filepath.Ext(name)
	if languages()[ext] == "" || strings.HasPrefix(name, ".") {
		return nil
	}
	for _, side := range []string{strings.TrimSuffix(name, ext) + SideFile, name + SideFile} {
		if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == side }) {
			return nil
		}
	}
	return failed("ImportError", "%s: it needs a file %s beside it that declares its action", name, strings.TrimSuffix(name, ext)+SideFile)
}

// action reads one side file and finds its code.
func (f *Folder) action(ctx context.Context, root *os.Root, stem, side string) (a Action, code bool, err error) {
	data, _, err := read(root, side, maxSide)
	if err != nil {
		return Action{}, false, err
	}
	var d declaration
	if err := cmp.CheckJSON(data); err != nil {
		return Action{}, false, failed("SyntaxError", "%s: %v", side, err)
	}
	if err := jsonx.UnmarshalStrict(data, &d); err != nil {
		return Action{}, false, failed("SyntaxError", "%s: %v", side, err)
	}
	if d.Name == "" {
		d.Name = strings.TrimSuffix(stem, filepath.Ext(stem))
	}
	switch {
	case d.Timeout < 0 || d.Timeout > 3600:
		return Action{}, false, failed("ValueError", "%s: timeout must be 0 to 3600 seconds", side)
	case len(d.Argv) > maxArgv:
		return Action{}, false, failed("ValueError", "%s: argv has more than %d words", side, maxArgv)
	case !slices.Contains([]string{"", "json-stdin", "args"}, d.Input) || !slices.Contains([]string{"", "json", "text"}, d.Output):
		return Action{}, false, failed("ValueError", "%s: input is json-stdin or args, output is json or text", side)
	}
	a = Action{
		Name: d.Name, Description: d.Description, Metadata: d.Metadata, Stream: d.Stream,
		Timeout: time.Duration(d.Timeout * float64(time.Second)),
	}
	if a.Handle, code, err = f.handler(ctx, root, stem, side, &d, &a); err != nil {
		return Action{}, false, err
	}
	if err := a.complete(); err != nil {
		return Action{}, false, failed("ValueError", "%s: %v", side, err)
	}
	return a, code, nil
}

func (f *Folder) handler(ctx context.Context, root *os.Root, stem, side string, d *declaration,
	a *Action,
) (functions.Handler, bool, error) {
	names := []string{stem, stem + ".wasm", stem + ".js", stem + ".py"}
	at := slices.IndexFunc(names, func(name string) bool { _, err := root.Lstat(name); return err == nil })
	if at < 0 {
		return nil, false, failed("ImportError", "%s: there is no file %s, nor one with .wasm, .js or .py", side, stem)
	}
	name := names[at]
	language := languages()[filepath.Ext(name)]
	info, err := root.Lstat(name)
	switch {
	case err != nil || !info.Mode().IsRegular():
		return nil, false, failed("ImportError", "%s: it is not an ordinary file", name)
	case info.Mode().Perm()&0o022 != 0:
		return nil, false, failed("PermissionError", "%s: others may write it", name)
	case language == "" && info.Mode().Perm()&0o111 == 0:
		return nil, false, failed("PermissionError", "%s: it may not be executed", name)
	case language == "":
		return program{
			path: filepath.Join(f.Path, name), argv: d.Argv, byArgs: d.Input == "args", text: d.Output == "text",
			stream: d.Stream,
		}.call, false, nil
	case f.Load == nil:
		return nil, false, failed("ImportError", "%s: code in %s is not run on this device", name, language)
	}
	code, _, err := read(root, name, maxCode)
	if err != nil {
		return nil, false, err
	}
	export := d.Export
	if export == "" {
		export = d.Name
	}
	handle, streams, err := f.Load(ctx, language, code, export)
	if err != nil {
		return nil, false, failed("ImportError", "%s: %v", name, err)
	}
	a.Stream = a.Stream || streams
	return handle, true, nil
}

// read reads a regular file of at most limit bytes.
func read(root *os.Root, name string, limit int) ([]byte, fs.FileInfo, error) {
	info, err := root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return nil, nil, failed("ImportError", "%s: it is not an ordinary file", name)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, nil, failed("PermissionError", "%s: others may write it", name)
	}
	if info.Size() > int64(limit) {
		return nil, nil, failed("ValueError", "%s: it has more than %d bytes", name, limit)
	}
	data, err := root.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, nil, failed("PermissionError", "%s: it may not be read", name)
	case err != nil || len(data) > limit:
		return nil, nil, failed("ImportError", "%s: it cannot be read", name)
	}
	return data, info, nil
}
