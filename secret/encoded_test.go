package secret_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/secret"
)

func TestARedactorFindsAValueAsURLsHTMLJSONAndBase64WriteIt(t *testing.T) {
	t.Parallel()
	lower := func(s string) string { return regexp.MustCompile(`%..`).ReplaceAllStringFunc(s, strings.ToLower) }
	object := func(s string) string {
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatalf("json.Marshal: got %v, want no error", err)
		}
		return string(data[1 : len(data)-1])
	}
	every := func(format string) func(string) string {
		return func(s string) (out string) {
			for i := range len(s) {
				out += fmt.Sprintf(format, s[i])
			}
			return out
		}
	}
	for name, encode := range map[string]func(string) string{
		"plain": func(s string) string { return s }, "capitals": strings.ToUpper, "query": url.QueryEscape, "path": url.PathEscape,
		"lower-case query": func(s string) string { return lower(url.QueryEscape(s)) }, "every byte": every("%%%02x"),
		"query twice": func(s string) string { return url.QueryEscape(url.QueryEscape(s)) },
		"HTML":        html.EscapeString, "HTML twice": func(s string) string { return html.EscapeString(html.EscapeString(s)) },
		"hexadecimal HTML": func(s string) string {
			return strings.NewReplacer("&", "&#x26;", "<", "&#x03C", "'", "&apos;").Replace(s)
		},
		"JSON": object, "JSON twice": func(s string) string { return object(object(s)) },
		"JSON with slashes": func(s string) string { return strings.ReplaceAll(object(s), "/", `\/`) },
		"spaced":            func(s string) string { return strings.Join(strings.Split(s, ""), "\u00a0\u200d") },
		"base64":            func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"basic":             func(s string) string { return base64.StdEncoding.EncodeToString([]byte("u:" + s)) },
		"basic, longer":     func(s string) string { return base64.URLEncoding.EncodeToString([]byte("us:" + s + ":x")) },
		"base64 in a query": func(s string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(s))) },
	} {
		for _, value := range []string{"tr0ub4dor&3+x/y==", "pass word@1", `a"b\n<c>'~*(é)😀??>`, "line\nbreak", "1234", "?é12345"} {
			if name == "every byte" && value == "line\nbreak" || name == "spaced" && strings.Contains(value, "é") {
				continue // the same, in fewer words
			}
			text := "see " + encode(value) + " here"
			got := secret.Redactor("•", "other", value)(text)
			if strings.Contains(name, "bas") { // a character at the ends has bits of others, and stays
				if strings.Count(got, "•") != 1 || len(got) > 27 {
					t.Errorf("%s of %q: %q became %q, want the value masked", name, value, text, got)
				}
			} else if got != "see • here" {
				t.Errorf("%s of %q: %q became %q, want %q", name, value, text, got, "see • here")
			}
		}
	}
}

func TestARedactorOfNothingChangesNothing(t *testing.T) {
	t.Parallel()
	const text = "a text, = + \n"
	for _, values := range [][]string{nil, {""}, {" \n"}} {
		if got := secret.Redactor("•", values...)(text); got != text {
			t.Errorf("Redactor(%q) of %q = %q, want no change", values, text, got)
		}
	}
	long := strings.Repeat("long&", 20_000)
	if got := secret.Redactor("•", long)("a " + long + "."); got != "a •." {
		t.Errorf("a long value: got %.20q, want it masked", got)
	}
}

func TestARedactorIsNotSlowInHostileTexts(t *testing.T) {
	t.Parallel()
	redact := secret.Redactor("•", `+\n word`, "\ufeff\nnr word", `\\ word`)
	for _, unit := range []string{`\`, `\n`, "+", "\ufeff", "%25", "&amp;", "n "} { // each may begin or continue a match
		if text := strings.Repeat(unit, 1<<13); redact(text) != text { // which takes minutes if the time is quadratic
			t.Errorf("%q repeated was changed, want no change", unit)
		}
	}
}

// TestOfATextThatIsSlowToSearchTheRestIsMasked: the value is in the rest.
func TestOfATextThatIsSlowToSearchTheRestIsMasked(t *testing.T) {
	t.Parallel()
	redact := secret.Redactor("•", "pass word")
	got := redact("pass word" + strings.Repeat("%2", 1<<19) + "pass word")
	if strings.Contains(got, "pass word") || !strings.HasPrefix(got, "•%2") || !strings.HasSuffix(got, "•") {
		t.Errorf("got %.20q … %.20q, want the value masked twice", got, got[max(len(got)-20, 0):])
	}
	backslashes := strings.Repeat(`\`, 8<<20)
	if got := redact(backslashes + "npass word"); got != backslashes+"n•" {
		t.Errorf("a row of backslashes: got %.20q … %.20q, want only the value masked", got, got[max(len(got)-20, 0):])
	}
}

// TestLongValuesAreFoundAndNotSlow: a service that names the value and the text has each place compared with all of it.
func TestLongValuesAreFoundAndNotSlow(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("abcdefgh", 60)
	if got := secret.Redactor("•", long)(long[1:] + "x" + long + " x"); got != long[1:]+"x• x" {
		t.Errorf("got %d bytes that end with %.30q, want only the value masked", len(got), got[max(len(got)-30, 0):])
	}
	value := strings.Repeat("a", 500)
	almost := strings.Repeat("a", 499) + "b" + strings.Repeat("%61", 499) + "b"
	got := secret.Redactor("•", value)(strings.Repeat(almost, 1<<9) + value)
	if !strings.HasSuffix(got, "•") || strings.Contains(got, value) {
		t.Errorf("a text made to be slow: got %d bytes that end with %.30q, want the rest masked", len(got), got[max(len(got)-30, 0):])
	}
}

func TestARedactorLeavesLongTextsOfAllScripts(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("日本語の文章です。", 300_000)
	if got := secret.Redactor("•", "tr0ub4dor&3")(text + "TR0UB4DOR&amp;3"); got != text+"•" {
		t.Errorf("got %d of %d bytes, want all, with the value masked", len(got), len(text))
	}
}

func TestARedactorFindsLettersOfSpecialCase(t *testing.T) {
	t.Parallel()
	for value, text := range map[string]string{"=ſ<x": "=S<X", "key-one": "\u212aEY-ONE", "sesame": "ſESAME", "İzmir7": "İZMIR7", "éclair": "ÉCLAIR"} {
		if got := secret.Redactor("•", value)("a " + text + " b"); got != "a • b" {
			t.Errorf("Redactor(%q) of %q = %q, want it masked", value, text, got)
		}
	}
}

func BenchmarkRedactor(b *testing.B) {
	text := strings.Repeat(`{"name":"some text", "url":"https://a.example/x?y=%26z&amp;"}`, 1<<16)
	redact := secret.Redactor("•••", "tr0ub4dor&3+x/y==", "user:tr0ub4dor&3+x/y==")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		redact(text)
	}
}
