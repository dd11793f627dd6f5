// Package nodesource makes the nodes of the fleet providers like any other: a module
// for what a node offers itself and one for each skill that is installed there, an
// entry for each function, and the five reserved functions under their canonical names.
// A call goes to the node through the gateway; whether it may happen was decided
// before.
package nodesource

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// Kind is the provider kind and the origin of the modules. Those of skills have origin
// [capability.OriginSkill].
const Kind = "node"

// labelTag begins the tags that say what a node's credential grants; no function can
// claim one.
const labelTag = "label:"

// TrustEffects is the label of a node token that lets count what skills say of the
// functions they bring: that those only read, or only write. A device is believed about
// its own program, which it runs in any case; what a user installed on it later, and who
// that was, it cannot vouch for. That a function administers is always believed.
const TrustEffects = "trust:effects"

// settleTimeout bounds how long a call waits for the catalog after an install.
const settleTimeout = 2 * time.Second

// Caller carries calls to nodes; a gateway.Gateway does.
type Caller interface {
	Do(ctx context.Context, to fleet.Request, r gateway.Request) (gateway.Result, error)
}

// Kinds of the events that Config.Told receives.
const (
	SkillInstalled   = "skill.installed"
	SkillUninstalled = "skill.uninstalled"
	CallLost         = "call.lost"
)

// Config of a Source. Fleet and Caller are required.
type Config struct {
	Fleet  *fleet.Table
	Caller Caller
	// Unhealthy reports nodes whose circuit is open for a function; nil: none is.
	Unhealthy func(function, node string) bool
	// Asset returns the bytes of a large result; nil leaves references as they are.
	Asset func(ctx context.Context, a cmp.Asset) ([]byte, error)
	// MaxResult bounds the results that are fetched, in bytes.
	MaxResult int
	// Told receives skills that came and went, and of calls that were lost with their
	// node; it may be nil, and must not block.
	Told   func(kind string, ran *capability.NodeRan)
	Logger *slog.Logger
}

// Source publishes the fleet. Tell it of changes with Changed.
type Source struct {
	cfg  Config
	wake chan struct{}

	mu    sync.Mutex
	dirty map[string]bool
	out   map[string]string // why nodes are not in the catalog as they are now
	// A change is made, then read, then published; who waits wants the last.
	made, read, finished uint64
	done                 chan struct{} // closed when finished rises
}

// New returns the source of a fleet.
func New(cfg Config) *Source {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Told == nil {
		cfg.Told = func(string, *capability.NodeRan) {}
	}
	return &Source{
		cfg: cfg, wake: make(chan struct{}, 1), dirty: make(map[string]bool), out: make(map[string]string),
		done: make(chan struct{}),
	}
}

// Changed reports that a node has come, gone or changed. It never blocks.
func (s *Source) Changed(node string) {
	s.mu.Lock()
	s.dirty[node] = true
	s.made++
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Refused says, by node, why what it offers now is not in the catalog: another source
// holds an id that it wants.
func (s *Source) Refused() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.out)
}

// Settled returns when the catalog has what was changed before, after two seconds, or
// when ctx ends.
func (s *Source) Settled(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	s.mu.Lock()
	mine := s.made
	for s.finished < mine {
		done := s.done
		s.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
	}
	s.mu.Unlock()
}

// Run implements capability.Source. One node whose declaration is refused keeps no
// other from the catalog; it is tried again whenever another node changes, since that
// may have freed what it wants.
func (s *Source) Run(ctx context.Context, publish func(capability.Batch) error) error {
	for _, n := range s.cfg.Fleet.List(fleet.Filter{Suspect: true}) {
		s.Changed(n.ID)
	}
	for {
		s.mu.Lock()
		ids := s.dirty
		s.dirty, s.read = make(map[string]bool), s.made
		retry := slices.Collect(maps.Keys(s.out))
		s.mu.Unlock()
		for _, id := range retry {
			ids[id] = true
		}
		s.publish(ctx, ids, publish)
		s.mu.Lock()
		s.finished = s.read
		close(s.done)
		s.done = make(chan struct{})
		s.mu.Unlock()
		select {
		case <-s.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// together is how many nodes are published at once: the catalog applies what waits
// for it as one change, and each change costs as much as there are nodes.
const together = 512

func (s *Source) publish(ctx context.Context, ids map[string]bool, publish func(capability.Batch) error) {
	var all errgroup.Group
	all.SetLimit(together)
	for id := range ids {
		if ctx.Err() != nil {
			break
		}
		all.Go(func() error {
			s.offer(id, publish)
			return nil
		})
	}
	_ = all.Wait() // each has said what was wrong with it
}

// offer publishes one node. One that is refused is withdrawn: what it offered before
// is not what it offers now.
func (s *Source) offer(id string, publish func(capability.Batch) error) {
	b := s.batch(id)
	err := publish(b)
	if err != nil {
		_ = publish(capability.Batch{Source: b.Source})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		delete(s.out, id)
	case s.out[id] != err.Error(): // said once
		s.out[id] = err.Error()
		s.cfg.Logger.Error("a node is not in the catalog", "node", id, "err", err)
	}
}

// UsersOf are the users that the labels granted to a node name: those it is for,
// whether or not the node says so itself. None: it is for everybody.
func UsersOf(granted []string) (users []string) {
	for _, l := range granted {
		if user, is := strings.CutPrefix(l, "user:"); is {
			users = append(users, user)
		}
	}
	return users
}

// ExtensionOf is the catalog-wide id of a node's own module.
func ExtensionOf(node string) string { return "node." + node }

// batch is what a node offers now; that of one that is gone withdraws it.
func (s *Source) batch(id string) capability.Batch {
	b := capability.Batch{Source: "node/" + id}
	n, ok := s.cfg.Fleet.Get(id)
	if !ok {
		return b
	}
	state := availability(&n)
	tags := make([]string, 0, len(n.Granted))
	for _, l := range n.Granted {
		if slices.Contains(n.Labels, l) { // what it may claim and does
			tags = append(tags, labelTag+l)
		}
	}
	users, trusted := UsersOf(n.Granted), slices.Contains(n.Granted, TrustEffects)
	own := capability.Module{
		Extension: ExtensionOf(id), ID: ExtensionOf(id), Name: id, Label: id, Origin: Kind, Version: n.Software, Endpoint: "node:" + id,
		Users: users,
	}
	functions, device := capability.NewProviderKey("fn", Kind, id), capability.NewProviderKey("device", Kind, id)
	skills := make(map[string]*capability.Module)
	for i := range n.Functions {
		f := &n.Functions[i]
		to := &own
		if skill, is := strings.CutPrefix(f.Owner, "skill:"); is && !cmp.IsReserved(f.Name) {
			if skills[skill] == nil {
				ext := skillExtension(id, skill)
				skills[skill] = &capability.Module{
					Extension: ext, ID: wireID(ext), Name: skill, Label: id, Origin: capability.OriginSkill,
					Endpoint: own.Endpoint, Users: users,
				}
			}
			to = skills[skill]
		}
		c := contribution(f, to.Extension, state, functions, device)
		ownProgram := f.Owner == "" || f.Owner == "node" || f.Owner == "host"
		if strings.HasPrefix(string(c.Action), "fn.") && !ownProgram && !trusted && c.Effect != capability.EffectAdmin {
			c.Effect = capability.EffectExternal
		}
		c.Tags = append(c.Tags, tags...)
		to.Contributions = append(to.Contributions, c)
	}
	if row, known := actions.Lookup(doorAction); known {
		own.Contributions = append(own.Contributions, capability.Contribution{
			ID: doorID, Kind: toolKind, Action: doorAction, Title: row.Title, Description: row.Description, Effect: row.Effect,
			Member: capability.Member{Module: own.Extension, Kind: "door", Name: string(doorAction)}, Provider: device,
			InputSchema: row.InputSchema, OutputSchema: row.OutputSchema, Availability: state, Tags: tags,
		})
	}
	b.Modules = append(b.Modules, own)
	for _, name := range slices.Sorted(maps.Keys(skills)) {
		b.Modules = append(b.Modules, *skills[name])
	}
	for i := range b.Modules {
		b.Modules[i].Manifest = manifest(&b.Modules[i])
	}
	p := provider{source: s, node: id, key: functions}
	d := p
	d.key = device
	b.Providers = []capability.Provider{&p, &d}
	return b
}

const (
	toolKind   = "capability.agent-tool"
	memberKind = "function"
	doorAction = capability.Action("device.function.invoke")
	// doorID is not a name that a function can have: ~ stands before two digits there.
	doorID = "~invoke"
)

func availability(n *fleet.Node) capability.Availability {
	switch n.Status {
	case fleet.Disconnected:
		return capability.Availability{State: capability.StateUnavailable, Reason: "the node is not connected"}
	case fleet.Draining:
		return capability.Availability{State: capability.StateDraining, Reason: "the node finishes what it has and leaves"}
	}
	return capability.Availability{State: capability.StateReady}
}

// reserved are the canonical actions of the five reserved functions.
func reserved(function string) (capability.Action, bool) {
	switch function {
	case cmp.InstallSkill:
		return "device.skill.install", true
	case cmp.UninstallSkill:
		return "device.skill.uninstall", true
	case cmp.ListSkills:
		return "device.skill.list", true
	case cmp.ListFunctions:
		return "device.function.list", true
	case cmp.HostStatus:
		return "device.status.get", true
	}
	return "", false
}

func contribution(f *fleet.Function, module string, state capability.Availability, functions,
	device capability.ProviderKey,
) capability.Contribution {
	c := capability.Contribution{
		ID: escape(f.Name), Kind: toolKind, Action: capability.Action("fn." + f.Name), Tool: f.Name, Title: f.Name, Description: f.Description,
		Member: capability.Member{Module: module, Kind: memberKind, Name: f.Name}, Provider: functions, Effect: cmp.EngineEffect(f.Effect),
		InputSchema: f.Input, OutputSchema: f.Output, Availability: state, Timeout: f.Timeout,
		Telemetry: map[string]string{"source": Kind},
	}
	for _, t := range f.Tags {
		if !strings.HasPrefix(t, labelTag) {
			c.Tags = append(c.Tags, t)
		}
	}
	action, is := reserved(f.Name)
	row, known := actions.Lookup(action)
	if !is || !known {
		return c
	}
	c.Action, c.Tool, c.Provider, c.Title, c.Description = action, "", device, row.Title, row.Description
	c.Effect, c.InputSchema, c.OutputSchema = row.Effect, row.InputSchema, row.OutputSchema
	c.Approval = row.Effect == capability.EffectAdmin // and the device's owner is asked there
	return c
}

var errNoDoor = errors.New("the generic door is opened before a provider is asked")

// NodeOf is the node that a provider key of this package is of.
func NodeOf(key capability.ProviderKey) (node string, ok bool) {
	domain, kind, instance := key.Parts()
	return instance, kind == Kind && (domain == "fn" || domain == "device")
}

// decodeAsset reads a value that stands for bytes kept elsewhere.
func decodeAsset(value json.RawMessage) (a cmp.Asset, ok bool) {
	a, ok, err := cmp.ReadAsset(value)
	return a, ok && err == nil
}
