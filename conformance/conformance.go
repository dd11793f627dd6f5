// Package conformance tests an endpoint of the capability-router protocol over HTTP and
// reports each fault with its place. It calls all twelve surfaces as the harness of
// elizaOS does, spread over the endpoint's modules, and records every call. Beyond that
// harness it tests credentials, error envelopes, bad parameters, assets out of bounds,
// equality of the two ways to an asset, concurrency, and which generations of routers
// accept the manifests.
//
//	report, err := conformance.Run(ctx, conformance.Options{BaseURL: url, Token: token})
//
// The report is complete even if checks failed; then err is a *Failure.
package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// Options select the endpoint and the required surfaces.
type Options struct {
	// EndpointID names the endpoint in the report; "" is "endpoint".
	EndpointID string
	BaseURL    string
	Token      secret.Value
	Transport  http.RoundTripper // nil: router.DefaultTransport()
	Timeout    time.Duration     // of one call; 0: 60 s
	// Required are the surfaces that must be offered; nil: all twelve.
	Required []string
	// ActionContent and RouteBody replace the inputs of those surfaces.
	ActionContent, RouteBody json.RawMessage
	// Dialect is the generation of routers for which the manifests are checked. If empty,
	// it is the union.
	Dialect Dialect
	// Profile selects whose rules decide, "" for all of them. For ProfileElizaOS, what only the
	// checks beyond the harness of elizaOS find are warnings.
	Profile string
	// OnlyOriginal omits the checks that the harness of elizaOS does not have.
	OnlyOriginal bool
}

// ProfileElizaOS is the profile of endpoints that were written with elizaOS's own bridge.
const ProfileElizaOS = "elizaos"

// Exercise is one tested surface of one module.
type Exercise struct {
	Surface  string `json:"surface"`
	ModuleID string `json:"moduleId"`
	Target   string `json:"target"`
}

// RPC is one call, in the order they were made.
type RPC struct {
	Method   string `json:"method"`
	Surface  string `json:"surface"`
	ModuleID string `json:"moduleId"`
	Target   string `json:"target"`
}

// AssetResult describes the fetched view asset.
type AssetResult struct {
	Path                string `json:"path"`
	ContentType         string `json:"contentType"`
	ManifestContentType string `json:"manifestContentType,omitempty"`
	ManifestIntegrity   string `json:"manifestIntegrity,omitempty"`
	Integrity           string `json:"integrity,omitempty"`
	ByteLength          int    `json:"byteLength"`
	SHA256              string `json:"sha256"`
}

// Report is the result of a conformance run and its JSON form.
type Report struct {
	EndpointID      string              `json:"endpointId"`
	Availability    router.Availability `json:"availability"`
	ModuleCount     int                 `json:"moduleCount"`
	ModuleIDs       []string            `json:"moduleIds"`
	Exercised       map[string]string   `json:"exercised"` // surface → module:target
	ModuleExercises []Exercise          `json:"moduleExercises"`
	RPCCalls        []RPC               `json:"rpcCalls"`

	ActionResult                        json.RawMessage            `json:"actionResult,omitempty"`
	ProviderResult                      json.RawMessage            `json:"providerResult,omitempty"`
	RouteResult                         json.RawMessage            `json:"routeResult,omitempty"`
	AssetResult                         *AssetResult               `json:"assetResult,omitempty"`
	ModelResult                         json.RawMessage            `json:"modelResult,omitempty"`
	LifecycleResult                     json.RawMessage            `json:"lifecycleResult,omitempty"`
	EventResult                         json.RawMessage            `json:"eventResult,omitempty"`
	ServiceResult                       json.RawMessage            `json:"serviceResult,omitempty"`
	AppBridgeResult                     json.RawMessage            `json:"appBridgeResult,omitempty"`
	EvaluatorResult                     map[string]json.RawMessage `json:"evaluatorResult,omitempty"`
	ResponseHandlerEvaluatorResult      map[string]json.RawMessage `json:"responseHandlerEvaluatorResult,omitempty"`
	ResponseHandlerFieldEvaluatorResult map[string]json.RawMessage `json:"responseHandlerFieldEvaluatorResult,omitempty"`
	// Failures lists the faults. It is empty if the endpoint conforms.
	Failures []Fault `json:"failures,omitempty"`
	// Warnings lists what some generation of routers refuses or interprets differently.
	Warnings []Fault `json:"warnings,omitempty"`
}

// Fault is one deviation from the protocol and its place.
type Fault struct {
	Where   string `json:"where"` // surface, method or check
	Message string `json:"message"`
}

// Failure is the error of a run whose report has failures.
type Failure struct{ Faults []Fault }

func (f *Failure) Error() string {
	lines := make([]string, len(f.Faults))
	for i, fault := range f.Faults {
		lines[i] = fault.Where + ": " + fault.Message
	}
	return strings.Join(lines, "\n")
}

// Surfaces returns the twelve surfaces in the order in which they are tested.
func Surfaces() []string {
	return []string{
		"action", "provider", "route", "viewAsset", "model", "lifecycle", "event", "service", "appBridge",
		"evaluator", "responseHandlerEvaluator", "responseHandlerFieldEvaluator",
	}
}

// ParseSurface parses a surface in either spelling: viewAsset or view-asset.
func ParseSurface(s string) (string, error) {
	for _, name := range Surfaces() {
		if strings.EqualFold(name, strings.ReplaceAll(s, "-", "")) {
			return name, nil
		}
	}
	return "", capability.Errorf(capability.CodeInvalidInput, "conformance", "%q is not a surface; use %s", s, strings.Join(Surfaces(), ", "))
}

// run is the state of one run.
type run struct {
	opts    Options
	client  *router.Client
	modules []router.Module
	report  Report
	uses    map[string]int // exercises by module
}

// Run tests the endpoint. It returns a report whenever the endpoint could be called. err is
// a *Failure if the endpoint does not conform, and a *capability.Error if the options are
// wrong.
func Run(ctx context.Context, opts Options) (Report, error) {
	opts.EndpointID = cmp.Or(opts.EndpointID, "endpoint")
	if opts.Transport == nil {
		transport := router.DefaultTransport()
		defer transport.CloseIdleConnections()
		opts.Transport = transport
	}
	opts.Required = slices.Clone(opts.Required)
	for i, s := range opts.Required {
		name, err := ParseSurface(s)
		if err != nil {
			return Report{}, err
		}
		opts.Required[i] = name
	}
	if opts.Required == nil {
		opts.Required = Surfaces()
	}
	var err error
	if opts.Dialect, err = ParseDialect(string(opts.Dialect)); err != nil {
		return Report{}, err
	}
	if opts.Profile != "" && opts.Profile != ProfileElizaOS {
		return Report{}, capability.Errorf(capability.CodeInvalidInput, "conformance", "%q is not a profile; leave it out, or use %s",
			opts.Profile, ProfileElizaOS)
	}
	if opts.Timeout <= 0 {
		opts.Timeout = router.DefaultTimeout
	}
	client, err := router.NewClient(router.ClientConfig{
		ID: opts.EndpointID, BaseURL: opts.BaseURL, Token: opts.Token, Transport: opts.Transport, Timeout: opts.Timeout,
	})
	if err != nil {
		return Report{}, capability.Errorf(capability.CodeInvalidInput, "conformance", "%w", err)
	}
	r := &run{opts: opts, client: client, uses: make(map[string]int)}
	r.report = Report{
		EndpointID: opts.EndpointID, Exercised: map[string]string{}, ModuleIDs: []string{}, ModuleExercises: []Exercise{},
		RPCCalls: []RPC{},
	}
	if r.discover(ctx) {
		r.dialect()
		r.surfaces(ctx)
		r.everyModule(ctx)
		if !opts.OnlyOriginal {
			before := len(r.report.Failures)
			r.beyond(ctx)
			if opts.Profile == ProfileElizaOS {
				r.report.Warnings = append(r.report.Warnings, r.report.Failures[before:]...)
				r.report.Failures = r.report.Failures[:before]
			}
		}
	}
	if len(r.report.Failures) > 0 {
		return r.report, &Failure{r.report.Failures}
	}
	return r.report, nil
}

func (r *run) fail(where, format string, args ...any) {
	r.report.Failures = append(r.report.Failures, Fault{where, fmt.Sprintf(format, args...)})
}

// discover reads availability and the manifests. It returns false if it cannot; then no
// further check is possible.
func (r *run) discover(ctx context.Context) bool {
	var err error
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	if r.report.Availability, err = r.client.Availability(ctx); err != nil {
		r.fail("availability", "%v", err)
		return false
	}
	if !r.report.Availability.Available || !r.report.Availability.Capabilities.Plugin {
		r.fail("availability", "available and capabilities.plugin must be true")
	}
	if r.modules, err = r.client.Modules(ctx); err != nil {
		r.fail("plugin.modules.list", "%v", err)
		return false
	}
	if len(r.modules) == 0 {
		r.fail("plugin.modules.list", "the endpoint lists no module")
		return false
	}
	for _, m := range r.modules {
		r.report.ModuleIDs = append(r.report.ModuleIDs, m.ID)
	}
	r.report.ModuleCount = len(r.modules)
	return true
}

// surfaces tests each required surface on the module that has been used least.
func (r *run) surfaces(ctx context.Context) {
	for _, d := range drivers() {
		if !slices.Contains(r.opts.Required, d.surface) {
			continue
		}
		var chosen *router.Module
		for i := range r.modules {
			m := &r.modules[i]
			if d.target(m) != "" && (chosen == nil || r.uses[m.ID] < r.uses[chosen.ID]) {
				chosen = m
			}
		}
		if chosen == nil {
			r.fail(d.surface, "no module offers this surface")
			continue
		}
		r.drive(ctx, d, chosen, true)
	}
}

// everyModule gives each module that was not used yet one call through the first
// surface it has.
func (r *run) everyModule(ctx context.Context) {
	for i := range r.modules {
		m := &r.modules[i]
		if r.uses[m.ID] > 0 {
			continue
		}
		driven := false
		for _, d := range drivers() {
			if d.target(m) != "" {
				r.drive(ctx, d, m, false)
				driven = true
				break
			}
		}
		if !driven {
			r.fail("module "+m.ID, "the module offers no surface that can be called")
		}
	}
}

func (r *run) drive(ctx context.Context, d driver, m *router.Module, summary bool) {
	target := m.ID + ":" + d.target(m)
	r.uses[m.ID]++
	r.report.ModuleExercises = append(r.report.ModuleExercises, Exercise{d.surface, m.ID, target})
	if summary {
		r.report.Exercised[d.surface] = target
	}
	d.exercise(ctx, &drive{run: r, surface: d.surface, module: m, target: target, summary: summary})
}

// drive is the test of one surface of one module.
type drive struct {
	*run
	surface, target string
	module          *router.Module
	summary         bool // its results go into the report
}

// call makes one RPC and records it. If it fails, call reports a fault of the method and
// returns false.
func (d *drive) call(ctx context.Context, method string, params map[string]any) (json.RawMessage, bool) {
	params["moduleId"] = d.module.ID
	d.report.RPCCalls = append(d.report.RPCCalls, RPC{method, d.surface, d.module.ID, d.target})
	raw, err := json.Marshal(params)
	if err != nil {
		d.fail(method, "%v", err)
		return nil, false
	}
	result, err := d.invoke(ctx, method, raw)
	if err != nil {
		d.fail(method, "%s: %v", d.target, err)
		return nil, false
	}
	return result, true
}

// invoke makes one call with the timeout of the options.
func (r *run) invoke(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	return r.client.Invoke(ctx, method, params)
}

func (r *run) asset(ctx context.Context, module, path string) (router.Asset, error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	return r.client.Asset(ctx, module, path)
}

// must reports a fault of the method unless ok.
func (d *drive) must(ok bool, method, format string, args ...any) {
	if !ok {
		d.fail(method, "%s: %s", d.target, fmt.Sprintf(format, args...))
	}
}
