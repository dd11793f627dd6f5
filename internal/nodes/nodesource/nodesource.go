// Package nodesource publishes the nodes of the fleet in the catalog: one module for a
// node's own functions, one for each skill installed there, an entry for each function, and
// the five reserved functions under their canonical names. Calls go to the node through the
// gateway and are authorized before they reach this package.
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

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/router"
)

// Kind is the provider kind and the origin of the modules. Those of skills have origin
// [capability.OriginSkill].
const Kind = "node"

// labelTag is the prefix of tags for the labels that a node's credential grants. Functions
// cannot set such tags.
const labelTag = "label:"

// TrustEffects is the label of a node token with which the effects read and write that
// skills declare for their functions are accepted. Without it, functions of skills have the
// effect external, because a device cannot vouch for skills installed later. The effect
// admin, and the effects of the node's own functions, are always accepted.
const TrustEffects = "trust:effects"

// Caller sends calls to nodes; gateway.Gateway implements it.
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
	// Unhealthy reports whether a node's breaker is open for a function; nil: never.
	Unhealthy func(function, node string) bool
	// Asset returns the bytes of a large result; nil leaves references as they are.
	Asset func(ctx context.Context, a cmp.Asset) ([]byte, error)
	// MaxResult limits the size of fetched results, in bytes.
	MaxResult int
	// Told receives installed and uninstalled skills, and calls that were lost with their
	// node. It may be nil and must not block.
	Told   func(kind string, ran *capability.NodeRan)
	Logger *slog.Logger
}

// Source publishes the fleet. Its owner reports changes with Changed.
type Source struct {
	cfg  Config
	wake chan struct{}

	mu    sync.Mutex
	dirty map[string]bool
	out   map[string]string // by node: why its current declaration is not in the catalog
	// Counters of changes that were made, read and published; Settled waits for the last.
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

// Changed schedules the publication of a node that joined, left or changed. It never blocks.
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

// Refused returns, by node, why the catalog refused the node's current declaration: another
// source uses one of its ids.
func (s *Source) Refused() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.out)
}

// Settled waits until the catalog has all changes made before the call, at most two seconds
// or until ctx ends.
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

// Run implements capability.Source. A node whose declaration is refused does not affect other
// nodes; it is tried again whenever another node changes, because that may have freed its ids.
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

// together limits the nodes published at once. The catalog applies waiting batches as one
// change, and the cost of a change grows with the number of nodes.
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
	_ = all.Wait() // offer has stored and logged each error
}

// offer publishes one node. If the catalog refuses it, offer withdraws the node's previous
// batch, which is out of date.
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
	case s.out[id] != err.Error(): // logged once
		s.out[id] = err.Error()
		s.cfg.Logger.Error("a node is not in the catalog", "node", id, "err", err)
	}
}

// UsersOf returns the users named by the labels that a node was granted, to whom the node is
// restricted. Without any, the node is for all users.
func UsersOf(granted []string) (users []string) {
	for _, l := range granted {
		if user, is := strings.CutPrefix(l, "user:"); is {
			users = append(users, user)
		}
	}
	return users
}

// ExtensionOf returns the catalog-wide id of a node's own module.
func ExtensionOf(node string) string { return "node." + node }

// batch returns the node's modules for the catalog. It is empty, and so withdraws the node,
// if the node has left.
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
					Extension: ext, ID: router.ModuleID(ext), Name: skill, Label: id, Origin: capability.OriginSkill,
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
	// doorID cannot be the escaped name of a function, in which two digits follow every ~.
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

// reserved returns the canonical action of a reserved function.
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
	c.Approval = row.Effect == capability.EffectAdmin // in addition, the node asks the device's owner
	return c
}

var errNoDoor = errors.New("the generic door is opened before a provider is asked")

// NodeOf returns the node of a provider key made by this package.
func NodeOf(key capability.ProviderKey) (node string, ok bool) {
	domain, kind, instance := key.Parts()
	return instance, kind == Kind && (domain == "fn" || domain == "device")
}

// decodeAsset decodes a value that refers to an asset; ok is false for other values.
func decodeAsset(value json.RawMessage) (a cmp.Asset, ok bool) {
	a, ok, err := cmp.ReadAsset(value)
	return a, ok && err == nil
}
