// Package reference is an endpoint that offers every surface of the capability-router
// protocol with real behaviour, for conformance runs, demos and examples. The answers of its
// two modules, device-tools and field-notes, depend on previous calls, which reveals clients
// that mix up calls, lose parameters or cache too much. State is in memory for the life of
// the Endpoint. The package is also the shortest complete example of a router.Backend.
package reference

import (
	"context"
	_ "embed"
	"encoding/json"
	"os"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/router"
)

//go:embed manifest/device-tools.json
var deviceManifest []byte

//go:embed manifest/field-notes.json
var notesManifest []byte

//go:embed bundle/field-notes.js
var notesBundle []byte

// BundlePath is the asset path of the one view bundle.
const BundlePath = "/assets/field-notes.js"

// Config configures an endpoint.
type Config struct {
	// Root is the directory of the fs family; empty means the family is not offered.
	Root string
	// BundleFile replaces the embedded view bundle; it is read once.
	BundleFile string
}

// Endpoint is a router.Backend, safe for concurrent use.
type Endpoint struct {
	handlers map[handlerKey]handler
	list     json.RawMessage
	ids      []string
	files    *files // nil without a root
	now      func() time.Time
}

var _ router.Backend = (*Endpoint)(nil)

// handlerKey addresses one item; module and target are empty where a method has none.
type handlerKey struct{ method, module, target string }

type handler func(ctx context.Context, params json.RawMessage) (any, error)

// New builds an endpoint. Close it to release the root directory.
func New(cfg Config) (*Endpoint, error) {
	bundle := notesBundle
	if cfg.BundleFile != "" {
		var err error
		if bundle, err = os.ReadFile(cfg.BundleFile); err != nil {
			return nil, capability.Wrap(capability.CodeInvalidInput, "reference", "the bundle file cannot be read", err)
		}
	}
	e := &Endpoint{handlers: make(map[handlerKey]handler), now: time.Now}
	dev, notes := newDevice(e.clock), newNotes(e.clock, bundle)
	if err := e.buildList(router.Integrity(bundle)); err != nil {
		return nil, err
	}
	dev.register(e)
	notes.register(e)
	on(e, "plugin.modules.list", "", "", func(context.Context, struct{}) (any, error) { return e.list, nil })
	on(e, "model.status", "", "", func(context.Context, struct{}) (any, error) {
		return map[string]any{"ok": true, "provider": "reference", "models": []string{"TEXT_SMALL", "TEXT_EMBEDDING"}}, nil
	})
	if cfg.Root != "" {
		var err error
		if e.files, err = openFiles(cfg.Root); err != nil {
			return nil, err
		}
		e.files.register(e)
	}
	return e, nil
}

func (e *Endpoint) clock() time.Time { return e.now() }

// Close releases the root directory; calls under way on it fail.
func (e *Endpoint) Close() error {
	if e.files == nil {
		return nil
	}
	return e.files.root.Close()
}

// ModuleIDs returns the ids of the modules in manifest order.
func (e *Endpoint) ModuleIDs() []string { return append([]string(nil), e.ids...) }

// buildList completes the manifests with what is known only now and renders the
// answer of plugin.modules.list once.
func (e *Endpoint) buildList(integrity string) error {
	var modules []map[string]any
	for _, text := range [][]byte{deviceManifest, notesManifest} {
		var m map[string]any
		if err := jsonx.Unmarshal(text, &m); err != nil {
			return capability.Wrap(capability.CodeInternal, "reference", "an embedded manifest is malformed", err)
		}
		if views, ok := m["views"].([]any); ok {
			for _, v := range views {
				v.(map[string]any)["integrity"] = integrity
			}
		}
		modules = append(modules, m)
		e.ids = append(e.ids, m["id"].(string))
	}
	list, err := jsonx.Marshal(map[string]any{"modules": modules})
	if err != nil {
		return capability.Wrap(capability.CodeInternal, "reference", "the manifests cannot be encoded", err)
	}
	e.list = list
	return nil
}

// on registers one handler; its parameters are decoded into P.
func on[P any](e *Endpoint, method, module, target string, fn func(context.Context, P) (any, error)) {
	e.handlers[handlerKey{method, module, target}] = func(ctx context.Context, params json.RawMessage) (any, error) {
		var p P
		if err := jsonx.Unmarshal(params, &p); err != nil {
			return nil, capability.Errorf(capability.CodeInvalidInput, "", "the parameters of %s: %v", method, err)
		}
		return fn(ctx, p)
	}
}

// Availability reports the families this endpoint serves.
func (e *Endpoint) Availability(context.Context) (router.Availability, error) {
	return router.Availability{
		Environment: "server", Available: true,
		Capabilities: router.Capabilities{FS: e.files != nil, Model: true, Plugin: true},
	}, nil
}

// Invoke carries out one call. Unknown modules and items are
// unknown_capability, methods of a family that is not offered are unavailable.
func (e *Endpoint) Invoke(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, capability.AsError(err)
	}
	m, ok := router.Lookup(method)
	if !ok {
		return nil, capability.UnknownCapability(capability.Target{Action: capability.Action(method)})
	}
	h, err := e.find(m, params)
	if err != nil {
		return nil, err
	}
	value, err := h(ctx, params)
	if err != nil {
		return nil, err
	}
	if raw, ok := value.(json.RawMessage); ok {
		return raw, nil
	}
	result, err := jsonx.Marshal(value)
	if err != nil {
		return nil, capability.Wrap(capability.CodeInternal, method, "the result cannot be encoded", err)
	}
	return result, nil
}

func (e *Endpoint) find(m router.Method, params json.RawMessage) (handler, error) {
	if h, ok := e.handlers[handlerKey{m.Name, "", ""}]; ok {
		return h, nil
	}
	if m.Family != router.FamilyPlugin {
		return nil, capability.Errorf(capability.CodeUnavailable, "", "this endpoint does not offer %s", m.Name).
			With("family_not_offered", "ask GET "+router.PathAvailability+" for the families it has")
	}
	var address map[string]json.RawMessage
	if err := jsonx.Unmarshal(params, &address); err != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "the parameters of %s: %v", m.Name, err)
	}
	text := func(name string) (s string) {
		// The codec has seen to the type; an absent one names nothing.
		_ = jsonx.Unmarshal(address[name], &s)
		return s
	}
	key := handlerKey{method: m.Name, module: text("moduleId"), target: text(m.Target)}
	if h, ok := e.handlers[key]; ok {
		return h, nil
	}
	// Routes and assets find their item by path themselves.
	key.target = ""
	if h, ok := e.handlers[key]; ok {
		return h, nil
	}
	return nil, capability.UnknownCapability(capability.Member{Module: text("moduleId"), Kind: m.Surface, Name: text(m.Target)})
}

// Shapes of results that several surfaces share.
type (
	object = map[string]any

	reply struct {
		Text   string `json:"text,omitempty"`
		Values object `json:"values,omitempty"`
		Data   object `json:"data,omitempty"`
	}
	outcome struct {
		Result any `json:"result"`
	}
)

func invalid(format string, args ...any) error {
	return capability.Errorf(capability.CodeInvalidInput, "", format, args...)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
