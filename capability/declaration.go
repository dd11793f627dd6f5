package capability

// Arbitration is what a contribution may say about how it is chosen. It cannot
// choose a mode: Mode, when given, must be the registry's.
type Arbitration struct {
	Mode            string `json:"mode,omitempty"`
	Slot            string `json:"slot,omitempty"`
	SelectorID      string `json:"selectorId,omitempty"` // what the operator writes to choose it for the slot
	ComposePriority int    `json:"composePriority,omitempty"`
}

// Depends are runtime ids (<extension>/<contribution>) a contribution stands in
// a relation to.
type Depends struct {
	Requires   []string `json:"requires,omitempty"`
	Optional   []string `json:"optional,omitempty"`
	Conflicts  []string `json:"conflicts,omitempty"`
	Supersedes []string `json:"supersedes,omitempty"`
}

// Health of a runtime backend; only healthy and degraded ones can be selected.
type Health string

// The health classes.
const (
	HealthHealthy   Health = "healthy"
	HealthDegraded  Health = "degraded"
	HealthUnhealthy Health = "unhealthy"
	HealthUnknown   Health = "unknown" // not yet probed
)

// Backend describes a runtime backend.
type Backend struct {
	Class        string   `json:"class"`
	ID           string   `json:"id"`
	Selectors    []string `json:"selectors,omitempty"` // default: the id
	Exclusive    bool     `json:"exclusive,omitempty"` // claims its selectors for itself
	Health       Health   `json:"health,omitempty"`    // "" without a probe contract: healthy
	Capabilities []string `json:"capabilities,omitempty"`
}

// Augment describes a route augmenter.
type Augment struct {
	Effect      string   `json:"effect"` // observe-only, augment, veto, resolve
	Targets     []string `json:"targets,omitempty"`
	Exclusive   bool     `json:"exclusive,omitempty"`
	Priority    int      `json:"priority,omitempty"`
	FailureMode string   `json:"failureMode,omitempty"` // fail-open (default), fail-closed
}

// Visibility narrows the ceiling of a contribution's kind; it never widens it.
type Visibility string

// The visibilities; "" is the kind's default.
const (
	VisibleAgent    Visibility = "agent"
	VisibleOperator Visibility = "operator"
	VisibleBoth     Visibility = "both"
	VisibleNone     Visibility = "none"
)

// Stages of a module on its way into the catalogs. The empty stage is
// activated: a source that only publishes live modules need not say so.
const (
	StageDeclared  = "declared"
	StageApproved  = "approved" // policy-approved, not activated
	StageActivated = "activated"
	StageDisabled  = "disabled"
	StageFailed    = "failed"
)

// Active reports whether the module's contributions take part in the catalogs.
func (m *Module) Active() bool { return m.Stage == "" || m.Stage == StageActivated }
