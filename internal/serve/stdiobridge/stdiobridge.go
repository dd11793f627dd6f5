// Package stdiobridge carries MCP between a program's standard streams and the
// /mcp door of a running server: newline-delimited JSON-RPC on one side, the
// streamable HTTP transport on the other. It decides nothing and starts no
// server; catalog, grants and audit stay where they are shared.
//
// Both protocols pass. Of a legacy client's session the bridge is the HTTP half:
// it keeps the session's id and version, holds the stream of notices open, and
// when the server has been restarted opens the session again without the client
// noticing. A modern client's messages stand alone; the bridge makes the headers
// that say what the body says. Bodies pass as they are.
package stdiobridge

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/secret"
)

const (
	// maxLine is the server's body limit of 4 MiB with some slack: the server
	// shall be the one to say that a message is too large.
	maxLine         = 4<<20 + 64<<10
	maxRunning      = 64               // requests at the server at once
	maxWaiting      = 1024             // and behind them
	maxAnswer       = 64 << 20         // one answer, so that a broken server cannot fill the memory
	drainGrace      = 10 * time.Second // for requests that run when In ends
	closeTimeout    = 2 * time.Second  // for ending the session
	firstRetryDelay = time.Second / 2  // until a broken stream of notices is opened again,
	maxRetryDelay   = 30 * time.Second // doubling up to this
)

// Config is what a bridge needs. In, Out, URL and Token are required.
type Config struct {
	In  io.Reader // one JSON-RPC message a line
	Out io.Writer // MCP messages and nothing else
	Err io.Writer // messages for people; may be nil
	// URL is the address of the server, "http://127.0.0.1:7777"; the bridge adds
	// /mcp and the view.
	URL   string
	Token secret.Value
	View  string // "": the token's default view
}

type bridge struct {
	cfg    Config
	url    string
	client *http.Client

	out  sync.Mutex // one message at a time
	errs sync.Mutex

	running chan struct{} // a place for each request at the server
	waiting chan struct{}
	work    sync.WaitGroup

	mu      sync.Mutex
	flights map[string]*flight // by id
	said    string             // the last words on Err, so that they are not repeated

	session session
}

// flight is a request that has not been answered.
type flight struct {
	modern    bool
	endless   bool // a subscription: it ends only when it is ended
	cancel    context.CancelFunc
	written   chan struct{} // closed when the request has left
	withdrawn bool          // guarded by bridge.mu
}

// Run bridges until In ends, and then gives the requests that run ten seconds to
// finish before it ends the session; or until ctx ends, when it stops at once
// and returns ctx's error. In is read by a goroutine that ends with In, not with
// ctx, because a read cannot be interrupted. Faults of single requests are
// answered to the client and do not end Run.
func Run(ctx context.Context, cfg Config) error {
	if cfg.In == nil || cfg.Out == nil || cfg.URL == "" {
		return errors.New("the bridge needs an input, an output and the server's address")
	}
	if cfg.Err == nil {
		cfg.Err = io.Discard
	}
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return errors.New("the default HTTP transport has been replaced")
	}
	transport = transport.Clone()
	transport.MaxIdleConnsPerHost = maxRunning
	defer transport.CloseIdleConnections()
	b := &bridge{
		cfg: cfg, url: strings.TrimRight(cfg.URL, "/") + "/mcp",
		client: &http.Client{
			Transport: transport,
			// The token goes to the server that was named, nowhere else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		running: make(chan struct{}, maxRunning), waiting: make(chan struct{}, maxRunning+maxWaiting),
		flights: make(map[string]*flight),
	}
	if cfg.View != "" {
		b.url += "/" + url.PathEscape(cfg.View)
	}
	b.session.bridge = b
	calls, cancelCalls := context.WithCancel(ctx)
	defer cancelCalls()
	err := b.loop(calls)
	b.settle(calls)
	cancelCalls()
	b.work.Wait()
	b.session.end(context.WithoutCancel(ctx))
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// line is one line of In, or the end.
type line struct {
	data    []byte
	tooLong bool
	err     error
}

// loop hands lines on until In or ctx ends.
func (b *bridge) loop(ctx context.Context) error {
	lines := make(chan line)
	go func() {
		in := bufio.NewReaderSize(b.cfg.In, 64<<10)
		for {
			l := readLine(in)
			select {
			case lines <- l:
			case <-ctx.Done():
				return
			}
			if l.err != nil {
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-lines:
			switch {
			case errors.Is(l.err, io.EOF):
				return nil
			case l.err != nil:
				return fmt.Errorf("reading the client's messages: %w", l.err)
			case l.tooLong:
				b.fail(nil, codeTooLarge, fmt.Sprintf("a message is longer than %d bytes", maxLine), "")
			case len(l.data) > 0:
				b.take(ctx, l.data)
			}
		}
	}
}

// readLine reads up to the next line break and drops what is beyond the limit.
// The last line may lack its break.
func readLine(in *bufio.Reader) line {
	var l line
	for {
		part, err := in.ReadSlice('\n')
		if !l.tooLong {
			l.data = append(l.data, part...)
			if len(l.data) > maxLine+1 {
				l.data, l.tooLong = nil, true
			}
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (len(l.data) > 0 || l.tooLong) && errors.Is(err, io.EOF):
			// The end is told by the next read.
		case err != nil:
			l.err = err
		}
		l.data = bytes.Trim(l.data, " \t\r\n")
		return l
	}
}

// settle waits for the requests that run, subscriptions apart, which would never
// end by themselves.
func (b *bridge) settle(ctx context.Context) {
	b.mu.Lock()
	for _, f := range b.flights {
		if f.endless {
			f.withdrawn = true
			f.cancel()
		}
	}
	b.mu.Unlock()
	done := make(chan struct{})
	go func() {
		b.work.Wait()
		close(done)
	}()
	timer := time.NewTimer(drainGrace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// write sends one message to the client. A line break inside, which can only be
// white space between tokens, would end it early.
func (b *bridge) write(message []byte) {
	data := make([]byte, len(message)+1)
	for i, c := range message {
		if c == '\n' || c == '\r' {
			c = ' '
		}
		data[i] = c
	}
	data[len(message)] = '\n'
	b.out.Lock()
	defer b.out.Unlock()
	_, _ = b.cfg.Out.Write(data) // a client that no longer reads closes In too
}

// tell writes a line for people, once until something else is told.
func (b *bridge) tell(text string) {
	b.errs.Lock()
	defer b.errs.Unlock()
	if b.said == text {
		return
	}
	b.said = text
	fmt.Fprintln(b.cfg.Err, "junctor mcp: "+text)
}
