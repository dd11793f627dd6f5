package host

import (
	"context"
	"encoding/json"
	"net/url"
)

// ViewKind is the audience of a view, widget, app or tab. The zero value is KindRelease.
// For older routers it is reduced to whether the item is for developers only.
type ViewKind string

// The kinds of the protocol.
const (
	KindRelease   ViewKind = "release"
	KindSystem    ViewKind = "system"
	KindDeveloper ViewKind = "developer"
	KindPreview   ViewKind = "preview"
)

// The widget slots that routers of every generation support.
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
	// Viewer, Session and UIExtension are objects of the router protocol, forwarded unchanged.
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
	// Bundle is the ES module; its integrity is computed. It is served at Path, by default
	// /assets/<view id>.js, with ContentType, by default text/javascript.
	Bundle      []byte `json:"-"`
	Path        string `json:"bundlePath,omitzero"`
	ContentType string `json:"contentType,omitzero"`
	// URL is the address of a bundle that another server serves. Then Bundle is nil.
	URL  string   `json:"bundleUrl,omitzero"`
	Kind ViewKind `json:"viewKind"`
}

// Asset is a further file that a view loads, at the URL of the view's bundle with Path in
// place of the bundle's path.
type Asset struct {
	Path, ContentType string
	Body              []byte
}

// Route is an HTTP route below the agent's address. Path may have parameters: ":name"
// matches one segment, a last ":name*" all that follow. If several routes match, the first
// declared one is called.
type Route struct {
	Method      string `json:"method"` // GET, POST, PUT, PATCH or DELETE
	Path        string `json:"path"`
	Name        string `json:"name,omitzero"`
	Description string `json:"description,omitzero"`
	// Public, if not nil, allows every caller, not only the agent's users.
	Public *Public                                                          `json:"-"`
	Handle func(ctx context.Context, r RouteRequest) (RouteResponse, error) `json:"-"`
}

// Public holds the reasons why a route may be called without credentials. Reason is
// required; Write, why it may change something, for every method except GET.
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

// RouteResponse is the response. Status 0 means 200, a nil Body an empty one. A bad request
// is reported by Status; an error means that the route itself failed.
type RouteResponse struct {
	Status  int
	Headers map[string]string
	Body    any
}
