package host

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/protocol/router"
)

// check reports errors that the decoder of manifests cannot detect: missing closures,
// duplicate names, and values that only some generations of routers accept.
func (m *Module) check() error {
	for _, step := range []func() error{m.checkHandlers, m.checkNames, m.checkRoutes, m.checkBrowser} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (m *Module) checkHandlers() error {
	missing := func(list string, i int, name, closure string) error {
		return invalidModule(m.ID, fmt.Sprintf("%s[%d].%s", list, i, closure), "is nil: nothing would answer for %q", name)
	}
	for i, a := range m.Actions {
		if a.Handle == nil {
			return missing("Actions", i, a.Name, "Handle")
		}
	}
	for i, p := range m.Providers {
		if p.Get == nil {
			return missing("Providers", i, p.Name, "Get")
		}
	}
	for i, e := range m.Events {
		if e.Handle == nil {
			return missing("Events", i, e.Name, "Handle")
		}
	}
	for i, x := range m.Models {
		if x.Invoke == nil {
			return missing("Models", i, x.Type, "Invoke")
		}
	}
	for i, s := range m.Services {
		for j, method := range s.Methods {
			if method.Call == nil {
				return missing("Services", i, s.Type+"."+method.Name, fmt.Sprintf("Methods[%d].Call", j))
			}
		}
	}
	for i, r := range m.Routes {
		if r.Handle == nil {
			return missing("Routes", i, r.Method+" "+r.Path, "Handle")
		}
	}
	return nil
}

// checkNames refuses two items of one kind with the same name, because a call could not
// distinguish them.
func (m *Module) checkNames() error {
	for _, list := range []struct {
		name  string
		names []string
	}{
		{"Actions", each(m.Actions, func(x Action) string { return x.Name })},
		{"Providers", each(m.Providers, func(x Provider) string { return x.Name })},
		{"Evaluators", each(m.Evaluators, func(x Evaluator) string { return x.Name })},
		{"ResponseEvaluators", each(m.ResponseEvaluators, func(x ResponseEvaluator) string { return x.Name })},
		{"FieldEvaluators", each(m.FieldEvaluators, func(x FieldEvaluator) string { return x.Name })},
		{"Events", each(m.Events, func(x Event) string { return x.Name })},
		{"Models", each(m.Models, func(x Model) string { return x.Type })},
		{"Services", each(m.Services, func(x Service) string { return x.Type })},
		{"ComponentTypes", each(m.ComponentTypes, func(x ComponentType) string { return x.Name })},
		{"Widgets", each(m.Widgets, func(x Widget) string { return x.ID })},
		{"Views", each(m.Views, func(x View) string { return x.ID })},
		{"Routes", each(m.Routes, func(x Route) string { return x.Method + " " + x.Path })},
	} {
		for i, name := range list.names {
			if slices.Contains(list.names[:i], name) {
				return invalidModule(m.ID, fmt.Sprintf("%s[%d]", list.name, i), "repeats %q", name)
			}
		}
	}
	return nil
}

func (m *Module) checkRoutes() error {
	for i, r := range m.Routes {
		field := fmt.Sprintf("Routes[%d].", i)
		switch {
		case r.Method == "STATIC":
			return invalidModule(m.ID, field+"Method", "is STATIC, which routers refuse to register: use GET, or Assets")
		case r.Public == nil:
		case strings.TrimSpace(r.Public.Reason) == "":
			return invalidModule(m.ID, field+"Public.Reason", "is blank: the newest routers refuse a public route that does not say why")
		case r.Method != "GET" && strings.TrimSpace(r.Public.Write) == "":
			return invalidModule(m.ID, field+"Public.Write", "is blank: a public route that may change something must say why")
		}
	}
	return nil
}

func (m *Module) checkBrowser() error {
	slots := []string{SlotChatSidebar, SlotCharacter, SlotNavPage}
	for i, w := range m.Widgets {
		if !slices.Contains(slots, w.Slot) {
			return invalidModule(m.ID, fmt.Sprintf("Widgets[%d].Slot", i), "is %q; the slots every router knows are %s", w.Slot,
				strings.Join(slots, ", "))
		}
	}
	for i, v := range m.Views {
		field := fmt.Sprintf("Views[%d].", i)
		switch {
		case (v.URL == "") == (len(v.Bundle) == 0):
			return invalidModule(m.ID, field+"Bundle", "or URL must be set, and not both")
		case v.Type != "" && v.Type != "gui" && v.Type != "tui":
			return invalidModule(m.ID, field+"Type", "is %q; the types every router knows are gui and tui", v.Type)
		case v.URL == "" && !strings.HasSuffix(v.Path, ".js") && !strings.HasSuffix(v.Path, ".mjs"):
			return invalidModule(m.ID, field+"Path", "is %q; routers import bundles that end in .js or .mjs", v.Path)
		}
	}
	return nil
}

// files encodes the results of plugin.asset.get for the module's assets, by path.
func (m *Module) files() (map[string]json.RawMessage, error) {
	out := make(map[string]json.RawMessage)
	add := func(field, path, contentType string, body []byte) error {
		clean, err := router.CleanAssetPath(path)
		switch {
		case err != nil:
			return invalidModule(m.ID, field+".Path", "%v", err)
		case strings.TrimSpace(contentType) == "" || strings.ContainsAny(contentType, "\r\n\x00"):
			return invalidModule(m.ID, field+".ContentType", "must be one line of text")
		case out[clean] != nil:
			return invalidModule(m.ID, field+".Path", "repeats %q", clean)
		}
		out[clean], err = router.EncodeAsset(router.Asset{Path: clean, ContentType: contentType, Body: body, Integrity: router.Integrity(body)})
		return err
	}
	for i, v := range m.Views {
		if v.URL != "" {
			continue
		}
		if err := add(fmt.Sprintf("Views[%d]", i), v.Path, v.ContentType, v.Bundle); err != nil {
			return nil, err
		}
	}
	for i, a := range m.Assets {
		if err := add(fmt.Sprintf("Assets[%d]", i), a.Path, a.ContentType, a.Body); err != nil {
			return nil, err
		}
	}
	return out, nil
}
