package livereport

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/conformance"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/router"
)

// DirVariable names the environment variable with the folder of live reports;
// where it is not set, no report is wanted.
const DirVariable = "ELIZA_REMOTE_CAPABILITY_LIVE_REPORT_DIR"

// Report is what a live run found out. Everything else of a report file follows
// from it: its name, the counts, the fingerprint of the URL.
type Report struct {
	Kind       string    // cloud or provider
	EndpointID string    // as in Conformance
	ObservedAt time.Time // kept to the millisecond

	// Provider is the name of the provider, such as home-machine, and EndpointURL
	// where it was reached; EndpointRuntime what it runs in, "" for the known
	// providers. They belong to provider reports.
	Provider, EndpointURL, EndpointRuntime string
	// AgentID and CloudAPIBase belong to cloud reports.
	AgentID, CloudAPIBase string

	// Conformance is the report of a run without failures, Modules what the
	// endpoint listed at the time.
	Conformance conformance.Report
	Modules     []router.Module
	// Decisions are those of the agent's trust policy: a module that is trusted
	// counts as registered. Unloaded and Skipped are plugin names.
	Decisions         []router.TrustDecision
	Unloaded, Skipped []string
	// LocalPlugins and LocalCounts are what the agent ran besides the remote
	// plugins; the counts are named as in [Counts].
	LocalPlugins int
	LocalCounts  map[string]int
	CI           *CI
}

// CI states which run of which workflow made a report.
type CI struct {
	RunID      string `json:"runId"`
	RunAttempt string `json:"runAttempt"`
	Workflow   string `json:"workflow"`
	EventName  string `json:"eventName"`
	Repository string `json:"repository"`
	SHA        string `json:"sha"`
	Ref        string `json:"ref"`
}

// CIFrom reads the variables of a workflow run; nil outside of one.
func CIFrom(getenv func(string) string) *CI {
	if getenv("GITHUB_RUN_ID") == "" {
		return nil
	}
	return &CI{
		getenv("GITHUB_RUN_ID"), getenv("GITHUB_RUN_ATTEMPT"), getenv("GITHUB_WORKFLOW"), getenv("GITHUB_EVENT_NAME"),
		getenv("GITHUB_REPOSITORY"), getenv("GITHUB_SHA"), getenv("GITHUB_REF"),
	}
}

// Write puts the report into dir and returns its path: cloud.json or
// <provider>.json. With an empty dir it does nothing. A file that exists is a
// conflict and stays as it is; a report that this package would not validate is
// invalid_input, and nothing is written.
func Write(dir string, r Report) (string, error) {
	if dir == "" {
		return "", nil
	}
	name, data, err := r.encode()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name+".json")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	switch {
	case errors.Is(err, fs.ErrExist):
		return "", capability.Errorf(capability.CodeConflict, opWrite, "there is a report %s.json already", name).
			With("report_exists", "give each run a folder of its own")
	case err != nil:
		return "", capability.Wrap(capability.CodeFailed, opWrite, "the report cannot be created", err)
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		os.Remove(path) // half a report is worse than none
		return "", capability.Wrap(capability.CodeFailed, opWrite, "the report cannot be written", err)
	}
	return path, nil
}

const opWrite = "livereport.write"

func refuse(format string, args ...any) error {
	return capability.Errorf(capability.CodeInvalidInput, opWrite, format, args...)
}

type member = map[string]any

// encode renders the report and judges it as the validator will.
func (r Report) encode() (name string, data []byte, err error) {
	root := member{
		"schemaVersion": 1, "kind": r.Kind, "endpointId": r.EndpointID,
		"observedAt": r.ObservedAt.UTC().Truncate(time.Millisecond).Format("2006-01-02T15:04:05.000Z"),
	}
	switch r.Kind {
	case "cloud":
		name = "cloud"
		if r.Provider != "" || r.EndpointURL != "" || r.EndpointRuntime != "" {
			return "", nil, refuse("a cloud report has no provider, endpoint URL and endpoint runtime")
		}
		root["agentId"], root["cloudApiBase"] = r.AgentID, r.CloudAPIBase
	case "provider":
		name = r.Provider
		if r.AgentID != "" || r.CloudAPIBase != "" {
			return "", nil, refuse("a provider report has no agent id and cloud API base")
		}
		if err := r.providerFields(root); err != nil {
			return "", nil, err
		}
	default:
		return "", nil, refuse("the kind of a report is cloud or provider, not %q", r.Kind)
	}
	// The name becomes a file name.
	if !providerGrammar.MatchString(name) {
		return "", nil, refuse("the name of a report has lower-case letters, digits and dashes only, unlike %q", name)
	}
	if len(r.Conformance.Failures) > 0 {
		return "", nil, refuse("the endpoint does not conform: %s: %s", r.Conformance.Failures[0].Where, r.Conformance.Failures[0].Message)
	}
	if r.CI != nil {
		root["ci"] = r.CI
	}
	root["conformance"] = r.Conformance
	if root["sync"], root["runtime"], err = r.registered(); err != nil {
		return "", nil, err
	}
	if data, err = jsonx.MarshalIndent(root); err != nil {
		return "", nil, refuse("the report cannot be encoded: %v", err)
	}
	data = append(data, '\n')
	if _, err := Validate(data, name, Options{Kind: r.Kind, RequireFileIdentity: true, AllowSkipped: true}); err != nil {
		return "", nil, refuse("the report does not hold: %v", err)
	}
	return name, data, nil
}

func (r Report) providerFields(root member) error {
	sum, err := URLHash(r.EndpointURL)
	if err != nil {
		return err
	}
	runtime := r.EndpointRuntime
	if runtime == "" {
		if runtime = r.Provider; runtime == "e2b" {
			runtime = "e2b-sandbox"
		}
	}
	root["provider"], root["providerId"], root["endpointUrlSha256"] = r.Provider, r.Provider, sum
	root["providerEvidence"] = member{
		"provider": r.Provider, "endpointRuntime": runtime, "agentRuntime": "github-actions", "connection": "url-backed-provider",
	}
	return nil
}

// registered renders the blocks sync and runtime: the trusted modules with their
// counts.
func (r Report) registered() (sync, runtime member, err error) {
	var ids []string
	names, plugins := []string{}, []member{}
	totals := make(map[string]int)
	for i := range r.Modules {
		m := &r.Modules[i]
		ids = append(ids, m.ID)
		if !r.trusted(m.ID) {
			continue
		}
		plugin := member{"pluginName": m.Name, "moduleId": m.ID, "endpointId": r.EndpointID}
		for name, n := range Counts(m) {
			plugin[name] = n
			totals[name] += n
		}
		names, plugins = append(names, m.Name), append(plugins, plugin)
	}
	if !slices.Equal(ids, r.Conformance.ModuleIDs) {
		return nil, nil, refuse("the modules %v are not those of the conformance run, %v", ids, r.Conformance.ModuleIDs)
	}
	sync = member{
		"registered": names, "registeredModules": plugins, "trustDecisions": orNone(r.Decisions),
		"unloaded": orNone(r.Unloaded), "skipped": orNone(r.Skipped),
	}
	runtime = member{"pluginCount": r.LocalPlugins + len(plugins), "remotePlugins": plugins}
	for _, name := range countNames() {
		runtime[name] = totals[name] + r.LocalCounts[name]
	}
	return sync, runtime, nil
}

func (r Report) trusted(module string) bool {
	return slices.ContainsFunc(r.Decisions, func(d router.TrustDecision) bool {
		return d.ModuleID == module && d.Trusted && (d.EndpointID == "" || d.EndpointID == r.EndpointID)
	})
}

func orNone[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Counts are the counts of the plugin that an agent makes of a module. An app
// bridge brings functions init and dispose with it.
func Counts(m *router.Module) map[string]int {
	one := func(given bool) int {
		if given {
			return 1
		}
		return 0
	}
	hook := func(name string) bool { return m.Lifecycle != nil && slices.Contains(m.Lifecycle.Hooks, name) }
	bridge := m.AppBridge != nil
	return map[string]int{
		"actionCount": len(m.Actions), "providerCount": len(m.Providers), "evaluatorCount": len(m.Evaluators),
		"responseHandlerEvaluatorCount":      len(m.ResponseHandlerEvaluators),
		"responseHandlerFieldEvaluatorCount": len(m.ResponseHandlerFieldEvaluators),
		"routeCount":                         len(m.Routes), "modelCount": len(m.Models), "eventCount": len(m.Events),
		"serviceCount": len(m.Services),
		"appCount":     one(m.App != nil), "appBridgeCount": one(bridge),
		"lifecycleCount": one(hook("init") || bridge) + one(hook("dispose") || bridge) + one(hook("applyConfig")),
		"widgetCount":    len(m.Widgets), "componentTypeCount": len(m.ComponentTypes), "viewCount": len(m.Views),
	}
}

// URLHash is the fingerprint of an endpoint's URL: the SHA-256 of the URL as a
// browser writes it, without query, fragment and trailing slashes of the path, so
// that an origin keeps its one slash. Credentials are refused, and so is a host
// outside of ASCII, which browsers would rewrite.
func URLHash(raw string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(raw))
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return "", refuse("the endpoint URL must be an absolute http or https URL")
	case u.User != nil:
		return "", refuse("the endpoint URL must not hold credentials")
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r > '~' || r <= ' ' || r == '%' }):
		return "", refuse("the host of the endpoint URL must be written in ASCII")
	}
	u = u.ResolveReference(u) // takes out . and .. segments
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is6() {
		host = "[" + addr.String() + "]"
	}
	if port != "" && port != map[string]string{"http": "80", "https": "443"}[u.Scheme] {
		host += ":" + port
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	path = cmp.Or(path, "/")
	sum := sha256.Sum256(fmt.Append(nil, u.Scheme, "://", host, path))
	return hex.EncodeToString(sum[:]), nil
}
