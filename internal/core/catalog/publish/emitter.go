package publish

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
)

// Emitter creates telemetry events from changes of the catalog. It reports conflicts, slots and
// names only when they change. It never blocks and is safe for concurrent use.
type Emitter struct {
	sinks []Sink
	now   func() time.Time

	mu    sync.Mutex
	slots map[string]string // last reported outcome, by slot, workspace and agent
	views map[[2]string]*viewTold
	vetos map[string]bool
	told  map[string]int // contest → number of views (workspace and agent) that have it
	clock uint64
}

// NewEmitter returns an emitter to the sinks that reads the time from now.
func NewEmitter(now func() time.Time, sinks ...Sink) *Emitter {
	return &Emitter{
		sinks: sinks, now: now, slots: make(map[string]string), views: make(map[[2]string]*viewTold),
		vetos: make(map[string]bool), told: make(map[string]int),
	}
}

// Call identifies the call that caused an event.
type Call struct {
	Correlation string // trace or invocation id
	Explanation string // id of the explanation
}

// emit sends one event to all sinks. A session id that contains the conversation is hashed.
func (m *Emitter) emit(name string, generation uint64, c *capability.Context, correlation string, payload any) {
	e := Telemetry{
		Event: name, Version: 1, ID: ids.Hex("evt_", 12), OccurredAt: m.now(), Generation: generation,
		CorrelationID: correlation, Payload: payload,
	}
	if c != nil {
		e.WorkspaceID, e.AgentID, e.SessionID = c.Workspace, c.Agent, c.Session
		if r := c.Route; r != nil && r.Conversation != "" && strings.Contains(c.Session, r.Conversation) {
			e.SessionID = HashRef(c.Session) // a session may be named after its conversation
		}
	}
	for _, s := range m.sinks {
		s.Put(e)
	}
}

// Start reports the slots, the exclusive backend classes and the conflicts of a snapshot.
func (m *Emitter) Start(s *catalog.Snapshot) {
	m.slotsOf(s)
	m.backendsOf(s)
	for _, c := range s.Conflicts(false) {
		m.conflict(s.Generation, nil, c)
	}
}

// Changed reports new or changed conflicts, and slots whose holder changed or which lost
// their holder.
func (m *Emitter) Changed(c catalog.Change) {
	if c.Before == c.After {
		return
	}
	for _, conflict := range c.Conflicts {
		if conflict.Class != catalog.ClassOverlap { // overlaps are normal
			m.conflict(c.After.Generation, nil, conflict)
		}
	}
	m.slotsOf(c.After)
}

func (m *Emitter) conflict(generation uint64, ctx *capability.Context, c catalog.Conflict) {
	m.emit(ConflictDetected, generation, ctx, "", ConflictPayload{c.Class, c.Key, c.Members, c.Resolution, c.Winner, c.Remediation})
}

// slotsOf reports the slots whose outcome changed, in general and for each workspace and
// agent with an override.
func (m *Emitter) slotsOf(s *catalog.Snapshot) {
	for _, slot := range []string{catalog.SlotContextEngine, catalog.SlotMemory} {
		who := []catalog.SlotOverride{{}}
		for _, o := range s.Settings().Slots[slot].Overrides {
			who = append(who, catalog.SlotOverride{Workspace: o.Workspace, Agent: o.Agent})
		}
		for _, w := range who {
			choice := s.Slot(slot, w.Workspace, w.Agent)
			p := SlotPayload{
				Slot: slot, Requested: choice.Requested, Source: choice.Source, Winner: choice.Winner,
				Available: choice.Available, Losers: append([]string{}, choice.Losers...),
			}
			if choice.Err != nil {
				p.Error = choice.Err.Code
			}
			m.slot(s.Generation, &capability.Context{Workspace: w.Workspace, Agent: w.Agent}, p)
		}
	}
}

// backendsOf reports the exclusive backend classes whose outcome changed.
func (m *Emitter) backendsOf(s *catalog.Snapshot) {
	set := s.Settings().Backends
	blocking := s.Blocking()
	for class, b := range set {
		if !b.Exclusive {
			continue
		}
		p := SlotPayload{Slot: "backend:" + class, Requested: b.Selected, Source: "configured", Available: []string{}, Losers: []string{}}
		if b.Selected == "" {
			p.Source = "slot_default"
		}
		if i := slices.IndexFunc(blocking, func(x catalog.BlockingIssue) bool { return x.Class == class }); i >= 0 {
			p.Error = blocking[i].Code
		}
		for _, e := range s.Backends() {
			if e.Contribution.Backend.Class == class {
				p.Available = append(p.Available, e.Contribution.Backend.ID)
			}
		}
		if choice, err := s.Backend(catalog.BackendRequest{Class: class}); err == nil && p.Error == "" {
			p.Winner = choice.Entry.Runtime
			for _, e := range s.Backends() {
				if e.Contribution.Backend.Class == class && e != choice.Entry {
					p.Losers = append(p.Losers, e.Runtime)
				}
			}
		}
		m.slot(s.Generation, nil, p)
	}
}

// slot emits a slot's outcome unless it equals the last one emitted for that slot and context.
func (m *Emitter) slot(generation uint64, who *capability.Context, p SlotPayload) {
	key := p.Slot
	if who != nil {
		key += "\x00" + who.Workspace + "\x00" + who.Agent
	}
	text := fmt.Sprint(p)
	m.mu.Lock()
	same := m.slots[key] == text
	m.slots[key] = text
	m.mu.Unlock()
	if !same {
		m.emit(SlotSelected, generation, who, "", p)
	}
}

// Selected reports a selection: the chosen provider and whether it was a fallback, or the
// failure. A selection of a composed family, which chooses all, is not reported.
func (m *Emitter) Selected(s *arbitration.Selection, from Call) {
	generation, ctx := s.Frame.Snapshot.Generation, s.Frame.Context
	if s.Err != nil {
		code := s.Err.Reason
		code = cmp.Or(code, string(s.Err.Code))
		m.emit(SelectionFailed, generation, ctx, from.Correlation,
			FailedPayload{Action: actionOf(s), Step: s.Step, Code: code, Candidates: candidates(s)})
		return
	}
	if s.Entry == nil {
		return // a composed family, where all providers run
	}
	p := SelectedPayload{
		Action: s.Entry.Action, CapabilityID: s.Entry.ID, ProviderKey: s.Entry.Key(), Step: s.Step, DecidedBy: s.DecidedBy,
		Caller: s.Request.Caller, Candidates: candidates(s), ExplanationID: from.Explanation,
	}
	m.emit(ProviderSelected, generation, ctx, from.Correlation, p)
	if s.Fallback {
		p.Reasons = slices.Clone(s.Reasons)
		m.emit(FallbackSelected, generation, ctx, from.Correlation, p)
	}
}

func actionOf(s *arbitration.Selection) capability.Action {
	if s.Request.Action == "" && len(s.Request.Only) > 0 {
		return s.Request.Only[0].Action
	}
	return s.Request.Action
}

// candidates returns the number of entries that passed step 0.
func candidates(s *arbitration.Selection) int {
	n := 0
	if s.Entry != nil {
		n = 1
	}
	for _, r := range s.Rejected {
		if r.Step > 0 || r.Reason == arbitration.RejectedUndecided {
			n++
		}
	}
	return n
}
