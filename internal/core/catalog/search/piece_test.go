package search

import (
	"slices"
	"strings"
	"testing"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"create_branch":   "creat branch",
		"createBranch":    "createbranch creat branch",
		"fs.readText":     "fs readtext get text",
		"HTTPServer2Go":   "httpserver2go http server2 go",
		"ALL CAPS":        "all cap",
		"a-b__c":          "a b c",
		"naïve":           "na ve",
		"":                "",
		"…":               "",
		"x9":              "x9",
		"getURLFromCache": "geturlfromcach get url from cach",
		// Endings and verbs of one meaning.
		"repository repositories":                  "repository repository",
		"schedule schedules scheduled scheduling":  "schedul schedul schedul schedul",
		"stop stopped call calling status address": "stop stop call call status address",
		"find search query":                        "search search search",
		"bus is us red thing string":               "bus is us red thing string",
	} {
		if got := strings.Join(tokens(nil, text), " "); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"owner":{"type":"string","enum":["a","b"]},"repo":{"properties":{"deep":{}}}},"required":["owner","x"]}`: "owner repo",
		`{"required":["a","b"],"properties":{"x":{"type":["string","null"]},"y":true}}`:                                                          "x y",
		`{"$defs":{"properties":{"no":{}}},"properties":{"yes":{}},"allOf":[{"properties":{"not":{}}}]}`:                                         "yes",
		`{"properties":{"a\"b":{},"c":"}{"},"title":"z"}`:                                                                                        "a b c",
		`{"properties":"x","y":{"z":1}}`:  "",
		`{"title":"properties","a":{}}`:   "",
		`{}`:                              "",
		``:                                "",
		`{"properties":{"cut`:             "",
		`{"properties":{"cut":{"more\`:    "cut",
		` { "properties" : { "a" : 1 } }`: "a",
	} {
		var r reader
		r.arguments([]byte(schema))
		var got []string
		for _, w := range r.words {
			got = append(got, w.text)
		}
		if strings.Join(got, " ") != want {
			t.Errorf(`%s: got %v; want strings.Join(got, " ") = %v`, schema, got, want)
		}
	}
}

// FuzzArguments checks that neither schemas nor malformed input can do harm.
func FuzzArguments(f *testing.F) {
	f.Add([]byte(`{"properties":{"a":{}}}`))
	f.Fuzz(func(t *testing.T, schema []byte) {
		var r reader
		r.arguments(schema)
		if slices.ContainsFunc(r.words, func(w word) bool { return w.text == "" }) {
			t.Error("an empty word")
		}
	})
}

func TestForgottenPiecesMakeRoom(t *testing.T) {
	t.Parallel()
	var ix Index
	ix.books, ix.pieces = make(map[string]*book), nil
	for i := range maxBooks + 5 {
		ix.clock++
		ix.books[string(rune('a'+i))] = &book{used: ix.clock}
	}
	ix.evict()
	if len(ix.books) != maxBooks || ix.books["a"] != nil || ix.books[string(rune('a'+maxBooks+4))] == nil {
		t.Errorf(`len(ix.books) = %v, want len(ix.books) == maxBooks && ix.books["a"] == nil && ix.books[string(rune('a'+maxBooks+4))] != nil`,
			len(ix.books))
	}
}
