package mcpwire

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// The names of MCP Apps (revision 2026-01-26): the extension, and the media type of a page.
const (
	ExtensionApps = "io.modelcontextprotocol/ui"
	AppType       = "text/html;profile=mcp-app"
)

// ClientApps is the member of a client's capabilities, in its member extensions, that asks a server
// for apps.
const ClientApps = `{"` + ExtensionApps + `":{"mimeTypes":["` + AppType + `"]}}`

// App is what a tool's definition declares of a page that shows its results.
type App struct {
	Resource string `json:"resource,omitempty"` // URI of the page, with the scheme ui; "": none
	Model    bool   `json:"model"`              // models may call the tool
	Page     bool   `json:"page"`               // pages of its server may call the tool
}

// AppPages is the result of resources/read for a page.
type AppPages struct {
	Contents []AppPage `json:"contents"`
}

// AppPage is one page. Text or Blob holds the document.
type AppPage struct {
	MimeType string `json:"mimeType"`
	Text     string `json:"text"`
	Blob     []byte `json:"blob"`
	Meta     struct {
		UI struct {
			CSP struct {
				Connect  []string `json:"connectDomains"`  // for fetch and WebSocket
				Resource []string `json:"resourceDomains"` // for scripts, styles, images, media and fonts
			} `json:"csp"`
		} `json:"ui"`
	} `json:"_meta"`
}

// AppOf reads _meta.ui of a tool's definition. Without it, models and pages may call the tool.
func AppOf(definition json.RawMessage) App {
	out := App{Model: true, Page: true}
	if !bytes.Contains(definition, []byte(`"ui`)) {
		return out
	}
	meta := At(definition, []string{"_meta"})
	uri, _ := jsonx.Text(At(meta, []string{"ui", "resourceUri"}))
	if uri == "" {
		uri, _ = jsonx.Text(At(meta, []string{"ui/resourceUri"})) // before the first revision
	}
	if strings.HasPrefix(uri, "ui://") {
		out.Resource = uri
	}
	var visibility []string
	if raw := At(meta, []string{"ui", "visibility"}); raw != nil && json.Unmarshal(raw, &visibility) == nil {
		out.Model, out.Page = false, false
		for _, who := range visibility {
			out.Model = out.Model || who == "model"
			out.Page = out.Page || who == "app"
		}
	}
	return out
}
