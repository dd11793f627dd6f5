package jsonx

import (
	"errors"
	"strings"
	"testing"
)

func TestMembersAreTheBytesThatCame(t *testing.T) {
	t.Parallel()
	var got []string
	err := Members([]byte(` { "a" : 9007199254740993 , "\u0062":[1.10, {"c":"\ud800"}],"d":"`+"\xff"+`"} `), func(name string, value []byte) {
		got = append(got, name+"="+string(value))
		if value[0] == '[' { // a walk inside a walk
			if err := Members([]byte(`{"x":1}`), func(string, []byte) {}); err != nil {
				t.Error(err)
			}
		}
	})
	if want := `a=9007199254740993 b=[1.10, {"c":"\ud800"}] d="` + "\xff" + `"`; err != nil || strings.Join(got, " ") != want {
		t.Errorf(`%q %v; want no error, strings.Join(got, " ") = %v`, got, err, want)
	}
	for _, bad := range []string{``, `{`, `{"a":1`, `{"a":1,"a":2}`, `{"a":1} x`, `{"a"}`, `{,}`, `{"a":01}`} {
		if err := Members([]byte(bad), func(string, []byte) {}); err == nil || errors.Is(err, ErrNotObject) {
			t.Errorf("%s: %v; want an error, err is not %v", bad, err, ErrNotObject)
		}
	}
	for _, other := range []string{`[]`, `"a"`, `1`, `null`, `true`} {
		if err := Members([]byte(other), func(string, []byte) {}); !errors.Is(err, ErrNotObject) {
			t.Errorf("%s: %v; want err is %v", other, err, ErrNotObject)
		}
	}
}

func TestElementsAreTheBytesThatCame(t *testing.T) {
	t.Parallel()
	var got []string
	err := Elements([]byte(` [ 1.10 ,"a,b", {"c":[2]},[] ] `), func(value []byte) error { got = append(got, string(value)); return nil })
	if want := `1.10|"a,b"|{"c":[2]}|[]`; err != nil || strings.Join(got, "|") != want {
		t.Errorf(`%q %v; want no error, strings.Join(got, "|") = %v`, got, err, want)
	}
	for _, bad := range []string{``, `[`, `[1`, `[1,]`, `[1] x`, `[01]`, `{}`, `"a"`, `null`} {
		if err := Elements([]byte(bad), func([]byte) error { return nil }); err == nil {
			t.Errorf("%s is a list; want an error", bad)
		}
	}
}

func BenchmarkMembers(b *testing.B) {
	raw := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"tool_0001","arguments":{"query":"what is in the lab?","limit":10,"exact":false}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := Members(raw, func(string, []byte) {}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestTextAndBack(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{`"a"`: "a", `"\u00e9\n"`: "é\n", `"\ud800"`: "\uFFFD"} {
		if got, ok := Text([]byte(raw)); !ok || got != want {
			t.Errorf("%s is %q; want ok = true, got = %v", raw, got, want)
		}
	}
	for _, other := range []string{``, `"`, `1`, `null`, `{}`} {
		if _, ok := Text([]byte(other)); ok {
			t.Errorf("%s is a text; want ok = false", other)
		}
	}
	for s, want := range map[string]string{"a\"b": `"a\"b"`, "\xff": "\"\uFFFD\""} {
		if got := string(AppendString(nil, s)); got != want {
			t.Errorf("%q becomes %s; want got = %v", s, got, want)
		}
	}
}
