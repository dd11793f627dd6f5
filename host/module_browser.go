package host

import (
	"context"
	"encoding/json"
	"net/url"
)

// ViewKind says whom a view, widget, app or tab is for. The zero value is
// KindRelease. Older routers learn from it whether it is for developers only.
type ViewKind string

// The kinds of the protocol.
const (
	KindRelease   ViewKind = "release"
	KindSystem    ViewKind = "system"
	KindDeveloper ViewKind = "developer"
	KindPreview   ViewKind = "preview"
)

// The widget slots that routers of every generation know.
const (
	SlotChatSidebar = "chat-sidebar"
	SlotCharacter   = "character"
	SlotNavPage     = "nav-page"
)

// Widget is a part of a view that the agent's pages show.
type Widget struct {
	ID              string   `json:"id"`
	PluginID        string   `json:"pluginId,omitzero"`
	Slot            string   `json:"slot"` // one of the Slot constants
	Label           string   `json:"label"`
	Icon            string   `json:"icon,omitzero"`
	Order           *float64 `json:"order,omitzero"`
	DefaultEnabled  *bool    `json:"defaultEnabled,omitzero"`
	NavGroup        string   `json:"navGroup,omitzero"`
	ComponentExport string   `json:"componentExport,omitzero"`
	Kind            ViewKind `json:"-"`
}

// App is how the module presents itself as an application.
type App struct {
	DisplayName   string   `json:"displayName,omitzero"`
	Category      string   `json:"category,omitzero"`
	LaunchType    string   `json:"launchType,omitzero"`
	LaunchURL     string   `json:"launchUrl,omitzero"` // absolute, http or https
	Icon          string   `json:"icon,omitzero"`
	RuntimePlugin string   `json:"runtimePlugin,omitzero"`
	BridgeExport  string   `json:"bridgeExport,omitzero"`
	Capabilities  []string `json:"capabilities,omitzero"`
	MinPlayers    *float64 `json:"minPlayers,omitzero"`
	MaxPlayers    *float64 `json:"maxPlayers,omitzero"`
	// Viewer, Session and UIExtension are objects of the router wire, passed on as they are.
	Viewer            json.RawMessage `json:"viewer,omitzero"`
	Session           json.RawMessage `json:"session,omitzero"`
	UIExtension       json.RawMessage `json:"uiExtension,omitzero"`
	VisibleInAppStore *bool           `json:"visibleInAppStore,omitzero"`
	NavTabs           []NavTab        `json:"-"`
	Kind              ViewKind        `json:"-"`
}

// NavTab is a page of the app in the agent's navigation.
type NavTab struct {
	ID              string   `json:"id"`
	Label           string   `json:"label"`
	Path            string   `json:"path"`
	Icon            string   `json:"icon,omitzero"`
	Order           *float64 `json:"order,omitzero"`
	Group           string   `json:"group,omitzero"`
	ComponentExport string   `json:"componentExport,omitzero"`
	Kind            ViewKind `json:"-"`
}

// View is a browser view: an ES module that the agent's page imports.
type View struct {
	ID    string `json:"id"`
	Label string `json:"label"`
	Type  string `json:"viewType,omitzero"` // gui or tui; "" is gui
	// Bundle is the ES module; its integrity is worked out. It is served at Path,
	// "" is /assets/<view id>.js, as ContentType, "" is text/javascript.
	Bundle      []byte `json:"-"`
	Path        string `json:"bundlePath,omitzero"`
	ContentType string `json:"contentType,omitzero"`
	// URL is where the bundle lies when it is not served from here; Bundle is nil
	// then.
	URL  string   `json:"bundleUrl,omitzero"`
	Kind ViewKind `json:"viewKind"`
}

// Asset is a further file that a view loads, at the URL of its bundle with Path
// instead of the bundle's.
type Asset struct {
	Path, ContentType string
	Body              []byte
}

// Route is an HTTP route under the agent's address. Path may hold parameters:
// ":name" stands for one segment, a last ":name*" for all that follow. Of several
// routes that match, the first declared answers.
type Route struct {
	Method      string `json:"method"` // GET, POST, PUT, PATCH or DELETE
	Path        string `json:"path"`
	Name        string `json:"name,omitzero"`
	Description string `json:"description,omitzero"`
	// Public lets any caller in, not only the agent's users; nil is not public.
	Public *Public                                                          `json:"-"`
	Handle func(ctx context.Context, r RouteRequest) (RouteResponse, error) `json:"-"`
}

// Public states why a route may be reached without credentials: Reason always, and
// Write why it may change something, for every method but GET.
type Public struct {
	Reason, Write string
}

// RouteRequest is one request of a route. Params are the percent-decoded values
// of the path's parameters, by name. Body is any JSON, nil if absent.
type RouteRequest struct {
	Method, Path string
	Params       map[string]string
	Query        url.Values
	Headers      map[string]string
	Body         json.RawMessage
}

// RouteResponse is the answer: Status 0 is 200, a nil Body is empty. What is wrong
// with a request is a status; an error means that the route itself failed.
type RouteResponse struct {
	Status  int
	Headers map[string]string
	Body    any
}
