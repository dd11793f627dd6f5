package yamljson_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/yamljson"
)

func TestPlainDocumentsBecomeJSON(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                            `null`,
		"# nothing":                   `null`,
		"a: 1\nb: [x, 'y', true, ~]":  `{"a":1,"b":["x","y",true,null]}`,
		"when: 2026-01-30":            `{"when":"2026-01-30"}`,
		"n: 0x10\nf: 1.5\ns: \"1.5\"": `{"n":16,"f":1.5,"s":"1.5"}`,
		"a: &x {k: v}\nb: *x":         `{"a":{"k":"v"},"b":{"k":"v"}}`,
		"a: |\n  one\n  two\n":        `{"a":"one\ntwo\n"}`,
		"1: x":                        `{"1":"x"}`,
		"a: !!str 1":                  `{"a":"1"}`,
	} {
		got, err := yamljson.ToJSON([]byte(in), "why")
		if err != nil || string(got) != want {
			t.Errorf("%q: %s %v; want no error, string(got) = %v", in, got, err, want)
		}
	}
}

func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1, i-1, i-1)
	}
	return b.String()
}

func TestEverythingElseIsRefused(t *testing.T) {
	t.Parallel()
	for why, in := range map[string]string{
		"twice":     "a: 1\na: 2",
		"tag":       "a: !thing 1",
		"binary":    "a: !!binary aGk=",
		"tagged":    "a: !!python/object:os.system [x]",
		"merge":     "a: &a {x: 1}\nb: {<<: *a}",
		"bomb":      bomb(),
		"itself":    "a: &a [*a]",
		"text bomb": "a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("*a, ", 1000) + "]",
		"deep":      strings.Repeat("[", 40) + strings.Repeat("]", 40),
		"documents": "a: 1\n---\nb: 2",
		"list key":  "[a]: 1",
		"infinite":  "a: .inf",
		"broken":    "a: [",
		"not UTF-8": "a: \xff",
		"long":      strings.Repeat("#", yamljson.MaxBytes+1),
	} {
		_, err := yamljson.ToJSON([]byte(in), "why")
		if e := capability.AsError(err); e == nil || e.Reason != "why" || e.Code != capability.CodeInvalidInput &&
			e.Code != capability.CodeTooLarge {
			t.Errorf(`%s: %v; want e not nil, e.Reason = "why", not (e.Code != capability.CodeInvalidInput && e.Code != `+
				"capability.CodeTooLarge)", why, err)
		}
	}
}

func TestTheLineOfAValueIsFound(t *testing.T) {
	t.Parallel()
	const doc = "a:\n  b: &x\n    - one\n    - two: {k: v}\n  c: *x\n"
	for _, c := range []struct {
		path string
		want int
	}{{"a", 1}, {"a b", 2}, {"a b 0", 3}, {"a b 1 two k", 4}, {"a c", 5}, {"a c 1 two", 4}, {"a none", 1}, {"a b 7", 2}, {"a b -1", 2}, {"none", 1}} {
		if got := yamljson.LinesOf([]byte(doc)).Line(strings.Fields(c.path)...); got != c.want {
			t.Errorf("Line(%q) = %d, want %d", c.path, got, c.want)
		}
	}
	if got := yamljson.LinesOf([]byte("a: [")).Line("a"); got != 0 {
		t.Errorf("Line of a broken document = %d, want 0", got)
	}
}

func FuzzToJSON(f *testing.F) {
	for _, s := range []string{"a: 1", "a: &x [1]\nb: *x", bomb(), "- - - x", "? a\n: b", "a: !!float 1", "%YAML 1.1\n---\na: yes"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := yamljson.ToJSON(data, "why")
		_ = yamljson.LinesOf(data).Line("a", "0", "b")
		if err == nil && !jsonx.Valid(doc) {
			t.Fatalf("%q; want not (err == nil && !jsonx.Valid(doc))", doc)
		}
	})
}
