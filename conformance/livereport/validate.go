// Package livereport validates live reports: what a run of an agent against a
// real remote endpoint leaves behind. A report is believed only if every number
// in it can be derived from another part of it and nothing in it looks like a
// credential. The first failure of a file is reported, naming the field.
package livereport

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Options are the flags of the validator.
type Options struct {
	Kind                string // "", "cloud" or "provider"
	MaxAge, MaxFuture   time.Duration
	RequireCI           bool
	RequireFileIdentity bool
	// GitHub holds the GITHUB_* variables a report's CI block must equal; nil: it
	// is not compared.
	GitHub map[string]string
	// AllowSkipped accepts modules that were observed but not registered.
	AllowSkipped bool
	Now          time.Time // zero: time.Now
}

// Summary is what the rules about a set of reports need of one.
type Summary struct {
	Kind, EndpointID, Provider, URLHash string
}

// Validate checks one report; stem is its file name without .json, "" when it
// has none. The error names the field and what is wrong with it.
func Validate(data []byte, stem string, opts Options) (Summary, error) {
	if len(data) > MaxBytes {
		return Summary{}, fmt.Errorf("the report is larger than %d bytes", MaxBytes)
	}
	var root any
	if err := jsonx.Unmarshal(data, &root); err != nil {
		return Summary{}, err
	}
	if opts.Now.IsZero() {
		opts.Now = time.Now()
	}
	v := &validator{opts: opts, stem: stem}
	err := v.run(func() { v.report(node{root, ""}) })
	return v.summary, err
}

// validator walks a report; the first fault unwinds it.
type validator struct {
	opts    Options
	stem    string
	summary Summary

	endpoint string
	modules  []string
	names    map[string]string // module id → plugin name of registered modules
	counts   map[string]map[string]int64
	totals   map[string]int64
}

// fault unwinds to run; it never leaves the package.
type fault struct{ error }

func (v *validator) run(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if known, ok := p.(fault); ok {
				err = known.error
				return
			}
			panic(p)
		}
	}()
	f()
	return nil
}

func fail(path, format string, args ...any) {
	panic(fault{fmt.Errorf("%s %s", path, fmt.Sprintf(format, args...))})
}

// node is a value of the report and where it stands.
type node struct {
	value any
	path  string
}

func (n node) at(name string) node {
	o, _ := n.value.(map[string]any)
	return node{o[name], strings.TrimPrefix(n.path+"."+name, ".")}
}

func (n node) has(name string) bool {
	o, _ := n.value.(map[string]any)
	_, ok := o[name]
	return ok
}

func (n node) object() node {
	if _, ok := n.value.(map[string]any); !ok {
		fail(n.path, "must be an object")
	}
	return n
}

func (n node) items() []node {
	list, ok := n.value.([]any)
	if !ok {
		fail(n.path, "must be an array")
	}
	out := make([]node, len(list))
	for i, x := range list {
		out[i] = node{x, fmt.Sprintf("%s[%d]", n.path, i)}
	}
	return out
}

func (n node) text() string {
	s, ok := n.value.(string)
	if !ok || strings.TrimSpace(s) == "" {
		fail(n.path, "must be a non-blank string")
	}
	return s
}

func (n node) texts() []string {
	var out []string
	for _, item := range n.items() {
		s := item.text()
		if slices.Contains(out, s) {
			fail(item.path, "repeats %q", s)
		}
		out = append(out, s)
	}
	return out
}

func (n node) matches(re *regexp.Regexp, what string) string {
	s := n.text()
	if !re.MatchString(s) {
		fail(n.path, "must be %s", what)
	}
	return s
}

func (n node) oneOf(allowed ...string) string {
	s := n.text()
	if !slices.Contains(allowed, s) {
		fail(n.path, "must be one of %s", strings.Join(allowed, ", "))
	}
	return s
}

func (n node) equals(want string) {
	if s := n.text(); s != want {
		fail(n.path, "must be %q", want)
	}
}

func (n node) isTrue() {
	if b, ok := n.value.(bool); !ok || !b {
		fail(n.path, "must be true")
	}
}

func (n node) boolean() {
	if _, ok := n.value.(bool); !ok {
		fail(n.path, "must be true or false")
	}
}

func (n node) integer(least int64) int64 {
	f, ok := n.value.(float64)
	if !ok || f != float64(int64(f)) || int64(f) < least {
		fail(n.path, "must be a whole number of at least %d", least)
	}
	return int64(f)
}

func (n node) absent(name, why string) {
	if n.has(name) {
		fail(n.at(name).path, "%s", why)
	}
}

var (
	idGrammar       = regexp.MustCompile(`^[A-Za-z0-9._:-]+$`)
	providerGrammar = regexp.MustCompile(`^[a-z0-9-]+$`)
	hex64           = regexp.MustCompile(`^[0-9a-f]{64}$`)
	hex40           = regexp.MustCompile(`^[0-9a-f]{40}$`)
	digits          = regexp.MustCompile(`^[0-9]+$`)
	repository      = regexp.MustCompile(`^[^/\s]+/[^/\s]+$`)
	ref             = regexp.MustCompile(`^refs/.+`)
)

func (v *validator) report(n node) {
	n.object()
	noCredentials(n)
	if n.at("schemaVersion").integer(1) != 1 {
		fail("schemaVersion", "must be 1")
	}
	kind := n.at("kind").oneOf("cloud", "provider")
	if v.opts.Kind != "" && kind != v.opts.Kind {
		fail("kind", "must be %q", v.opts.Kind)
	}
	v.endpoint = n.at("endpointId").matches(idGrammar, "letters, digits, '.', '_', ':' and '-'")
	v.summary.Kind, v.summary.EndpointID = kind, v.endpoint
	v.observedAt(n.at("observedAt"))
	if kind == "cloud" {
		v.cloud(n)
	} else {
		v.provider(n)
	}
	if v.opts.RequireCI || v.opts.GitHub != nil || n.has("ci") {
		v.ci(n.at("ci"))
	}
	v.conformance(n.at("conformance").object())
	v.sync(n.at("sync").object(), n.at("conformance"))
	v.runtime(n.at("runtime").object())
}

// observedAt must be an exact millisecond ISO time with Z, and not too far away.
func (v *validator) observedAt(n node) {
	s := n.text()
	t, err := time.Parse("2006-01-02T15:04:05.000Z", s)
	if err != nil || t.Format("2006-01-02T15:04:05.000Z") != s {
		fail(n.path, "must be a time such as 2026-01-02T15:04:05.000Z")
	}
	if age := v.opts.Now.Sub(t); v.opts.MaxAge > 0 && age > v.opts.MaxAge {
		fail(n.path, "is %s old; the limit is %s", age.Round(time.Second), v.opts.MaxAge)
	}
	if ahead := t.Sub(v.opts.Now); v.opts.MaxFuture > 0 && ahead > v.opts.MaxFuture {
		fail(n.path, "is %s in the future; the limit is %s", ahead.Round(time.Second), v.opts.MaxFuture)
	}
}

func (v *validator) cloud(n node) {
	for _, name := range []string{"provider", "providerId", "providerEvidence", "endpointUrlSha256"} {
		n.absent(name, "does not belong in a cloud report")
	}
	n.at("agentId").text()
	u, err := url.Parse(n.at("cloudApiBase").text())
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		fail("cloudApiBase", "must be an http or https URL without credentials, query and fragment")
	}
	if v.opts.RequireFileIdentity && v.stem != "cloud" {
		fail("kind", "cloud belongs into cloud.json, not %s.json", v.stem)
	}
}

func (v *validator) provider(n node) {
	for _, name := range []string{"agentId", "cloudApiBase"} {
		n.absent(name, "does not belong in a provider report")
	}
	provider := n.at("provider").matches(providerGrammar, "lower-case letters, digits and dashes")
	n.at("providerId").equals(provider)
	v.summary.Provider = provider
	v.summary.URLHash = n.at("endpointUrlSha256").matches(hex64, "64 hex digits")
	evidence := n.at("providerEvidence").object()
	evidence.at("provider").equals(provider)
	evidence.at("agentRuntime").equals("github-actions")
	evidence.at("connection").equals("url-backed-provider")
	evidence.at("endpointRuntime").text() // of a provider not named below: its own word
	switch provider {
	case "e2b":
		evidence.at("endpointRuntime").equals("e2b-sandbox")
	case "home-machine", "mobile-companion", "desktop-companion":
		evidence.at("endpointRuntime").equals(provider)
	}
	if v.opts.RequireFileIdentity && v.stem != provider {
		fail("provider", "%s belongs into %s.json, not %s.json", provider, provider, v.stem)
	}
}

func (v *validator) ci(n node) {
	n.object()
	for _, f := range []struct {
		name, env string
		check     func(node) string
	}{
		{"runId", "GITHUB_RUN_ID", func(n node) string { return n.matches(digits, "digits") }},
		{"runAttempt", "GITHUB_RUN_ATTEMPT", func(n node) string { return n.matches(digits, "digits") }},
		{"workflow", "GITHUB_WORKFLOW", node.text},
		{"eventName", "GITHUB_EVENT_NAME", func(n node) string { return n.oneOf("workflow_dispatch", "schedule") }},
		{"repository", "GITHUB_REPOSITORY", func(n node) string { return n.matches(repository, "owner/name") }},
		{"sha", "GITHUB_SHA", func(n node) string { return n.matches(hex40, "40 hex digits") }},
		{"ref", "GITHUB_REF", func(n node) string { return n.matches(ref, "refs/…") }},
	} {
		got := f.check(n.at(f.name))
		if v.opts.GitHub != nil && got != v.opts.GitHub[f.env] {
			fail(n.at(f.name).path, "is not the value of %s", f.env)
		}
	}
}

var (
	secretKey   = regexp.MustCompile(`(?i)(^|_)(api[_-]?key|auth[_-]?token|authorization|bearer|capability[_-]?router[_-]?token|password|secret|token)(_|$)`)
	secretText  = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`)
	secretPair  = regexp.MustCompile(`(?i)(api[_-]?key|auth[_-]?token|authorization|capability[_-]?router[_-]?token|password|secret|token)["']?\s*[:=]\s*["']?[^\s"']{8,}`)
	secretInURL = regexp.MustCompile(`(?i)https?://[^/\s:@]+:[^/\s@]+@`)
)

// noCredentials refuses anything credential-shaped, wherever it stands.
func noCredentials(n node) {
	switch x := n.value.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			child := n.at(k)
			if secretKey.MatchString(k) {
				fail(child.path, "looks like a credential")
			}
			noCredentials(child)
		}
	case []any:
		for _, item := range n.items() {
			noCredentials(item)
		}
	case string:
		if secretText.MatchString(x) || secretPair.MatchString(x) || secretInURL.MatchString(x) {
			fail(n.path, "holds text that looks like a credential")
		}
	}
}

// raw is the JSON text of a node, for messages.
func (n node) raw() string {
	data, err := json.Marshal(n.value)
	if err != nil {
		return "?"
	}
	return string(data)
}
