// Package plainyaml reads the part of YAML that documents written by strangers
// may use: one document, plain scalars, lists and maps with text keys, each key
// once. There are no tags of one's own, what aliases expand to is counted, and
// depth is bounded. The document is handed on as JSON, so that one decoder says
// what a field must be.
package plainyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// The bounds of runner spec, sections 3.1 and 3.3.
const (
	MaxBytes = 500 << 10
	MaxNodes = 10_000 // after aliases are expanded
	MaxDepth = 32
)

// ToJSON turns a document into JSON. Every error is invalid_input, or too_large,
// with the line where it can be named, and the given reason.
func ToJSON(data []byte, reason string) (doc []byte, err error) {
	w := writer{reason: reason}
	if len(data) > MaxBytes {
		return nil, capability.Errorf(capability.CodeTooLarge, "yaml", "the document has more than %d bytes", MaxBytes).With(reason, "")
	}
	// The parser is somebody else's and gets a stranger's bytes.
	defer func() {
		if p := recover(); p != nil {
			doc, err = nil, w.bad(nil, "it cannot be read")
		}
	}()
	var root, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&root); errors.Is(err, io.EOF) {
		return []byte("null"), nil
	} else if err != nil {
		return nil, w.bad(nil, "%s", firstLine(err))
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, w.bad(nil, "there is more than one document")
	}
	if root.Kind == yaml.DocumentNode && len(root.Content) == 1 {
		if err := w.value(root.Content[0], 1); err != nil {
			return nil, err
		}
		return w.out.Bytes(), nil
	}
	return []byte("null"), nil
}

func firstLine(err error) string {
	line, _, _ := bytes.Cut([]byte(err.Error()), []byte("\n"))
	return string(bytes.ToValidUTF8(line[:min(len(line), 300)], []byte("?")))
}

type writer struct {
	out    bytes.Buffer
	nodes  int
	reason string
	open   []*yaml.Node // anchors that are being expanded
}

func (w *writer) bad(n *yaml.Node, format string, args ...any) error {
	at := ""
	if n != nil && n.Line > 0 {
		at = fmt.Sprintf("line %d: ", n.Line)
	}
	return capability.Errorf(capability.CodeInvalidInput, "yaml", "%s%s", at, fmt.Sprintf(format, args...)).With(w.reason, "")
}

func (w *writer) value(n *yaml.Node, depth int) error {
	if w.nodes++; w.nodes > MaxNodes {
		return w.bad(n, "there are more than %d values", MaxNodes)
	}
	if depth > MaxDepth {
		return w.bad(n, "values are more than %d deep", MaxDepth)
	}
	switch n.Kind {
	case yaml.AliasNode:
		if n.Alias == nil || slices.Contains(w.open, n.Alias) {
			return w.bad(n, "an alias holds itself")
		}
		w.open = append(w.open, n.Alias)
		err := w.value(n.Alias, depth)
		w.open = w.open[:len(w.open)-1]
		return err
	case yaml.SequenceNode:
		if tag := n.ShortTag(); tag != "!!seq" {
			return w.bad(n, "the tag %.40q is not allowed", tag)
		}
		w.out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				w.out.WriteByte(',')
			}
			if err := w.value(item, depth+1); err != nil {
				return err
			}
		}
		w.out.WriteByte(']')
		return nil
	case yaml.MappingNode:
		return w.mapping(n, depth)
	case yaml.ScalarNode:
		return w.scalar(n)
	}
	return w.bad(n, "this is no value")
}

func (w *writer) mapping(n *yaml.Node, depth int) error {
	if tag := n.ShortTag(); tag != "!!map" {
		return w.bad(n, "the tag %.40q is not allowed", tag)
	}
	seen := make(map[string]bool, len(n.Content)/2)
	w.out.WriteByte('{')
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
			return w.bad(key, "a key must be plain text")
		}
		if seen[key.Value] {
			return w.bad(key, "the key %.80q is given twice", key.Value)
		}
		seen[key.Value] = true
		if i > 0 {
			w.out.WriteByte(',')
		}
		if err := w.text(key); err != nil {
			return err
		}
		w.out.WriteByte(':')
		if err := w.value(n.Content[i+1], depth+1); err != nil {
			return err
		}
	}
	w.out.WriteByte('}')
	return nil
}

func (w *writer) text(n *yaml.Node) error {
	data, err := jsonx.Marshal(n.Value)
	if err != nil {
		return w.bad(n, "the text is not UTF-8")
	}
	w.out.Write(data)
	return nil
}

func (w *writer) scalar(n *yaml.Node) error {
	switch tag := n.ShortTag(); tag {
	case "!!str", "!!timestamp": // a date is text: nothing of ours wants an instant
		return w.text(n)
	case "!!null":
		w.out.WriteString("null")
	case "!!bool":
		var v bool
		if err := n.Decode(&v); err != nil {
			return w.bad(n, "%.40q is neither true nor false", n.Value)
		}
		w.out.WriteString(strconv.FormatBool(v))
	case "!!int":
		var v int64
		if err := n.Decode(&v); err != nil {
			return w.bad(n, "%.40q is not a number that fits", n.Value)
		}
		w.out.WriteString(strconv.FormatInt(v, 10))
	case "!!float":
		var v float64
		if err := n.Decode(&v); err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return w.bad(n, "%.40q is not a number that fits", n.Value)
		}
		w.out.WriteString(strconv.FormatFloat(v, 'g', -1, 64))
	default:
		return w.bad(n, "the tag %.40q is not allowed", tag)
	}
	return nil
}
