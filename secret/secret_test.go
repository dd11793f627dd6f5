package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/secret"
)

const plain = "hunter2"

type holder struct {
	Open   secret.Value
	hidden secret.Value
	Ptr    *secret.Value
	List   []secret.Value
	Map    map[string]secret.Value
}

func TestAValueNeverPrints(t *testing.T) {
	t.Parallel()
	v := secret.New(plain)
	h := holder{v, v, &v, []secret.Value{v}, map[string]secret.Value{"k": v}}
	var out []string
	for _, x := range []any{v, &v, h, &h, []any{v}, struct{ v any }{v}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%e", "%p", "%c", "%U", "%5.2v"} {
			out = append(out, verb+" "+fmt.Sprintf(verb, x))
		}
		doc, _ := json.Marshal(x)
		two, _ := jsonx.Marshal(x) // refuses a struct that has nothing to show
		var b bytes.Buffer
		slog.New(slog.NewJSONHandler(&b, nil)).Info("m", "v", x)
		slog.New(slog.NewTextHandler(&b, nil)).Info("m", "v", x)
		out = append(out, string(doc), string(two), b.String())
	}
	out = append(out, fmt.Sprint(v), v.String(), fmt.Errorf("wrap %v", v).Error())
	for _, s := range out {
		if strings.Contains(s, plain) || strings.Contains(s, "68756e746572") || strings.Contains(s, "104 117") {
			t.Errorf(`printed: %s; want s without %v, s without "68756e746572", s without "104 117"`, s, plain)
		}
	}
	if got := fmt.Sprintf("%v|%s|%+v|%#v", v, v, v, v); got != "•••|•••|•••|•••" {
		t.Errorf(`fmt.Sprintf("%%v|%%s|%%+v|%%#v", v, v, v, v) = %q, want "•••|•••|•••|•••"`, got)
	}
	if _ = h.hidden; v.Reveal() != plain || !v.Equal(plain) || v.Equal("hunter3") || v.Equal("") || v.Empty() {
		t.Errorf(`it is not the secret any longer; want v.Reveal() = %v, v.Equal(plain), not v.Equal("hunter3"), not `+
			`v.Equal(""), not v.Empty()`, plain)
	}
	for _, empty := range []secret.Value{{}, secret.New("")} {
		if !empty.Empty() || empty.Reveal() != "" || !empty.Equal("") || empty.Equal("x") {
			t.Error(`nothing is something; want empty.Empty(), empty.Reveal() = "", empty.Equal(""), not empty.Equal("x")`)
		}
	}
}

func TestTokensHaveOneShape(t *testing.T) {
	t.Parallel()
	shape := regexp.MustCompile(`^jct_a_[A-Za-z0-9_-]{49}$`)
	seen := make(map[string]bool)
	for range 1000 {
		tok := secret.NewToken('a')
		if !shape.MatchString(tok) || !secret.WellFormed(tok) || seen[tok] {
			t.Fatal("badly made token")
		}
		seen[tok] = true
	}
	tok := secret.NewToken('o')
	for i := range tok { // every single typing error is noticed
		other := []byte(tok)
		if other[i] ^= 1; secret.WellFormed(string(other)) {
			t.Errorf("byte %d does not count; want not secret.WellFormed(string(other))", i)
		}
	}
	for _, bad := range []string{"", "jct_", tok[:len(tok)-1], tok + "x", " " + tok, strings.ToUpper(tok), strings.Repeat("x", len(tok))} {
		if secret.WellFormed(bad) {
			t.Errorf("%q is well formed; want not secret.WellFormed(bad)", bad)
		}
	}
	if secret.Hash("abc") != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Error(`the hash is not SHA-256; want secret.Hash("abc") = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"`)
	}
}

func FuzzWellFormed(f *testing.F) {
	f.Add(secret.NewToken('a'))
	f.Add("jct_a_")
	f.Fuzz(func(t *testing.T, s string) {
		if secret.WellFormed(s) && (len(s) != 55 || !strings.HasPrefix(s, "jct_")) {
			t.Errorf(`%q is well formed; want not (secret.WellFormed(s) && (len(s) != 55 || !strings.HasPrefix(s, "jct_")))`, s)
		}
	})
}
