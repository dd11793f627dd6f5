package skill

import (
	"cmp"
	"slices"
	"strings"

	wire "github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
)

// LanguageOf is the one name of a language.
func LanguageOf(name string) string {
	switch name = strings.ToLower(strings.TrimSpace(name)); name {
	case "js":
		return "javascript"
	case "wasi":
		return "wasm"
	case "py":
		return "python"
	}
	return name
}

// Languages states what code is run here.
func (d *Binder) Languages() map[string]wire.Language {
	out := make(map[string]wire.Language)
	if d.Runtime == nil {
		for _, name := range []string{"javascript", "python", "wasm"} {
			out[name] = wire.Language{Reason: "no code is run on this device"}
		}
		return out
	}
	for name, why := range d.Runtime.Languages() {
		out[name] = wire.Language{Available: why == "", Reason: why}
	}
	return out
}

// Runnable refuses code in a language that is not run here.
func (d *Binder) Runnable(sources []payload.Source) error {
	languages := d.Languages()
	for _, s := range sources {
		l, known := languages[LanguageOf(s.Language)]
		if !l.Available {
			var can []string
			for name, l := range languages {
				if l.Available {
					can = append(can, name)
				}
			}
			slices.Sort(can)
			why := cmp.Or(l.Reason, "the language is not known")
			if !known {
				why = "the language is not known"
			}
			return wire.Errorf(wire.ReasonLanguage, "the module %.80q is in %.40q, which is not run here: %s; what runs is %s", s.ModuleID,
				s.Language, why, cmp.Or(strings.Join(can, ", "), "none"))
		}
	}
	return nil
}
