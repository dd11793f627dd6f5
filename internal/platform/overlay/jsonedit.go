package overlay

import (
	"bytes"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Edits change only the edited values in the text of a document: white space, order and the form
// of numbers stay. The functions below require a valid document.

// done holds the data needed to revert an edit.
type done struct {
	Key     []byte `json:"key,omitempty"`     // the text of the key that was removed
	Nothing bool   `json:"nothing,omitempty"` // the value was already present
	Known   int    `json:"known"`             // number of the keys that existed
	Before  []byte `json:"before,omitempty"`  // the text of the value that was replaced
	// Behind are the keys before the one that was removed, the nearest first, if Ordered is true.
	Behind  []string `json:"behind,omitempty"`
	Ordered bool     `json:"ordered,omitempty"`
}

type span struct{ from, to int }

func (s span) of(doc []byte) []byte { return doc[s.from:s.to] }

// item is a member of an object, or an element of an array, which has no key.
type item struct{ key, value span }

// items returns the members of the object or array that begins at at, and the position behind it.
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

// valueEnd returns the position behind the value that begins at at.
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
	doc = Plain(doc)
	at := skip(doc, 0, " \t\r\n")
	for _, k := range keys {
		if doc[at] != '{' {
			return path, false
		}
		list, end := items(doc, at)
		i := slices.IndexFunc(list, func(it item) bool { return it.name(doc) == k })
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

// cut returns doc without the item and its comma.
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

// name returns the key of a member.
func (it item) name(doc []byte) string {
	name, _ := jsonx.Text(it.key.of(doc))
	return name
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

// insert returns doc with a value, as a member if key is not nil, added at the end of the container
// at at. It copies the white space between the existing items.
func insert(doc []byte, at int, key, value []byte) []byte {
	text := doc
	doc = Plain(doc) // without comments, which are not copied
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
	return splice(text, span{where, where}, slices.Concat(lead, value))
}

// putBack returns doc with a removed member in the object at at: behind the nearest of the members that
// were before it, or else as the first one. Without their names it becomes the last one.
func (d *done) putBack(doc []byte, at int) []byte {
	plain := Plain(doc)
	list, _ := items(plain, at)
	i := -1
	for _, name := range d.Behind {
		if i = slices.IndexFunc(list, func(it item) bool { return it.name(plain) == name }); i >= 0 {
			break
		}
	}
	if !d.Ordered || i == len(list)-1 { // also an empty object
		return insert(doc, at, d.Key, d.Before)
	}
	next := list[i+1]
	colon := plain[next.key.to:next.value.from]
	gap := slices.Concat([]byte(","), plain[at+1:list[0].begin()])
	if len(list) > 1 {
		j := max(i, 0)
		gap = plain[list[j].value.to:list[j+1].begin()]
	} else if len(gap) == 1 && len(colon) > 1 {
		gap = []byte(", ")
	}
	return splice(doc, span{next.begin(), next.begin()}, slices.Concat(d.Key, colon, d.Before, gap))
}

// Plain returns a JSON document with comments and trailing commas replaced by white space of the same
// length, so that positions in it are positions in doc. A document
// without them is returned as it is.
func Plain(doc []byte) []byte {
	out := doc
	blank := func(from, to int) {
		if &out[0] == &doc[0] {
			out = bytes.Clone(doc)
		}
		for i := from; i < to; i++ {
			if out[i] != '\n' && out[i] != '\r' {
				out[i] = ' '
			}
		}
	}
	comma := -1 // position of a comma after which only white space and comments came
	for at := 0; at < len(doc); {
		switch b := doc[at]; {
		case b == '"':
			for at++; at < len(doc) && doc[at] != '"'; at++ {
				if doc[at] == '\\' {
					at++
				}
			}
			at, comma = at+1, -1
		case b == '/' && at+1 < len(doc) && doc[at+1] == '/':
			end := at
			for end < len(doc) && doc[end] != '\n' {
				end++
			}
			blank(at, end)
			at = end
		case b == '/' && at+1 < len(doc) && doc[at+1] == '*':
			end := len(doc)
			if i := bytes.Index(doc[at+2:], []byte("*/")); i >= 0 {
				end = at + 2 + i + 2
			}
			blank(at, end)
			at = end
		case (b == '}' || b == ']') && comma >= 0:
			blank(comma, comma+1)
			at, comma = at+1, -1
		default:
			if b == ',' {
				comma = at
			} else if strings.IndexByte(" \t\r\n", b) < 0 {
				comma = -1
			}
			at++
		}
	}
	return out
}

// apply returns doc with the edit made, and the data to revert it. A path through a value that is not
// an object, or Append to one that is not an array, is an error.
func (e Edit) apply(doc []byte) ([]byte, done, error) {
	path, ok := find(doc, e.Keys)
	if !ok {
		return nil, done{}, broken("%s is in something that is not an object", strings.Join(e.Keys, "."))
	}
	d := done{Known: len(path)}
	if e.Remove {
		if d.Nothing = len(path) < len(e.Keys); d.Nothing {
			return doc, d, nil
		}
		leaf := path[len(path)-1]
		d.Key, d.Before = bytes.Clone(leaf.list[leaf.i].key.of(doc)), bytes.Clone(leaf.value().of(doc))
		return leaf.cut(doc), d, nil
	}
	if len(path) < len(e.Keys) {
		at := skip(Plain(doc), 0, " \t\r\n")
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

// behind returns the keys before the edited member, the nearest first. ok is false if doc does not have it.
func (e Edit) behind(doc []byte) (keys []string, ok bool) {
	path, _ := find(doc, e.Keys)
	if len(path) < len(e.Keys) {
		return nil, false
	}
	leaf := path[len(path)-1]
	for _, it := range slices.Backward(leaf.list[max(0, leaf.i-maxBehind):leaf.i]) {
		keys = append(keys, it.name(doc))
	}
	return keys, true
}

// element returns the last element of an array that equals the edit's value, or the zero step.
func (e Edit) element(doc []byte, at int) (s step) {
	list, end := items(Plain(doc), at)
	for i, it := range slices.Backward(list) {
		if equal(it.value.of(doc), e.Value) {
			return step{span{at, end}, list, i}
		}
	}
	return step{}
}

// revert returns doc without the edit. Others may have changed the document: a value that differs
// from the edit's stays.
func (e Edit) revert(doc []byte, d done) []byte {
	path, _ := find(doc, e.Keys)
	if e.Remove && !d.Nothing && len(path) == len(e.Keys)-1 { // the object is there and the member is not
		at := skip(Plain(doc), 0, " \t\r\n")
		if len(path) > 0 {
			at = path[len(path)-1].value().from
		}
		if doc[at] == '{' {
			return d.putBack(doc, at)
		}
	}
	if d.Nothing || e.Remove || len(path) < len(e.Keys) {
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
	for n := len(e.Keys) - 1; n > d.Known; n-- { // the objects that apply created, if they are empty
		if path, _ = find(doc, e.Keys[:n]); len(path) < n || !isEmptyObject(path[n-1].value().of(doc)) {
			break
		}
		doc = path[n-1].cut(doc)
	}
	return doc
}

// carryOut applies all edits to the content of a file, which may be empty.
func carryOut(doc []byte, edits []Edit) (after []byte, all []done, err error) {
	if len(doc) == 0 {
		doc = []byte("{}\n")
	}
	if !isObject(doc) {
		return nil, nil, broken("it is not one JSON object")
	}
	original := doc
	for _, e := range edits {
		if len(e.Keys) == 0 || !e.Remove && !jsonx.Valid(e.Value) {
			return nil, nil, capability.Errorf(capability.CodeInvalidInput, "overlay.apply",
				"an edit has at least one key and a JSON value").With("overlay_invalid", "")
		}
		var d done
		if doc, d, err = e.apply(doc); err != nil {
			return nil, nil, err
		}
		if e.Remove && !d.Nothing {
			d.Behind, d.Ordered = e.behind(original)
		}
		all = append(all, d)
	}
	return doc, all, nil
}

// takeBack reverts all edits, the last first. A document that is no longer an object is an error.
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
	doc = Plain(doc)
	return jsonx.Valid(doc) && doc[skip(doc, 0, " \t\r\n")] == '{'
}

func isEmptyObject(doc []byte) bool {
	inner, isObject := bytes.CutPrefix(bytes.TrimSpace(doc), []byte("{"))
	return isObject && string(bytes.TrimSpace(inner)) == "}"
}

// equal reports whether two JSON values are equal in canonical form.
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
