package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/router"
)

// Dialect is a generation of routers. Generations differ in the manifests that they accept.
type Dialect string

// The dialects. What one of them refuses is a fault in that dialect and a warning in the
// union, which junctor's own router accepts.
const (
	DialectUnion Dialect = "union"
	DialectS     Dialect = "s" // the original TypeScript router
	DialectT     Dialect = "t" // the first sources
	DialectN     Dialect = "n" // the newest
)

// ParseDialect parses a dialect; "" is the union.
func ParseDialect(s string) (Dialect, error) {
	d := Dialect(strings.ToLower(strings.TrimSpace(s)))
	if d == "" {
		return DialectUnion, nil
	}
	if !slices.Contains([]Dialect{DialectUnion, DialectS, DialectT, DialectN}, d) {
		return "", capability.Errorf(capability.CodeInvalidInput, "conformance", "%q is not a dialect; use s, t, n or union", s)
	}
	return d, nil
}

// finding is a deviation of a manifest in some dialects: refused, or only interpreted
// differently than intended.
type finding struct {
	dialects []Dialect
	refused  bool
	at, says string
}

// dialect checks all manifests and sorts the findings into faults and warnings.
func (r *run) dialect() {
	for i := range r.modules {
		for _, f := range findings(&r.modules[i]) {
			where := "dialect " + string(f.dialects[0])
			message := fmt.Sprintf("module %s: %s %s", r.modules[i].ID, f.at, f.says)
			switch {
			case r.opts.Dialect != DialectUnion && !slices.Contains(f.dialects, r.opts.Dialect):
			case r.opts.Dialect != DialectUnion && f.refused:
				r.fail("dialect "+string(r.opts.Dialect), "%s", message)
			default:
				r.report.Warnings = append(r.report.Warnings, Fault{where, message})
			}
		}
	}
}

func findings(m *router.Module) []finding {
	var out []finding
	refused := func(d Dialect, at, format string, args ...any) {
		out = append(out, finding{[]Dialect{d}, true, at, fmt.Sprintf(format, args...)})
	}
	odd := func(at, says string, d ...Dialect) { out = append(out, finding{d, false, at, says}) }

	for i, x := range m.Routes {
		at := fmt.Sprintf("routes[%d].", i)
		if !x.Public {
			continue
		}
		if strings.TrimSpace(x.PublicReason) == "" {
			refused(DialectN, at+"publicReason", "is missing: a public route must say why")
		}
		write := member(rawItem(m.Raw, "routes", i), "publicWrite")
		switch {
		case write != nil && write[0] != '"':
			refused(DialectN, at+"publicWrite", "must be a text that says why")
		case write == nil && x.Method != "GET":
			refused(DialectN, at+"publicWrite", "is missing: a public route that may change something must say why")
		}
	}
	for i, w := range m.Widgets {
		at := fmt.Sprintf("widgets[%d].", i)
		if !slices.Contains([]string{"chat-sidebar", "character", "nav-page"}, w.Slot) {
			refused(DialectN, at+"slot", "is %q; this dialect has chat-sidebar, character and nav-page", w.Slot)
		}
		hidden(odd, at, w.DeveloperOnly, w.ViewKind)
	}
	for i, v := range m.Views {
		at := fmt.Sprintf("views[%d].", i)
		if v.ViewType == "xr" {
			refused(DialectS, at+"viewType", "is \"xr\"; this dialect has gui and tui")
		}
		if v.BundlePath == "" && v.BundleURL == "" && (v.FramePath != "" || v.FrameURL != "") {
			odd(at+"framePath and frameUrl", "are ignored: nothing is left to show", DialectS, DialectT)
		}
	}
	if a := m.App; a != nil {
		kind := text(member(member(m.Raw, "app"), "viewKind"))
		hidden(odd, "app.", a.DeveloperOnly, kind)
		for i, tab := range a.NavTabs {
			hidden(odd, fmt.Sprintf("app.navTabs[%d].", i), tab.DeveloperOnly, text(member(rawItem(member(m.Raw, "app"), "navTabs", i), "viewKind")))
		}
	}
	if m.Provenance != nil {
		odd("provenance", "is ignored: this dialect knows no signatures", DialectS)
	}
	return out
}

// hidden is the rule of both spellings for what only developers see.
func hidden(odd func(at, says string, d ...Dialect), at string, developerOnly bool, viewKind string) {
	if developerOnly && viewKind == "" {
		odd(at+"developerOnly", "is ignored: viewKind took its place", DialectN)
	}
	if viewKind == "developer" && !developerOnly {
		odd(at+"viewKind", "is ignored without developerOnly: everybody sees it", DialectS, DialectT)
	}
}

// rawItem is item i of a list of an object, as it was sent.
func rawItem(object json.RawMessage, list string, i int) json.RawMessage {
	var items []json.RawMessage
	if json.Unmarshal(member(object, list), &items) != nil || i >= len(items) {
		return nil
	}
	return items[i]
}

func text(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s) // absent is empty
	return s
}
