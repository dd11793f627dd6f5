package ids_test

import (
	"regexp"
	"testing"

	"github.com/junctor-run/junctor/internal/base/ids"
)

func TestForms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{ids.Hex("a_", 4), `^a_[0-9a-f]{8}$`},
		{ids.Hex("", 16), `^[0-9a-f]{32}$`},
		{ids.Timed("run_", 0x0123456789ab, 6), `^run_0123456789ab[0-9a-f]{12}$`},
		{ids.Timed("tok_", 0xff01020304, 4), `^tok_01020304[0-9a-f]{16}$`},
		{ids.Text(), `^[a-z2-7]{26}$`},
	} {
		if !regexp.MustCompile(c.want).MatchString(c.got) {
			t.Errorf("got %q, want a match of %s", c.got, c.want)
		}
	}
	if a, b := ids.Text()+ids.Hex("", 8), ids.Text()+ids.Hex("", 8); a == b {
		t.Errorf("two ids are %q, want different ones", a)
	}
}
