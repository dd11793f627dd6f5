package upstream

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// places limits the connections of all upstreams together.
type places struct {
	mu    sync.Mutex
	taken int
	most  int
}

func (p *places) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.most {
		return false
	}
	p.taken++
	return true
}

func (p *places) free() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
}

// conn is one connection of an upstream. The watcher owns the main one, whose key is "":
// it reads the lists, receives changes and makes the calls of shared upstreams. The others
// belong to a principal or a session, and are closed when idle.
type conn struct {
	key    string
	client Client
	server Server
	login  *login        // whose tokens it sends, if each principal has its own login
	ready  chan struct{} // closed when the attempt to connect has ended
	err    error         // of that attempt
	down   chan error    // receives the reason of a loss; capacity 1

	// guarded by upstream.mu
	process *sandbox.Process // of a confined program, else nil
	output  *outputWriter    // its error output; nil for a URL
	busy    int
	used    time.Time
	lost    bool
	offers  *offers // its resources as they were listed last, or nil
	noticed bool    // it sent a notice that its resources changed
	calls   int     // that were made over it
}

// dial returns a connection with a client that is not connected yet. It counts towards
// maxTotal (overloaded) until close.
func (u *upstream) dial(key string) (*conn, error) {
	c := &conn{key: key, ready: make(chan struct{}), down: make(chan error, 1)}
	rec := &u.record
	mask := u.masker(u.ownerOf(key))
	cfg := ClientConfig{
		Name: rec.Name, Kind: rec.Kind, Keys: rec.Keys, Local: rec.PrivateNetwork, Command: rec.Command, URL: rec.URL, SSE: rec.SSE,
		Roots: rec.Roots, Sampling: rec.Sampling == record.Forward,
		Logger: slog.New(&logHandler{u.reg.cfg.Logger.Handler(), u.log, mask}), ConnectTimeout: u.patience(),
		Down: func(err error) {
			select {
			case c.down <- err:
			default:
			}
			if key != "" {
				u.forget(c)
			} else {
				u.away(c)
			}
		},
	}
	cfg.Updated = func(uri string) { u.updated(key, uri) }
	cfg.Changed = func(kind ingest.Kind) {
		if kind == ingest.Resource {
			u.mu.Lock()
			c.offers, c.noticed = nil, true
			u.mu.Unlock()
		}
		if key == "" {
			u.changed(kind)
		}
	}
	if rec.URL != "" {
		var err error
		if c.login, cfg.HTTP, err = u.client(key); err != nil {
			return nil, err
		}
		cfg.Header = (&credentials{u: u, owner: u.ownerOf(key)}).header
		cfg.SecretHeaders = sortedKeys(rec.HeaderSecrets)
		if cfg.Document = rec.Document; cfg.Document != "" || rec.Kind == record.KindGraphQL {
			anywhere, err := guarded(rec, "")
			if err != nil {
				return nil, err
			}
			cfg.Fetch = &http.Client{Transport: anywhere}
			cfg.Secret = func() (string, error) {
				if rec.APISecret == "" {
					return "", nil
				}
				return u.secret("", rec.APISecret)
			}
		}
	} else {
		c.output = &outputWriter{log: u.log, mask: mask}
		cfg.Errors, cfg.Unreadable = c.output, c.output.unreadable
		var err error
		if cfg.Env, err = u.environment(u.ownerOf(key)); err != nil {
			return nil, err
		}
		if u.record.Confinement == record.Sandboxed {
			cfg.Start, err = u.starter(c, cfg.Env)
		} else {
			cfg.Dir, err = u.folder()
		}
		if err != nil {
			return nil, err
		}
	}
	if !u.reg.total.take() {
		return nil, capability.Errorf(capability.CodeOverloaded, "upstreams", "there are %d connections to upstreams already", maxTotal).
			With(reasonTooManyConnections, "try again in a while, or set isolation: shared where it is of no use")
	}
	client, err := u.reg.cfg.Dial(cfg)
	if err != nil {
		u.reg.total.free()
		return nil, err
	}
	c.client = client
	return c, nil
}

// away removes a lost main connection, so that calls wait for the next one even before
// the watcher handles the loss.
func (u *upstream) away(c *conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.current != c {
		return
	}
	if u.current = nil; u.attempt == nil {
		u.attempt = &attempt{done: make(chan struct{})}
	}
}

// close ends the connection and the calls on it.
func (u *upstream) close(c *conn) {
	if err := c.client.Close(); err != nil {
		u.reg.cfg.Logger.Warn("a connection to an upstream was not closed cleanly", "upstream", u.record.Name, "err", err)
	}
	if c.output != nil {
		c.output.flush()
	}
	if u.http != nil {
		u.http.CloseIdleConnections()
	}
	u.reg.total.free()
}

// folder returns the working folder of a program: that of the record, or one in the home
// directory, which it creates.
func (u *upstream) folder() (string, error) {
	if u.record.Dir != "" || u.reg.cfg.Dir == "" {
		return u.record.Dir, nil
	}
	dir := filepath.Join(u.reg.cfg.Dir, u.record.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", capability.Wrap(capability.CodeFailed, "upstreams", "the folder of upstream "+u.record.Name+" cannot be made", err)
	}
	return dir, nil
}

// unfold removes the data of an upstream beside its record: tokens, and its folder in the
// home directory if that is empty.
func (u *upstream) unfold() {
	if u.tokens != nil {
		err := u.tokens.Forget(context.Background())
		if u.logins != nil {
			err = u.logins.forget(context.Background())
		}
		if err != nil {
			u.reg.cfg.Logger.Error("the tokens of an upstream that is gone are still there", "upstream", u.record.Name, "err", err)
		}
	}
	if (u.record.Dir == "" || u.record.Confinement == record.Sandboxed) && u.record.URL == "" && u.reg.cfg.Dir != "" {
		_ = os.Remove(filepath.Join(u.reg.cfg.Dir, u.record.Name)) // fails unless it is empty
	}
}

// masked returns a program's output without the secrets of the record. Programs may print
// their environment when they fail, and operators who read that must not see secrets.
func (u *upstream) masked(text string) string {
	if text == "" {
		return text
	}
	for _, name := range u.record.Secrets() {
		if value, err := u.secret("", name); err == nil && len(value) >= minMasked {
			text = strings.ReplaceAll(text, value, "[secret "+name+"]")
		}
	}
	return text
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, cmp.Compare)
	return keys
}

// keyOf returns the key of the connection for a call, by the record's isolation; "" is the
// main one.
func (u *upstream) keyOf(by Caller) string {
	if u.logins != nil && by.For != "" {
		by.Principal = by.For // whose login it uses
	}
	switch {
	case u.record.Isolation == record.ClientSession && by.Session != "":
		return "session\x00" + by.Principal + "\x00" + by.Session
	case u.record.Isolation == record.Shared:
		return ""
	}
	return "principal\x00" + by.Principal
}

// connection returns the connected connection of a key, which it makes if needed. The
// caller must call release.
func (u *upstream) connection(ctx context.Context, key string) (*conn, error) {
	if key == "" {
		return u.main(ctx)
	}
	u.mu.Lock()
	c := u.conns[key]
	if c != nil && c.login != nil && !c.login.current() {
		u.trash = append(u.trash, c) // of an earlier principal of this name
		c.lost = true
		delete(u.conns, key)
	}
	if c != nil && !c.lost {
		c.busy++
		u.mu.Unlock()
	} else {
		if u.stopped() {
			u.mu.Unlock()
			return nil, u.unavailable()
		}
		idle := u.crowded()
		u.mu.Unlock()
		if idle != nil {
			u.close(idle)
		}
		var err error
		if c, err = u.other(key); err != nil {
			return nil, err
		}
	}
	select {
	case <-c.ready:
	case <-ctx.Done():
		u.release(c)
		return nil, capability.AsError(ctx.Err())
	}
	if c.err != nil {
		u.release(c)
		return nil, c.err
	}
	return c, nil
}

// crowded removes and returns the connection that was idle longest if the upstream has
// maxConnections, else nil. The caller holds mu, and closes the connection.
func (u *upstream) crowded() (idle *conn) {
	if len(u.conns) < maxConnections-1 { // one is the main one
		return nil
	}
	for _, c := range u.conns {
		if c.busy == 0 && (idle == nil || c.used.Before(idle.used)) {
			idle = c
		}
	}
	if idle != nil {
		idle.lost = true
		delete(u.conns, idle.key)
	}
	return idle
}

// other makes the connection of a key, or returns the one that another caller has just
// made. It connects in the background; ready is closed afterwards. If all connections are
// in use, the error is overloaded.
func (u *upstream) other(key string) (*conn, error) {
	fresh, err := u.dial(key)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	now := u.conns[key]
	room := now == nil && len(u.conns) < maxConnections-1 && !u.stopped()
	if room {
		u.conns[key] = fresh
		fresh.busy++
	} else if now != nil {
		now.busy++
	}
	u.mu.Unlock()
	switch {
	case now != nil:
		u.close(fresh) // another goroutine was faster
		return now, nil
	case !room:
		u.close(fresh)
		return nil, capability.Errorf(capability.CodeOverloaded, "upstreams", "%s has %d connections already, and all are in use", u.record.Name,
			maxConnections).
			With(reasonTooManyConnections, "try again in a while")
	}
	if !u.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, u.patience())
		defer cancel()
		fresh.server, fresh.err = fresh.client.Connect(ctx)
		fresh.login.note(fresh.err)
		if fresh.err != nil {
			fresh.err = u.unreachable(fresh.err)
		}
		close(fresh.ready)
		if fresh.err != nil {
			u.forget(fresh)
		}
	}) {
		fresh.err = u.unavailable()
		close(fresh.ready)
		u.forget(fresh)
	}
	return fresh, nil
}

// background runs f in a goroutine that the registry waits for. It returns false, without
// running f, if the registry has ended.
func (u *upstream) background(f func(context.Context)) bool {
	u.reg.mu.Lock()
	defer u.reg.mu.Unlock()
	if u.reg.publish == nil {
		return false
	}
	ctx := u.reg.ctx
	u.reg.group.Go(func() error { f(ctx); return nil })
	return true
}

// forget removes a lost connection. The watcher closes it later, because forget may run in
// a goroutine of the client, for which Close would wait.
func (u *upstream) forget(c *conn) {
	u.mu.Lock()
	if u.conns[c.key] == c {
		delete(u.conns, c.key)
	}
	if !c.lost {
		c.lost = true
		u.trash = append(u.trash, c)
	}
	u.mu.Unlock()
	u.poke()
	u.revive()
}

func (u *upstream) release(c *conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	c.busy--
	c.used = u.reg.cfg.Now()
}

// sweep closes lost and idle connections in the background, because a process may take
// seconds to end.
func (u *upstream) sweep() {
	u.mu.Lock()
	idle := u.trash
	u.trash = nil
	limit := u.reg.cfg.Now().Add(-u.reg.cfg.Idle)
	for key, c := range u.conns {
		if c.busy == 0 && c.used.Before(limit) {
			c.lost = true
			delete(u.conns, key)
			idle = append(idle, c)
		}
	}
	u.mu.Unlock()
	for _, c := range idle {
		if !u.background(func(context.Context) { u.close(c) }) {
			u.close(c)
		}
	}
}

// closeAll closes every connection except the main one, and waits for that.
func (u *upstream) closeAll() {
	u.mu.Lock()
	list := u.trash
	u.trash = nil
	for _, c := range u.conns {
		c.lost = true
		list = append(list, c)
	}
	clear(u.conns)
	u.mu.Unlock()
	var group sync.WaitGroup
	for _, c := range list {
		group.Go(func() { u.close(c) })
	}
	group.Wait()
}

// changed marks a list to be read again and wakes the watcher.
func (u *upstream) changed(kind ingest.Kind) {
	u.mu.Lock()
	u.dirty[kind] = true
	u.mu.Unlock()
	u.poke()
}

// poke wakes the watcher.
func (u *upstream) poke() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// patience returns how long an attempt to connect may take.
func (u *upstream) patience() time.Duration {
	if ms := u.record.ConnectTimeoutMS; ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return u.reg.cfg.ConnectTimeout
}
