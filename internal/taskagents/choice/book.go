package choice

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

// Metrics holds the past results of a program.
type Metrics struct {
	Spawned            int64   `json:"spawned"`
	Completed          int64   `json:"completed"`
	ViaFastPath        int64   `json:"completedViaFastPath"`
	ViaClassifier      int64   `json:"completedViaClassifier"`
	ViaOutputReconcile int64   `json:"completedViaOutputReconcile"`
	StallCount         int64   `json:"stallCount"`
	AvgCompletionMs    float64 `json:"avgCompletionMs"`
	Failed             int64   `json:"failed"`
	ProviderErrors     int64   `json:"providerErrors"`
	Retries            int64   `json:"retries"`
	TokensIn           int64   `json:"tokensIn"`
	TokensOut          int64   `json:"tokensOut"`
	CostUSD            float64 `json:"costUsd"`
}

// score returns the contribution of past results to a program's score. fast is the weight of
// speed for the task.
func (m Metrics) score(fast float64) float64 {
	if m.Spawned <= 0 {
		return 0
	}
	speed := 0.0
	if m.Completed > 0 {
		speed = min(max((120_000-m.AvgCompletionMs)/120_000*(4+4*fast), -8), 8)
	}
	return float64(m.Completed)/float64(m.Spawned)*14 - float64(m.StallCount)/float64(m.Spawned)*12 + speed
}

// Event is a result of a session. Several fields may be set.
type Event struct {
	Spawned       bool
	Completed     bool
	Took          time.Duration // duration of the completed turn
	Via           Via
	Stalled       bool
	Failed        bool
	ProviderError bool
	Retries       int64
	TokensIn      int64
	TokensOut     int64
	CostUSD       float64
}

// Via is the way in which a completion was detected.
type Via string

// Values of Via.
const (
	FastPath        Via = "fast_path"
	Classifier      Via = "classifier"
	OutputReconcile Via = "output_reconcile"
)

func (m *Metrics) add(e Event) {
	count := func(n *int64, when bool) {
		if when {
			*n++
		}
	}
	count(&m.Spawned, e.Spawned)
	count(&m.StallCount, e.Stalled)
	count(&m.Failed, e.Failed)
	count(&m.ProviderErrors, e.ProviderError)
	if e.Completed {
		m.Completed++
		m.AvgCompletionMs += (float64(max(e.Took, 0).Milliseconds()) - m.AvgCompletionMs) / float64(m.Completed)
		count(&m.ViaFastPath, e.Via == FastPath)
		count(&m.ViaClassifier, e.Via == Classifier)
		count(&m.ViaOutputReconcile, e.Via == OutputReconcile)
	}
	m.Retries += max(e.Retries, 0)
	m.TokensIn += max(e.TokensIn, 0)
	m.TokensOut += max(e.TokensOut, 0)
	m.CostUSD += max(e.CostUSD, 0)
}

// CoolDown excludes a program from the choice until a time, with a reason.
type CoolDown struct {
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
}

// Snapshot is a copy of a book's content. The caller owns its maps.
type Snapshot struct {
	Metrics   map[programs.Name]Metrics  `json:"metrics"`
	CoolDowns map[programs.Name]CoolDown `json:"coolDowns"`
}

// Store stores one document. Load returns nil if none exists.
type Store interface {
	Load(ctx context.Context) ([]byte, error)
	Save(ctx context.Context, data []byte) error
}

// Book holds the past results of programs and stores them at every change. It is safe for
// concurrent use.
type Book struct {
	store Store
	mu    sync.Mutex
	now   Snapshot
}

// OpenBook reads the stored book. A malformed document is an error and is not overwritten.
func OpenBook(ctx context.Context, store Store) (*Book, error) {
	data, err := store.Load(ctx)
	if err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "task.metrics", "the record of task agents cannot be read", err)
	}
	b := &Book{store: store, now: Snapshot{Metrics: make(map[programs.Name]Metrics), CoolDowns: make(map[programs.Name]CoolDown)}}
	if len(data) == 0 {
		return b, nil
	}
	if err := jsonx.Unmarshal(data, &b.now); err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "task.metrics", "the record of task agents is damaged", err).
			With("choice_damaged", "remove it; choices are then made as if no task had been done yet")
	}
	if b.now.Metrics == nil {
		b.now.Metrics = make(map[programs.Name]Metrics)
	}
	if b.now.CoolDowns == nil {
		b.now.CoolDowns = make(map[programs.Name]CoolDown)
	}
	return b, nil
}

// Snapshot returns a copy of the current content.
func (b *Book) Snapshot() Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Snapshot{maps.Clone(b.now.Metrics), maps.Clone(b.now.CoolDowns)}
}

// Record counts an event. A completed turn ends the program's cooldown. If storing fails, the
// event is counted in memory.
func (b *Book) Record(ctx context.Context, name programs.Name, e Event) error {
	return b.change(ctx, func() {
		m := b.now.Metrics[name]
		m.add(e)
		b.now.Metrics[name] = m
		if e.Completed {
			delete(b.now.CoolDowns, name)
		}
	})
}

// Rest starts a cooldown of a program. A shorter one does not replace a longer one.
func (b *Book) Rest(ctx context.Context, name programs.Name, c CoolDown) error {
	return b.change(ctx, func() {
		if c.Until.After(b.now.CoolDowns[name].Until) {
			b.now.CoolDowns[name] = c
		}
	})
}

// change calls do and stores the book. If storing fails, the change stays in memory and the error
// is returned.
func (b *Book) change(ctx context.Context, do func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	do()
	data, err := jsonx.Marshal(b.now)
	if err == nil {
		err = b.store.Save(ctx, data)
	}
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "task.metrics", "the record of task agents cannot be written", err)
	}
	return nil
}
