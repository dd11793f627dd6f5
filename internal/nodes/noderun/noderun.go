// Package noderun runs a node process: the device of package host/device with this
// machine's actions and skills, the node's own audit chain, and a socket in the home through
// which the machine's owner views its status, answers its questions and stops it.
package noderun

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host/device"
	"github.com/junctor-run/junctor/host/device/pushcode"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// Config of a Process. Home and Device.Gateway are required; of Device, what is kept
// in the home and who is asked is filled in here.
type Config struct {
	Home        string
	Device      device.Config
	Languages   []string // of code; nil: javascript and wasm
	Interactive bool     // a user is at the terminal: Questions shows the questions
	AutoConsent bool     // no questions are asked
	Logger      *slog.Logger
}

// Process is one node of one home.
type Process struct {
	cfg     Config
	device  *device.Device
	code    *pushcode.Runner
	journal *journal
	asked   *questions // if nil, no questions are asked
	joined  chan struct{}
	began   time.Time
	stop    context.CancelFunc // ends Run
	stopped context.Context
}

// Dir is the folder of a home that its node has to itself.
func Dir(home string) string { return filepath.Join(home, "node") }

// Socket returns the path of the control socket of a home's node.
func Socket(home string) string { return filepath.Join(home, "run", "node.sock") }

// Open prepares the node without using the network. It fails with conflict if the home's
// node is already running.
func Open(ctx context.Context, cfg Config) (_ *Process, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	dir := Dir(cfg.Home)
	for _, d := range []string{filepath.Join(cfg.Home, "run"), dir, filepath.Join(dir, "actions")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, capability.Wrap(capability.CodeFailed, "node.open", "the home "+cfg.Home+" cannot be made", err).
				With("", "name a directory you may write to with --home")
		}
	}
	p := &Process{cfg: cfg, joined: make(chan struct{}), began: time.Now()}
	p.stopped, p.stop = context.WithCancel(context.Background())
	p.code = pushcode.New(pushcode.Config{
		Languages: cfg.Languages, CacheFile: filepath.Join(dir, "sandbox.json"),
		Private: []string{
			dir, filepath.Join(cfg.Home, "state"), filepath.Join(cfg.Home, "secrets"), filepath.Join(cfg.Home, "audit"),
			filepath.Join(cfg.Home, "logs"), filepath.Join(cfg.Home, "run"),
		},
	})
	d := cfg.Device
	d.Dir, d.Code, d.Isolation, d.Logger = dir, p.code, p.code.Isolation(), cfg.Logger
	if d.AutoConsent = cfg.AutoConsent; !cfg.AutoConsent {
		p.asked = newQuestions(cfg.Interactive)
		d.Owner = p.asked
	}
	p.journal = newJournal(cfg.Logger)
	d.SkillEvent, d.Called, d.Changed = p.journal.skill, p.journal.called, p.changed(cfg.Device.Changed)
	d.Panicked = func(function string, value any) {
		cfg.Logger.Error("a function broke down", "function", function, "value", fmt.Sprintf("%.200v", value))
	}
	if p.device, err = device.New(ctx, d); err != nil {
		p.code.Close()
		return nil, err
	}
	// The device has the folder to itself from here on.
	if err := p.journal.open(ctx, filepath.Join(dir, "audit"), p.device.ID()); err != nil {
		p.device.Close()
		p.code.Close()
		return nil, err
	}
	return p, nil
}

// changed passes the status on and notices the first time that the node has joined.
func (p *Process) changed(next func(device.Status)) func(device.Status) {
	last := ""
	return func(s device.Status) { // one at a time
		if s.State != last {
			last = s.State
			p.journal.changed(s)
			if s.State == device.Connected {
				select {
				case <-p.joined:
				default:
					close(p.joined)
				}
			}
		}
		if next != nil {
			next(s)
		}
	}
}

// Joined returns a channel that is closed when the node has first been admitted.
func (p *Process) Joined() <-chan struct{} { return p.joined }

// Device is the node itself.
func (p *Process) Device() *device.Device { return p.device }

// Questions yields the questions that wait for an answer, one by one, until ctx ends.
func (p *Process) Questions(ctx context.Context, show func(device.Question)) {
	if p.asked != nil {
		p.asked.each(ctx, show)
	}
}

// Answer answers a question: grant, grant_once or deny. The first answer counts; a
// question that is over is not_found.
func (p *Process) Answer(id, decision, by string) error {
	if p.asked == nil {
		return notAsked(id)
	}
	return p.asked.answer(id, decision, by)
}

// Run serves calls and the control socket until ctx ends, the node drains (by its own or the
// gateway's order) or it leaves, and then closes p; it may be called once. Errors are those of
// device.Run and those of the socket.
func (p *Process) Run(ctx context.Context) error {
	defer p.code.Close()
	defer p.device.Close()
	defer p.journal.close()
	ctl, err := p.listen(Socket(p.cfg.Home))
	if err != nil {
		return err
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var parts errgroup.Group
	parts.Go(func() error { return ctl.serve(own) })
	parts.Go(func() error { return p.journal.run(own) })
	parts.Go(func() error { return p.journal.follow(own) })
	p.cfg.sayHint(p.device)
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(p.stopped, end)()
	err = p.device.Run(ctx)
	cancel()
	return errors.Join(err, parts.Wait())
}

// sayHint warns of what would surprise later.
func (cfg Config) sayHint(d *device.Device) {
	host, ok := d.HostStatus()
	if e := host.Sandbox.Error; ok && e != nil {
		cfg.Logger.Warn("the folder of actions was not read, so there are none of it", "why", *e)
	}
	if !ok || !cfg.Device.AllowCode {
		return
	}
	var out []string
	for name, l := range host.Languages {
		if !l.Available && (len(cfg.Languages) == 0 || slices.Contains(cfg.Languages, name)) {
			out = append(out, name+": "+l.Reason)
		}
	}
	if slices.Sort(out); len(out) > 0 {
		cfg.Logger.Warn("code in some languages is not run here", "languages", strings.Join(out, "; "))
	}
}

// Report is a node's status for its owner.
type Report struct {
	device.Status
	PID       int         `json:"pid"`
	Started   time.Time   `json:"started"`
	Gateway   string      `json:"gateway_address"`
	Host      *cmp.Status `json:"capability_host,omitempty"`
	Questions int         `json:"questions"`
	Audit     string      `json:"audit"` // "ok", or why it cannot be written
}

func (p *Process) report() Report {
	r := Report{Status: p.device.Status(), PID: os.Getpid(), Started: p.began, Gateway: p.cfg.Device.Gateway, Audit: p.journal.health()}
	if host, ok := p.device.HostStatus(); ok {
		r.Host = &host
	}
	if p.asked != nil {
		r.Questions = len(p.asked.list())
	}
	return r
}
