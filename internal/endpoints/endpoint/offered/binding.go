package offered

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/router"
)

// shape states how an invocation's input becomes parameters on the wire.
type shape uint8

const (
	// spread adds the input's members to those that address the item.
	spread shape = iota
	// whole puts the input under one key, with which the head ends.
	whole
	// action puts the input under "content", and its member $options under "options".
	action
	// route is spread with a path, which comes from the input if the declared path has parameters.
	route
)

// Binding maps a member to its wire method. head is the constant beginning of the
// parameters; the input's bytes follow unchanged.
type Binding struct {
	Method string
	head   []byte
	shape  shape
	path   string // declared path of a route
	// Undeclared is the flag that the manifest does not set for this phase of an
	// evaluator: calling it is an error that never reaches the wire.
	Undeclared string
	SoftFails  bool // parse of a field evaluator: a softFail answer means the value null
}

// newBinding returns the item's wire method, the shape of its parameters, and the beginning of their
// JSON, which is encoded here once, so that a call only appends its own values.
func newBinding(module string, it item) Binding {
	b := Binding{Method: it.method.Name, Undeclared: it.undeclared()}
	var head bytes.Buffer
	head.WriteString(`{"moduleId":`)
	writeString(&head, module)
	if it.target != "" && it.method.Target != "" {
		head.WriteByte(',')
		writeString(&head, it.method.Target)
		head.WriteByte(':')
		writeString(&head, it.target)
	}
	switch it.method.Name {
	case "plugin.action.invoke":
		b.shape = action
	case "plugin.provider.get":
		b.shape = whole
		head.WriteString(`,"state":`)
	case "plugin.event.handle":
		b.shape = whole
		head.WriteString(`,"payload":`)
	case "plugin.model.invoke":
		b.shape = whole
		head.WriteString(`,"params":`)
	case "plugin.appBridge.call":
		b.shape = whole
		head.WriteString(`,"context":`)
	case "plugin.responseHandlerFieldEvaluator.parse":
		b.SoftFails = true
	case "plugin.service.call":
		head.WriteString(`,"method":`)
		writeString(&head, it.verb)
	case "plugin.route.call":
		b.shape, b.path = route, it.path
		head.WriteString(`,"method":`)
		writeString(&head, it.verb)
	}
	b.head = head.Bytes()
	return b
}

func writeString(b *bytes.Buffer, s string) {
	quoted, _ := json.Marshal(s) // a string always has a JSON form
	b.Write(quoted)
}

// Params returns the wire parameters for input, a JSON value. An input member with the name
// of an addressing member becomes a duplicate, which the codec refuses.
func (b *Binding) Params(input []byte) ([]byte, error) {
	out := bytes.NewBuffer(make([]byte, 0, len(b.head)+len(input)+64))
	if err := b.write(out, input); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func (b *Binding) write(out *bytes.Buffer, input []byte) error {
	out.Write(b.head)
	switch b.shape {
	case whole:
		out.Write(input)
		out.WriteByte('}')
		return nil
	case action:
		return b.actionParams(out, input)
	case route:
		path, rest, err := b.routePath(input)
		if err != nil {
			return err
		}
		out.WriteString(`,"path":`)
		writeString(out, path)
		input = rest
	}
	inner, err := members(input)
	if err != nil {
		return err
	}
	if len(inner) > 0 && len(b.head) > 1 {
		out.WriteByte(',')
	}
	out.Write(inner)
	out.WriteByte('}')
	return nil
}

// members returns what stands between the braces of an object.
func members(input []byte) ([]byte, error) {
	trimmed := bytes.TrimSpace(input)
	if len(trimmed) < 2 || trimmed[0] != '{' || trimmed[len(trimmed)-1] != '}' {
		return nil, needObject()
	}
	return bytes.TrimSpace(trimmed[1 : len(trimmed)-1]), nil
}

func needObject() error {
	return capability.Errorf(capability.CodeInvalidInput, "endpoint", "the input must be a JSON object")
}

// actionParams takes $options out of the input; all other bytes stay as they are.
func (b *Binding) actionParams(out *bytes.Buffer, input []byte) error {
	if t := bytes.TrimSpace(input); len(t) == 0 || t[0] != '{' {
		return needObject()
	}
	options, content, err := jsonx.Cut(input, "$options")
	if err != nil {
		return needObject()
	}
	out.WriteString(`,"content":`)
	out.Write(content)
	if options != nil {
		out.WriteString(`,"options":`)
		out.Write(options)
	}
	out.WriteByte('}')
	return nil
}

// routePath returns the declared path, or the concrete path of the input, which must be an
// instance of it, and the input without its path.
func (b *Binding) routePath(input []byte) (path string, rest []byte, err error) {
	raw, rest, err := jsonx.Cut(input, "path")
	switch {
	case err != nil:
		return "", nil, needObject()
	case raw == nil && strings.Contains(b.path, "/:"):
		return "", nil, capability.Errorf(capability.CodeInvalidInput, "endpoint",
			"the route %s has parameters: name the concrete path in the input's member path", b.path)
	case raw == nil:
		return b.path, input, nil
	case jsonx.Unmarshal(raw, &path) != nil || raw[0] != '"':
		return "", nil, capability.Errorf(capability.CodeInvalidInput, "endpoint", "path must be a string")
	case !router.MatchRoute(b.path, path):
		return "", nil, capability.Errorf(capability.CodeInvalidInput, "endpoint", "%q is not a path of the route %s", path, b.path)
	}
	return path, rest, nil
}

// ShortSum returns eight hex digits of a hash of s.
func ShortSum(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// SoftFailed sets the value null in an answer of parse that reports a soft failure. Every
// other answer is returned unchanged.
func SoftFailed(result []byte) ([]byte, error) {
	var answer map[string]jsonx.Raw
	if err := jsonx.Unmarshal(result, &answer); err != nil || string(answer["softFail"]) != "true" || string(answer["value"]) == "null" {
		return result, nil //nolint:nilerr // the codec has judged its form
	}
	answer["value"] = jsonx.Raw("null")
	return jsonx.Marshal(answer)
}

// RunTime returns how long a call of pty.command.run with this input may take.
func RunTime(input []byte) time.Duration {
	var in struct {
		TimeoutMS *float64 `json:"timeoutMs"`
	}
	if jsonx.Unmarshal(input, &in) == nil && in.TimeoutMS != nil && *in.TimeoutMS >= 0 {
		return time.Duration(min(*in.TimeoutMS, float64(maxPTYTimeout.Milliseconds())))*time.Millisecond + ptyGrace
	}
	return defaultPTYTimeout + ptyGrace
}
