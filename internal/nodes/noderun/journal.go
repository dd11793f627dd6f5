package noderun

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host/device"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// journal is the node's own audit chain: what happened to skills, what the owner
// answered, and the calls that change something. It holds no values.
type journal struct {
	logger   *slog.Logger
	mu       sync.Mutex
	early    []audit.Record // before it was open
	segments *segment.Segments
	log      *audit.Log
	node     string
	states   chan device.Status // what the session has no time to write
}

func newJournal(logger *slog.Logger) *journal {
	return &journal{logger: logger, states: make(chan device.Status, 64)}
}

func (j *journal) open(ctx context.Context, dir, node string) error {
	segments, err := segment.Open(dir, segment.Config{})
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "audit", "the node's audit log cannot be opened", err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = ""
	}
	log, err := audit.Open(ctx, audit.Config{Segments: segments, Gateway: node, Home: home, Logger: j.logger})
	if err != nil {
		segments.Close()
		return capability.Wrap(capability.CodeFailed, "audit", "the node's audit log cannot be opened", err)
	}
	j.mu.Lock()
	j.segments, j.log, j.node = segments, log, node
	early := j.early
	j.early = nil
	j.mu.Unlock()
	for _, r := range early {
		j.write(ctx, r)
	}
	return nil
}

func (j *journal) run(ctx context.Context) error { return j.log.Run(ctx) }

// follow writes what becomes of the session until ctx ends, and then what is left.
func (j *journal) follow(ctx context.Context) error {
	for {
		select {
		case s := <-j.states:
			j.state(s)
			continue
		default:
		}
		select {
		case s := <-j.states:
			j.state(s)
		case <-ctx.Done():
			if len(j.states) == 0 {
				return nil
			}
		}
	}
}

// changed is told on the session's own goroutine, which must not wait for a disk.
func (j *journal) changed(s device.Status) {
	select {
	case j.states <- s:
	default:
		j.logger.Warn("a change of the session is not in the audit log: it is too slow", "state", s.State)
	}
}

func (j *journal) close() {
	if err := j.log.Close(); err != nil {
		j.logger.Error("the node's audit log was not closed cleanly", "err", err)
	}
	_ = j.segments.Close()
}

func (j *journal) health() string {
	if h := j.log.Health(); h.Broken {
		return "broken: " + h.Cause
	}
	return "ok"
}

func (j *journal) write(ctx context.Context, r audit.Record) {
	j.mu.Lock()
	log := j.log
	if log == nil { // skills that are bound again at start
		j.early = append(j.early, r)
	} else {
		r.Metadata.Node.ID = j.node
	}
	j.mu.Unlock()
	if log == nil {
		return
	}
	if _, err := log.Append(context.WithoutCancel(ctx), r, audit.Synced); err != nil {
		j.logger.Error("audit record not written", "event", string(r.Event), "err", err)
	}
}

// skill records what happens to skills.
func (j *journal) skill(ctx context.Context, e device.SkillEvent) {
	r := audit.Record{
		Logger: "skill", Event: audit.Event(e.Name), User: e.Caller,
		Metadata: audit.Metadata{Node: audit.Node{Skill: e.Skill, PayloadDigest: e.Digest}},
	}
	if e.Outcome != "" {
		r.Metadata.Attrs = append(r.Metadata.Attrs, audit.Attr{Key: "outcome", Value: e.Outcome})
	}
	var modules []string
	for id, digest := range e.Modules {
		modules = append(modules, id+"="+digest)
	}
	if slices.Sort(modules); len(modules) > 0 {
		r.Metadata.Node.ModuleDigest = strings.Join(modules, " ")
	}
	j.write(ctx, r)
}

// called records a call that may have changed something, and every one that was
// refused.
func (j *journal) called(ctx context.Context, c device.Record) {
	if c.Effect == cmp.EffectRead || c.Effect == "" {
		return
	}
	event := audit.CapabilityExecuted
	switch c.Outcome {
	case "":
	case cmp.ReasonTimeout:
		event = audit.CapabilityTimeout
	case cmp.ReasonCancelled:
		event = audit.CapabilityCancelled
	case cmp.ReasonDenied, cmp.ReasonConsentDenied:
		event = audit.PermissionDenied
	case cmp.ReasonConsentRequired:
		event = audit.ApprovalRequired
	default:
		event = audit.CapabilityFailed
	}
	j.write(ctx, audit.Record{
		Logger: "node", Event: event, Runner: "node", User: c.Caller.ID, Success: audit.OutcomeOf(c.Outcome == ""), Duration: c.Took,
		Metadata: audit.Metadata{
			Effect: cmp.EngineEffect(c.Effect), TraceID: c.Trace, UpstreamCallID: c.CallID, Reason: c.Outcome,
			Node: audit.Node{Function: c.Function},
		},
	})
}

// state records that the node has joined or gone.
func (j *journal) state(s device.Status) {
	event := audit.NodeJoined
	switch {
	case s.State == device.Connected && s.Joins > 1:
		event = audit.NodeResumed
	case s.State == device.Connected:
	case s.State == "disconnected", s.State == "error":
		event = audit.NodeLeft
	default:
		return
	}
	// #nosec G115 -- not negative
	r := audit.Record{Logger: "node", Event: event, Metadata: audit.Metadata{Node: audit.Node{Epoch: uint64(max(s.Epoch, 0))}}}
	if s.Error != "" {
		r.Error = s.Error
	}
	j.write(context.Background(), r)
}
