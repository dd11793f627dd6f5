package declaration

import (
	"path"
	"strings"
	"unicode"

	"github.com/junctor-run/junctor/internal/base/text"
)

func (k *checker) surfaces(c *Contribution) {
	k.most("routes", len(c.Routes), maxRoutes)
	for i := range c.Routes {
		r := &c.Routes[i]
		k.one("route method", strings.ToUpper(r.Method), "GET HEAD POST PUT PATCH DELETE OPTIONS")
		k.one("route match", r.Match, "exact prefix")
		k.one("route auth", r.Auth, "gateway plugin public")
		k.one("route lifecycle", r.Lifecycle, "static dynamic")
		tidy := path.Clean(r.Path)
		if r.Method == "" || !strings.HasPrefix(r.Path, "/") || len(r.Path) > 1024 || tidy != r.Path && tidy+"/" != r.Path ||
			strings.ContainsFunc(r.Path, unicode.IsControl) {
			k.bad("the route %s %q needs a method and a plain path that begins with /", Clean(r.Method, maxValue), Clean(r.Path, maxValue))
		}
	}
	if m := c.Command; m != nil {
		k.text("command", m.Name, m.Runner, m.ActionID)
		k.text("surface of the command", m.Surfaces...)
		k.most("native names", len(m.NativeNames), maxList)
		for provider, name := range m.NativeNames {
			k.text("native name", provider, name)
		}
	}
	if a := c.Auth; a != nil {
		if strings.TrimSpace(a.ProviderID) == "" {
			k.bad("a provider integration needs a provider id")
		}
		k.text("auth", append([]string{a.ProviderID}, a.Aliases...)...)
		k.most("auth methods", len(a.Methods), maxList)
		for _, m := range a.Methods {
			if strings.TrimSpace(m.ID) == "" {
				k.bad("an auth method needs an id")
			}
			k.text("auth method", m.ID, m.Label)
			k.one("kind of auth method "+Clean(m.ID, maxValue), m.Kind, "oauth api-key token device custom")
		}
	}
	if s := c.CLI; s != nil {
		k.one("cli.mode", s.Mode, "standalone subcommand flow-entry")
	}
	if s := c.Setup; s != nil {
		k.one("setup.target", s.Target, "cli status setup-ui")
		k.list("setup.modes", s.Modes, "interactive non-interactive")
		k.most("setup.phases", len(s.Phases), maxList)
	}
}

// Clean removes invisible and misleading characters (control characters except tab and newline,
// zero-width and bidirectional marks, bytes that are not UTF-8) and cuts to most characters.
func Clean(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r) && r != '\n' && r != '\t', r == unicode.ReplacementChar,
			unicode.Is(unicode.Bidi_Control, r), r >= 0x200B && r <= 0x200C, r >= 0x2060 && r <= 0x2065, r == 0xFEFF:
			return -1
		}
		return r
	}, s)
	return text.CutRunes(s, most)
}
