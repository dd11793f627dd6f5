package catalog

import (
	"bytes"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// quickSchemas are followed by quick; each has something of its own.
func quickSchemas() []string {
	return []string{
		`{"type":"object","properties":{"query":{"type":"string","description":"What to look for."},"limit":{"type":"integer","minimum":1,"maximum":100},"exact":{"type":"boolean"}},"required":["query"]}`,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","additionalProperties":false,"properties":{"a":{},"b":{"type":"null"},"c":{"type":"number","maximum":3}},"required":["a","c"]}`,
		`{"type":"object","properties":{"s":{"type":"string","minLength":2,"maxLength":3},"e":{"type":"string","enum":["x","é",""]}}}`,
		`{"type":"object","properties":{"l":{"type":"array","items":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false},"minItems":1,"maxItems":2},"any":{"type":"array"}}}`,
		`{"type":"object","title":"nothing is asked for"}`,
	}
}

func TestQuickKnowsWhatPlainlyFits(t *testing.T) {
	t.Parallel()
	schemas := quickSchemas()
	for _, tt := range []struct {
		schema int
		input  string
		quick  bool
	}{
		{0, `{"query":"x","limit":10,"exact":false}`, true},
		{0, `{"query":"x","other":[1]}`, false}, // fits, but takes a closer look
		{0, `{"query":"x","other":"y","more":null}`, true},
		{0, `{"limit":10}`, false},
		{0, `{"query":"x","limit":0}`, false},
		{0, `{"query":"x","limit":101}`, false},
		{0, `{"query":"x","limit":1e1}`, false},
		{0, `{"query":"x","limit":10`, false},
		{0, `{"query":"x"}{}`, false},
		{0, `{"query":"x","query":1}`, false},
		{0, `{"query":"x","other":1e1000000}`, false},
		{1, `{"a":true,"b":null,"c":-2}`, true},
		{1, `{"a":1,"c":2,"d":3}`, false},
		{1, `{"a":1,"c":4}`, false},
		{2, `{"s":"éé","e":"\u00e9"}`, true},
		{2, `{"s":"é"}`, false},
		{2, `{"s":"four"}`, false},
		{2, `{"e":"y"}`, false},
		{3, `{"l":[{"n":1},{"n":2}],"any":[1,"x",null]}`, true},
		{3, `{"l":[]}`, false},
		{3, `{"l":[{"n":1},{"n":2},{"n":3}]}`, false},
		{3, `{"l":[{"n":"1"}]}`, false},
		{3, `{"l":{"n":1}}`, false},
		{4, `{}`, true},
		{4, ``, false},
		{4, `[]`, false},
	} {
		s, err := CompileSchema([]byte(schemas[tt.schema]))
		if err != nil || s.quick == nil {
			t.Fatalf("%s: %v, quick %v; want no error, s.quick not nil", schemas[tt.schema], err, s.quick)
		}
		if got := s.quick.accepts([]byte(tt.input)); got != tt.quick {
			t.Errorf("schema %d, %s: %v; want got = %v", tt.schema, tt.input, got, tt.quick)
		}
	}
}

func TestQuickLeavesOtherSchemasAlone(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		`true`, `{}`, `{"type":"string"}`, `{"type":["object","null"]}`,
		`{"type":"object","$schema":"http://json-schema.org/draft-07/schema#"}`,
		`{"type":"object","minProperties":1}`,
		`{"type":"object","required":["a"]}`,
		`{"type":"object","properties":{"a":{"type":"string","pattern":"^x"}}}`,
		`{"type":"object","properties":{"a":{"type":"string","format":"date"}}}`,
		`{"type":"object","properties":{"a":{"minimum":3}}}`,
		`{"type":"object","properties":{"a":{"type":"number","minimum":0.5}}}`,
		`{"type":"object","properties":{"a":{"enum":[1,2]}}}`,
		`{"type":"object","additionalProperties":{"type":"string"}}`,
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"string"}}}`,
		`{"type":"object","properties":{"a":false}}`,
	} {
		if s, err := CompileSchema([]byte(doc)); err != nil || s.quick != nil {
			t.Errorf("%s: %v, quick %v; want no error, s.quick = nil", doc, err, s.quick != nil)
		}
	}
}

// FuzzQuickAcceptsOnlyWhatTheValidatorDoes: whatever it accepts, the validator and the
// bound on numbers accept.
func FuzzQuickAcceptsOnlyWhatTheValidatorDoes(f *testing.F) {
	var all []*Schema
	for _, doc := range quickSchemas() {
		s, err := CompileSchema([]byte(doc))
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, s)
	}
	for _, seed := range []string{
		`{"query":"x","limit":10,"exact":false}`, `{"a":true,"b":null,"c":-2}`, `{"s":"\ud83d\ude00\ud800","e":"\u00e9"}`,
		`{"l":[{"n":1},{"n":-0}],"any":[1,"x",null]}`, "{}\v", `{"s":"` + "\xff\xfe" + `"}`, `{"\u0071uery":"", "limit" : 1 }`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		for i, s := range all {
			if !s.quick.accepts(input) {
				continue
			}
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(input))
			if err == nil {
				err = boundNumbers(value)
			}
			if err == nil {
				err = s.compiled.Validate(value)
			}
			if err != nil {
				t.Fatalf("schema %d: %q was accepted: %v", i, input, err)
			}
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	s, err := CompileSchema([]byte(quickSchemas()[0]))
	if err != nil {
		b.Fatal(err)
	}
	for name, schema := range map[string]*Schema{"quick": s, "validator": {compiled: s.compiled}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := schema.Check([]byte(`{"query":"what is in the lab?","limit":10,"exact":false}`)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
