package secret_test

import (
	"testing"

	"github.com/junctor-run/junctor/secret"
)

func TestKnownValuesAndShapesAreMasked(t *testing.T) {
	m := secret.NewMasker([]string{"short", "of-nobody", "of-nobody-at-all", ""})
	token := "ghp_" + "aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3" // put together, so that no scanner takes it for a leak
	for text, want := range map[string]string{
		"":                                "",
		"short stays":                     "short stays",
		"KEY=of-nobody.":                  "KEY=•••.",
		"of-nobody-at-all, and of-nobody": "•••, and •••",
		"of-nobody\nis " + token:          "•••\nis •••",
	} {
		if got := m.Mask(text); got != want {
			t.Errorf("%q became %q; want got = %v", text, got, want)
		}
	}
	var none *secret.Masker
	if got := none.Mask("of-nobody " + token); got != "of-nobody •••" {
		t.Errorf(`without values it became %q; want got = "of-nobody •••"`, got)
	}
}
