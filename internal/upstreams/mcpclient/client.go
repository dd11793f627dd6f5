package mcpclient

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/junctor-run/junctor/capability"
)

// Client is one connection to one server. It is safe for concurrent use; Close ends it.
type Client struct {
	cfg  Config
	log  *slog.Logger
	ctx  context.Context // ends with Close
	stop context.CancelFunc
	ids  atomic.Int64

	running sync.Mutex // guards closed and the group's growth
	closed  bool
	group   sync.WaitGroup

	mu      sync.Mutex
	closing bool
	link    link     // nil while disconnected
	pending *attempt // the current attempt to connect, or nil
	era     era
	watched map[string]struct{} // the URIs subscribed to
	level   json.RawMessage     // params of the last logging/setLevel, or nil

	stderr tail
}

// attempt is one attempt to connect, which all waiting callers share.
type attempt struct {
	done   chan struct{}
	server Server
	err    error
}

// New validates cfg and returns a client that is not connected.
func New(cfg Config) (*Client, error) {
	bad := func(format string, args ...any) (*Client, error) {
		return nil, capability.Errorf(capability.CodeInvalidInput, "mcp.new", format, args...)
	}
	switch {
	case cfg.Name == "":
		return bad("an upstream needs a name")
	case (len(cfg.Command) == 0) == (cfg.URL == ""):
		return bad("upstream %s needs a command or a URL, and not both", cfg.Name)
	case len(cfg.Command) > 0 && cfg.SSE:
		return bad("upstream %s is a program: SSE is for URLs", cfg.Name)
	case cfg.URL != "" && cfg.HTTP == nil:
		return bad("upstream %s has a URL and no client to reach it with", cfg.Name)
	}
	if cfg.URL != "" {
		u, err := url.Parse(cfg.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return bad("the URL of upstream %s must be http or https, with a host and without a user", cfg.Name)
		}
	}
	for _, dir := range cfg.Roots {
		if !filepath.IsAbs(dir) {
			return bad("the roots of upstream %s must be absolute directories", cfg.Name)
		}
	}
	c := &Client{cfg: cfg, log: cfg.Logger, watched: make(map[string]struct{})}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, connectTimeout)
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// spawn runs f in a goroutine that Close waits for. After Close it returns false without running f.
func (c *Client) spawn(f func()) bool {
	c.running.Lock()
	defer c.running.Unlock()
	if !c.closed {
		c.group.Go(f)
	}
	return !c.closed
}

// Connect connects unless the client is connected. Concurrent callers share one attempt, which
// takes Config.ConnectTimeout at most and continues if the context of one of them ends. Errors: unavailable (reasons
// connection_failed, unauthenticated, unsupported_version), and those of ctx.
func (c *Client) Connect(ctx context.Context) (Server, error) {
	c.mu.Lock()
	if lk := c.link; lk != nil && lk.shared().flight.alive() {
		c.mu.Unlock()
		return lk.shared().server, nil
	}
	a := c.pending
	if a == nil {
		a = c.attempt(false)
	}
	c.mu.Unlock()
	select {
	case <-a.done:
		return a.server, a.err
	case <-ctx.Done():
		return Server{}, c.ended(ctx)
	case <-c.ctx.Done():
		return Server{}, c.errClosed()
	}
}

// attempt starts an attempt to connect. renewal is set for a new session after a lost one;
// then all lists count as changed. The caller holds mu.
func (c *Client) attempt(renewal bool) *attempt {
	a := &attempt{done: make(chan struct{})}
	c.pending = a
	c.spawn(func() {
		ctx, cancel := context.WithTimeout(c.ctx, c.cfg.ConnectTimeout)
		defer cancel()
		lk, err := c.establish(ctx)
		c.mu.Lock()
		if err == nil {
			err = lk.shared().flight.end()
		}
		if err == nil && c.closing {
			err = c.errClosed()
		}
		if err == nil {
			c.link = lk
			a.server = lk.shared().server
		} else {
			a.err = c.unreachable(err)
		}
		c.pending = nil
		c.mu.Unlock()
		close(a.done)
		switch {
		case err == nil:
			lk.begin(renewal)
			if renewal {
				c.changed(Lists()...)
			}
		case lk != nil:
			lk.close(false)
		}
		if err != nil && renewal && c.cfg.Down != nil && c.ctx.Err() == nil {
			c.cfg.Down(a.err)
		}
	})
	return a
}

// renew replaces a connection whose session or revision the server no longer accepts, and
// waits for the new one. Concurrent calls for one link replace it once.
func (c *Client) renew(ctx context.Context, old link) (Server, error) {
	c.mu.Lock()
	if c.link == old {
		c.link = nil
		c.log.Info("the session of an upstream is renewed", "server", c.cfg.Name)
		c.attempt(true)
		// Calls that still run on their own streams may finish.
		c.spawn(func() { old.close(true) })
	}
	c.mu.Unlock()
	return c.Connect(ctx)
}

// lost handles the loss of a link: it ends its exchanges, closes it and, if it was in use,
// calls Config.Down.
func (c *Client) lost(lk link, err error) {
	if !lk.shared().flight.kill(err) {
		return
	}
	c.mu.Lock()
	current := c.link == lk
	if current {
		c.link = nil
	}
	c.mu.Unlock()
	if !current {
		return // the goroutine that removed it closes it
	}
	lk.close(true)
	if c.ctx.Err() == nil {
		c.log.Warn("the connection to an upstream is lost", "server", c.cfg.Name, "err", err)
		if c.cfg.Down != nil {
			c.cfg.Down(err)
		}
	}
}

// connected returns the link in use, waiting for a pending attempt; without either, the
// error is unavailable.
func (c *Client) connected(ctx context.Context) (link, error) {
	c.mu.Lock()
	a := c.pending
	lk := c.link
	c.mu.Unlock()
	if c.ctx.Err() != nil {
		return nil, c.errClosed()
	}
	if lk == nil && a != nil {
		select {
		case <-a.done:
			if a.err != nil {
				return nil, a.err
			}
			return c.connected(ctx)
		case <-ctx.Done():
			return nil, c.ended(ctx)
		case <-c.ctx.Done():
			return nil, c.errClosed()
		}
	}
	if lk == nil {
		return nil, capability.Errorf(capability.CodeUnavailable, "mcp.call", "%s is not connected", c.cfg.Name).With(reasonConnection,
			"connect first")
	}
	return lk, nil
}

// Close ends the connection: all calls fail, a session is deleted (2 s at most), and a process is
// stopped with its whole group: its input is closed, after 2 s it receives SIGTERM, after 3 s more
// it is killed. Close waits for all of that. Further calls do nothing.
func (c *Client) Close() error {
	c.running.Lock()
	was := c.closed
	c.closed = true
	c.running.Unlock()
	if was {
		return nil
	}
	c.mu.Lock()
	lk := c.link
	c.link, c.closing = nil, true
	c.mu.Unlock()
	if lk != nil {
		lk.shared().flight.kill(errClosing)
		lk.close(false)
	}
	c.stop()
	c.group.Wait()
	return nil
}

// Stderr returns the end of the process's standard error over all its starts, at most
// 64 KiB. It is for operators.
func (c *Client) Stderr() string { return c.stderr.String() }
