package row

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
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

// word is a column of texts: ids, names, texts or one of a few values.
type word[S ~string] struct {
	named
	at    *S
	limit int
	must  bool         // not empty
	ok    func(S) bool // nil: all values are valid
	null  bool         // store empty as NULL
}

func id[S ~string](name string, at *S) Column {
	return &word[S]{named: named(name), at: at, limit: maxID, must: true, ok: isID[S]}
}

// ref is a reference to another row, or empty.
func ref(name string, at *string) Column {
	return &word[string]{named: named(name), at: at, limit: maxID, null: true, ok: func(s string) bool { return s == "" || isID(s) }}
}

func text(name string, at *string, limit int) Column {
	return &word[string]{named: named(name), at: at, limit: limit}
}

func must(name string, at *string, limit int) Column {
	return &word[string]{named: named(name), at: at, limit: limit, must: true}
}

func oneOf[S interface {
	~string
	Valid() bool
}](name string, at *S,
) Column {
	return &word[S]{named: named(name), at: at, limit: maxID, must: true, ok: S.Valid}
}

func isID[S ~string](s S) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return s != ""
}

func (w *word[S]) Value() any {
	if w.null && *w.at == "" {
		return nil
	}
	return string(*w.at)
}

func (w *word[S]) Scan(kept any) error {
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
	if w.ok != nil && !w.ok(S(s)) {
		return damaged(w.Name(), fmt.Errorf("%q is not one of its values", s))
	}
	*w.at = S(s)
	return nil
}

func (w *word[S]) clean(table string) error {
	s := Text(string(*w.at))
	*w.at = S(s)
	switch {
	case len(s) > w.limit:
		return tooLong(table, w.Name(), len(s), w.limit)
	case w.must && s == "":
		return invalid(table, w.Name(), "is empty")
	case w.ok != nil && !w.ok(S(s)):
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

func count(name string, at *int) Column { return &number{named(name), at} }

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

func flag(name string, at *bool) Column { return &truth{named(name), at} }

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

func moment(name string, at *time.Time, must bool) Column {
	return &instant{named(name), func() time.Time { return *at }, func(t time.Time) { *at = t }, must}
}

func millis(name string, at *Millis, must bool) Column {
	return &instant{named(name), at.Time, func(t time.Time) { *at = At(t) }, must}
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

func object(name string, at *json.RawMessage) Column { return &document{named(name), at, "{}"} }
func list(name string, at *json.RawMessage) Column   { return &document{named(name), at, "[]"} }

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
