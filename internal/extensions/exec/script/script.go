// Package script runs the scripts of extensions: JavaScript and WASM in package worker, and the
// handlers of runtime python in an interpreter in the sandbox. It verifies that the script is the
// installed one, builds the script's input document, and serves the host calls that the permissions
// allow: fetch needs network, read and write need filesystem.read and filesystem.write and stay in
// the working folder, llm needs llm, and log needs nothing.
package script

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/worker"
)

// Workers runs code in a sandbox; worker.Runner implements it.
type Workers interface {
	Run(ctx context.Context, job worker.Job) (worker.Result, error)
}

// Executor runs scripts. It is safe for concurrent use.
type Executor struct{ workers Workers }

// New returns an executor.
func New(w Workers) *Executor { return &Executor{w} }

// Fetch is an HTTP request of a script.
type Fetch struct {
	URL    string            `json:"url"`
	Method string            `json:"method"` // "" is GET
	Header map[string]string `json:"headers"`
	Body   string            `json:"body"`
}

// Fetched is the response to a [Fetch].
type Fetched struct {
	Status int    `json:"status"`
	Type   string `json:"type"`
	Body   string `json:"body"`
}

// Request is one run.
type Request struct {
	Route       *command.Route
	Extension   string
	Dir         string   // of the package; its work folder is in it
	Permissions []string // in force, canonical
	Session     string
	User        string
	Usage       string // the usage guide; cut to maxUsage bytes
	Last        *string
	Config      map[string]json.RawMessage // settings, without secrets
	Timeout     time.Duration              // 0: DefaultTimeout
	Memory      int64                      // bytes; 0: the engine's default
	Disk        int64                      // bytes the working folder may hold; 0: 256 MiB
	Floor       sandbox.Tier
	UID         int // owner of the extension's processes and files if the server is root; 0: sandbox.DefaultUID
	// Fetch performs the host call fetch within the extension's network policy.
	// Complete performs llm; nil if no model is configured.
	Fetch    func(ctx context.Context, f Fetch) (Fetched, error)
	Complete func(ctx context.Context, prompt string) (string, error)
	// Progress receives the chunks. If nil, they are only part of the output.
	Progress func(text string)
}

// Result is the result of a run.
type Result struct {
	Output string // a returned string, the JSON of another value, or for null the chunks
	JSON   bool
	Log    string
	worker.Result
}

// Run runs the script of an action. Errors are those of worker.Runner, and: denied,
// reason security_violation, if the script is not the installed one; invalid_input,
// reason unsupported_runner, if the action has no script; output_limit, if the output
// exceeds the action's. With an error, the result still holds log and measurements.
func (x *Executor) Run(ctx context.Context, req Request) (Result, error) {
	a := req.Route.Action
	job := worker.Job{Entry: "main", Handler: a.ID, Timeout: req.Timeout, Memory: req.Memory, Floor: req.Floor, UID: req.UID, GID: req.UID}
	if job.Timeout <= 0 {
		job.Timeout = DefaultTimeout
	}
	switch path.Ext(a.Script) {
	case ".js":
		job.Language = worker.JavaScript
	case ".wasm":
		job.Language, job.Entry = worker.WASM, wasmEntry(a.ID)
	case ".py":
		job.Language, job.Entry, job.Package, job.Import = worker.Python, "main", req.Dir, path.Dir(a.Script)
	default:
		return Result{}, fault.UnsupportedRunner(a.Runner, []string{"script.js", "script.wasm", "exec.script", "builtin with runtime python"})
	}
	var err error
	if job.Code, err = read(req.Dir, a.Script, a.SHA256); err != nil {
		return Result{}, err
	}
	if job.Input, err = document(&req); err != nil {
		return Result{}, err
	}
	calls := &hostCalls{req: &req, work: path.Join(req.Dir, "work")}
	job.Calls = calls.allowed()
	var chunks []string
	job.Chunk = func(c json.RawMessage) {
		text, _ := display(c)
		if chunks = append(chunks, text); req.Progress != nil {
			req.Progress(text)
		}
	}
	got, err := x.workers.Run(ctx, job)
	result := Result{Log: calls.log.String(), Result: got}
	if err != nil {
		return result, err
	}
	if result.Output, result.JSON = display(got.Value); string(got.Value) == "null" {
		result.Output, result.JSON = strings.Join(chunks, "\n"), false
	}
	if limit := a.Output.MaxBytes; limit > 0 && int64(len(result.Output)) > limit {
		return result, fault.OutputLimit(limit)
	}
	return result, nil
}

// wasmEntry returns the exported function of an action: its id with _ for hyphens.
func wasmEntry(action string) string { return strings.ReplaceAll(action, "-", "_") }

// display returns a value as text: a string unquoted, anything else as JSON.
func display(value json.RawMessage) (text string, isJSON bool) {
	if json.Unmarshal(value, &text) == nil && len(value) > 0 && value[0] == '"' {
		return text, false
	}
	return string(value), true
}

// read returns the script if its SHA-256 is sum; otherwise, and if it cannot be read,
// the error is denied, reason security_violation.
func read(dir, name, sum string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fault.SecurityViolation("the package of the extension cannot be opened")
	}
	defer root.Close()
	f, err := root.Open(name)
	if err != nil {
		return nil, fault.SecurityViolation("the script " + name + " of the package is not there")
	}
	defer f.Close()
	code, err := io.ReadAll(io.LimitReader(f, worker.MaxCode+1))
	if err != nil || len(code) > worker.MaxCode {
		return nil, fault.SecurityViolation("the script " + name + " of the package cannot be read")
	}
	if got := sha256.Sum256(code); !strings.EqualFold(hex.EncodeToString(got[:]), sum) {
		return nil, fault.SecurityViolation("the script " + name + " of the package is not the one that was installed")
	}
	return code, nil
}

// document returns the script's input: args, kwargs, flags, raw, context and config.
func document(req *Request) (json.RawMessage, error) {
	r := req.Route
	about := map[string]any{
		"session_id": req.Session, "user_id": req.User, "extension_id": req.Extension, "action_id": r.Action.ID,
		"command": r.Command.Declared,
	}
	if req.Usage != "" {
		about["usage_doc"] = text.CutBytes(req.Usage, maxUsage)
	}
	if req.Last != nil {
		about["last_response"] = *req.Last
	}
	doc := map[string]any{
		"args": notNil(r.Positional), "kwargs": orEmpty(r.Values), "flags": orEmpty(r.Flags), "raw": r.Raw, "context": about,
		"config": orEmpty(req.Config),
	}
	data, err := jsonx.Marshal(doc)
	if err != nil {
		return nil, capability.Wrap(capability.CodeInternal, "script", "the script's input cannot be written", err)
	}
	return json.RawMessage(data), nil
}

func notNil(list []string) []string { return append([]string{}, list...) }

func orEmpty[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

// hostCalls serves the host calls of one run. It is not safe for concurrent use: a
// script makes one call at a time.
type hostCalls struct {
	req   *Request
	work  string
	log   strings.Builder
	files *files // opened by the first call that needs it
}

// allowed returns the calls that the permissions allow and that Request can serve.
func (h *hostCalls) allowed() map[string]worker.Call {
	may := func(name string) bool { return slices.Contains(h.req.Permissions, name) }
	calls := map[string]worker.Call{"log": h.logs}
	if may("network") && h.req.Fetch != nil {
		calls["fetch"] = h.fetch
	}
	if may("filesystem.read") || may("filesystem.write") {
		calls["read"] = h.read
	}
	if may("filesystem.write") {
		calls["write"] = h.write
	}
	if may("llm") && h.req.Complete != nil {
		calls["llm"] = h.llm
	}
	return calls
}

// params decodes the parameters of a call by position. A missing one is an error;
// additional ones are ignored.
func params(raw json.RawMessage, into ...any) error {
	var list []jsonx.Raw
	if err := jsonx.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("the parameters are not a list")
	}
	for i, p := range into {
		if i >= len(list) {
			return fmt.Errorf("parameter %d is missing", i+1)
		}
		if err := jsonx.Unmarshal(list[i], p); err != nil {
			return fmt.Errorf("parameter %d does not fit", i+1)
		}
	}
	return nil
}

func (h *hostCalls) logs(_ context.Context, raw json.RawMessage) (any, error) {
	var value jsonx.Raw
	if err := params(raw, &value); err != nil {
		return nil, err
	}
	text, _ := display(json.RawMessage(value))
	if h.log.Len()+len(text)+1 > MaxLog {
		return nil, fmt.Errorf("the log of this run is full: it holds %d bytes", MaxLog)
	}
	h.log.WriteString(text + "\n")
	return true, nil
}

func (h *hostCalls) fetch(ctx context.Context, raw json.RawMessage) (any, error) {
	var f Fetch
	if err := params(raw, &f); err != nil { // the parameter may be the URL only
		if err := params(raw, &f.URL); err != nil {
			return nil, err
		}
	}
	return h.req.Fetch(ctx, f)
}

func (h *hostCalls) llm(ctx context.Context, raw json.RawMessage) (any, error) {
	var prompt string
	if err := params(raw, &prompt); err != nil {
		return nil, err
	}
	return h.req.Complete(ctx, prompt)
}

func (h *hostCalls) read(_ context.Context, raw json.RawMessage) (any, error) {
	var name string
	if err := params(raw, &name); err != nil {
		return nil, err
	}
	f, err := h.open()
	if err != nil {
		return nil, err
	}
	return f.read(name)
}

func (h *hostCalls) write(_ context.Context, raw json.RawMessage) (any, error) {
	var name, text string
	if err := params(raw, &name, &text); err != nil {
		return nil, err
	}
	f, err := h.open()
	if err != nil {
		return nil, err
	}
	return true, f.write(name, text)
}

func (h *hostCalls) open() (*files, error) {
	if h.files == nil {
		h.files = &files{dir: h.work, most: h.req.Disk, uid: cmp.Or(h.req.UID, sandbox.DefaultUID)}
	}
	return h.files, nil
}
