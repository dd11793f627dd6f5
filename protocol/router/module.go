package router

import (
	"encoding/json"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Module is one manifest, with typed fields for the members that other packages use. A missing
// string is "". A missing number or boolean is nil if that differs in meaning from zero. Raw is
// the decoded form without unknown members, which is used for digests and storage.
type Module struct {
	ID                             string              `json:"id"`
	Name                           string              `json:"name"`
	CapabilityEndpointID           string              `json:"capabilityEndpointId"`
	Version                        string              `json:"version"`
	Description                    string              `json:"description"`
	Priority                       *float64            `json:"priority"`
	Contexts                       []string            `json:"contexts"`
	Config                         json.RawMessage     `json:"config"`
	Schema                         json.RawMessage     `json:"schema"`
	Actions                        []ModuleAction      `json:"actions"`
	Providers                      []ModuleProvider    `json:"providers"`
	Evaluators                     []ModuleEvaluator   `json:"evaluators"`
	ResponseHandlerEvaluators      []ResponseEvaluator `json:"responseHandlerEvaluators"`
	ResponseHandlerFieldEvaluators []FieldEvaluator    `json:"responseHandlerFieldEvaluators"`
	Events                         []ModuleEvent       `json:"events"`
	Models                         []ModuleModel       `json:"models"`
	Services                       []ModuleService     `json:"services"`
	ComponentTypes                 []ComponentType     `json:"componentTypes"`
	Widgets                        []Widget            `json:"widgets"`
	App                            *App                `json:"app"`
	AppBridge                      *Hooks              `json:"appBridge"`
	Lifecycle                      *Hooks              `json:"lifecycle"`
	Routes                         []Route             `json:"routes"`
	Views                          []View              `json:"views"`
	Provenance                     *Provenance         `json:"provenance"`
	Metadata                       json.RawMessage     `json:"metadata"`
	Raw                            json.RawMessage     `json:"-"`
}

// ModuleAction is an item of actions. Parameters is unchanged, even if it is null.
type ModuleAction struct {
	Name                  string          `json:"name"`
	Description           string          `json:"description"`
	DescriptionCompressed string          `json:"descriptionCompressed"`
	Similes               []string        `json:"similes"`
	Parameters            json.RawMessage `json:"parameters"`
}

// ActionParameter is an item of an action's parameters in the form of elizaOS, whose model fills them in.
type ActionParameter struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Required    bool            `json:"required"`
	Schema      json.RawMessage `json:"schema"` // JSON Schema
}

// ModuleProvider is an item of providers.
type ModuleProvider struct {
	Name                  string `json:"name"`
	Description           string `json:"description"`
	DescriptionCompressed string `json:"descriptionCompressed"`
	Dynamic               bool   `json:"dynamic"`
	Private               bool   `json:"private"`
}

// ModuleEvaluator is an item of evaluators.
type ModuleEvaluator struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	Prompt       string          `json:"prompt"`
	Schema       json.RawMessage `json:"schema"`
	Similes      []string        `json:"similes"`
	Providers    []string        `json:"providers"`
	Priority     *float64        `json:"priority"`
	ModelType    string          `json:"modelType"`
	HasPrepare   bool            `json:"hasPrepare"`
	HasProcessor bool            `json:"hasProcessor"`
}

// ResponseEvaluator is an item of responseHandlerEvaluators.
type ResponseEvaluator struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Priority    *float64 `json:"priority"`
}

// FieldEvaluator is an item of responseHandlerFieldEvaluators.
type FieldEvaluator struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Priority    *float64        `json:"priority"`
	HasParse    bool            `json:"hasParse"`
	HasHandle   bool            `json:"hasHandle"`
}

// ModuleEvent is an item of events.
type ModuleEvent struct {
	EventName string `json:"eventName"`
}

// ModuleModel is an item of models.
type ModuleModel struct {
	ModelType string   `json:"modelType"`
	Priority  *float64 `json:"priority"`
}

// ModuleService is an item of services.
type ModuleService struct {
	ServiceType           string          `json:"serviceType"`
	CapabilityDescription string          `json:"capabilityDescription"`
	Config                json.RawMessage `json:"config"`
	Methods               []string        `json:"methods"`
}

// ComponentType is an item of componentTypes. Its recursive schema is passed on unchanged.
type ComponentType struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
}

// Widget is an item of widgets.
type Widget struct {
	ID              string   `json:"id"`
	PluginID        string   `json:"pluginId"`
	Slot            string   `json:"slot"`
	Label           string   `json:"label"`
	Icon            string   `json:"icon"`
	Order           *float64 `json:"order"`
	DefaultEnabled  *bool    `json:"defaultEnabled"`
	NavGroup        string   `json:"navGroup"`
	DeveloperOnly   bool     `json:"developerOnly"`
	ComponentExport string   `json:"componentExport"`
	ViewKind        string   `json:"viewKind"`
}

// App is the member app, which describes a module as an application.
type App struct {
	DisplayName       string          `json:"displayName"`
	Category          string          `json:"category"`
	LaunchType        string          `json:"launchType"`
	RuntimePlugin     string          `json:"runtimePlugin"`
	BridgeExport      string          `json:"bridgeExport"`
	LaunchURL         *string         `json:"launchUrl"`
	Icon              *string         `json:"icon"`
	Capabilities      []string        `json:"capabilities"`
	MinPlayers        *float64        `json:"minPlayers"`
	MaxPlayers        *float64        `json:"maxPlayers"`
	Viewer            json.RawMessage `json:"viewer"`
	Session           json.RawMessage `json:"session"`
	UIExtension       json.RawMessage `json:"uiExtension"`
	DeveloperOnly     bool            `json:"developerOnly"`
	VisibleInAppStore *bool           `json:"visibleInAppStore"`
	NavTabs           []NavTab        `json:"navTabs"`
}

// NavTab is an item of app.navTabs.
type NavTab struct {
	ID              string   `json:"id"`
	Label           string   `json:"label"`
	Path            string   `json:"path"`
	Icon            string   `json:"icon"`
	Order           *float64 `json:"order"`
	DeveloperOnly   bool     `json:"developerOnly"`
	Group           string   `json:"group"`
	ComponentExport string   `json:"componentExport"`
}

// Hooks is the form of appBridge and lifecycle: a non-empty list.
type Hooks struct {
	Hooks []string `json:"hooks"`
}

// Route is an item of routes. PublicReason and PublicWrite belong to the newest dialect, which
// requires the reason for public routes.
type Route struct {
	Method       string `json:"method"`
	Path         string `json:"path"`
	Name         string `json:"name"`
	Public       bool   `json:"public"`
	Description  string `json:"description"`
	PublicReason string `json:"publicReason"`
	PublicWrite  string `json:"publicWrite"`
}

// View is an item of views.
type View struct {
	ID          string `json:"id"`
	Label       string `json:"label"`
	ViewType    string `json:"viewType"`
	BundlePath  string `json:"bundlePath"`
	BundleURL   string `json:"bundleUrl"`
	FramePath   string `json:"framePath"`
	FrameURL    string `json:"frameUrl"`
	ContentType string `json:"contentType"`
	Integrity   string `json:"integrity"`
	ViewKind    string `json:"viewKind"`
}

// Provenance is the signed origin of a module; DigestSHA256 is lower case.
type Provenance struct {
	Issuer             string `json:"issuer"`
	Subject            string `json:"subject"`
	DigestSHA256       string `json:"digestSha256"`
	SignatureAlgorithm string `json:"signatureAlgorithm"`
	Signature          string `json:"signature"`
}

// DecodeModules decodes the result of plugin.modules.list with limits, whose zero members mean the
// defaults. In addition to the checks of DecodeResult, two modules with one id are an error.
func DecodeModules(raw json.RawMessage, limits Limits) ([]Module, error) {
	decoded, err := decodeResult(methodModulesList, raw, decoder{limits: limits})
	if err != nil {
		return nil, err
	}
	d := decoder{}
	var modules []Module
	seen := make(map[string]bool)
	sc := newScanner(paramRaw(decoded, "modules"), maxNesting)
	err = sc.array(func(_ int, value []byte) error {
		m, err := decodeModule(value)
		if err != nil {
			return d.fail(methodModulesList+".modules", "%v", err)
		}
		if seen[m.ID] {
			return d.fail(methodModulesList, "two modules have the id %q", m.ID)
		}
		seen[m.ID] = true
		modules = append(modules, m)
		return nil
	})
	if err != nil {
		return nil, asAnswer(err, methodModulesList)
	}
	return modules, nil
}

// ParseModule decodes one stored manifest.
func ParseModule(raw json.RawMessage) (Module, error) {
	d := decoder{limits: DefaultLimits()}
	const at = methodModulesList + ".modules"
	out, err := d.root(moduleShape, raw, at)
	if err != nil {
		return Module{}, asAnswer(err, at)
	}
	if out == nil {
		out = raw
	}
	m, err := decodeModule(out)
	if err != nil {
		return Module{}, asAnswer(&Error{Code: CodeDecodeFailed, Method: at, Message: at + ": " + err.Error()}, at)
	}
	return m, nil
}

func decodeModule(value []byte) (Module, error) {
	var m Module
	if err := jsonx.Unmarshal(value, &m); err != nil {
		return Module{}, err
	}
	// A copy, because the buffer of the response may be large.
	m.Raw = append(json.RawMessage(nil), value...)
	return m, nil
}

// Availability is the response of GET /v1/capabilities.
type Availability struct {
	Environment  string       `json:"environment"`
	Available    bool         `json:"available"`
	Capabilities Capabilities `json:"capabilities"`
	Reason       string       `json:"reason,omitempty"`
}

// Capabilities lists which families an endpoint serves.
type Capabilities struct {
	FS     bool `json:"fs"`
	PTY    bool `json:"pty"`
	Git    bool `json:"git"`
	Model  bool `json:"model"`
	Plugin bool `json:"plugin"`
}

// Has returns the flag of one family.
func (c Capabilities) Has(f Family) bool {
	switch f {
	case FamilyFS:
		return c.FS
	case FamilyPTY:
		return c.PTY
	case FamilyGit:
		return c.Git
	case FamilyModel:
		return c.Model
	case FamilyPlugin:
		return c.Plugin
	}
	return false
}

// DecodeAvailability decodes an availability object. Every flag must be present.
func DecodeAvailability(raw json.RawMessage) (Availability, error) {
	const at = "availability"
	flags := shapeOf(needs(boolean, "fs", "pty", "git", "model", "plugin")...)
	s := shapeOf(need("environment", text).among("desktop", "node", "server", "browser", "mobile", "unknown"),
		need("available", boolean), need("capabilities", record).of(flags), opt("reason", text))
	d := decoder{}
	if firstByte(raw) == 0 {
		return Availability{}, asAnswer(d.fail(at, "the answer is empty"), at)
	}
	out, err := d.root(s, raw, at)
	if err != nil {
		return Availability{}, asAnswer(err, at)
	}
	if out == nil {
		out = raw
	}
	var a Availability
	if err := jsonx.Unmarshal(out, &a); err != nil {
		return Availability{}, asAnswer(d.fail(at, "%v", err), at)
	}
	return a, nil
}

// ResponsePatch is the patch of a response-handler evaluator, and of the effect of a field evaluator.
type ResponsePatch struct {
	ProcessMessage       string   `json:"processMessage"`
	RequiresTool         *bool    `json:"requiresTool"`
	Simple               *bool    `json:"simple"` // the opposite of requiresTool
	SetContexts          []string `json:"setContexts"`
	AddContexts          []string `json:"addContexts"`
	AddCandidateActions  []string `json:"addCandidateActions"`
	AddParentActionHints []string `json:"addParentActionHints"`
	AddContextSlices     []string `json:"addContextSlices"`
	ClearReply           bool     `json:"clearReply"`
	Reply                *string  `json:"reply"`
	Debug                []string `json:"debug"`
}
