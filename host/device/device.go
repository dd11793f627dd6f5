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

// Device is a node that offers functions to a gateway. Create it with New, call Run once,
// and release it with Close.
type Device struct {
	cfg       Config
	folder    *folder // nil: nothing is stored
	who       identity
	key       messaging.Key
	dial      messaging.Dialer
	web       *web // nil: the gateway's HTTP address is not known
	functions *functions.Registry
	actions   *deviceaction.Set
	exec      *functions.Executor
	host      *skill.Host // nil: no skills

	mu   sync.Mutex
	node *node.Node // nil before enrolment
	wait string     // the reason why node is nil
}

// Run creates a device and runs it until ctx ends; see [Device.Run].
func Run(ctx context.Context, cfg Config) error {
	d, err := New(ctx, cfg)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Run(ctx)
}

// New opens the folder, registers the functions of cfg, and binds the skills that were
// installed earlier. It does not use the network. Error: conflict if another process has
// the folder open.
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

// webOf returns the HTTP side of the gateway, or nil if its address is not known. It does
// not follow redirects, because they would receive the credential.
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
		return nil, nil // Gateway names NATS servers, which may have no HTTP side
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

// identify sets the device's id, and its key if it has a folder.
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
	return nil // stored after the gateway has accepted it, so that a refused join changes nothing
}

// overlap reports whether two lists of addresses have one in common. Gateways of one
// cluster know the same nodes.
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

// DefaultID returns the id of a node that was not given one: the host's name.
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

// openHost creates the host of skills if the device has a folder for them.
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

// Rescan reads the folder of actions again. HostStatus reports the result.
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

// Run enrols the device if that has not happened, joins, and serves calls until ctx ends,
// Drain or Leave is called, or the gateway drains the device. Errors: those of a refusal
// by the gateway; conflict, reason superseded, if another process joined with this id.
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
		// The gateway may have lost the node, so that the device enrols once more.
		if again && !fresh && messaging.Is(err, messaging.ReasonRefused) {
			again = false
			d.who.Enrolled = false
			continue
		}
		return errors.Join(err, d.finish())
	}
}

// finish waits briefly for calls that still run.
func (d *Device) finish() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = d.exec.Close(ctx) // handlers that ignore their context keep running
	return nil
}

// enrol enrols the device unless it has enrolled before. fresh reports that it did so now.
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
