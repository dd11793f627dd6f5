package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
)

// order is the first line to the process. The code and the input follow it, with the
// lengths that it contains.
type order struct {
	Language string   `json:"language"`
	Entry    string   `json:"entry"`
	Handler  string   `json:"handler"`
	Calls    []string `json:"calls"`
	Memory   int64    `json:"memory"`
	Timeout  int64    `json:"timeout"` // milliseconds
	Code     int      `json:"code"`
	Input    int      `json:"input"`
	Path     string   `json:"path"` // python's, to import from
}

// line is one line of the process: a chunk, a host call, or at the end a result or an error.
type line struct {
	Chunk  jsonx.Raw `json:"chunk"`
	Result jsonx.Raw `json:"result"`
	Error  *failure  `json:"error"`

	ID     int       `json:"id"`
	Method string    `json:"method"`
	Params jsonx.Raw `json:"params"`
}

// The kinds of a failure.
const (
	kindCode    = "code" // the code's own
	kindTimeout = "timeout"
	kindMemory  = "memory"
	kindOutput  = "output"
)

// failure is the failure of the code as reported by its process.
type failure struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Limit   int64  `json:"limit"`
}

func (f *failure) fault(job *Job) *capability.Error {
	switch f.Kind {
	case kindTimeout:
		return fault.TimedOut(job.Timeout)
	case kindMemory:
		return memoryLimit(job)
	case kindOutput:
		return fault.OutputLimit(f.Limit)
	}
	return executionFailed("%s", f.Message)
}

// reply answers a host call.
type reply struct {
	Version string      `json:"jsonrpc"`
	ID      int         `json:"id"`
	Result  jsonx.Raw   `json:"result,omitempty"`
	Error   *replyError `json:"error,omitempty"`
}

type replyError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// talk is the server's end of the two pipes. All input is untrusted.
type talk struct {
	job  *Job
	pkg  string // as the process sees it
	in   *os.File
	out  *os.File
	stop context.CancelCauseFunc

	value  json.RawMessage
	failed *failure
	broken error // the rule that the process broke, for which it was ended
	chunks int
	calls  int
	bytes  int // of all chunks
}

// run sends the job and reads the process's messages until it ends.
func (t *talk) run(ctx context.Context) {
	if err := t.send(); err != nil {
		return // the process has ended; the verdict reports the missing answer
	}
	lines := bufio.NewReaderSize(t.in, 64<<10)
	for {
		data, err := readLine(lines, MaxResult+64)
		if errors.Is(err, errTooLong) {
			t.breaks(fault.OutputLimit(MaxResult))
		}
		if err != nil || t.take(ctx, data) {
			break
		}
	}
	if t.value != nil || t.failed != nil {
		timer := time.AfterFunc(stopGrace/2, func() { t.stop(errDone) }) // usually it exits by itself
		defer timer.Stop()
	}
	_, _ = io.Copy(io.Discard, t.in)
}

// send writes the job.
func (t *talk) send() error {
	o := order{
		Language: t.job.Language, Entry: t.job.Entry, Handler: t.job.Handler, Calls: []string{}, Memory: t.job.Memory,
		Timeout: t.job.Timeout.Milliseconds(),
		Code:    len(t.job.Code), Input: len(t.job.Input),
	}
	if t.pkg != "" {
		o.Path = path.Join(t.pkg, t.job.Import)
	}
	for name := range t.job.Calls {
		o.Calls = append(o.Calls, name)
	}
	head, err := jsonx.Marshal(o)
	if err != nil {
		t.breaks(capability.Wrap(capability.CodeInternal, "worker", "the job cannot be written", err))
		return err
	}
	for _, part := range [][]byte{append(head, '\n'), t.job.Code, t.job.Input} {
		if _, err := t.out.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// breaks records that the process broke a rule, and ends it.
func (t *talk) breaks(err error) {
	t.broken = err
	t.stop(err)
}

// take handles one line of the process. done reports that further lines are ignored.
func (t *talk) take(ctx context.Context, data []byte) (done bool) {
	var l line
	if err := jsonx.Unmarshal(data, &l); err != nil {
		t.breaks(executionFailed("its process wrote what is not an answer: %.100q", data))
		return true
	}
	switch {
	case l.Error != nil:
		t.failed = l.Error
	case l.Method != "":
		return t.serve(ctx, &l)
	case l.Result != nil:
		if len(l.Result) > MaxResult {
			t.breaks(fault.OutputLimit(MaxResult))
			return true
		}
		t.value = json.RawMessage(l.Result)
	case l.Chunk != nil:
		return t.chunk(l.Chunk)
	default:
		t.breaks(executionFailed("its process wrote a line that says nothing: %.100q", data))
	}
	return true
}

// chunk passes one chunk to Job.Chunk. Beyond the limits it ends the process and returns true.
func (t *talk) chunk(data jsonx.Raw) (done bool) {
	t.chunks++
	t.bytes += len(data)
	switch {
	case len(data) > MaxChunk:
		t.breaks(fault.OutputLimit(MaxChunk))
	case t.bytes > MaxAllChunks:
		t.breaks(fault.OutputLimit(MaxAllChunks))
	case t.chunks > MaxChunks:
		t.breaks(capability.Errorf(capability.CodeFailed, "worker", "it sent more than %d chunks", MaxChunks).With("output_limit",
			"send fewer and larger ones"))
	default:
		if t.job.Chunk != nil {
			t.job.Chunk(json.RawMessage(data))
		}
		return false
	}
	return true
}

// serve makes one host call and sends its reply. Calls are sequential, because the code waits for
// the reply. Beyond the limits it ends the process and returns true.
func (t *talk) serve(ctx context.Context, l *line) (done bool) {
	t.calls++
	switch {
	case t.calls > MaxCalls:
		t.breaks(capability.Errorf(capability.CodeFailed, "worker", "it made more than %d host calls", MaxCalls).With("resource_limit",
			"").Detail("kind", "calls"))
		return true
	case len(l.Params) > MaxRequest:
		t.breaks(fault.OutputLimit(MaxRequest))
		return true
	}
	r := reply{Version: "2.0", ID: l.ID}
	call, ok := t.job.Calls[l.Method]
	if !ok {
		r.Error = &replyError{jsonrpc.CodeMethodNotFound, refused(l.Method)}
	} else {
		value, err := call(ctx, json.RawMessage(l.Params))
		if err == nil {
			r.Result, err = jsonx.Marshal(value)
		}
		if err == nil && len(r.Result) > MaxReply {
			err = fmt.Errorf("the reply has %d bytes; the limit is %d", len(r.Result), MaxReply)
		}
		if err != nil {
			r.Result, r.Error = nil, &replyError{jsonrpc.CodeServer, text.ShortenRunes(fault.OneLine(sentence(err)), 600)}
		}
	}
	data, err := jsonx.Marshal(r)
	if err != nil {
		return true
	}
	_, err = t.out.Write(append(data, '\n'))
	return err != nil
}

// refused returns the error for a host call that is not allowed.
func refused(method string) string {
	return fmt.Sprintf("the host call %.40q is not allowed here: the permissions in force do not cover it, or nothing serves it", method)
}

// sentence returns the part of an error that the code may read.
func sentence(err error) string {
	if e, ok := errors.AsType[*capability.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

var errTooLong = errors.New("the line is too long")

// readLine reads one line without its end, of at most limit bytes.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var whole []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(whole)+len(part) > limit {
			return nil, errTooLong
		}
		whole = append(whole, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return bytes.TrimSuffix(whole, []byte("\n")), nil
	}
}
