// Package stdiobridge forwards MCP between a program's standard streams and /mcp of a
// running server: newline-delimited JSON-RPC on one side, the streamable HTTP transport
// on the other. It makes no decisions and starts no server.
//
// It supports both protocols. For a legacy client it stores the session's id and version, keeps the
// stream of notifications open, and opens the session again after a restart of the server,
// transparently for the client. For a modern client, whose requests are independent, it sets the
// headers that repeat parts of the body. Bodies are forwarded unchanged.
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

// Config configures a bridge. In, Out, URL and Token are required.
type Config struct {
	In  io.Reader // one JSON-RPC message a line
	Out io.Writer // MCP messages and nothing else
	Err io.Writer // messages for people; may be nil
	// URL is the address of the server, "http://127.0.0.1:7777"; the bridge adds /mcp and the view.
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

	running chan struct{} // a slot for each concurrent request
	waiting chan struct{}
	work    sync.WaitGroup

	mu      sync.Mutex
	flights map[string]*flight // by id
	said    string             // the last line on Err, so that it is not repeated

	session session
}

// flight is a request that has not been answered.
type flight struct {
	modern    bool
	endless   bool // a subscription, which does not end by itself, or a response
	cancel    context.CancelFunc
	written   chan struct{} // closed when the request was sent
	withdrawn bool          // guarded by bridge.mu
}

// Run forwards messages until In or ctx ends. When In ends, running requests have ten seconds to
// finish before Run ends the session. When ctx ends, Run stops at once and returns ctx's error. The
// goroutine that reads In ends with In and not with ctx, because a read cannot be interrupted.
// Errors of single requests are sent to the client and do not end Run.
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
			// Redirects are not followed, because the token is for this server only.
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

// line is one line of In, or its end or error.
type line struct {
	data    []byte
	tooLong bool
	err     error
}

// loop handles the lines of In until In or ctx ends.
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

// readLine reads up to the next line break and discards the part beyond maxLine. The last
// line may have no break.
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
			// The next read returns the end.
		case err != nil:
			l.err = err
		}
		l.data = bytes.Trim(l.data, " \t\r\n")
		return l
	}
}

// settle cancels subscriptions, which would never end, and waits for the other running
// requests, at most drainGrace.
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

// write sends one message to the client as one line. Line breaks in it can only be white
// space between tokens, and are replaced.
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
	_, _ = b.cfg.Out.Write(data) // a client that stops reading also closes In
}

// tell writes a line to Err, unless it is the same as the last one.
func (b *bridge) tell(text string) {
	b.errs.Lock()
	defer b.errs.Unlock()
	if b.said == text {
		return
	}
	b.said = text
	fmt.Fprintln(b.cfg.Err, "junctor mcp: "+text)
}
