package overlay

import (
	"bytes"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Edits change the text of a document and nothing else in it: blanks, order and the way
// numbers are written stay. Every position here is that of a document that has been found
// to be valid.

// done is what undoing an edit needs.
type done struct {
	Nothing bool   `json:"nothing,omitempty"` // it was so already
	Known   int    `json:"known"`             // how many of the keys were there
	Before  []byte `json:"before,omitempty"`  // the text of the value that was replaced
}

type span struct{ from, to int }

func (s span) of(doc []byte) []byte { return doc[s.from:s.to] }

// item is a member of an object, or an element of an array, which has no key.
type item struct{ key, value span }

// items lists what is in the object or array that begins at at, and where it ends.
func items(doc []byte, at int) (list []item, end int) {
	object := doc[at] == '{'
	at++
	for {
		at = skip(doc, at, " \t\r\n,")
		if doc[at] == '}' || doc[at] == ']' {
			return list, at + 1
		}
		var it item
		if object {
			it.key = span{at, valueEnd(doc, at)}
			at = skip(doc, it.key.to, " \t\r\n:")
		}
		it.value = span{at, valueEnd(doc, at)}
		list = append(list, it)
		at = it.value.to
	}
}

func skip(doc []byte, at int, what string) int {
	for at < len(doc) && strings.IndexByte(what, doc[at]) >= 0 {
		at++
	}
	return at
}

func valueEnd(doc []byte, at int) int {
	for depth := 0; ; {
		switch doc[at] {
		case '"':
			for at++; doc[at] != '"'; at++ {
				if doc[at] == '\\' {
					at++
				}
			}
			at++
		case '{', '[':
			depth++
			at++
		case '}', ']':
			depth--
			at++
		case ',', ':', ' ', '\t', '\r', '\n':
			at++
		default:
			for at < len(doc) && strings.IndexByte(" \t\r\n,:]}", doc[at]) < 0 {
				at++
			}
		}
		if depth == 0 {
			return at
		}
	}
}

// find walks down keys from the document's object. It returns the item of each key that
// exists, with its container; ok is false if an item on the way is not an object.
func find(doc []byte, keys []string) (path []step, ok bool) {
	at := skip(doc, 0, " \t\r\n")
	for _, k := range keys {
		if doc[at] != '{' {
			return path, false
		}
		list, end := items(doc, at)
		i := slices.IndexFunc(list, func(it item) bool { name, _ := jsonx.Text(it.key.of(doc)); return name == k })
		if i < 0 {
			return path, true
		}
		path = append(path, step{span{at, end}, list, i})
		at = list[i].value.from
	}
	return path, true
}

// step is one item in its container.
type step struct {
	box  span
	list []item
	i    int
}

func (s step) value() span { return s.list[s.i].value }

// cut returns doc without the item, and without the comma that it needed.
func (s step) cut(doc []byte) []byte {
	from := s.list[s.i].value
	if from.from = s.list[s.i].begin(); s.i > 0 {
		from.from = s.list[s.i-1].value.to
	} else if len(s.list) > 1 {
		from.to = s.list[1].begin()
	} else {
		from.from = s.box.from + 1
	}
	return splice(doc, from, nil)
}

func (it item) begin() int {
	if it.key.to > 0 {
		return it.key.from
	}
	return it.value.from
}

func splice(doc []byte, at span, text []byte) []byte {
	return slices.Concat(doc[:at.from], text, doc[at.to:])
}

// insert puts text, an element or a member without blanks, last into the container at at.
func insert(doc []byte, at int, key, value []byte) []byte {
	list, _ := items(doc, at)
	colon, lead, where := []byte(": "), []byte(nil), at+1
	if n := len(list); n > 0 {
		last := list[n-1]
		where = last.value.to
		if lead = slices.Concat([]byte(","), doc[at+1:list[0].begin()]); n > 1 {
			lead = doc[list[n-2].value.to:last.begin()]
		}
		if key != nil {
			colon = doc[last.key.to:last.value.from]
		}
	}
	if key != nil {
		value = slices.Concat(key, colon, value)
	}
	return splice(doc, span{where, where}, slices.Concat(lead, value))
}

func (e Edit) apply(doc []byte) ([]byte, done, error) {
	path, ok := find(doc, e.Keys)
	if !ok {
		return nil, done{}, broken("%s is in something that is not an object", strings.Join(e.Keys, "."))
	}
	d := done{Known: len(path)}
	if len(path) < len(e.Keys) {
		at := skip(doc, 0, " \t\r\n")
		if len(path) > 0 {
			at = path[len(path)-1].value().from
		}
		if doc[at] != '{' {
			return nil, done{}, broken("%s is in something that is not an object", strings.Join(e.Keys, "."))
		}
		value := []byte(e.Value)
		if e.Append {
			value = slices.Concat([]byte("["), value, []byte("]"))
		}
		rest := e.Keys[len(path):]
		for _, k := range slices.Backward(rest[1:]) {
			value = slices.Concat([]byte("{"), jsonx.AppendString(nil, k), []byte(": "), value, []byte("}"))
		}
		return insert(doc, at, jsonx.AppendString(nil, rest[0]), value), d, nil
	}
	old := path[len(path)-1].value()
	if !e.Append {
		if d.Nothing = equal(old.of(doc), e.Value); d.Nothing {
			return doc, d, nil
		}
		d.Before = bytes.Clone(old.of(doc))
		return splice(doc, old, e.Value), d, nil
	}
	if doc[old.from] != '[' {
		return nil, done{}, broken("%s is not an array", strings.Join(e.Keys, "."))
	}
	if d.Nothing = e.element(doc, old.from).list != nil; d.Nothing {
		return doc, d, nil
	}
	return insert(doc, old.from, nil, e.Value), d, nil
}

// element finds the edit's value among the elements of an array, the last one first.
func (e Edit) element(doc []byte, at int) (s step) {
	list, end := items(doc, at)
	for i, it := range slices.Backward(list) {
		if equal(it.value.of(doc), e.Value) {
			return step{span{at, end}, list, i}
		}
	}
	return step{}
}

// revert takes the edit out of a document that others may have changed: a value that is
// no longer ours stays.
func (e Edit) revert(doc []byte, d done) []byte {
	path, _ := find(doc, e.Keys)
	if d.Nothing || len(path) < len(e.Keys) {
		return doc
	}
	leaf := path[len(path)-1]
	switch old := leaf.value(); {
	case e.Append:
		if doc[old.from] != '[' {
			return doc
		}
		s := e.element(doc, old.from)
		if s.list == nil {
			return doc
		}
		doc = s.cut(doc)
		if d.Known == len(e.Keys) || len(s.list) > 1 {
			return doc
		}
		path, _ = find(doc, e.Keys)
		doc = path[len(path)-1].cut(doc)
	case !equal(old.of(doc), e.Value):
		return doc
	case d.Before != nil:
		return splice(doc, old, d.Before)
	default:
		doc = leaf.cut(doc)
	}
	for n := len(e.Keys) - 1; n > d.Known; n-- { // the objects that we made, while they are empty
		if path, _ = find(doc, e.Keys[:n]); len(path) < n || !isEmptyObject(path[n-1].value().of(doc)) {
			break
		}
		doc = path[n-1].cut(doc)
	}
	return doc
}

// carryOut applies all edits to what is in a file.
func carryOut(doc []byte, edits []Edit) (after []byte, all []done, err error) {
	if len(doc) == 0 {
		doc = []byte("{}\n")
	}
	if !isObject(doc) {
		return nil, nil, broken("it is not one JSON object")
	}
	for _, e := range edits {
		if len(e.Keys) == 0 || !jsonx.Valid(e.Value) {
			return nil, nil, capability.Errorf(capability.CodeInvalidInput, "overlay.apply",
				"an edit has at least one key and a JSON value").With("overlay_invalid", "")
		}
		var d done
		if doc, d, err = e.apply(doc); err != nil {
			return nil, nil, err
		}
		all = append(all, d)
	}
	return doc, all, nil
}

// takeBack reverts all edits, the last first.
func takeBack(doc []byte, edits []Edit, all []done) ([]byte, error) {
	if !isObject(doc) {
		return nil, broken("it is no longer one JSON object, so nothing can be taken out of it")
	}
	for i, e := range slices.Backward(edits) {
		doc = e.revert(doc, all[i])
	}
	return doc, nil
}

func isObject(doc []byte) bool {
	return jsonx.Valid(doc) && doc[skip(doc, 0, " \t\r\n")] == '{'
}

func isEmptyObject(doc []byte) bool {
	inner, isObject := bytes.CutPrefix(bytes.TrimSpace(doc), []byte("{"))
	return isObject && string(bytes.TrimSpace(inner)) == "}"
}

func equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	left, err := jsonx.Canonical(a)
	if err != nil {
		return false
	}
	right, err := jsonx.Canonical(b)
	return err == nil && bytes.Equal(left, right)
}

func broken(format string, args ...any) error {
	return capability.Errorf(capability.CodeConflict, "overlay.apply", "a settings file cannot be changed: "+format, args...).
		With("overlay_broken", "mend the file; it was left as it is")
}
