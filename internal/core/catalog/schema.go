package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/junctor-run/junctor/capability"
)

// Schema checks inputs against one JSON Schema document.
type Schema struct {
	compiled *jsonschema.Schema
	quick    *quick // nil if quick does not support the schema
}

// document is one schema document, compiled at first use. Entries with equal documents
// share it.
type document struct {
	doc      []byte
	entries  int // number of entries that use it; guarded by the catalog's lock
	once     sync.Once
	compiled *Schema
	err      error
}

func (d *document) compile() (*Schema, error) {
	d.once.Do(func() { d.compiled, d.err = CompileSchema(d.doc) })
	return d.compiled, d.err
}

// documents holds the input schemas in use, by their text.
type documents map[string]*document

// share sets e.schema to the document of its input schema, which it creates if necessary, and
// counts the use. An entry without input schema is unchanged.
func (ds documents) share(e *Entry) {
	doc := e.InputSchema()
	if len(doc) == 0 {
		return
	}
	d := ds[string(doc)]
	if d == nil {
		d = &document{doc: doc}
		ds[string(doc)] = d
	}
	d.entries++
	e.schema = d
}

// release counts down the uses of the entry's document and deletes it after the last one.
func (ds documents) release(e *Entry) {
	if e.schema == nil {
		return
	}
	if e.schema.entries--; e.schema.entries == 0 {
		delete(ds, string(e.schema.doc))
	}
}

// CompileSchema compiles one JSON Schema document of at most 256 KiB, draft 2020-12 unless the
// document states another. Remote references are never fetched; a schema with one is an error.
func CompileSchema(doc []byte) (*Schema, error) {
	if len(doc) > maxSchemaBytes {
		return nil, fmt.Errorf("it has %d bytes; %d are the most", len(doc), maxSchemaBytes)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(jsonschema.SchemeURLLoader{})
	const url = "junctor:input"
	if err := compiler.AddResource(url, value); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	compiled, err := compiler.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("it is not a valid JSON Schema: %w", err)
	}
	s := &Schema{compiled: compiled}
	if q := newQuick(value, 0); q != nil && q.kind == "object" { // iterating over an object also detects malformed JSON
		s.quick = q
	}
	return s, nil
}

// Check returns nil, or an invalid_input error naming each offending path in
// words a model can act on.
func (s *Schema) Check(input []byte) error {
	if s.quick != nil && s.quick.accepts(input) {
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(input))
	if err != nil {
		return capability.Wrap(capability.CodeInvalidInput, "validate", "the input is not one JSON value", err)
	}
	if err := boundNumbers(value); err != nil {
		return err
	}
	err = s.compiled.Validate(value)
	if err == nil {
		return nil
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return capability.Wrap(capability.CodeInvalidInput, "validate", "the input does not fit the schema", err)
	}
	var faults []string
	collect(invalid, &faults)
	if len(faults) > maxFaults {
		faults = append(faults[:maxFaults], fmt.Sprintf("and %d more", len(faults)-maxFaults))
	}
	return capability.Errorf(capability.CodeInvalidInput, "validate", "the input does not fit: %s", strings.Join(faults, "; ")).
		With("invalid_args", "").Detail("faults", faults)
}

// boundNumbers returns an error for a number whose exact value would be costly to compute:
// the validator uses fractions of unbounded size, and 1e1000000 alone takes milliseconds.
func boundNumbers(value any) error {
	switch x := value.(type) {
	case json.Number:
		mantissa, exponent, scaled := strings.Cut(strings.ToLower(string(x)), "e")
		n, err := strconv.Atoi(exponent)
		if len(mantissa) > maxNumberBytes || scaled && (err != nil || n > maxExponent || n < -maxExponent) {
			return capability.Errorf(capability.CodeInvalidInput, "validate",
				"the input holds a number of more than %d digits or with an exponent beyond %d", maxNumberBytes, maxExponent).
				With("invalid_args", "send such a number as a string")
		}
	case []any:
		for _, item := range x {
			if err := boundNumbers(item); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, item := range x {
			if err := boundNumbers(item); err != nil {
				return err
			}
		}
	}
	return nil
}

// collect appends one sentence "path: fault" for each leaf of a validation error.
func collect(e *jsonschema.ValidationError, out *[]string) {
	if len(e.Causes) > 0 {
		for _, c := range e.Causes {
			collect(c, out)
		}
		return
	}
	at := "input"
	if len(e.InstanceLocation) > 0 {
		at = strings.Join(e.InstanceLocation, ".")
	}
	*out = append(*out, at+": "+fault(e.ErrorKind))
}

// fault describes one violated keyword in words.
func fault(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Required:
		return "missing " + strings.Join(k.Missing, ", ")
	case *kind.AdditionalProperties:
		return "unknown field " + strings.Join(k.Properties, ", ")
	case *kind.Type:
		return fmt.Sprintf("is %s where %s is needed", k.Got, strings.Join(k.Want, " or "))
	case *kind.Enum:
		return "must be one of " + asJSON(k.Want...)
	case *kind.Const:
		return "must be " + asJSON(k.Want)
	case *kind.Minimum:
		return "must be at least " + number(k.Want)
	case *kind.Maximum:
		return "must be at most " + number(k.Want)
	case *kind.ExclusiveMinimum:
		return "must be more than " + number(k.Want)
	case *kind.ExclusiveMaximum:
		return "must be less than " + number(k.Want)
	case *kind.MultipleOf:
		return "must be a multiple of " + number(k.Want)
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items", k.Want)
	case *kind.UniqueItems:
		return "must not repeat an item"
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d members", k.Want)
	case *kind.Pattern:
		return "must match " + k.Want
	case *kind.Format:
		return "must be a " + k.Want
	case *kind.FalseSchema:
		return "is not allowed"
	}
	return "does not satisfy " + strings.Join(k.KeywordPath(), "/")
}

// number writes a bound in decimal notation, because the library stores it as a fraction.
func number(r *big.Rat) string {
	if r.IsInt() {
		return r.RatString()
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func asJSON(values ...any) string {
	out := make([]string, len(values))
	for i, v := range values {
		doc, err := json.Marshal(v) // numbers of the schema are json.Number
		if err != nil {
			doc = fmt.Append(nil, v)
		}
		out[i] = string(doc)
	}
	return strings.Join(out, ", ")
}
