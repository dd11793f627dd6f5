package endpoint

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/router"
)

const (
	// trustRecords is the number of records that are kept.
	trustRecords = 50
	// statusRecords is the number of records in an endpoint's status.
	statusRecords = 5
	// modeSync is the mode of a sync's record; other records have the mode of the connect.
	modeSync = "sync"
)

// TrustRecord is one attempt to load modules: the accepted and the rejected ones with
// reasons. The members up to TrustDecisions are those of elizaOS, as in
// ELIZA_CAPABILITY_ROUTER_TRUST_AUDIT. The permanent record is in the audit log.
type TrustRecord struct {
	RecordedAt       time.Time              `json:"recordedAt"`
	Mode             string                 `json:"mode"` // endpoint, a provider family, cloud; sync
	Provider         string                 `json:"provider"`
	Endpoint         TrustedEndpoint        `json:"endpoint"`
	AllowedModuleIDs []string               `json:"allowedModuleIds,omitempty"`
	Registered       []string               `json:"registered"`
	Skipped          []string               `json:"skipped"`
	Unloaded         []string               `json:"unloaded"`
	TrustDecisions   []router.TrustDecision `json:"trustDecisions"`

	Reloaded  []string          `json:"reloaded,omitempty"`
	Failed    []HookFailure     `json:"failed,omitempty"`
	Collision *Collision        `json:"collision,omitempty"`
	Error     *capability.Error `json:"error,omitempty"` // why no module, or not every one, was loaded
}

// TrustedEndpoint names the endpoint of a TrustRecord, without its token.
type TrustedEndpoint struct {
	ID       string `json:"id"`
	BaseURL  string `json:"baseUrl"`
	HasToken bool   `json:"hasToken"`
}

// Collision is a name that two modules claim.
type Collision struct {
	Kind    string   `json:"kind"`
	Key     string   `json:"key"`
	Owners  []string `json:"owners"`
	Message string   `json:"message"`
}

// mode returns elizaOS's name for the way the endpoint was connected.
func (req *Request) mode() string {
	if req.Provider == "" || req.Provider == "direct" {
		return "endpoint"
	}
	return req.Provider
}

// TrustAudit returns the last 50 attempts of all endpoints, oldest first, including
// rejected connects.
func (r *Registry) TrustAudit() []TrustRecord { return r.trust.of("", trustRecords) }

// trustRecord stores and returns the record of an attempt that ended with err, which is
// nil for success.
func (r *Registry) trustRecord(ep *Endpoint, mode string, s Synced, err error) TrustRecord {
	list := func(in []string) []string { return append([]string{}, in...) }
	rec := TrustRecord{
		RecordedAt: r.cfg.Now().UTC(), Mode: mode, Provider: ep.provider,
		Endpoint:         TrustedEndpoint{ep.id, ep.baseURL, ep.hasToken},
		AllowedModuleIDs: ep.policy.AllowedModuleIDs,
		Registered:       list(s.Registered), Skipped: list(s.Skipped), Unloaded: list(s.Unloaded), Reloaded: slices.Clone(s.Reloaded),
		TrustDecisions: append([]router.TrustDecision{}, s.TrustDecisions...), Failed: slices.Clone(s.Failed),
	}
	if err == nil {
		return rec
	}
	e := capability.AsError(err)
	rec.Error = e
	if len(s.Failed) == 0 { // then no module was loaded
		rec.Registered, rec.Unloaded, rec.Reloaded = []string{}, []string{}, nil
	}
	kind, _ := e.Details["kind"].(string)
	key, _ := e.Details["key"].(string)
	if owners, ok := e.Details["owners"].([]string); ok && kind != "" {
		rec.Collision = &Collision{kind, key, owners, e.Message}
	}
	return rec
}

// trustAudit holds the last records.
type trustAudit struct {
	mu   sync.Mutex
	list []TrustRecord
}

// add appends rec and drops the oldest records beyond trustRecords. If rec repeats the
// last failure, add only updates that record's time.
func (t *trustAudit) add(rec TrustRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.list); n > 0 && rec.Error != nil && rec.again(&t.list[n-1]) {
		t.list[n-1].RecordedAt = rec.RecordedAt // a watcher that fails repeatedly
		return
	}
	if t.list = append(t.list, rec); len(t.list) > trustRecords {
		t.list = slices.Delete(t.list, 0, len(t.list)-trustRecords)
	}
}

// again reports whether the record has the same content as was.
func (rec *TrustRecord) again(was *TrustRecord) bool {
	return was.Error != nil && was.Error.Message == rec.Error.Message && was.Mode == rec.Mode && was.Endpoint == rec.Endpoint &&
		slices.Equal(was.TrustDecisions, rec.TrustDecisions)
}

// of returns at most the last most records of an endpoint, or of all if id is "".
func (t *trustAudit) of(id string, most int) []TrustRecord {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []TrustRecord
	for _, rec := range slices.Backward(t.list) {
		if (id == "" || rec.Endpoint.ID == id) && len(out) < most {
			out = append(out, rec)
		}
	}
	slices.Reverse(out)
	return out
}

// seed loads the history that an elizaOS agent recorded. It skips defective records.
func (t *trustAudit) seed(doc []byte, log *slog.Logger) {
	if len(doc) == 0 {
		return
	}
	var list []jsonx.Raw
	if err := jsonx.Unmarshal(doc, &list); err != nil {
		log.Warn("the trust audit of the environment cannot be read; it is left out", "err", err)
		return
	}
	for i, raw := range list {
		var rec TrustRecord
		if err := jsonx.Unmarshal(raw, &rec); err != nil || rec.RecordedAt.IsZero() || rec.Endpoint.ID == "" {
			log.Warn("a record of the trust audit of the environment cannot be read; it is left out", "record", i+1)
			continue
		}
		rec.Error, rec.Collision, rec.Failed = nil, nil, nil // members that elizaOS does not have
		t.list = append(t.list, rec)
	}
	t.list = t.list[max(0, len(t.list)-trustRecords):]
}
