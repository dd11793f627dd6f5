// Package yamljson reads untrusted YAML.
package yamljson

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

// MaxBytes is the largest size of a YAML document.
const MaxBytes = 500 << 10

const (
	maxValues = 10_000 // after aliases are expanded
	maxDepth  = 32
	maxJSON   = 4 * MaxBytes // after aliases are expanded
)

// ToJSON converts an untrusted YAML document to JSON. It accepts one document of plain scalars,
// lists, and maps with unique text keys, and no custom tags. An error has the code invalid_input or
// too_large and the given reason, and names the line if it is known.
func ToJSON(data []byte, reason string) (doc []byte, err error) {
	w := writer{reason: reason}
	if len(data) > MaxBytes {
		return nil, capability.Errorf(capability.CodeTooLarge, "yaml", "the document has more than %d bytes", MaxBytes).With(reason, "")
	}
	// A panic in the YAML library must not end the server.
	defer func() {
		if p := recover(); p != nil {
			doc, err = nil, w.errorf(nil, "it cannot be read")
		}
	}()
	var root, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&root); errors.Is(err, io.EOF) {
		return []byte("null"), nil
	} else if err != nil {
		return nil, w.errorf(nil, "%s", firstLine(err))
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, w.errorf(nil, "there is more than one document")
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

func (w *writer) errorf(n *yaml.Node, format string, args ...any) error {
	at := ""
	if n != nil && n.Line > 0 {
		at = fmt.Sprintf("line %d: ", n.Line)
	}
	return capability.Errorf(capability.CodeInvalidInput, "yaml", "%s%s", at, fmt.Sprintf(format, args...)).With(w.reason, "")
}

func (w *writer) value(n *yaml.Node, depth int) error {
	if w.nodes++; w.nodes > maxValues {
		return w.errorf(n, "there are more than %d values", maxValues)
	}
	if depth > maxDepth {
		return w.errorf(n, "values are more than %d deep", maxDepth)
	}
	if w.out.Len() > maxJSON {
		return w.errorf(n, "the values have more than %d bytes once aliases are replaced", maxJSON)
	}
	switch n.Kind {
	case yaml.AliasNode:
		if n.Alias == nil || slices.Contains(w.open, n.Alias) {
			return w.errorf(n, "an alias holds itself")
		}
		w.open = append(w.open, n.Alias)
		err := w.value(n.Alias, depth)
		w.open = w.open[:len(w.open)-1]
		return err
	case yaml.SequenceNode:
		if tag := n.ShortTag(); tag != "!!seq" {
			return w.errorf(n, "the tag %.40q is not allowed", tag)
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
	return w.errorf(n, "this is not a value")
}

func (w *writer) mapping(n *yaml.Node, depth int) error {
	if tag := n.ShortTag(); tag != "!!map" {
		return w.errorf(n, "the tag %.40q is not allowed", tag)
	}
	seen := make(map[string]bool, len(n.Content)/2)
	w.out.WriteByte('{')
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
			return w.errorf(key, "a key must be plain text")
		}
		if seen[key.Value] {
			return w.errorf(key, "the key %.80q is given twice", key.Value)
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
		return w.errorf(n, "the text is not UTF-8")
	}
	w.out.Write(data)
	return nil
}

func (w *writer) scalar(n *yaml.Node) error {
	switch tag := n.ShortTag(); tag {
	case "!!str", "!!timestamp": // no field is a date, so that dates stay text
		return w.text(n)
	case "!!null":
		w.out.WriteString("null")
	case "!!bool":
		var v bool
		if err := n.Decode(&v); err != nil {
			return w.errorf(n, "%.40q is neither true nor false", n.Value)
		}
		w.out.WriteString(strconv.FormatBool(v))
	case "!!int":
		var v int64
		if err := n.Decode(&v); err != nil {
			return w.errorf(n, "%.40q is not a number that fits", n.Value)
		}
		w.out.WriteString(strconv.FormatInt(v, 10))
	case "!!float":
		var v float64
		if err := n.Decode(&v); err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return w.errorf(n, "%.40q is not a number that fits", n.Value)
		}
		w.out.WriteString(strconv.FormatFloat(v, 'g', -1, 64))
	default:
		return w.errorf(n, "the tag %.40q is not allowed", tag)
	}
	return nil
}

// Lines finds the lines of the values of a document that [ToJSON] accepts.
type Lines struct{ root *yaml.Node } // nil: the document cannot be read

// LinesOf reads a document.
func LinesOf(data []byte) (l Lines) {
	defer func() { _ = recover() }() // see ToJSON
	var root yaml.Node
	if yaml.NewDecoder(bytes.NewReader(data)).Decode(&root) == nil && root.Kind == yaml.DocumentNode && len(root.Content) == 1 {
		l.root = root.Content[0]
	}
	return l
}

// Line returns the line of a value, by the keys and indexes of an RFC 6901 pointer. If the document
// has only the beginning of the path, it is the line of the last part that it has; 0 for a document
// that cannot be read.
func (l Lines) Line(path ...string) int {
	n := l.root
	if n == nil {
		return 0
	}
	line := n.Line
	for _, part := range path {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		next := -1
		switch index, err := strconv.Atoi(part); {
		case n.Kind == yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == part {
					line, next = n.Content[i].Line, i+1
				}
			}
		case n.Kind == yaml.SequenceNode && err == nil && index >= 0 && index < len(n.Content):
			line, next = n.Content[index].Line, index
		}
		if next < 0 {
			return line
		}
		n = n.Content[next]
	}
	return line
}
