package capability

// Arbitration declares how a contribution takes part in the choice of a provider. Mode, if set,
// must be that of the registry.
type Arbitration struct {
	Mode            string `json:"mode,omitempty"`
	Slot            string `json:"slot,omitempty"`
	SelectorID      string `json:"selectorId,omitempty"` // the name by which the operator selects it for the slot
	ComposePriority int    `json:"composePriority,omitempty"`
}

// Depends lists the runtime ids (<extension>/<contribution>) that a contribution requires,
// conflicts with or supersedes.
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
	Exclusive    bool     `json:"exclusive,omitempty"` // no other backend may have its selectors
	Health       Health   `json:"health,omitempty"`    // "" counts as healthy for a backend without probe
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

// Visibility narrows the audience of a contribution's kind. It never widens it.
type Visibility string

// The visibilities; "" is the kind's default.
const (
	VisibleAgent    Visibility = "agent"
	VisibleOperator Visibility = "operator"
	VisibleBoth     Visibility = "both"
	VisibleNone     Visibility = "none"
)

// Stages of a module before it is part of the catalogs. The empty stage means activated.
const (
	StageDeclared  = "declared"
	StageApproved  = "approved" // policy-approved, not activated
	StageActivated = "activated"
	StageDisabled  = "disabled"
	StageFailed    = "failed"
)

// Active reports whether the module's contributions are part of the catalogs.
func (m *Module) Active() bool { return m.Stage == "" || m.Stage == StageActivated }
