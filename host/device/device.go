package device

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/messaging"
	"github.com/junctor-run/junctor/internal/messaging/natsdial"
	"github.com/junctor-run/junctor/internal/node"
	"github.com/junctor-run/junctor/internal/skill"
	"github.com/junctor-run/junctor/internal/skill/asking"
	"github.com/junctor-run/junctor/internal/skill/binding"
	"github.com/junctor-run/junctor/internal/skill/deviceaction"
	"github.com/junctor-run/junctor/internal/skill/execution"
	"github.com/junctor-run/junctor/internal/skill/functions"
	"github.com/junctor-run/junctor/internal/skill/reserved"
	"github.com/junctor-run/junctor/internal/skill/skillstore"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

// What a device is asked and told, under the names they have inside.
type (
	// Owner asks the owner of the device before a skill that demands it is installed.
	Owner = asking.Owner
	// Question is what the owner is asked.
	Question = asking.Question
	// Answer is what the owner said: Grant, GrantOnce or Deny.
	Answer = asking.Answer
	// Status is how the session with the gateway is.
	Status = node.Status
	// Record is what is known of a call that has ended.
	Record = node.Record
	// SkillEvent is something that happened to a skill.
	SkillEvent = skill.Event
)

// Answers of an owner.
const (
	Grant     = asking.Grant
	GrantOnce = asking.GrantOnce
	Deny      = asking.Deny
)

// States of a device's session, and the reason of Run's error when another process
// has joined by the same id.
const (
	Connected        = node.Connected
	Reconnecting     = node.Reconnecting
	Draining         = node.Draining
	ReasonSuperseded = node.ReasonSuperseded
)

// Code runs code that comes with skills or lies in the folder of actions, each call
// in a process of its own; package device/pushcode makes one.
type Code interface {
	binding.Runtime
	LoadFile(ctx context.Context, language string, code []byte, export string) (functions.Handler, bool, error)
}

// Config of a Device. Gateway is required, and Token or a Dir that has enrolled.
type Config struct {
	// Gateway is https://host, or tls://host:4222 where the operator says so; http and
	// nats are for this machine only. Up to 16 addresses of one whole, with commas
	// between, are tried in turn: where one gateway is away, the device is at another.
	Gateway string
	TLS     *tls.Config // nil: the system's roots
	// Web is the gateway's https address, or several, where Gateway is none.
	Web   string
	Token secret.Value // the operator's node token; with a Dir, for the first time only

	// Dir is the node's own folder: its key, its id, its skills. "": nothing is kept.
	Dir string
	// ID is 1 to 128 of [A-Za-z0-9._-]. "": what Dir keeps, else the host's name.
	ID       string
	Labels   []string // at most 64; user: and tenant: only as the token grants
	Location string
	Name     string // of the software; "": junctor device
	Version  string

	Functions []Function
	Actions   []Function // what skills may be bound to

	// ActionsDir has actions as files, SkillsDir what is installed; "": actions and
	// skills below Dir. Without Dir and SkillsDir no skills are taken.
	ActionsDir, SkillsDir string
	Code                  Code // nil: no code is run
	AllowCode             bool // may skills bring code
	PreferCode            bool // does it come before this device's actions
	Limits                *cmp.Limits
	Owner                 Owner // nil: nobody can be asked
	// AutoConsent says yes to everything that nobody can be asked about. It is for
	// development.
	AutoConsent bool

	MaxConcurrent               int           // calls that run; 0: 10
	Queue                       int           // calls that wait; 0: 1000
	Timeout                     time.Duration // of a call that names none; 0: 5 minutes
	Heartbeat                   time.Duration // at most; 0: what the gateway says
	ReconnectWait, ReconnectMax time.Duration // 0: 1 s and 60 s

	Changed    func(Status)                            // every change of the status; it must not block
	Called     func(ctx context.Context, r Record)     // every call that has ended
	SkillEvent func(ctx context.Context, e SkillEvent) // what happens to skills
	Panicked   func(function string, value any)        // a handler that panicked
	Logger     *slog.Logger
	Isolation  string // what holds code here, for people
}

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
	exec      *execution.Executor
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
	d.exec = execution.New(execution.Config{
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
		return nil, capability.Errorf(capability.CodeInvalidInput, "node.open", "this is no web address of a gateway: write https://host")
	case bases == nil:
		return nil, nil // servers of NATS: there may be none
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTime}).DialContext, TLSClientConfig: cfg.TLS, ForceAttemptHTTP2: true, MaxIdleConns: 4, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: webTime, TLSHandshakeTimeout: webTime}
	return &web{bases: bases, client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
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
		return capability.Errorf(capability.CodeInvalidInput, "node.open", "this node has not enrolled with %s yet, and there is no token to do it with", d.cfg.Gateway).
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
	store, err := skillstore.Open(dir)
	if err != nil {
		return err
	}
	cfg := skill.Config{
		Node: d.who.ID, Functions: d.functions, Actions: d.actions, Store: store, AllowCode: d.cfg.AllowCode, PreferCode: d.cfg.PreferCode, Limits: d.cfg.Limits,
		Owner: d.cfg.Owner, AutoConsent: d.cfg.AutoConsent, Refresh: d.Refresh, Event: d.cfg.SkillEvent, Epoch: d.epoch, Version: d.cfg.Version, Isolation: d.cfg.Isolation,
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
	return reserved.Register(d.host, d.functions, "server-agent", false)
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

// Rescan reads the folder of actions again; the host's status says how that went.
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
		return false, capability.Errorf(capability.CodeInvalidInput, "node.enrol", "%s has no door to enrol at", d.cfg.Gateway).With("", "say the gateway's https address, too")
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

// ID is the device's name at its gateway.
func (d *Device) ID() string { return d.who.ID }

// Register makes a function callable; a name that is taken is a conflict. It may be
// called at any time, and the gateway is told.
func (d *Device) Register(f Function) error { return d.register(f, false) }

// Replace is Register that takes the place of a function of that name. Calls that run
// end in the old one.
func (d *Device) Replace(f Function) error { return d.register(f, true) }

func (d *Device) register(f Function, replace bool) error {
	reg, err := f.registered()
	if err != nil {
		return err
	}
	return d.functions.Register(reg, replace)
}

// Unregister takes a function away and reports whether it was there.
func (d *Device) Unregister(name string) (bool, error) {
	if cmp.IsReserved(strings.TrimSpace(name)) {
		return false, cmp.Errorf(cmp.ReasonReserved, "the name %s belongs to the protocol", name)
	}
	return d.functions.Unregister(name)
}

// Refresh returns when the gateway knows what is registered now.
func (d *Device) Refresh(ctx context.Context) error {
	if n := d.session(); n != nil {
		return n.Refresh(ctx)
	}
	return cmp.Errorf(cmp.ReasonConnection, "the device has not joined yet")
}

// Status is how the session with the gateway is.
func (d *Device) Status() Status {
	if n := d.session(); n != nil {
		return n.Status()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return Status{ID: d.who.ID, State: node.Connecting, Error: d.wait, Labels: d.cfg.Labels}
}

// HostStatus is what the host of skills says of itself; ok is false where there is
// none.
func (d *Device) HostStatus() (status cmp.Status, ok bool) {
	if d.host == nil {
		return cmp.Status{OS: runtime.GOOS, Arch: runtime.GOARCH}, false
	}
	return d.host.Status(true, true), true
}

// Call asks the gateway for one of its capabilities, as the node that this device is:
// action is a canonical action or a capability's id, input an object.
func (d *Device) Call(ctx context.Context, action string, input any) (json.RawMessage, error) {
	n := d.session()
	if n == nil {
		return nil, cmp.Errorf(cmp.ReasonConnection, "the device has not joined yet")
	}
	data, err := written(input)
	if err != nil {
		return nil, err
	}
	reply, err := n.Call(ctx, wire.Upward{Action: action, Input: data})
	if err != nil {
		return nil, err
	}
	return reply.Result, nil
}

// Drain takes no new calls, lets those that run finish, at most 30 s, and leaves; Run
// returns then.
func (d *Device) Drain(ctx context.Context) error { return d.order(ctx, (*node.Node).Drain) }

// Leave says goodbye at once; Run returns then.
func (d *Device) Leave(ctx context.Context) error { return d.order(ctx, (*node.Node).Leave) }

func (d *Device) order(ctx context.Context, give func(*node.Node, context.Context) error) error {
	n := d.session()
	if n == nil {
		return cmp.Errorf(cmp.ReasonConnection, "the device has not joined yet")
	}
	return give(n, ctx)
}
