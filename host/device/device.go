package device

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/internal/nodes/node"
	"github.com/junctor-run/junctor/internal/nodes/skill"
	"github.com/junctor-run/junctor/internal/nodes/skill/deviceaction"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

// Device is a node that carries functions. Create it with New; Run is called once;
// Close frees what it holds.
type Device struct {
	cfg       Config
	folder    *folder // nil: nothing is kept
	who       identity
	key       messaging.Key
	dial      messaging.Dialer
	web       *web // nil: the gateway has none that is known
	functions *functions.Registry
	actions   *deviceaction.Set
	exec      *functions.Executor
	host      *skill.Host // nil: no skills

	mu   sync.Mutex
	node *node.Node // nil: not yet
	wait string     // why it is not there yet
}

// Run is New and then Run.
func Run(ctx context.Context, cfg Config) error {
	d, err := New(ctx, cfg)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Run(ctx)
}

// New opens the folder, registers what there is, and binds the skills that were
// installed before. It reaches no network. A folder that another process has is a
// conflict.
func New(ctx context.Context, cfg Config) (_ *Device, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.ReconnectWait <= 0 {
		cfg.ReconnectWait = time.Second
	}
	if cfg.ReconnectMax <= 0 {
		cfg.ReconnectMax = time.Minute
	}
	if cfg.Name == "" {
		cfg.Name = "junctor device"
	}
	d := &Device{cfg: cfg, functions: functions.New(0), actions: new(deviceaction.Set)}
	if d.dial, err = natsdial.Dialer(cfg.Gateway, cfg.TLS); err != nil {
		return nil, err
	}
	if d.web, err = webOf(cfg); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if err := d.identify(); err != nil {
		return nil, err
	}
	d.exec = functions.NewExecutor(functions.Config{
		Node: d.who.ID, Functions: d.functions, MaxConcurrent: cfg.MaxConcurrent, Queue: cfg.Queue, Timeout: cfg.Timeout, Panicked: cfg.Panicked,
		Redact: redactor(cfg.Token),
	})
	for _, f := range cfg.Actions {
		a, err := f.action()
		if err == nil {
			err = d.actions.Register(a)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, f := range cfg.Functions {
		if err := d.Register(f); err != nil {
			return nil, err
		}
	}
	return d, d.openHost(ctx)
}

func redactor(token secret.Value) func(string) string {
	if token.Empty() {
		return nil
	}
	return func(s string) string { return strings.ReplaceAll(s, token.Reveal(), "[redacted]") }
}

// webOf is the gateway's HTTP side. Credentials follow no redirect.
func webOf(cfg Config) (*web, error) {
	address := cfg.Web
	if address == "" {
		address = cfg.Gateway
	}
	all, err := natsdial.Addresses(address)
	if err != nil {
		return nil, err
	}
	var bases []*url.URL
	for _, u := range all {
		if u.Scheme == "https" || u.Scheme == "http" {
			bases = append(bases, &url.URL{Scheme: u.Scheme, Host: u.Host})
		}
	}
	switch {
	case bases == nil && cfg.Web != "":
		return nil, capability.Errorf(capability.CodeInvalidInput, "node.open", "this is not a web address of a gateway: write https://host")
	case bases == nil:
		return nil, nil // servers of NATS: there may be none
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig: cfg.TLS, ForceAttemptHTTP2: true, MaxIdleConns: 4, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: webTimeout,
		TLSHandshakeTimeout: webTimeout,
	}
	return &web{bases: bases, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// identify finds out who the device is.
func (d *Device) identify() error {
	name := d.cfg.ID
	if d.cfg.Dir == "" {
		if name == "" {
			name = DefaultID()
		}
		d.who = identity{ID: name}
		if d.cfg.Token.Empty() {
			return capability.Errorf(capability.CodeInvalidInput, "node.open", "a node without a folder needs a token each time")
		}
		return cmp.CheckNode(name)
	}
	var err error
	if d.folder, err = openFolder(d.cfg.Dir); err != nil {
		return err
	}
	if d.who, err = d.folder.identity(name); err != nil {
		return err
	}
	if d.who.ID == "" {
		d.who.ID = DefaultID()
	}
	if err := cmp.CheckNode(d.who.ID); err != nil {
		return err
	}
	if d.key, err = d.folder.key(); err != nil {
		return err
	}
	if d.who.PublicKey != d.key.Public || !overlap(d.who.Gateway, d.cfg.Gateway) {
		d.who.Enrolled, d.who.Labels = false, nil
	}
	d.who.PublicKey, d.who.Gateway = d.key.Public, d.cfg.Gateway
	if !d.who.Enrolled && d.cfg.Token.Empty() {
		return capability.Errorf(capability.CodeInvalidInput, "node.open",
			"this node has not enrolled with %s yet, and no token is configured", d.cfg.Gateway).
			With("not_enrolled", "make one on the gateway (junctor tokens create --role node) and give it with --node-token-file")
	}
	return nil // it is kept once the gateway has taken it: a join that is refused changes nothing
}

// overlap reports whether two lists of addresses have one in common: gateways that
// are one whole know the same nodes.
func overlap(a, b string) bool {
	for one := range strings.SplitSeq(a, ",") {
		for other := range strings.SplitSeq(b, ",") {
			if one = strings.TrimSpace(one); one != "" && one == strings.TrimSpace(other) {
				return true
			}
		}
	}
	return false
}

// DefaultID is what a node is called by itself: the host's name.
func DefaultID() string {
	name, err := os.Hostname()
	if err != nil {
		name = ""
	}
	name, _, _ = strings.Cut(name, ".local")
	clean := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '.', r == '_':
			return r
		}
		return '-'
	}, name)
	if clean = strings.Trim(clean, "-._"); clean == "" {
		clean = "node"
	}
	return clean[:min(len(clean), cmp.MaxName)]
}

// openHost makes the host of skills, where there is a place to keep them.
func (d *Device) openHost(ctx context.Context) error {
	dir := d.cfg.SkillsDir
	if dir == "" && d.cfg.Dir != "" {
		dir = filepath.Join(d.cfg.Dir, "skills")
	}
	if dir == "" {
		return nil
	}
	store, err := skill.OpenFiles(dir)
	if err != nil {
		return err
	}
	cfg := skill.Config{
		Node: d.who.ID, Functions: d.functions, Actions: d.actions, Store: store, AllowCode: d.cfg.AllowCode, PreferCode: d.cfg.PreferCode,
		Limits: d.cfg.Limits,
		Owner:  d.cfg.Owner, AutoConsent: d.cfg.AutoConsent, Refresh: d.Refresh, Event: d.cfg.SkillEvent, Epoch: d.epoch, Version: d.cfg.Version,
		Isolation: d.cfg.Isolation,
	}
	if d.cfg.Code != nil {
		cfg.Runtime = d.cfg.Code
	}
	if d.web != nil {
		cfg.Assets = d.assets().fetch
	}
	d.host = skill.New(cfg)
	d.Rescan(ctx)
	if err := d.host.Restore(ctx); err != nil {
		return err
	}
	return skill.RegisterReserved(d.host, d.functions, "server-agent", false)
}

func (d *Device) assets() *assets {
	return &assets{web: d.web, node: d.who.ID, sign: d.key.Sign, token: d.cfg.Token, now: d.time}
}

func (d *Device) time() time.Time {
	if n := d.session(); n != nil {
		return n.Time()
	}
	return time.Now()
}

func (d *Device) epoch() int64 {
	if n := d.session(); n != nil {
		return n.Epoch()
	}
	return 0
}

func (d *Device) session() *node.Node {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.node
}

// Rescan reads the folder of actions again; the host's status states how that went.
func (d *Device) Rescan(ctx context.Context) {
	dir := d.cfg.ActionsDir
	if dir == "" && d.cfg.Dir != "" {
		dir = filepath.Join(d.cfg.Dir, "actions")
	}
	if dir == "" {
		return
	}
	f := deviceaction.Folder{Path: dir}
	if d.cfg.Code != nil {
		f.Load = d.cfg.Code.LoadFile
	}
	d.actions.TryLoad(ctx, f)
}

// Run enrols where that was not done, joins, and serves until ctx ends, Drain or
// Leave is called, or the gateway has the device drain. Errors: those of the
// gateway's refusals; conflict, reason superseded, when another process has joined by
// this id.
func (d *Device) Run(ctx context.Context) error {
	again := !d.cfg.Token.Empty() && d.folder != nil
	for {
		fresh, err := d.enrol(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		n, err := d.newNode()
		if err != nil {
			return err
		}
		err = n.Run(ctx)
		// The gateway may have forgotten a node that it knew: it is shown the token once more.
		if again && !fresh && messaging.Is(err, messaging.ReasonRefused) {
			again = false
			d.who.Enrolled = false
			continue
		}
		return errors.Join(err, d.finish())
	}
}

// finish waits a moment for what still runs.
func (d *Device) finish() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = d.exec.Close(ctx) // handlers that do not honour their context are left to themselves
	return nil
}

// enrol reports whether it was done now.
func (d *Device) enrol(ctx context.Context) (fresh bool, err error) {
	if d.folder == nil || d.who.Enrolled {
		return false, nil
	}
	if d.web == nil {
		return false, capability.Errorf(capability.CodeInvalidInput, "node.enrol", "%s has no door to enrol at", d.cfg.Gateway).With("",
			"say the gateway's https address, too")
	}
	reply, err := d.web.enrol(ctx, d.who, d.cfg.Token, func(err error) {
		d.cfg.Logger.Info("the gateway does not enrol this node yet", "gateway", d.cfg.Gateway, "err", err)
		d.mu.Lock()
		d.wait = capability.AsError(err).Message
		d.mu.Unlock()
		if d.cfg.Changed != nil {
			d.cfg.Changed(d.Status())
		}
	})
	if err != nil {
		return false, err
	}
	d.mu.Lock()
	d.wait = ""
	d.mu.Unlock()
	d.who.Enrolled, d.who.Labels = true, reply.Labels
	return true, d.folder.save(d.who)
}

func (d *Device) newNode() (*node.Node, error) {
	cfg := node.Config{
		Dial: d.dial, ID: d.who.ID, Labels: append(append([]string{}, d.cfg.Labels...), d.who.Labels...), Location: d.cfg.Location,
		Software:  wire.Software{Name: d.cfg.Name, Version: d.cfg.Version},
		Functions: d.functions, Executor: d.exec, MaxConcurrent: d.cfg.MaxConcurrent, Queue: d.cfg.Queue, Heartbeat: d.cfg.Heartbeat,
		ReconnectWait: d.cfg.ReconnectWait, ReconnectMax: d.cfg.ReconnectMax, Changed: d.cfg.Changed, Called: d.cfg.Called, Logger: d.cfg.Logger,
	}
	if d.folder != nil {
		cfg.Key = d.key
	} else {
		cfg.Token = d.cfg.Token
	}
	if d.host != nil {
		cfg.HostStatus = func() cmp.Status { return d.host.Status(false, false) }
	}
	if d.web != nil {
		a := d.assets()
		cfg.Fetch, cfg.Put = a.fetch, a.put
	}
	n, err := node.New(cfg)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.node = n
	return n, nil
}

// Close releases what the device holds; Run must have returned.
func (d *Device) Close() {
	if d.host != nil {
		d.host.Close()
	}
	if d.web != nil {
		d.web.client.CloseIdleConnections()
	}
	if d.folder != nil {
		d.folder.close()
	}
}
