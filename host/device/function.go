package device

import (
	"context"
	"encoding/json"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/nodes/skill/deviceaction"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// Effects of functions in increasing order. The gateway's policy decides by them who may
// call a function.
const (
	Read       = cmp.EffectRead
	Write      = cmp.EffectWrite
	Execute    = cmp.EffectExecute
	Administer = cmp.EffectAdminister
)

// Args holds the arguments of a call, by position and by name. Values are JSON; bytes are
// {"$bytes": base64}.
type Args struct {
	cmp.Arguments
	CallID string
	Caller string // the principal that calls, for display and records
}

// Decode decodes the arguments into v: an object of the named ones, or a single positional
// one by itself. places names positional arguments, so that they can be combined with
// named ones. Error: invalid_params if they do not fit.
func (a Args) Decode(v any, places ...string) error {
	var data json.RawMessage
	switch {
	case len(a.Kwargs) == 0 && len(a.Args) == 0:
		data = json.RawMessage("{}")
	case len(a.Kwargs) == 0 && len(a.Args) == 1 && len(places) == 0:
		data = a.Args[0]
	case len(a.Args) > len(places):
		return cmp.Errorf(cmp.ReasonParams, "the function takes at most %d arguments by place, and %d are given", len(places), len(a.Args))
	default:
		named := make(map[string]json.RawMessage, len(a.Args)+len(a.Kwargs))
		for name, value := range a.Kwargs {
			named[name] = value
		}
		for i, value := range a.Args {
			if _, twice := named[places[i]]; twice {
				return cmp.Errorf(cmp.ReasonParams, "the argument %s is given twice", places[i])
			}
			named[places[i]] = value
		}
		var err error
		if data, err = jsonx.Marshal(named); err != nil {
			return cmp.Errorf(cmp.ReasonParams, "the arguments: %w", err)
		}
	}
	if err := jsonx.Unmarshal(data, v); err != nil {
		return cmp.Errorf(cmp.ReasonParams, "the arguments: %w", err)
	}
	return nil
}

// Function is a callable of the device. Name has 1 to 200 of [A-Za-z0-9_.:/-]. Exactly one
// of Handle and Stream is set.
type Function struct {
	Name        string
	Description string
	Version     string // "": 1.0.0
	Tags        []string
	Effect      string        // "": Execute
	Timeout     time.Duration // 0: the device's
	Priority    int           // 1 to 10, higher first in the queue; 0: 5
	// MaxConcurrent is how many of its calls run at once; 0: the device's limit only.
	MaxConcurrent             int
	InputSchema, OutputSchema json.RawMessage // JSON Schema, or nil
	MediaType                 string

	// Handle returns a value that is encoded as JSON; a json.RawMessage is used unchanged.
	Handle func(ctx context.Context, a Args) (any, error)
	// Stream sends chunks with emit, each encoded as JSON. emit blocks while the reader is
	// slower; after an error of emit the call has ended.
	Stream func(ctx context.Context, a Args, emit func(chunk any) error) error
}

// Func returns a Function whose arguments are decoded into an In: all of them by name, or
// a single positional one.
func Func[In, Out any](name string, handle func(ctx context.Context, in In) (Out, error)) Function {
	return Function{Name: name, Handle: func(ctx context.Context, a Args) (any, error) {
		var in In
		if err := a.Decode(&in); err != nil {
			return nil, err
		}
		return handle(ctx, in)
	}}
}

// handler returns the adapter that calls Handle or Stream, or nil unless exactly one of
// them is set.
func (f Function) handler() functions.Handler {
	args := func(c functions.Call) Args { return Args{Arguments: c.Args, CallID: c.ID, Caller: c.Caller} }
	switch {
	case f.Handle != nil && f.Stream == nil:
		return func(ctx context.Context, c functions.Call) (json.RawMessage, error) {
			out, err := f.Handle(ctx, args(c))
			if err != nil {
				return nil, err
			}
			return written(out)
		}
	case f.Stream != nil && f.Handle == nil:
		return func(ctx context.Context, c functions.Call) (json.RawMessage, error) {
			return nil, f.Stream(ctx, args(c), func(chunk any) error {
				value, err := written(chunk)
				if err != nil {
					return err
				}
				return c.Emit(ctx, value)
			})
		}
	}
	return nil
}

func written(v any) (json.RawMessage, error) {
	if raw, ok := v.(json.RawMessage); ok {
		return raw, nil
	}
	data, err := jsonx.Marshal(v)
	if err != nil {
		return nil, cmp.Errorf(cmp.ReasonEncoding, "what the function answered cannot be written as JSON: %w", err)
	}
	return data, nil
}

func (f Function) registered() (functions.Function, error) {
	handle := f.handler()
	if handle == nil {
		return functions.Function{}, cmp.Errorf(cmp.ReasonParams, "the function %.200q needs either Handle or Stream", f.Name)
	}
	if cmp.IsReserved(f.Name) {
		return functions.Function{}, cmp.Errorf(cmp.ReasonReserved, "the name %s belongs to the protocol", f.Name)
	}
	return functions.Function{
		Name: f.Name, Description: f.Description, Version: f.Version, Tags: f.Tags, Timeout: f.Timeout, Priority: f.Priority,
		MaxConcurrent: f.MaxConcurrent,
		Stream:        f.Stream != nil, Effect: f.Effect, MediaType: f.MediaType, InputSchema: f.InputSchema, OutputSchema: f.OutputSchema,
		Handle: handle,
	}, nil
}

// action returns the function as an action of the device, to which skills may be bound.
// Callers cannot call it directly.
func (f Function) action() (deviceaction.Action, error) {
	handle := f.handler()
	if handle == nil {
		return deviceaction.Action{}, cmp.Errorf(cmp.ReasonParams, "the action %.200q needs either Handle or Stream", f.Name)
	}
	return deviceaction.Action{Name: f.Name, Description: f.Description, Stream: f.Stream != nil, Timeout: f.Timeout, Handle: handle}, nil
}
