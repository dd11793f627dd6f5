package jsonx_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

type inner struct {
	N int    `json:"n"`
	S string `json:"s"`
}

type named string

type doc struct {
	Name named             `json:"name"`
	Flag bool              `json:"flag"`
	In   inner             `json:"in"`
	Ptr  *inner            `json:"ptr"`
	List []inner           `json:"list"`
	Map  map[string]string `json:"map"`
	Num  float64           `json:"num"`
}

func TestFaultsNameWhereTheyAre(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in, pointer, says string
		offset            int64 // -1: not a syntax error
	}{
		{`{"name":"x"`, "", "malformed JSON at byte 11", 11},
		{``, "", "malformed JSON at byte 0", 0},
		{`{"name":}`, "/name", "malformed JSON at byte 8", 8},
		{`{"name":"x"} x`, "", "malformed JSON at byte 13", 13},
		{`{"name":"x","name":"y"}`, "/name", "duplicate", 12},
		{"{\"name\":\"\xff\"}", "/name", "invalid UTF-8", 9},
		{`{"name":1}`, "/name", "/name: is a JSON number where a string is needed", -1},
		{`{"flag":"x"}`, "/flag", "is a JSON string where a boolean is needed", -1},
		{`{"in":[]}`, "/in", "is a JSON array where an object is needed", -1},
		{`{"ptr":"x"}`, "/ptr", "is a JSON string where an object is needed", -1},
		{`{"in":{"n":"x"}}`, "/in/n", "is a JSON string where a number is needed", -1},
		{`{"list":{}}`, "/list", "is a JSON object where an array is needed", -1},
		{`{"list":[{"n":1},{"s":true}]}`, "/list/1/s", "is a JSON boolean where a string is needed", -1},
		{`{"map":null,"num":"1"}`, "/num", "is a JSON string where a number is needed", -1},
		{`{"nam":1}`, "/nam", "/nam: is not a known field", -1},
		{`{"Name":"x"}`, "/Name", "is not a known field", -1},
		{`{"list":[{"x/y":1}]}`, "/list/0/x~1y", "is not a known field", -1},
		{`[]`, "", "is a JSON array where an object is needed", -1},
	} {
		var d doc
		err := jsonx.UnmarshalStrict([]byte(tt.in), &d)
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %s", tt.in, err, tt.says)
			continue
		}
		if s, ok := errors.AsType[*jsonx.SyntaxError](err); ok {
			if s.Offset != tt.offset {
				t.Errorf("%s: offset %d, want %d", tt.in, s.Offset, tt.offset)
			}
			if err := jsonx.Unmarshal([]byte(tt.in), &d); err == nil {
				t.Errorf("%s was read; want an error", tt.in)
			}
			continue
		}
		if f, ok := errors.AsType[*jsonx.TypeError](err); !ok || f.Pointer != tt.pointer || tt.offset != -1 {
			t.Errorf("%s: %#v; want ok = true, f.Pointer = %v, tt.offset = -1", tt.in, err, tt.pointer)
		}
	}
	var d doc
	if err := jsonx.Unmarshal([]byte(`{"other":1,"name":"x"}`), &d); err != nil || d.Name != "x" {
		t.Errorf(`%v; want no error, d.Name = "x"`, err)
	}
}

func TestSortedKeepsWhatCanonicalRounds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, canonical, sorted string }{
		{`{ "b":1, "a":{"d":2,"c":[3, 4]} }`, `{"a":{"c":[3,4],"d":2},"b":1}`, `{"a":{"c":[3,4],"d":2},"b":1}`},
		{`9007199254740993`, `9007199254740992`, `9007199254740993`},
		{`[1.0,1e2]`, `[1,100]`, `[1.0,1e2]`},
		{`"\u0041\/"`, `"A/"`, `"A/"`},
	} {
		c, err := jsonx.Canonical([]byte(tt.in))
		s, err2 := jsonx.Sorted([]byte(tt.in))
		if err != nil || err2 != nil || string(c) != tt.canonical || string(s) != tt.sorted {
			t.Errorf("%s: %s %s, %v %v; want no error, err2 = nil, string(c) = %v, string(s) = %v",
				tt.in, c, s, err, err2, tt.canonical, tt.sorted)
		}
	}
	for _, bad := range []string{`{"a":1,"a":2}`, `"\ud800"`, `{`, ``} {
		if _, err := jsonx.Canonical([]byte(bad)); err == nil {
			t.Errorf("%s has a canonical form; want an error", bad)
		}
		if _, err := jsonx.Sorted([]byte(bad)); err == nil {
			t.Errorf("%s has a sorted form; want an error", bad)
		}
	}
}

func TestCutLeavesAllOtherBytes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, value, rest string }{
		{`{"x":1}`, `1`, `{}`},
		{`{"x":1,"a":2}`, `1`, `{"a":2}`},
		{`{"a":2,"x":1}`, `1`, `{"a":2}`},
		{`{"a":2,"x":{"x":1},"b":3}`, `{"x":1}`, `{"a":2,"b":3}`},
		{` { "a" : 1.0 , "x" : [ 1 ] , "b" : "\ud800" } `, `[ 1 ]`, ` { "a" : 1.0 , "b" : "\ud800" } `},
		{`{ "x" : 1 , "b":2}`, `1`, `{ "b":2}`},
		{`{"\u0078":1,"b":2}`, `1`, `{"b":2}`},
		{`{"a":{"x":1}}`, ``, `{"a":{"x":1}}`},
		{`{"a":"x"}`, ``, `{"a":"x"}`},
		{`{}`, ``, `{}`},
	} {
		value, rest, err := jsonx.Cut([]byte(tt.in), "x")
		if err != nil || string(value) != tt.value || strings.Join(strings.Fields(string(rest)), "") != strings.Join(strings.Fields(tt.rest),
			"") {
			t.Errorf(`%s: %s and %s, %v; want no error, string(value) = %v, strings.Join(strings.Fields(string(rest)), "") = `+
				`strings.Join(strings.Fields(tt.rest), "")`, tt.in, value, rest, err, tt.value)
		}
	}
	for _, bad := range []string{`["x"]`, `"x"`, `{"x"`, `{"x":}`} {
		if _, _, err := jsonx.Cut([]byte(bad), "x"); err == nil {
			t.Errorf("%s was cut; want an error", bad)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add(`{"x":1,"a":[1,2,{"x":3}]}`)
	f.Add(`{"a":"x","\u0078":null}`)
	f.Fuzz(func(t *testing.T, in string) {
		var want map[string]any
		if !jsonx.Valid([]byte(in)) || json.Unmarshal([]byte(in), &want) != nil || want == nil {
			return
		}
		value, rest, err := jsonx.Cut([]byte(in), "x")
		if err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		x, had := want["x"]
		delete(want, "x")
		var got map[string]any
		if err := json.Unmarshal(rest, &got); err != nil || !reflect.DeepEqual(got, want) || had != (value != nil) {
			t.Fatalf("%s: %s %v; want no error, got = %v, had = (value != nil)", in, rest, err, want)
		}
		var v any
		if had && (json.Unmarshal(value, &v) != nil || !reflect.DeepEqual(v, x)) {
			t.Fatalf("%s: %s; want not (had && (json.Unmarshal(value, &v) != nil || !reflect.DeepEqual(v, x)))", in, value)
		}
	})
}

func TestMarshalIsDeterministic(t *testing.T) {
	t.Parallel()
	m := map[string]any{"b": 1, "a": map[string]int{"z": 1, "y": 2}}
	for range 20 {
		if out, err := jsonx.Marshal(m); err != nil || string(out) != `{"a":{"y":2,"z":1},"b":1}` {
			t.Fatalf(`%s %v; want no error, string(out) = "{\"a\":{\"y\":2,\"z\":1},\"b\":1}"`, out, err)
		}
	}
	if out, err := jsonx.MarshalIndent(inner{1, "x"}); err != nil || string(out) != "{\n  \"n\": 1,\n  \"s\": \"x\"\n}" {
		t.Errorf(`%s %v; want no error, string(out) = "{\n \"n\": 1,\n \"s\": \"x\"\n}"`, out, err)
	}
}

func TestPrunedLeavesNothingEmpty(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"what says something stays", `{"a":0,"b":false,"c":"x","d":[1]}`, `{"a":0,"b":false,"c":"x","d":[1]}`},
		{"empty members go", `{"a":"","b":[],"c":{},"d":null,"e":1}`, `{"e":1}`},
		{"what becomes empty goes too", `{"a":{"b":[{"c":""}]},"d":["",[null],"x"]}`, `{"d":["x"]}`},
		{"nothing is left", `{"a":[[]]}`, `null`},
	} {
		var v any
		if err := json.Unmarshal([]byte(tt.in), &v); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(jsonx.Pruned(v)); err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.name, got, err, tt.want)
		}
		if again, _ := json.Marshal(v); string(again) != tt.in {
			t.Errorf("%s: the value was changed to %s; want string(again) = %v", tt.name, again, tt.in)
		}
	}
}

func TestMendedLeavesNothingThatIsNoUnicode(t *testing.T) {
	for in, want := range map[string]string{
		`{"a": "x\ud83d"}`:                 "{\"a\":\"x\uFFFD\"}",
		"{\"a\": \"x\xff\", \"n\": 1e400}": "{\"a\":\"x\uFFFD\",\"n\":1e400}",
		`"\ud83d\ude00"`:                   `"😀"`,
	} {
		out, err := jsonx.Mended([]byte(in))
		if err != nil || string(out) != want {
			t.Errorf("%q became %q, %v; want no error, string(out) = %v", in, out, err, want)
		}
	}
	for _, in := range []string{``, `{"a":1,"a":2}`, `{} {}`, `{"a"`} {
		if out, err := jsonx.Mended([]byte(in)); err == nil {
			t.Errorf("%q became %q; want an error", in, out)
		}
	}
}

// TestAnAnswerHasItsTimesInOneForm holds UTC and milliseconds, wherever a time stands.
func TestAnAnswerHasItsTimesInOneForm(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 120_000_789, time.FixedZone("", 3600))
	type inner struct {
		At   time.Time `json:"at"`
		None time.Time `json:"none,omitzero"`
	}
	got, err := jsonx.Answer(map[string]any{
		"list": []inner{{At: at}}, "pointer": &at,
		"raw": jsonx.Raw(`{"at":"2026-01-02T03:04:05.12+01:00"}`),
	})
	const want = `{"list":[{"at":"2026-01-02T02:04:05.120Z"}],"pointer":"2026-01-02T02:04:05.120Z","raw":{"at":"2026-01-02T03:04:05.12+01:00"}}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v; want no error, string(got) = %v", got, err, want)
	}
}
