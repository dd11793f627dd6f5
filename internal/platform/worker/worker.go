// Package worker runs one piece of untrusted code in a separate process that can only
// compute. The process is this binary started again in the confinement of package sandbox.
// Before it reads the code, it gives up every system call that opens, connects or starts
// something. What remains is memory, time and two pipes. The engine and the kernel limit the
// memory; the engine, the process itself and its parent limit the time.
//
// # The contract
//
// The code receives one JSON document, {"args": […], "kwargs": {…}, "context":
// {…}} and for scripts of extensions "flags" and "config", and answers with
// chunks and then one result or one error.
//
//   - javascript: the top-level function with the entry's name (main) is called with
//     the document. If an object handlers has a function with the handler's name, that
//     one is called instead. It may be async or a generator: yielded values are chunks,
//     and the returned value is the result. host.chunk(v) is a chunk too.
//   - wasm: WASI preview 1 with the document as standard input, and lines
//     {"chunk": …}, {"result": …} or {"error": …} as standard output. The exported
//     function with the entry's name without parameters is called (after
//     _initialize); without one, _start with the name as argv[1]. The value returned by
//     an exported function is the result unless there was a result line.
//   - python, if it is listed: an interpreter in the sandbox, in isolated mode.
//     HANDLERS[handler](args, context) is called if it exists, otherwise the
//     function with the entry's name with args and kwargs. Generators and coroutines
//     are as in javascript. It sees the system's files, as every program does.
//
// # Host calls
//
// The code can use the network, files and models only through calls that its caller allows,
// each a JSON-RPC 2.0 request over a pipe: fetch, read, write, llm and log, with
// parameters by position. In javascript they are host.fetch(…) and so on, and throw
// errors; in python the global host has them. A wasm module imports, from
// module "junctor":
//
//	call(ptr, len i32) i32   // JSON {"method": …, "params": […]}; the reply's length
//	reply(ptr, len i32) i32  // copies the reply {"result": …} or {"error": {…}}
package worker

import (
	"cmp"
	"context"
	"debug/elf"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// The languages.
const (
	JavaScript = "javascript"
	WASM       = "wasm"
	Python     = "python"
)

// ReasonLanguage is the error reason for code in an unsupported language.
const ReasonLanguage = "unsupported_language"

// Walls runs confined programs; sandbox.Box implements it.
type Walls interface {
	// Place returns how a program with that confinement would run.
	Place(c sandbox.Confinement) (sandbox.Placement, error)
	// Run runs the program and returns when all its processes have ended.
	Run(ctx context.Context, spec sandbox.Spec, c sandbox.Confinement) (sandbox.Result, error)
}

// Config configures a [Runner]. Walls is required.
type Config struct {
	Walls Walls
	// Languages are the permitted languages; nil means javascript and wasm. python must be
	// listed explicitly.
	Languages []string
	// Python is the absolute path of an interpreter in a system directory, or "".
	Python string
}

// Runner runs code. It is safe for concurrent use.
type Runner struct {
	cfg  Config
	bare func() bool
}

// New returns a Runner. Its binary must call [Main] first of all if [IsWorker] returns true,
// and the sandbox's helper as well.
func New(cfg Config) *Runner {
	if cfg.Languages == nil {
		cfg.Languages = []string{JavaScript, WASM}
	}
	return &Runner{cfg: cfg, bare: sync.OnceValue(static)}
}

// Call handles one host call. Its error message is shown to the code.
type Call func(ctx context.Context, params json.RawMessage) (any, error)

// Job is one run.
type Job struct {
	Language string // as sent: js and wasi are understood
	Code     []byte
	Entry    string // a function's name; "" is main
	// Handler is the key in the code's table of handlers, preferred to Entry if the table
	// has it. It may be "".
	Handler string
	Input   json.RawMessage // the one document; nil is {}
	Timeout time.Duration   // 0: DefaultTimeout; at most MaxTimeout
	Memory  int64           // of the engine, in bytes; 0: DefaultMemory
	// Calls are the host calls the code may make, by method.
	Calls map[string]Call
	// Chunk is called with every chunk in order, before Run returns. If nil, chunks are dropped.
	Chunk func(json.RawMessage)
	// Floor is the weakest sandbox, never below T2; 0 means T2. UID and GID are
	// those of sandbox.Confinement.
	Floor    sandbox.Tier
	UID, GID int
	// Package is a directory that python sees, and Import the folder in it that it
	// imports from. Both may be "".
	Package, Import string
}

// Result is the outcome of a run.
type Result struct {
	Value     json.RawMessage // the value that the code returned; null for none
	Chunks    int
	Calls     int
	Duration  time.Duration
	Placement sandbox.Placement
	Usage     sandbox.Usage
}

// Language returns the canonical name of a language, or "" for an unknown one.
func Language(name string) string {
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "javascript", "js":
		return JavaScript
	case "wasm", "wasi":
		return WASM
	case "python", "py":
		return Python
	}
	return ""
}

// Languages returns the supported languages, each with the reason why code in it is
// rejected here, or "".
func (r *Runner) Languages() map[string]string {
	out := make(map[string]string)
	for _, name := range []string{JavaScript, WASM, Python} {
		switch {
		case !slices.Contains(r.cfg.Languages, name):
			out[name] = "it is not among the languages this machine allows"
		case name == Python && r.cfg.Python == "":
			out[name] = "there is no python3 in a system directory"
		default:
			out[name] = ""
		}
	}
	return out
}

// check validates the job and sets its defaults and limits.
func (r *Runner) check(job *Job) error {
	name := Language(job.Language)
	if why, known := r.Languages()[name]; !known || why != "" {
		var can []string
		for name, why := range r.Languages() {
			if why == "" {
				can = append(can, name)
			}
		}
		slices.Sort(can)
		return capability.Errorf(capability.CodeInvalidInput, "worker", "code in %.40q is not run here: %s; what runs is %s", job.Language,
			cmp.Or(why, "the language is not known"), strings.Join(can, ", ")).
			With(ReasonLanguage, "send it in one of those, or have the operator allow the language").Detail("languages", can)
	}
	job.Language, job.Entry = name, cmp.Or(job.Entry, "main")
	if job.Input == nil {
		job.Input = json.RawMessage("{}")
	}
	job.Timeout = min(cmp.Or(max(job.Timeout, 0), DefaultTimeout), MaxTimeout)
	job.Memory = min(cmp.Or(max(job.Memory, 0), DefaultMemory), MaxMemory)
	job.Floor = max(job.Floor, sandbox.T2)
	switch {
	case len(job.Code) > MaxCode:
		return tooLarge("code_too_large", "the code has %d bytes; the limit is %d", len(job.Code), MaxCode)
	case len(job.Input) > MaxInput:
		return tooLarge("", "the input has %d bytes; the limit is %d", len(job.Input), MaxInput)
	case !identifier.MatchString(job.Entry):
		return capability.Errorf(capability.CodeInvalidInput, "worker", "%.80q is not the name of a function",
			job.Entry).With("bad_code_binding", "")
	}
	return nil
}

var identifier = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]{0,127}$`)

func tooLarge(reason, format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeTooLarge, "worker", format, args...).With(reason, "send less")
}

// static reports whether this binary needs no file of the machine to start.
func static() bool {
	path, err := os.Executable()
	if err != nil {
		return false
	}
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}
