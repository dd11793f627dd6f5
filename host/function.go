package host

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
)

// Function is one function of a host. It becomes a contribution of the catalog and is
// called by its canonical action or, if it has none, as a tool.
type Function struct {
	// ID is the contribution id, unique on the host: a letter or digit, then up
	// to 119 of [A-Za-z0-9._-].
	ID string
	// Action is the canonical action it implements. When empty, Tool names the
	// single tool instead; exactly one of the two is set.
	Action capability.Action
	Tool   string
	// Title (≤ 120 runes) and Description (≤ 1024 runes) may stay empty for a
	// canonical action: its registry row has both.
	Title       string
	Description string
	// Effect may stay empty only for a canonical action, whose row has it.
	Effect      capability.Effect
	Permissions []string
	// InputSchema and OutputSchema are JSON Schema 2020-12 objects of at most
	// 256 KiB, or nil. The host does not check calls against them, because the engine
	// or the node's gateway has done so.
	InputSchema  json.RawMessage
	OutputSchema json.RawMessage
	// Timeout is published as the default for calls without a timeout. The host does not
	// apply it, because a caller may request more; the deadline is that of ctx.
	Timeout time.Duration
	// Unavailable states why the function cannot be called now; empty means it
	// can. It is still published, so that people can see what is missing.
	Unavailable string
	// Handle executes a call. It must honour ctx, be safe for concurrent use, and
	// neither change nor retain Call.Input. It may be nil while Unavailable is set.
	Handle func(ctx context.Context, c capability.Call) (capability.Result, error)
}

// Name returns the function's action or, if it has none, its tool name.
func (f Function) Name() string {
	if f.Action != "" {
		return string(f.Action)
	}
	return f.Tool
}

// clone detaches the function from the caller's slices.
func (f Function) clone() Function {
	f.Permissions = slices.Clone(f.Permissions)
	f.InputSchema = slices.Clone(f.InputSchema)
	f.OutputSchema = slices.Clone(f.OutputSchema)
	return f
}

var idGrammar = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,119}$`)

// check returns an error with reason invalid_function for the first rule of [Function]
// that the declaration breaks.
func (f Function) check() error {
	bad := func(format string, args ...any) error {
		return capability.Errorf(capability.CodeInvalidInput, opRegister, format, args...).
			With("invalid_function", "correct the declaration of the function")
	}
	switch {
	case !idGrammar.MatchString(f.ID):
		return bad("function id %q must be a letter or digit, then up to 119 letters, digits, dots, underscores or hyphens", f.ID)
	case (f.Action == "") == (f.Tool == ""):
		return bad("function %s must name either a canonical action or a tool", f.ID)
	case f.Handle == nil && f.Unavailable == "":
		return bad("function %s has no handler and does not say why it is unavailable", f.ID)
	case f.Effect == "" && f.Action == "":
		return bad("tool %s must declare its effect: read, write, external or admin", f.ID)
	case f.Effect != "" && !slices.Contains(effects(), f.Effect):
		return bad("function %s has the unknown effect %q: use read, write, external or admin", f.ID, f.Effect)
	case f.Timeout < 0:
		return bad("function %s has a negative timeout", f.ID)
	case utf8.RuneCountInString(f.Title) > maxTitleRunes:
		return bad("the title of function %s is longer than %d characters", f.ID, maxTitleRunes)
	case utf8.RuneCountInString(f.Description) > maxDescriptionRunes:
		return bad("the description of function %s is longer than %d characters", f.ID, maxDescriptionRunes)
	}
	for _, s := range []json.RawMessage{f.InputSchema, f.OutputSchema} {
		if len(s) > maxSchemaBytes {
			return bad("a schema of function %s is larger than %d bytes", f.ID, maxSchemaBytes)
		}
		if len(s) > 0 && !isObject(s) {
			return bad("a schema of function %s is not a JSON object", f.ID)
		}
	}
	return nil
}

func effects() []capability.Effect {
	return []capability.Effect{capability.EffectRead, capability.EffectWrite, capability.EffectExternal, capability.EffectAdmin}
}

func isObject(doc json.RawMessage) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal(doc, &members) == nil && members != nil
}
