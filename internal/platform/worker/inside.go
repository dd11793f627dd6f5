package worker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// workerName is the first argument that makes this binary the process of one run.
const workerName = "script-worker"

// The pipes of the process.
const (
	inFD  = 3
	outFD = 4
)

// IsWorker reports whether this process was started to run code. argv is os.Args.
func IsWorker(argv []string) bool { return len(argv) == 2 && argv[1] == workerName }

// Main runs this process as the runner of one piece of code, and returns its exit status. It
// reads the code last, after it has given up all access to the machine.
func Main() int {
	if err := sandbox.ComputeOnly(); err != nil {
		fmt.Fprintln(os.Stderr, "the walls cannot be put up:", err)
		return 1
	}
	c := &conn{in: bufio.NewReaderSize(os.NewFile(inFD, "in"), 64<<10), out: os.NewFile(outFD, "out")}
	if err := c.receive(); err != nil {
		fmt.Fprintln(os.Stderr, "the job cannot be read:", err)
		return 1
	}
	timeout := time.Duration(c.order.Timeout) * time.Millisecond
	deadline := time.Now().Add(timeout)
	timer := time.AfterFunc(timeout+watchdogInterval, func() {
		c.end(&failure{Kind: kindTimeout})
		os.Exit(0)
	})
	defer timer.Stop()
	run := javascript
	if c.order.Language == WASM {
		run = webAssembly
	}
	value, err := run(c, deadline)
	if err != nil {
		f, ok := errors.AsType[*failure](err)
		switch {
		case !time.Now().Before(deadline): // whatever error the interrupted engine returned
			f = &failure{Kind: kindTimeout}
		case !ok:
			f = &failure{Kind: kindCode, Message: err.Error()}
		}
		f.Message = text.ShortenRunes(f.Message, 2000)
		c.end(f)
		return 0
	}
	if len(value) > MaxResult {
		c.end(&failure{Kind: kindOutput, Limit: MaxResult})
		return 0
	}
	c.result(value)
	return 0
}

// Error implements error.
func (f *failure) Error() string { return f.Kind + ": " + f.Message }

// conn is the process's side of the two pipes.
type conn struct {
	in    *bufio.Reader
	order order
	code  []byte
	input []byte

	mu    sync.Mutex
	out   io.Writer
	ended bool
	calls int
}

// receive reads the job.
func (c *conn) receive() error {
	head, err := readLine(c.in, 64<<10)
	if err != nil {
		return err
	}
	if err := jsonx.Unmarshal(head, &c.order); err != nil {
		return err
	}
	if c.order.Code < 0 || c.order.Code > MaxCode || c.order.Input < 0 || c.order.Input > MaxInput {
		return errTooLong
	}
	c.code, c.input = make([]byte, c.order.Code), make([]byte, c.order.Input)
	if _, err := io.ReadFull(c.in, c.code); err != nil {
		return err
	}
	_, err = io.ReadFull(c.in, c.input)
	return err
}

// write sends one line; nothing follows the last one.
func (c *conn) write(last bool, members map[string]any) error {
	data, err := jsonx.Marshal(members)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return errEnded
	}
	c.ended = last
	_, err = c.out.Write(append(data, '\n'))
	return err
}

var errEnded = errors.New("the run has ended")

func (c *conn) end(f *failure)         { _ = c.write(true, map[string]any{"error": f}) }
func (c *conn) result(value jsonx.Raw) { _ = c.write(true, map[string]any{"result": value}) }

// chunk sends one chunk.
func (c *conn) chunk(value jsonx.Raw) error {
	if len(value) > MaxChunk {
		return &failure{Kind: kindOutput, Limit: MaxChunk}
	}
	return c.write(false, map[string]any{"chunk": value})
}

// call makes one host call and waits for its reply. The error is the host's and is passed to the
// code.
func (c *conn) call(method string, params jsonx.Raw) (jsonx.Raw, error) {
	if len(params) > MaxRequest {
		return nil, fmt.Errorf("the host call has %d bytes of parameters; the limit is %d", len(params), MaxRequest)
	}
	c.calls++
	if err := c.write(false, map[string]any{"jsonrpc": "2.0", "id": c.calls, "method": method, "params": params}); err != nil {
		return nil, err
	}
	data, err := readLine(c.in, MaxReply+4096)
	if err != nil {
		return nil, err
	}
	var r reply
	if err := jsonx.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	switch {
	case r.Error != nil:
		return nil, errors.New(r.Error.Message)
	case r.Result == nil:
		return jsonx.Raw("null"), nil
	}
	return r.Result, nil
}
