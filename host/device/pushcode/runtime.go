package pushcode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/nodes/skill"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/internal/platform/worker"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
)

// codeWorker runs code; worker.Runner does.
type codeWorker interface {
	Languages() map[string]string
	Run(ctx context.Context, job worker.Job) (worker.Result, error)
}

// codeRuntime runs the code of skills in processes of worker. If memory, the limit of
// each process in bytes, is 0, the worker's default applies.
type codeRuntime struct {
	worker codeWorker
	memory int64
}

var _ skill.Runtime = (*codeRuntime)(nil)

// Languages returns the languages of the worker.
func (r *codeRuntime) Languages() map[string]string { return r.worker.Languages() }

// Load loads every module once and records which of the exports exist. Errors:
// invalid_payload if a module cannot be read; those of the worker.
func (r *codeRuntime) Load(ctx context.Context, modules []payload.Source, exports []cmp.CodeBinding) (skill.Program, error) {
	p := &program{of: r, modules: make(map[string]payload.Source), exports: make(map[cmp.CodeBinding]bool)}
	p.ctx, p.end = context.WithCancel(context.Background())
	for _, m := range modules {
		var names []string
		for _, b := range exports {
			if b.ModuleID == m.ModuleID {
				names = append(names, b.Export)
			}
		}
		found, err := r.try(ctx, m.Language, m.Code, names)
		if err != nil {
			p.end()
			if e := capability.AsError(err); e.Reason == cmp.ReasonExecution || e.Reason == cmp.ReasonPayload {
				return nil, cmp.Errorf(cmp.ReasonPayload, "the module %.80q cannot be loaded: %s", m.ModuleID, e.Message)
			}
			return nil, err
		}
		p.modules[m.ModuleID] = m
		for name, streams := range found {
			p.exports[cmp.CodeBinding{ModuleID: m.ModuleID, Export: name}] = streams
		}
	}
	return p, nil
}

// LoadFile is Load for one file of the folder of actions. It fails if the export does not
// exist (deviceaction.Folder.Load).
func (r *codeRuntime) LoadFile(ctx context.Context, language string, code []byte, export string) (functions.Handler, bool, error) {
	b := cmp.CodeBinding{ModuleID: "file", Export: export}
	loaded, err := r.Load(ctx, []payload.Source{{ModuleID: b.ModuleID, Language: language, Code: code}}, []cmp.CodeBinding{b})
	if err != nil {
		return nil, false, errors.New(capability.AsError(err).Message)
	}
	handle, streams, ok := loaded.Export(b)
	if !ok {
		loaded.Release()
		return nil, false, fmt.Errorf("it has no export %.80q", export)
	}
	return handle, streams, nil
}

// identifier matches the names that an export of a script may have.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// try returns the names that a module exports; the value reports whether the export streams.
func (r *codeRuntime) try(ctx context.Context, language string, code []byte, names []string) (map[string]bool, error) {
	var plain []string
	for _, name := range names {
		if identifier.MatchString(name) {
			plain = append(plain, name)
		}
	}
	switch language = worker.Language(language); language {
	case worker.WASM:
		return wasmExports(code, plain)
	case worker.JavaScript, worker.Python:
	default:
		return nil, cmp.Errorf(cmp.ReasonLanguage, "code in %.40q is not run here", language)
	}
	asking := javascriptProbe(plain)
	if language == worker.Python {
		asking = pythonProbe(plain)
	}
	got, err := r.worker.Run(ctx, worker.Job{
		Language: language, Code: append(append(make([]byte, 0, len(code)+len(asking)), code...), asking...), Entry: probeName,
		Timeout: tryTimeout, Memory: r.memory,
	})
	if err != nil {
		return nil, err
	}
	var kinds map[string]string
	if err := jsonx.Unmarshal(got.Value, &kinds); err != nil {
		return nil, cmp.Errorf(cmp.ReasonPayload, "it does not say what it exports")
	}
	found := make(map[string]bool)
	for _, name := range plain {
		if kind := kinds[name]; kind != "" {
			found[name] = strings.Contains(kind, "Generator")
		}
	}
	return found, nil
}

// probeName is the function that is appended to a module to list its exports.
const probeName = "__junctor_exports"

func javascriptProbe(names []string) string {
	var b strings.Builder
	b.WriteString("\n;function " + probeName + "() { return {")
	for _, name := range names {
		fmt.Fprintf(&b, "%[1]s: typeof %[1]s === 'function' ? String(Object.getPrototypeOf(%[1]s).constructor.name || 'Function') : '',", name)
	}
	b.WriteString("}; }\n")
	return b.String()
}

func pythonProbe(names []string) string {
	var b strings.Builder
	b.WriteString("\n\ndef " + probeName + "():\n    import inspect\n    found = {}\n    for name in [")
	for _, name := range names {
		b.WriteString("'" + name + "', ")
	}
	b.WriteString("]:\n        value = globals().get(name)\n        if callable(value):\n            found[name] = 'Generator' if inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value) else 'function'\n    return found\n")
	return b.String()
}

// program holds the modules of one skill.
type program struct {
	of      *codeRuntime
	modules map[string]payload.Source
	exports map[cmp.CodeBinding]bool // streams

	ctx context.Context // ends when no code of the skill may run any more
	end context.CancelFunc

	mu       sync.Mutex
	active   int
	released bool
	timer    *time.Timer
}

// Export returns the handler that calls one export, whether it streams, and whether it exists.
func (p *program) Export(b cmp.CodeBinding) (functions.Handler, bool, bool) {
	streams, ok := p.exports[b]
	if !ok {
		return nil, false, false
	}
	m := p.modules[b.ModuleID]
	return func(ctx context.Context, c functions.Call) (json.RawMessage, error) {
		return p.call(ctx, m, b.Export, c)
	}, streams, true
}

// Release ends the program: running calls may continue for releaseGrace.
func (p *program) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return
	}
	if p.released = true; p.active == 0 {
		p.end()
		return
	}
	p.timer = time.AfterFunc(releaseGrace, p.end)
}

func (p *program) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active++
}

func (p *program) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active--; p.active == 0 && p.released {
		if p.timer != nil {
			p.timer.Stop()
		}
		p.end()
	}
}

// document is the input of the code.
type document struct {
	Args    []json.RawMessage          `json:"args"`
	Kwargs  map[string]json.RawMessage `json:"kwargs"`
	Context map[string]string          `json:"context"`
}

var errGone = errors.New("the skill was removed")

func (p *program) call(ctx context.Context, m payload.Source, export string, c functions.Call) (json.RawMessage, error) {
	p.begin()
	defer p.done()
	input, err := jsonx.Marshal(document{c.Args.Args, c.Args.Kwargs, map[string]string{"call_id": c.ID, "caller": c.Caller}})
	if err != nil {
		return nil, cmp.Errorf(cmp.ReasonEncoding, "the arguments: %w", err)
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(p.ctx, func() { stop(errGone) })()
	job := worker.Job{Language: m.Language, Code: m.Code, Entry: export, Input: input, Timeout: worker.MaxTimeout, Memory: p.of.memory}
	if deadline, ok := ctx.Deadline(); ok {
		job.Timeout = max(time.Until(deadline), time.Millisecond)
	}
	var refused error
	job.Chunk = func(chunk json.RawMessage) {
		if refused == nil {
			if refused = c.Emit(running, chunk); refused != nil {
				stop(refused)
			}
		}
	}
	got, err := p.of.worker.Run(running, job)
	switch {
	case refused != nil:
		return nil, refused
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && errors.Is(context.Cause(running), errGone):
		return nil, cmp.Errorf(cmp.ReasonExecution, "the skill was removed while its code ran")
	case err != nil:
		return nil, err
	}
	return got.Value, nil
}
