package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/secret"
)

// Eliza holds the capability endpoints from the variables of an elizaOS agent. JUNCTOR_*
// variables take precedence over them.
type Eliza struct {
	Environment string // one of six names, "server" if unset
	Endpoints   []ElizaEndpoint
	// TrustAudit is the agent's own record of its trust decisions, oldest first: a JSON
	// list of at most 50 objects, nil if absent.
	TrustAudit []byte
}

// ElizaEndpoint is one endpoint of Eliza. AllowedModules nil permits all modules;
// TrustPolicy is a JSON object, nil if absent.
type ElizaEndpoint struct {
	ID, BaseURL    string
	Token          secret.Value
	Timeout        time.Duration
	AllowedModules []string
	TrustPolicy    []byte
}

// Alias is a variable of another product that is read; Fallback is its older name, "" if it
// has none.
type Alias struct{ Name, Fallback, Doc string }

const elizaPrefix = "ELIZA_CAPABILITY_ROUTER_"

// Aliases returns all variables of other products that are read, for the reference.
func Aliases() []Alias {
	list := []Alias{
		{elizaPrefix + "URL", "ELIZA_REMOTE_CAPABILITY_URL", "URL of the primary endpoint, which receives low-level calls first."},
		{elizaPrefix + "TOKEN", "ELIZA_REMOTE_CAPABILITY_TOKEN", "Token of the primary endpoint and of listed ones without one; the older name: of the primary only."},
		{elizaPrefix + "URLS", "", "More endpoints: a JSON list of URLs or {id, baseUrl, token}, or comma-separated URLs."},
		{
			elizaPrefix + "ENABLED", "ELIZA_REMOTE_CAPABILITY_ENABLED",
			"Whether these endpoints are used: 1, true, yes, on or 0, false, no, off.",
		},
		{elizaPrefix + "ENVIRONMENT", "", "desktop, node, server, browser, mobile or unknown."},
		{elizaPrefix + "TIMEOUT_MS", "", "Deadline of a call, in milliseconds."},
		{elizaPrefix + "ALLOWED_MODULES", "", "JSON: module ids for all, or an object of endpoint id and list."},
		{elizaPrefix + "TRUST_POLICY", "", "JSON: trust policy options for all, or an object of endpoint id and options."},
		{elizaPrefix + "TRUST_AUDIT", "", "JSON list of the agent's recorded trust decisions; the last 50 are kept."},
		{"ELIZA_STATE_DIR", "", "Directory of config.env and eliza.json, which set variables above that the environment does not."},
		{"ELIZA_CONFIG_PATH", "", "Path of eliza.json, if elsewhere."},
		{"ELIZA_NAMESPACE", "", "The agent's ~/.<namespace>/<namespace>.json has settings of task agents."},
	}
	for _, k := range foreignKeys(nil) {
		doc := k.doc
		if !strings.HasSuffix(doc, ".") {
			doc += "."
		}
		list = append(list, Alias{k.name, "", doc})
	}
	return list
}

// ReadEliza reads the ELIZA_ variables of environ. A variable that cannot be parsed is an
// error that names it; the original would ignore it and so drop a restriction.
func ReadEliza(environ []string) (Eliza, error) {
	vars := make(map[string]string)
	for _, kv := range environ {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "ELIZA_") {
			vars[name] = value
		}
	}
	out, err := ElizaVars(vars)
	if err != nil {
		err = fmt.Errorf("environment: %w", err)
	}
	return out, err
}

// ElizaVars is ReadEliza for variables from another source, such as the agent's own files.
// If ENABLED is off, the result has no endpoints.
func ElizaVars(said map[string]string) (Eliza, error) {
	vars := make(map[string]string, len(said))
	for name, value := range said {
		vars[name] = strings.TrimSpace(value)
	}
	get := func(short string) string { return vars[elizaPrefix+short] }
	older := func(short string) string { return vars["ELIZA_REMOTE_CAPABILITY_"+short] }
	out := Eliza{Environment: "server"}
	enabled, known := elizaFlag(get("ENABLED"))
	if !known {
		enabled, known = elizaFlag(older("ENABLED"))
	}
	if known && !enabled {
		return out, nil
	}
	if env := get("ENVIRONMENT"); env != "" {
		if !slices.Contains([]string{"desktop", "node", "server", "browser", "mobile", "unknown"}, env) {
			return out, elizaError("ENVIRONMENT", "%q must be one of desktop, node, server, browser, mobile, unknown", env)
		}
		out.Environment = env
	}
	var timeout time.Duration
	if text := get("TIMEOUT_MS"); text != "" {
		ms, err := strconv.ParseInt(text, 10, 32)
		if err != nil || ms <= 0 {
			return out, elizaError("TIMEOUT_MS", "%q is not a positive whole number", text)
		}
		timeout = time.Duration(ms) * time.Millisecond
	}
	if text := cmp.Or(get("URL"), older("URL")); text != "" {
		out.Endpoints = append(out.Endpoints, ElizaEndpoint{
			ID: "primary", BaseURL: text,
			Token: secret.New(cmp.Or(get("TOKEN"), older("TOKEN"))),
		})
	}
	list, err := elizaList(get("URLS"), get("TOKEN"))
	if err != nil {
		return out, err
	}
	out.Endpoints = append(out.Endpoints, list...)
	for i := range out.Endpoints {
		out.Endpoints[i].Timeout = timeout
	}
	if err := out.check(); err != nil {
		return out, err
	}
	if err := out.allow(get("ALLOWED_MODULES")); err != nil {
		return out, err
	}
	if out.TrustAudit, err = elizaAudit(get("TRUST_AUDIT")); err != nil {
		return out, err
	}
	return out, out.trust(get("TRUST_POLICY"))
}

func elizaFlag(text string) (on, known bool) {
	switch strings.ToLower(text) {
	case "1", "true", "yes", "on":
		return true, true
	case "0", "false", "no", "off":
		return false, true
	}
	return false, false
}

func elizaError(short, format string, args ...any) error {
	return fmt.Errorf("%s%s: %w", elizaPrefix, short, fmt.Errorf(format, args...))
}

// elizaAudit parses TRUST_AUDIT, a list of objects, and returns the last 50.
func elizaAudit(text string) ([]byte, error) {
	const short, most = "TRUST_AUDIT", 50
	if text == "" {
		return nil, nil
	}
	var list []jsonx.Raw
	if err := jsonx.Unmarshal([]byte(text), &list); err != nil || list == nil {
		return nil, elizaError(short, "it must be a JSON list of records")
	}
	for i, record := range list {
		if record.Kind() != '{' {
			return nil, elizaError(short, "record %d must be a JSON object", i+1)
		}
	}
	return jsonx.Marshal(list[max(0, len(list)-most):])
}

// elizaList parses URLS, as JSON if it begins with "[". One malformed entry makes the whole
// list an error.
func elizaList(text, token string) (list []ElizaEndpoint, err error) {
	add := func(id, url, own string) {
		list = append(list, ElizaEndpoint{
			ID: cmp.Or(id, fmt.Sprintf("remote-%d", len(list)+1)), BaseURL: url,
			Token: secret.New(cmp.Or(own, token)),
		})
	}
	if !strings.HasPrefix(text, "[") {
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				add("", part, "")
			}
		}
		return list, nil
	}
	var items []jsonx.Raw
	if err := jsonx.Unmarshal([]byte(text), &items); err != nil {
		return nil, elizaError("URLS", "it begins like a JSON list but is not one: %w", err)
	}
	for i, raw := range items {
		var item struct {
			ID      string  `json:"id"`
			BaseURL *string `json:"baseUrl"`
			Token   string  `json:"token"`
		}
		if raw.Kind() == '"' {
			item.BaseURL = new(string)
			err = jsonx.Unmarshal(raw, item.BaseURL)
		} else {
			err = jsonx.Unmarshal(raw, &item)
		}
		if err != nil || item.BaseURL == nil || strings.TrimSpace(*item.BaseURL) == "" {
			return nil, elizaError("URLS", "item %d must be a URL or an object with baseUrl, and id and token as texts", i+1)
		}
		add(strings.TrimSpace(item.ID), strings.TrimSpace(*item.BaseURL), strings.TrimSpace(item.Token))
	}
	return list, nil
}

// endpointID returns the pattern of an endpoint's id.
func endpointID() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._:-]{1,120}$`) }

// check normalizes the URLs and returns an error for a malformed id or URL, a URL with
// credentials, and an id or URL that occurs twice.
func (e *Eliza) check() error {
	grammar := endpointID()
	for i := range e.Endpoints {
		ep := &e.Endpoints[i]
		short := "URLS"
		if ep.ID == "primary" && i == 0 {
			short = "URL"
		}
		if !grammar.MatchString(ep.ID) || strings.HasPrefix(ep.ID, "node:") {
			return elizaError(short, "the id %q must be letters, digits, '.', '_', ':' or '-', and not begin with node:", ep.ID)
		}
		u, err := url.Parse(ep.BaseURL)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return elizaError(short, "the URL of %s must be an absolute http or https one", ep.ID)
		}
		if u.User != nil {
			return elizaError(short, "the URL of %s must not hold credentials; give a token", ep.ID)
		}
		u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = "", false, "", ""
		ep.BaseURL = strings.TrimRight(u.String(), "/")
		for _, other := range e.Endpoints[:i] {
			if other.ID == ep.ID || other.BaseURL == ep.BaseURL {
				return elizaError(short, "%s is there twice, by its id or its URL", ep.ID)
			}
		}
	}
	return nil
}

// perEndpoint calls set for each member, whose name is an endpoint's id. An unknown id is an
// error, because ignoring a misspelled one would drop a restriction.
func (e *Eliza) perEndpoint(short string, members map[string]jsonx.Raw, set func(ep *ElizaEndpoint, value jsonx.Raw) error) error {
	for id, value := range members {
		i := slices.IndexFunc(e.Endpoints, func(ep ElizaEndpoint) bool { return ep.ID == id })
		if i < 0 {
			return elizaError(short, "there is no endpoint %q", id)
		}
		if err := set(&e.Endpoints[i], value); err != nil {
			return err
		}
	}
	return nil
}

// allow sets the allowed modules from ALLOWED_MODULES: a list for all endpoints, or an object
// with a list for each id. An empty list is an error.
func (e *Eliza) allow(text string) error {
	const short = "ALLOWED_MODULES"
	if text == "" {
		return nil
	}
	read := func(raw jsonx.Raw) (names []string, err error) {
		if jsonx.Unmarshal(raw, &names) != nil || len(names) == 0 || slices.Contains(names, "") { // null reads as ""
			return nil, elizaError(short, "a list of module ids is needed, and not an empty one")
		}
		return names, nil
	}
	if strings.HasPrefix(text, "[") {
		names, err := read(jsonx.Raw(text))
		for i := range e.Endpoints {
			e.Endpoints[i].AllowedModules = names
		}
		return err
	}
	var members map[string]jsonx.Raw
	if err := jsonx.Unmarshal([]byte(text), &members); err != nil || members == nil {
		return elizaError(short, "it must be a JSON list, or an object of endpoint id and list")
	}
	return e.perEndpoint(short, members, func(ep *ElizaEndpoint, value jsonx.Raw) (err error) {
		ep.AllowedModules, err = read(value)
		return err
	})
}

// policyFields returns the names of options that, at the top level of TRUST_POLICY, apply to
// all endpoints.
func policyFields() []string {
	return []string{
		"allowedEndpointIds", "allowedModuleIds", "allowedProvenanceIssuers", "trustedProvenancePublicKeys", "requireEndpointId",
		"requireSignedProvenance", "requireVerifiedProvenance", "requireProvenanceDigestMatch", "allowSharedModelTypes", "strictNames",
	}
}

// trust sets the trust policies from TRUST_POLICY. The options of an endpoint are merged with
// the common ones; an endpoint without options keeps a nil policy.
func (e *Eliza) trust(text string) error {
	const short = "TRUST_POLICY"
	if text == "" {
		return nil
	}
	var members map[string]jsonx.Raw
	if err := jsonx.Unmarshal([]byte(text), &members); err != nil || members == nil {
		return elizaError(short, "it must be a JSON object of options, or of endpoint id and options")
	}
	common := make(map[string]jsonx.Raw)
	for _, name := range policyFields() {
		if value, ok := members[name]; ok {
			common[name] = value
			delete(members, name)
		}
	}
	own := make(map[string]map[string]jsonx.Raw)
	err := e.perEndpoint(short, members, func(ep *ElizaEndpoint, value jsonx.Raw) error {
		var options map[string]jsonx.Raw
		if err := jsonx.Unmarshal(value, &options); err != nil || options == nil {
			return elizaError(short, "the options of %s must be an object", ep.ID)
		}
		own[ep.ID] = options
		return nil
	})
	if err != nil {
		return err
	}
	for i := range e.Endpoints {
		ep := &e.Endpoints[i]
		if len(common) == 0 && own[ep.ID] == nil {
			continue
		}
		merged, err := merge(common, own[ep.ID])
		if err != nil {
			return elizaError(short, "the options of %s: %w", ep.ID, err)
		}
		if ep.TrustPolicy, err = jsonx.Marshal(merged); err != nil {
			return err
		}
	}
	return nil
}

// merge returns the common options with an endpoint's own added: lists are concatenated,
// objects united (own members take precedence), and a flag is true if it is in either. For
// other types the common value stays. An option with two types is an error.
func merge(common, own map[string]jsonx.Raw) (map[string]jsonx.Raw, error) {
	out := make(map[string]jsonx.Raw)
	for name, value := range common {
		out[name] = value
	}
	for name, value := range own {
		was, both := out[name]
		switch {
		case !both || string(was) == "false":
			out[name] = value
		case was.Kind() != value.Kind() && string(value) != "false":
			return nil, fmt.Errorf("%s has two types", name)
		case value.Kind() == '[' || value.Kind() == '{':
			joined, err := joinJSON(was, value)
			if err != nil {
				return nil, err
			}
			out[name] = joined
		}
	}
	return out, nil
}

// joinJSON concatenates two lists or unites two objects; members of b take precedence.
func joinJSON(a, b jsonx.Raw) (jsonx.Raw, error) {
	if a.Kind() == '[' {
		var x, y []json.RawMessage
		if err := jsonx.Unmarshal(a, &x); err != nil {
			return nil, err
		}
		if err := jsonx.Unmarshal(b, &y); err != nil {
			return nil, err
		}
		return jsonx.Marshal(append(x, y...))
	}
	x := make(map[string]json.RawMessage)
	for _, doc := range []jsonx.Raw{a, b} {
		if err := jsonx.Unmarshal(doc, &x); err != nil {
			return nil, err
		}
	}
	return jsonx.Marshal(x)
}
