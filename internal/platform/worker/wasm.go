package worker

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

const wasmPage = 64 << 10

// webAssembly runs the module of c. It compiles the module each time, because a cache on disk
// would have to be written by a process that has read untrusted code and must not write
// anything, or be trusted by the next process without verification.
func webAssembly(c *conn, deadline time.Time) (jsonx.Raw, error) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithMemoryLimitPages(uint32(c.order.Memory/wasmPage)).
		WithCloseOnContextDone(true))
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, rt); err != nil {
		return nil, err
	}
	if err := hostModule(ctx, rt, c); err != nil {
		return nil, err
	}
	compiled, err := rt.CompileModule(ctx, c.code)
	if err != nil {
		return nil, fmt.Errorf("it is not a module that runs here: %w", err)
	}
	out, stderr := &lines{c: c}, &head{}
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().WithArgs("module",
		c.order.Entry).WithStdin(bytes.NewReader(c.input)).WithStdout(out).WithStderr(stderr).
		WithSysNanotime().WithSysNanosleep().WithRandSource(rand.Reader)
	value, err := call(ctx, rt, compiled, config, c.order.Entry)
	switch {
	case ctx.Err() != nil:
		return nil, &failure{Kind: kindTimeout}
	case out.failed != nil:
		return nil, out.failed
	case err != nil:
		if text := stderr.String(); text != "" {
			return nil, fmt.Errorf("%w: %s", err, text)
		}
		return nil, err
	}
	if err := out.end(); err != nil {
		return nil, err
	}
	switch {
	case out.value != nil:
		return out.value, nil
	case value != nil:
		return value, nil
	}
	return jsonx.Raw("null"), nil
}

// call runs the exported function of the name, else _start.
func call(ctx context.Context, rt wazero.Runtime, compiled wazero.CompiledModule, config wazero.ModuleConfig,
	name string,
) (jsonx.Raw, error) {
	exports := compiled.ExportedFunctions()
	own, ok := exports[name]
	if ok && len(own.ParamTypes()) > 0 {
		return nil, fmt.Errorf("the exported function %s has parameters; it must have none", name)
	}
	if _, start := exports["_start"]; !ok && !start {
		return nil, fmt.Errorf("the module exports neither %s nor _start", name)
	}
	module, err := rt.InstantiateModule(ctx, compiled, config)
	if err != nil {
		return nil, plain(err)
	}
	if !ok {
		_, err := module.ExportedFunction("_start").Call(ctx)
		return nil, plain(err)
	}
	if initialize := module.ExportedFunction("_initialize"); initialize != nil {
		if _, err := initialize.Call(ctx); plain(err) != nil {
			return nil, plain(err)
		}
	}
	got, err := module.ExportedFunction(name).Call(ctx)
	if err = plain(err); err != nil || len(got) == 0 {
		return nil, err
	}
	if len(got) > 1 {
		return nil, fmt.Errorf("the exported function %s returns %d values; it may return one", name, len(got))
	}
	return number(own.ResultTypes()[0], got[0])
}

// plain returns nil for an exit with status 0, and the error of a trap without the engine's stack.
func plain(err error) error {
	if err == nil {
		return nil
	}
	if exit, ok := errors.AsType[*sys.ExitError](err); ok {
		if exit.ExitCode() == 0 {
			return nil
		}
		return fmt.Errorf("it ended with exit code %d", exit.ExitCode())
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(text)
}

func number(kind api.ValueType, v uint64) (jsonx.Raw, error) {
	switch kind {
	case api.ValueTypeI32:
		return jsonx.Marshal(api.DecodeI32(v))
	case api.ValueTypeI64:
		return jsonx.Marshal(int64(v))
	case api.ValueTypeF32:
		return jsonx.Marshal(api.DecodeF32(v))
	case api.ValueTypeF64:
		return jsonx.Marshal(api.DecodeF64(v))
	}
	return nil, errors.New("what the function returns is not a number")
}

// hostModule instantiates the module "junctor", whose functions make host calls; see the package
// comment.
func hostModule(ctx context.Context, rt wazero.Runtime, c *conn) error {
	var last []byte // the reply that is fetched next
	ask := func(_ context.Context, m api.Module, ptr, size uint32) int32 {
		data, ok := m.Memory().Read(ptr, size)
		if !ok || size > MaxRequest {
			return -1
		}
		var request struct {
			Method string    `json:"method"`
			Params jsonx.Raw `json:"params"`
		}
		members := map[string]any{}
		if err := jsonx.Unmarshal(slices.Clone(data), &request); err != nil || request.Method == "" {
			members["error"] = map[string]any{"message": "the request is not JSON with a method"}
		} else if got, err := c.call(request.Method, request.Params); err != nil {
			members["error"] = map[string]any{"message": err.Error()}
		} else {
			members["result"] = got
		}
		var err error
		if last, err = jsonx.Marshal(members); err != nil {
			return -1
		}
		return int32(len(last))
	}
	fetch := func(_ context.Context, m api.Module, ptr, size uint32) int32 {
		n := min(int(size), len(last))
		if !m.Memory().Write(ptr, last[:n]) {
			return -1
		}
		return int32(n)
	}
	_, err := rt.NewHostModuleBuilder("junctor").NewFunctionBuilder().WithFunc(ask).Export("call").NewFunctionBuilder().WithFunc(fetch).
		Export("reply").Instantiate(ctx)
	return err
}

// lines parses a module's standard output. Chunks are sent at once; the result is stored.
type lines struct {
	c      *conn
	part   []byte
	value  jsonx.Raw
	failed *failure
}

var errStop = errors.New("nothing more is taken")

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		if l.failed != nil {
			return 0, errStop
		}
		line, more, whole := bytes.Cut(rest, []byte("\n"))
		l.part, rest = append(l.part, line...), more
		if len(l.part) > MaxResult+64 {
			l.failed = &failure{Kind: kindOutput, Limit: MaxResult}
		} else if whole {
			l.take(l.part)
			l.part = nil
		}
	}
	return len(p), nil
}

// end processes the last line if it lacks a newline, and returns the first failure.
func (l *lines) end() error {
	if len(l.part) > 0 && l.failed == nil {
		l.take(l.part)
	}
	if l.failed != nil {
		return l.failed
	}
	return nil
}

// take processes one line, or records a failure for a malformed one.
func (l *lines) take(data []byte) {
	if len(bytes.TrimSpace(data)) == 0 {
		return
	}
	var one struct {
		Chunk  jsonx.Raw `json:"chunk"`
		Result jsonx.Raw `json:"result"`
		Error  jsonx.Raw `json:"error"`
	}
	err := jsonx.UnmarshalStrict(data, &one)
	switch {
	case err != nil, one.Chunk == nil && one.Result == nil && one.Error == nil:
		l.failed = &failure{Kind: kindCode, Message: fmt.Sprintf("it wrote a line that is not one of chunk, result and error: %.100q", data)}
	case one.Error != nil:
		l.failed = &failure{Kind: kindCode, Message: message(one.Error)}
	case one.Result != nil && l.value != nil:
		l.failed = &failure{Kind: kindCode, Message: "it wrote two results"}
	case one.Result != nil:
		l.value = slices.Clone(one.Result)
	default:
		if err := l.c.chunk(one.Chunk); err != nil {
			if f, ok := errors.AsType[*failure](err); ok {
				l.failed = f
			}
		}
	}
}

// message returns the text of an error: a string, or its member message.
func message(raw jsonx.Raw) string {
	var text string
	if jsonx.Unmarshal(raw, &text) == nil {
		return text
	}
	var object struct {
		Message string `json:"message"`
	}
	if jsonx.Unmarshal(raw, &object) == nil && object.Message != "" {
		return object.Message
	}
	return string(raw)
}

// head stores the beginning of a module's standard error.
type head struct{ data []byte }

// Write implements io.Writer.
func (h *head) Write(p []byte) (int, error) {
	h.data = append(h.data, p[:min(len(p), maxHead-len(h.data))]...)
	return len(p), nil
}

func (h *head) String() string { return strings.TrimSpace(strings.ToValidUTF8(string(h.data), "?")) }
