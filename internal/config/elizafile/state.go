package elizafile

import (
	"fmt"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/secret"
)

// Endpoint is one endpoint in the files. AllowedModules nil permits all modules; TrustPolicy
// is a JSON object, nil if absent.
type Endpoint struct {
	ID, BaseURL    string
	Token          secret.Value
	AllowedModules []string
	TrustPolicy    []byte
}

// Record is one entry of the trust audit. The original appends one at each connection.
type Record struct {
	RecordedAt       string         `json:"recordedAt"` // in the form of Stamp
	Mode             string         `json:"mode"`
	Provider         string         `json:"provider,omitempty"`
	Endpoint         RecordEndpoint `json:"endpoint"`
	AllowedModuleIDs []string       `json:"allowedModuleIds,omitempty"`
	Registered       []string       `json:"registered"`
	Skipped          []string       `json:"skipped"`
	Unloaded         []string       `json:"unloaded"`
	TrustDecisions   []Decision     `json:"trustDecisions"`
}

// RecordEndpoint identifies the endpoint of a Record; it never contains a token.
type RecordEndpoint struct {
	ID       string `json:"id"`
	BaseURL  string `json:"baseUrl"`
	HasToken bool   `json:"hasToken"`
}

// Decision is a trust decision in the original's form.
type Decision struct {
	ModuleID         string `json:"moduleId"`
	PluginName       string `json:"pluginName"`
	EndpointID       string `json:"endpointId,omitempty"`
	ProvenanceIssuer string `json:"provenanceIssuer,omitempty"`
	Trusted          bool   `json:"trusted"`
	Reason           string `json:"reason"`
}

// Stamp formats a time as the original does: in UTC, with milliseconds.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// routerPrefix begins the names of the variables that Put sets; remotePrefix begins their
// older names, which Put removes.
const (
	routerPrefix = "ELIZA_CAPABILITY_ROUTER_"
	remotePrefix = "ELIZA_REMOTE_CAPABILITY_"
)

// Put replaces the endpoints in f by these, and appends the records that the trust audit does
// not contain yet. The original calls the first endpoint first. Tokens are stored in
// config.env only. Put writes no file; see Write.
//
// It removes the variables of a single endpoint and of the default token, because the
// original would send that token to every endpoint without a token of its own.
func (f *Files) Put(endpoints []Endpoint, records []Record) error {
	audit, err := f.audit(records)
	if err != nil {
		return err
	}
	type entry struct {
		ID      string `json:"id"`
		BaseURL string `json:"baseUrl"`
		Token   string `json:"token,omitempty"`
	}
	open, closed := []entry{}, []entry{}
	allowed, policies := make(map[string][]string), make(map[string]jsonx.Raw)
	for _, e := range endpoints {
		open = append(open, entry{ID: e.ID, BaseURL: e.BaseURL})
		closed = append(closed, entry{e.ID, e.BaseURL, e.Token.Reveal()})
		if e.AllowedModules != nil {
			allowed[e.ID] = e.AllowedModules
		}
		if len(e.TrustPolicy) > 0 {
			policies[e.ID] = e.TrustPolicy
		}
	}
	set := func(env, doc map[string]any) error {
		for name, value := range env {
			text, err := variable(value)
			if err == nil {
				err = f.Env.Set(name, text)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		for name, value := range doc {
			text, err := variable(value)
			if err == nil {
				err = f.Config.Set(name, text)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	}
	gone := make(map[string]any)
	for _, name := range []string{
		routerPrefix + "URL", routerPrefix + "TOKEN", remotePrefix + "URL", remotePrefix + "TOKEN",
		remotePrefix + "ENABLED",
	} {
		gone[name] = nil
	}
	if err := set(gone, gone); err != nil {
		return err
	}
	var enabled, openList, closedList, allowList, policyList any
	if len(endpoints) > 0 {
		enabled, openList, closedList = "true", open, closed
	}
	if len(allowed) > 0 {
		allowList = allowed
	}
	if len(policies) > 0 {
		policyList = policies
	}
	// The allow-list is in eliza.json only; one that a user wrote into config.env would
	// override it.
	for _, name := range []string{"ENABLED", "URLS", "TRUST_POLICY", "ALLOWED_MODULES", "TRUST_AUDIT"} {
		env, doc := map[string]any{"ENABLED": enabled, "URLS": closedList, "TRUST_POLICY": policyList}[name],
			map[string]any{
				"ENABLED": enabled, "URLS": openList, "TRUST_POLICY": policyList, "ALLOWED_MODULES": allowList,
				"TRUST_AUDIT": audit,
			}[name]
		if err := set(map[string]any{routerPrefix + name: env}, map[string]any{routerPrefix + name: doc}); err != nil {
			return err
		}
	}
	return nil
}

// variable returns the JSON of value as the text of a variable, "" for nil.
func variable(value any) (string, error) {
	switch v := value.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	}
	data, err := jsonx.Marshal(value)
	return strings.ReplaceAll(string(data), "'", `\u0027`), err // so that it fits in single quotes
}

// audit returns the last MaxRecords entries of the trust audit with more appended, or nil if
// none exist. Existing entries are kept as they are. Error: invalid_input if the existing
// audit is not a JSON list.
func (f *Files) audit(more []Record) (any, error) {
	vars, err := f.Vars()
	if err != nil {
		return nil, err
	}
	list := []jsonx.Raw{}
	if text := strings.TrimSpace(vars[routerPrefix+"TRUST_AUDIT"]); text != "" {
		if err := jsonx.Unmarshal([]byte(text), &list); err != nil {
			return nil, capability.Errorf(capability.CodeInvalidInput, "", "%sTRUST_AUDIT is not a JSON list", routerPrefix)
		}
	}
	had := make(map[string]bool)
	for _, raw := range list {
		var r Record
		if jsonx.Unmarshal(raw, &r) == nil {
			had[r.RecordedAt+" "+r.Endpoint.ID] = true
		}
	}
	for _, r := range more {
		if had[r.RecordedAt+" "+r.Endpoint.ID] && r.RecordedAt != "" {
			continue // from an earlier export
		}
		raw, err := jsonx.Marshal(r)
		if err != nil {
			return nil, err
		}
		list = append(list, raw)
	}
	if len(list) == 0 {
		return nil, nil
	}
	return list[max(0, len(list)-MaxRecords):], nil
}
