package router

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// decoder checks values against shapes. Its methods return nil if the input is valid unchanged,
// and new bytes if something must change, so that the common case copies nothing.
type decoder struct {
	limits Limits // zero members: unlimited
	// asIs omits derived members, because an endpoint only verifies its results.
	asIs bool
}

func (d *decoder) fail(at, format string, args ...any) error {
	return &Error{Code: CodeDecodeFailed, Method: at, Message: at + ": " + fmt.Sprintf(format, args...)}
}

// root checks a whole document: UTF-8, syntax, and the shape.
func (d *decoder) root(s *shape, data []byte, at string) ([]byte, error) {
	limit := maxNesting
	if d.limits.Depth > 0 {
		// The limit applies to one module; the list around it adds three levels.
		limit = d.limits.Depth + 3
	}
	if err := checkUTF8(data); err != nil {
		return nil, d.fail(at, "%v", err)
	}
	sc := newScanner(data, limit)
	if sc.peek() != '{' {
		value, err := sc.value()
		if err == nil {
			err = sc.end()
		}
		if err != nil {
			return nil, d.fail(at, "%v", err)
		}
		return nil, d.fail(at, "must be an object, not %s", describe(value))
	}
	start := sc.pos
	return d.scan(s, &sc, start, at, true)
}

func (d *decoder) record(s *shape, data []byte, at string) ([]byte, error) {
	if data[0] != '{' {
		return nil, d.fail(at, "must be an object, not %s", describe(data))
	}
	sc := newScanner(data, maxNesting)
	return d.scan(s, &sc, 0, at, false)
}

// scan checks an object against a shape. It drops unknown members, renames an alias, and encodes the
// object again if something changed. A member given twice is an error. whole requires the end
// of the document after it.
func (d *decoder) scan(s *shape, sc *scanner, start int, at string, whole bool) ([]byte, error) {
	var values [maxFields][]byte
	var alias []byte
	changed := false
	err := sc.object(func(name []byte, escaped bool, value []byte) error {
		if escaped {
			name = unescape(name)
		}
		i := s.index(name)
		switch {
		case i < 0 && s.aliasFrom != "" && string(name) == s.aliasFrom:
			alias = value
			changed = true
		case i < 0:
			changed = true
		case values[i] != nil:
			return d.fail(at, "%q is given twice", name)
		default:
			values[i] = value
		}
		return nil
	})
	if err == nil && whole {
		err = sc.end()
	}
	if err != nil {
		if _, ok := errors.AsType[*syntaxError](err); ok {
			return nil, d.fail(at, "%v", err)
		}
		return nil, err
	}
	if alias != nil {
		if i := s.index([]byte(s.aliasTo)); values[i] == nil {
			values[i] = alias
		}
	}
	for i := range s.fields {
		out, err := d.field(&s.fields[i], values[i], at)
		if err != nil {
			return nil, err
		}
		if out != nil {
			values[i] = out
			changed = true
		}
	}
	if s.keepRaw && !d.asIs {
		return d.encode(s, values[:], sc.data[start:sc.pos]), nil
	}
	if !changed || d.asIs {
		return nil, nil
	}
	return d.encode(s, values[:], nil), nil
}

// encode writes the members of a shape, in the shape's order, and the member raw unless it is nil.
func (d *decoder) encode(s *shape, values [][]byte, raw []byte) []byte {
	size := 2
	for i := range s.fields {
		size += len(s.fields[i].name) + len(values[i]) + 4
	}
	out := make([]byte, 1, size+len(raw)+8)
	out[0] = '{'
	member := func(name string, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, '"')
		out = append(out, name...)
		out = append(out, '"', ':')
		out = append(out, value...)
	}
	for i := range s.fields {
		if values[i] != nil {
			member(s.fields[i].name, values[i])
		}
	}
	if raw != nil {
		member("raw", raw)
	}
	return append(out, '}')
}

// field checks one member. A nil value means that the member is missing.
func (d *decoder) field(f *field, value []byte, at string) ([]byte, error) {
	where := at
	switch {
	case f.at != "":
		where = f.at
	case f.own || f.kind == record || f.kind == recordMap:
		where = at + "." + f.name
	}
	if value == nil {
		if f.optional {
			return nil, nil
		}
		return nil, d.fail(where, "%q is missing", f.name)
	}
	if f.null && value[0] == 'n' {
		return nil, nil
	}
	switch f.kind {
	case anyJSON:
		return nil, nil
	case text:
		return d.text(f, value, where)
	case number:
		return nil, d.number(f, value, where)
	case boolean:
		if value[0] != 't' && value[0] != 'f' {
			return nil, d.mismatch(f, value, where, "a boolean")
		}
		return nil, nil
	case object:
		if value[0] != '{' {
			return nil, d.mismatch(f, value, where, "an object")
		}
		return nil, nil
	case list, texts, objects, records:
		return d.array(f, value, at, where)
	case textMap, scalarMap, queryMap, headerMap, recordMap:
		return d.members(f, value, where)
	case record:
		return d.record(f.sub, value, where)
	}
	return nil, nil
}

func (d *decoder) mismatch(f *field, value []byte, at, wanted string) error {
	return d.fail(at, "%q must be %s, not %s", f.name, wanted, describe(value))
}

func describe(value []byte) string {
	switch value[0] {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	}
	return "a number"
}

// text checks a string, and returns it rewritten if the field normalizes it.
func (d *decoder) text(f *field, value []byte, at string) ([]byte, error) {
	if value[0] != '"' {
		return nil, d.mismatch(f, value, at, "a string")
	}
	if f.check == nil && f.rewrite == nil {
		return nil, nil
	}
	s := unquote(value)
	if f.check != nil {
		if err := f.check(s); err != nil {
			return nil, d.fail(at, "%q %v", f.name, err)
		}
	}
	if f.rewrite != nil {
		if n := f.rewrite(s); n != s {
			return jsonx.Marshal(n)
		}
	}
	return nil, nil
}

// number checks a finite number.
func (d *decoder) number(f *field, value []byte, at string) error {
	if value[0] != '-' && !isDigit(value[0]) {
		return d.mismatch(f, value, at, "a number")
	}
	if !finite(value) {
		return d.fail(at, "%q is not a finite number", f.name)
	}
	if f.check != nil {
		if err := f.check(string(value)); err != nil {
			return d.fail(at, "%q %v", f.name, err)
		}
	}
	return nil
}

// finite reports whether a JSON number fits a double. Only a number with an exponent or very many
// digits can overflow.
func finite(value []byte) bool {
	if len(value) < 300 && !strings.ContainsAny(string(value), "eE") {
		return true
	}
	_, err := strconv.ParseFloat(string(value), 64)
	return err == nil
}

// array checks a list. Errors of items are reported at at, errors of the list at where.
func (d *decoder) array(f *field, value []byte, at, where string) ([]byte, error) {
	if value[0] != '[' {
		return nil, d.mismatch(f, value, where, "an array")
	}
	if f.kind == list {
		return nil, nil
	}
	items := itemState{d: d, f: f, where: where, limit: d.limits.Items}
	if f.kind == records {
		items.where = at + "." + f.name
		if f.sub.isModule() {
			items.limit = d.limits.Modules
		}
	}
	sc := newScanner(value, maxNesting)
	if err := sc.array(items.visit); err != nil {
		return nil, err
	}
	if f.nonEmpty && items.count == 0 {
		return nil, d.fail(where, "%q must not be empty", f.name)
	}
	if items.out == nil {
		return nil, nil
	}
	return append(items.out, ']'), nil
}

// itemState checks the items of a list. It copies them only if one changes.
type itemState struct {
	d     *decoder
	f     *field
	where string
	limit int
	count int
	kept  [][]byte
	seen  map[string]bool
	out   []byte
}

// visit checks one item.
func (it *itemState) visit(i int, value []byte) error {
	it.count++
	if it.limit > 0 && it.count > it.limit {
		return it.d.fail(it.where, "%q has more than %d items", it.f.name, it.limit)
	}
	switch it.f.kind {
	case objects:
		if value[0] != '{' {
			return it.d.fail(it.where, "%q must hold objects, not %s", it.f.name, describe(value))
		}
	case texts:
		return it.textItem(value)
	case records:
		out, err := it.d.record(it.f.sub, value, it.where)
		if err != nil {
			return err
		}
		it.keep(value, out)
	}
	return nil
}

// textItem checks a string item, and rejects a repeated one if the field requires unique items.
func (it *itemState) textItem(value []byte) error {
	if value[0] != '"' {
		return it.d.fail(it.where, "%q must hold strings, not %s", it.f.name, describe(value))
	}
	if it.f.check == nil && !it.f.unique {
		return nil
	}
	s := unquote(value)
	if it.f.check != nil {
		if err := it.f.check(s); err != nil {
			return it.d.fail(it.where, "%q has an item that %v: %q", it.f.name, err, s)
		}
	}
	if it.f.unique {
		if it.seen[s] {
			return it.d.fail(it.where, "%q names %q twice", it.f.name, s)
		}
		if it.seen == nil {
			it.seen = make(map[string]bool)
		}
		it.seen[s] = true
	}
	return nil
}

// keep adds an item to the output, or remembers it while no item has changed.
func (it *itemState) keep(value, changed []byte) {
	if changed == nil && it.out == nil {
		it.kept = append(it.kept, value)
		return
	}
	if it.out == nil {
		it.out = []byte{'['}
		for _, k := range it.kept {
			it.add(k)
		}
		it.kept = nil
	}
	if changed == nil {
		changed = value
	}
	it.add(changed)
}

func (it *itemState) add(value []byte) {
	if len(it.out) > 1 {
		it.out = append(it.out, ',')
	}
	it.out = append(it.out, value...)
}
