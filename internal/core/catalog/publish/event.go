package publish

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
)

// Names of the telemetry events.
const (
	ConflictDetected  = "capability.conflict.detected"
	ProviderSelected  = "capability.provider.selected"
	FallbackSelected  = "capability.fallback.selected"
	NameDisambiguated = "capability.name.disambiguated"
	RouteVetoed       = "capability.route.vetoed"
	SlotSelected      = "capability.slot.selected"
	SelectionFailed   = "capability.selection.failed"
)

// Telemetry is one event. No payload holds message text, arguments, schemas or
// credentials; conversations are hashed.
type Telemetry struct {
	Event         string    `json:"event"`
	Version       int       `json:"version"`
	ID            string    `json:"id"`
	OccurredAt    time.Time `json:"occurredAt"`
	Generation    uint64    `json:"generation"`
	WorkspaceID   string    `json:"workspaceId"`
	AgentID       string    `json:"agentId"`
	SessionID     string    `json:"sessionId,omitempty"`
	CorrelationID string    `json:"correlationId,omitempty"`
	Payload       any       `json:"payload"` // one of the payload types, by value
}

// ConflictPayload is the payload of [ConflictDetected].
type ConflictPayload struct {
	Class       string   `json:"class"`
	Key         string   `json:"key"`
	Members     []string `json:"members"`
	Resolution  string   `json:"resolution"`
	Winner      string   `json:"winner,omitempty"`
	Remediation string   `json:"remediation,omitempty"`
}

// SelectedPayload is the payload of [ProviderSelected] and, with Reasons, of
// [FallbackSelected].
type SelectedPayload struct {
	Action        capability.Action            `json:"action"`
	CapabilityID  capability.ID                `json:"capabilityId"`
	ProviderKey   capability.ProviderKey       `json:"providerKey"`
	Step          int                          `json:"step"`
	DecidedBy     string                       `json:"decidedBy"`
	Caller        arbitration.Caller           `json:"caller"`
	Candidates    int                          `json:"candidates"`
	ExplanationID string                       `json:"explanationId,omitempty"`
	Reasons       []arbitration.FallbackReason `json:"reasons,omitempty"`
}

// NamePayload is the payload of [NameDisambiguated].
type NamePayload struct {
	DeclaredName string   `json:"declaredName"`
	PublicName   string   `json:"publicName,omitempty"` // "": withheld
	Level        int      `json:"level"`
	Members      []string `json:"members"`
	Resolution   string   `json:"resolution"`
}

// VetoPayload is the payload of [RouteVetoed].
type VetoPayload struct {
	Action       string                 `json:"action"` // a glob in phase compile
	ProviderKey  capability.ProviderKey `json:"providerKey,omitempty"`
	By           string                 `json:"by"` // runtime id
	ReasonCode   string                 `json:"reasonCode"`
	Phase        string                 `json:"phase"`                  // compile, invoke
	Conversation string                 `json:"conversation,omitempty"` // hashed
}

// SlotPayload is the payload of [SlotSelected]; for an exclusive backend class the slot is
// "backend:<class>".
type SlotPayload struct {
	Slot      string   `json:"slot"`
	Requested string   `json:"requested"`
	Source    string   `json:"source"`
	Winner    string   `json:"winner,omitempty"`
	Error     string   `json:"error,omitempty"`
	Available []string `json:"available"`
	Losers    []string `json:"losers"`
}

// FailedPayload is the payload of [SelectionFailed].
type FailedPayload struct {
	Action     capability.Action `json:"action"`
	Step       int               `json:"step"`
	Code       string            `json:"code"`
	Candidates int               `json:"candidates"`
}

// HashRef returns the pseudonym of a conversation in telemetry: 16 hex digits of its SHA-256.
func HashRef(ref string) string {
	sum := sha256.Sum256([]byte(ref))
	return hex.EncodeToString(sum[:8])
}
