package row

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Reasons of errors about a column.
const (
	ReasonInvalid = "invalid_row"
	ReasonTooLong = "row_too_long"
	ReasonDamaged = "row_damaged"
)

// Column is one value of one row. It implements sql.Scanner, and checks values when it reads them.
type Column interface {
	Name() string
	// Value returns the SQL value: a string, an int64, or nil for an empty reference.
	Value() any
	// Scan reads a stored value. It fails if the value is not valid for the column.
	Scan(kept any) error
	clean(table string) error
}

func invalid(table, column, format string, args ...any) error {
	return capability.Errorf(capability.CodeInvalidInput, "threads", "%s of a row of %s %s", column, table, fmt.Sprintf(format, args...)).
		With(ReasonInvalid, "")
}

func damaged(column string, why error) error {
	return capability.Wrap(capability.CodeInternal, "threads", "a row of the task registry is damaged: "+column, why).
		With(ReasonDamaged, "restore the database from a backup, or remove that row")
}

// named is the name of a column.
type named string

func (n named) Name() string { return string(n) }

// Columns returns the columns of a row, which point into it. The tag of a field is the name of its
// column and its form.
func Columns(r Row) []Column {
	v := reflect.ValueOf(r).Elem()
	out := make([]Column, v.NumField())
	for i := range out {
		name, form, _ := strings.Cut(v.Type().Field(i).Tag.Get("col"), ",")
		out[i] = column(named(name), form, v.Field(i))
	}
	return out
}

// column returns the column of a field. Forms of texts are id, ref (an id or empty, stored as
// NULL), name, title (a name that is not empty), path, text, search, value (one of those that its
// type calls valid) and completed (only that); of documents object and list; of times set, or
// nothing if they may be zero.
func column(name named, form string, field reflect.Value) Column {
	switch at := field.Addr().Interface().(type) {
	case *int:
		return &number{name, at}
	case *bool:
		return &truth{name, at}
	case *time.Time:
		return &instant{name, func() time.Time { return *at }, func(t time.Time) { *at = t }, form == "set"}
	case *Millis:
		return &instant{name, at.Time, func(t time.Time) { *at = At(t) }, form == "set"}
	case *json.RawMessage:
		if form == "list" {
			return &document{name, at, "[]"}
		}
		return &document{name, at, "{}"}
	}
	w := &word{named: name, at: field, limit: maxID}
	switch form {
	case "id":
		w.must, w.ok = true, isID
	case "ref":
		w.null, w.ok = true, func(s string) bool { return s == "" || isID(s) }
	case "value":
		w.must, w.ok = true, func(s string) bool {
			v := reflect.New(field.Type()).Elem()
			v.SetString(s)
			valid, is := v.Interface().(interface{ Valid() bool })
			return is && valid.Valid()
		}
	case "completed":
		w.must, w.ok = true, func(s string) bool { return s == string(NodeCompleted) }
	case "name", "title":
		w.limit, w.must = MaxName, form == "title"
	case "path":
		w.limit = MaxPath
	case "text":
		w.limit = MaxText
	case "search": // folding case lengthens some letters
		w.limit = 4 * MaxText
	}
	return w
}

// word is a column of texts: ids, names, texts or one of a few values.
type word struct {
	named
	at    reflect.Value // a string
	limit int
	must  bool              // not empty
	ok    func(string) bool // nil: all values are valid
	null  bool              // store empty as NULL
}

func isID(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return s != ""
}

func (w *word) Value() any {
	if w.null && w.at.Len() == 0 {
		return nil
	}
	return w.at.String()
}

func (w *word) Scan(kept any) error {
	var s string
	switch kept := kept.(type) {
	case nil:
	case string:
		s = kept
	case []byte:
		s = string(kept)
	default:
		return damaged(w.Name(), fmt.Errorf("a text is kept as %T", kept))
	}
	if w.ok != nil && !w.ok(s) {
		return damaged(w.Name(), fmt.Errorf("%q is not one of its values", s))
	}
	w.at.SetString(s)
	return nil
}

func (w *word) clean(table string) error {
	s := Text(w.at.String())
	w.at.SetString(s)
	switch {
	case len(s) > w.limit:
		return tooLong(table, w.Name(), len(s), w.limit)
	case w.must && s == "":
		return invalid(table, w.Name(), "is empty")
	case w.ok != nil && !w.ok(s):
		return invalid(table, w.Name(), "cannot be %.40q", s)
	}
	return nil
}

// Text returns s as it is stored: invalid UTF-8 and NUL are replaced by U+FFFD.
func Text(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func tooLong(table, column string, is, limit int) error {
	return capability.Errorf(capability.CodeTooLarge, "threads", "%s of a row of %s has %d bytes, and may have %d", column, table, is, limit).
		With(ReasonTooLong, "cut it, or keep it in a file and name that")
}

// number is a column of counts.
type number struct {
	named
	at *int
}

func (n *number) Value() any { return int64(*n.at) }

func (n *number) Scan(kept any) error {
	v, ok := kept.(int64)
	if !ok || v < math.MinInt32 || v > math.MaxInt32 {
		return damaged(n.Name(), fmt.Errorf("a number is kept as %T %v", kept, kept))
	}
	*n.at = int(v)
	return nil
}

func (n *number) clean(table string) error {
	if *n.at < 0 || *n.at > math.MaxInt32 {
		return invalid(table, n.Name(), "is %d, and may be 0 to %d", *n.at, math.MaxInt32)
	}
	return nil
}

type truth struct {
	named
	at *bool
}

func (f *truth) Value() any {
	if *f.at {
		return int64(1)
	}
	return int64(0)
}

func (f *truth) Scan(kept any) error {
	v, ok := kept.(int64)
	if !ok || v != 0 && v != 1 {
		return damaged(f.Name(), fmt.Errorf("yes or no is kept as %T %v", kept, kept))
	}
	*f.at = v == 1
	return nil
}

func (*truth) clean(string) error { return nil }

// instant is a column of times, stored as milliseconds since 1970, or 0 for none.
type instant struct {
	named
	get  func() time.Time
	set  func(time.Time)
	must bool
}

func (i *instant) Value() any { return int64(At(i.get())) }

func (i *instant) Scan(kept any) error {
	v, ok := kept.(int64)
	if !ok || v < 0 || v > lastMillis || i.must && v == 0 {
		return damaged(i.Name(), fmt.Errorf("a time is kept as %T %v", kept, kept))
	}
	i.set(Millis(v).Time())
	return nil
}

// lastMillis is the end of the year 9999, the last time in JSON.
const lastMillis = 253402300799999

func (i *instant) clean(table string) error {
	m := At(i.get())
	if m < 0 || m > lastMillis || i.must && m == 0 {
		return invalid(table, i.Name(), "is not a time between 1970 and 9999")
	}
	i.set(m.Time())
	return nil
}

// document is a column of JSON objects or lists.
type document struct {
	named
	at   *json.RawMessage
	form string // value if empty: {} or []
}

func (d *document) Value() any { return string(*d.at) }

func (d *document) check(raw []byte) error {
	if !jsonx.Valid(raw) || bytes.TrimLeft(raw, " \t\r\n")[0] != d.form[0] {
		return fmt.Errorf("is not JSON of the form %s", d.form)
	}
	if n := depth(raw); n > MaxDepth {
		return fmt.Errorf("has more than %d levels", MaxDepth)
	}
	return nil
}

func (d *document) Scan(kept any) error {
	var raw []byte
	switch kept := kept.(type) {
	case string:
		raw = []byte(kept)
	case []byte:
		raw = append(raw, kept...)
	}
	if err := d.check(raw); err != nil {
		return damaged(d.Name(), err)
	}
	*d.at = raw
	return nil
}

func (d *document) clean(table string) error {
	if len(*d.at) == 0 || string(*d.at) == "null" {
		*d.at = json.RawMessage(d.form)
	}
	if len(*d.at) > MaxDocument {
		return tooLong(table, d.Name(), len(*d.at), MaxDocument)
	}
	if err := d.check(*d.at); err != nil {
		return invalid(table, d.Name(), "%v", err)
	}
	return nil
}

// depth returns the number of nested levels of valid JSON.
func depth(raw []byte) (deepest int) {
	at, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			at++
			deepest = max(deepest, at)
		case c == '}' || c == ']':
			at--
		}
	}
	return deepest
}
