package analyze

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

const (
	promptSchema    = 1500
	promptFaults    = 5
	promptCandidate = 500
	rawExcerpt      = 500
)

// SchemaRequest is the input of [Analyzer.Schema]. The schema is the first non-empty of
// SchemaJSON, SchemaFile and SchemaID.
type SchemaRequest struct {
	Source
	SchemaJSON string
	SchemaFile string
	SchemaID   string
	// Resolve returns the schema of an id. If nil, SchemaID is ignored.
	Resolve    func(ctx context.Context, id string) ([]byte, error)
	AllowModel bool
}

// Fault is one error in a text. Stage is "parse" or "validate".
type Fault struct {
	Stage   string `json:"stage"`
	Path    string `json:"path"`
	Message string `json:"message"`
}

// Schema finds JSON in a text and validates it against the schema; its output is the
// JSON, indented. If that fails and a model may be used, the model repairs it once. If
// the request has no content, Schema explains the schema itself.
//
// Errors: unavailable (Config.Compile is nil); invalid_input (no schema, or an invalid one);
// too_large; not_found; failed, with the metadata as details and the reason output_parse_error (no
// JSON in the text), output_contract_violation (the JSON does not match) or output_repair_failed
// (the repaired JSON does not match either); timeout, cancelled.
func (a *Analyzer) Schema(ctx context.Context, req SchemaRequest) (Result, error) {
	if a.cfg.Compile == nil {
		return Result{}, capability.Errorf(capability.CodeUnavailable, op, "schemas cannot be checked here")
	}
	doc, err := req.schema(ctx)
	if err != nil {
		return Result{}, err
	}
	checker, err := a.cfg.Compile(doc)
	if err != nil {
		return Result{}, capability.Wrap(capability.CodeInvalidInput, op, "the schema is not a JSON Schema", err).With("invalid_args", "")
	}
	canonical, err := jsonx.Sorted(doc)
	if err != nil {
		return Result{}, capability.Wrap(capability.CodeInvalidInput, op, "the schema is not JSON", err).With("invalid_args", "")
	}
	sum := sha256.Sum256(canonical)
	meta := map[string]any{
		"schema_id": req.SchemaID, "schema_hash": "sha256:" + hex.EncodeToString(sum[:]), "repair_attempted": false,
		"repair_parse_ok": false,
	}
	content, err := req.content(ctx)
	if capability.CodeOf(err) == capability.CodeInvalidInput && req.File == "" && len(req.Args) == 0 {
		return a.explain(ctx, doc, meta, req.AllowModel)
	}
	if err != nil {
		return Result{}, err
	}
	content = text.StripControl(a.cfg.Redact(content))
	found, faults := judge(content, checker, meta)
	if faults == nil {
		return Result{pretty(found), meta}, nil
	}
	reason, s := "output_parse_error", "there is no JSON in the text"
	if found != nil {
		reason, s = "output_contract_violation", "the JSON does not fit the schema: "+faults[0].Path+": "+faults[0].Message
	}
	if a.cfg.Model != nil && req.AllowModel {
		meta["repair_attempted"] = true
		again := make(map[string]any)
		if repaired, left := a.repair(ctx, doc, content, found, faults, checker, again); left == nil {
			meta["repair_parse_ok"], meta["model"] = true, a.cfg.ModelName
			return Result{pretty(repaired), meta}, nil
		}
		if ctx.Err() != nil {
			return Result{}, capability.AsError(ctx.Err())
		}
		meta["repair_parse_ok"] = again["parse_ok"] == true
		reason, s = "output_repair_failed", s+"; a repair was tried and failed"
	}
	failed := capability.Errorf(capability.CodeFailed, op, "%s", s).With(reason, "")
	failed.Details = meta
	return Result{}, failed
}

// schema returns the schema document. Errors: invalid_input if none is given, too_large,
// and those of Read and Resolve.
func (req SchemaRequest) schema(ctx context.Context) ([]byte, error) {
	var doc []byte
	var err error
	invalid := func(text string) error {
		return capability.Errorf(capability.CodeInvalidInput, op, "%s", text).With("invalid_args",
			"give one of --schema_json, --schema or --schema_id")
	}
	switch {
	case req.SchemaJSON != "":
		doc = []byte(req.SchemaJSON)
	case req.SchemaFile != "" && req.Read != nil:
		doc, err = req.Read(ctx, req.SchemaFile)
	case req.SchemaID != "" && req.Resolve != nil:
		doc, err = req.Resolve(ctx, req.SchemaID)
	default:
		return nil, invalid("no schema is given")
	}
	if err == nil && len(doc) > maxSchema {
		err = capability.Errorf(capability.CodeTooLarge, op, "the schema has %d bytes; %d are the most", len(doc), maxSchema)
	}
	return doc, err
}

// judge finds JSON in a text, validates it and adds the outcome to meta. It returns the
// JSON, nil if not found, and the faults, nil if the JSON is valid.
func judge(s string, checker Checker, meta map[string]any) (json.RawMessage, []Fault) {
	found, strategy, index := find(s)
	meta["parse_ok"], meta["parse_strategy"], meta["candidate_index"] = found != nil, strategy, index
	meta["raw_excerpt"] = text.CutBytes(s, rawExcerpt)
	var faults []Fault
	if found == nil {
		faults = []Fault{{"parse", "", "no JSON value was found"}}
	} else if err := checker.Check(found); err != nil {
		faults = faultsOf(err)
	}
	meta["parse_errors"] = faults[:min(len(faults), maxFaults)]
	return found, faults
}

// faultsOf returns the faults in the details of a Checker's error; without details, one
// fault with the message.
func faultsOf(err error) []Fault {
	e := capability.AsError(err)
	list, _ := e.Details["faults"].([]string)
	var out []Fault
	for _, f := range list {
		path, message, ok := strings.Cut(f, ": ")
		if !ok {
			path, message = "", f
		}
		out = append(out, Fault{"validate", path, message})
	}
	if len(out) == 0 {
		out = []Fault{{"validate", "", e.Message}}
	}
	return out
}

// find returns the first JSON of a text: the whole text, else a fenced block, else a
// balanced object or array. index is the position among the strategy's candidates.
func find(text string) (found json.RawMessage, strategy string, index int) {
	if text := strings.TrimSpace(text); jsonx.Valid([]byte(text)) {
		return json.RawMessage(text), "whole", 0
	}
	for rest, i := text, 0; i < maxCandidates; i++ {
		_, after, ok := strings.Cut(rest, "```")
		if !ok {
			break
		}
		block, behind, ok := strings.Cut(after, "```")
		if !ok {
			break
		}
		if language, body, ok := strings.Cut(block, "\n"); ok && !strings.ContainsAny(language, "{[") {
			block = body
		}
		if block = strings.TrimSpace(block); jsonx.Valid([]byte(block)) {
			return json.RawMessage(block), "fenced", i
		}
		rest = behind
	}
	for from, i := 0, 0; i < maxCandidates; i++ {
		start := strings.IndexAny(text[from:], "{[")
		if start < 0 {
			break
		}
		start += from
		if end := balanced(text[start:]); end > 0 && jsonx.Valid([]byte(text[start:start+end])) {
			return json.RawMessage(text[start : start+end]), "balanced", i
		}
		from = start + 1
	}
	return nil, "none", -1
}

// balanced returns the length of the bracketed expression that text begins with, or 0
// if its bracket is not closed.
func balanced(text string) int {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// repair requests a corrected JSON from the model, once, and judges it. The model receives the
// rules, the beginning of the schema, the first faults and the beginning of the candidate.
func (a *Analyzer) repair(ctx context.Context, doc []byte, content string, found json.RawMessage, faults []Fault, checker Checker,
	meta map[string]any,
) (json.RawMessage, []Fault) {
	candidate := content
	if found != nil {
		candidate = string(found)
	}
	var b strings.Builder
	for _, f := range faults[:min(len(faults), promptFaults)] {
		fmt.Fprintf(&b, "- %s: %s: %s\n", f.Stage, f.Path, f.Message)
	}
	candidate = text.CutBytes(candidate, promptCandidate)
	wrong := a.cfg.Redact(b.String()) // quotes names of the candidate, so it is data too
	boundary := a.boundary(candidate, wrong)
	system := "You repair JSON. Answer with one JSON value that fits the schema and nothing else. Keep what is there; invent nothing.\n" +
		notice(boundary)
	parts := []string{
		"The schema:\n" + text.CutBytes(string(doc), promptSchema),
		fence(boundary, "What is wrong", wrong),
		fence(boundary, "The candidate", candidate),
	}
	s, _, err := a.ask(ctx, system, parts)
	if err != nil {
		return nil, faults
	}
	return judge(s, checker, meta)
}

func pretty(value json.RawMessage) string {
	out, err := jsonx.MarshalIndent(jsonx.Raw(value))
	if err != nil {
		return string(value)
	}
	return strings.TrimSpace(string(out)) + "\n"
}

// explain returns a description of a schema, by the model if allowed and working, else
// as an outline of its members.
func (a *Analyzer) explain(ctx context.Context, doc []byte, meta map[string]any, allowed bool) (Result, error) {
	why := "no language model is configured"
	if a.cfg.Model != nil && !allowed {
		why = "this action has no permission llm"
	} else if a.cfg.Model != nil {
		shown, _ := elide(text.StripControl(string(doc)))
		system, parts := a.prompt("Explain what JSON this schema asks for.", "", "schema", shown)
		s, tokens, err := a.ask(ctx, system, parts)
		if err == nil {
			meta["analysis_type"], meta["model"], meta["tokens"] = "llm", a.cfg.ModelName, tokens
			return Result{s, meta}, nil
		}
		if ctx.Err() != nil {
			return Result{}, capability.AsError(ctx.Err())
		}
		why = "the language model failed: " + capability.AsError(err).Message
	}
	meta["analysis_type"], meta["simple_because"] = "simple", why
	value, err := parse(doc)
	if err != nil {
		return Result{}, capability.Wrap(capability.CodeInvalidInput, op, "the schema is not JSON", err).With("invalid_args", "")
	}
	lines := members(nil, value, "value", "", true)
	if len(lines) > maxSchemaOutline {
		lines = append(lines[:maxSchemaOutline], fmt.Sprintf("… %d more", len(lines)-maxSchemaOutline))
	}
	return Result{"The schema asks for:\n" + strings.Join(lines, "\n") + "\n\nThis is a plain extract, because " + why + ".\n", meta}, nil
}

// members appends one line for a schema's value and for each nested member: name, type,
// enum, whether it is required, and description.
func members(lines []string, schema any, name, indent string, required bool) []string {
	s, ok := schema.(map[string]any)
	if !ok || len(indent) > 2*16 {
		return lines
	}
	line := indent + "- " + label(name) + ":"
	switch t := s["type"].(type) {
	case string:
		line += " " + label(t)
	case []any:
		for i, one := range t {
			if i > 0 {
				line += " or"
			}
			line += " " + label(fmt.Sprint(one))
		}
	default:
		line += " any"
	}
	if values, ok := s["enum"].([]any); ok {
		list := make([]string, len(values))
		for i, v := range values {
			list[i] = fmt.Sprint(v)
		}
		line += ", one of " + label(strings.Join(list, ", "))
	}
	if indent != "" && required {
		line += ", required"
	}
	if text, ok := s["description"].(string); ok {
		line += " — " + label(text)
	}
	lines = append(lines, line)
	must, _ := s["required"].([]any)
	if props, ok := s["properties"].(map[string]any); ok {
		for _, k := range slices.Sorted(maps.Keys(props)) {
			lines = members(lines, props[k], k, indent+"  ", slices.Contains(must, any(k)))
		}
	}
	return members(lines, s["items"], "each item", indent+"  ", false)
}
