// Package row defines the thirteen rows of the task registry and the values of their columns.
// Each row lists its columns once, and each [Column] cleans its value before it is written,
// converts it for SQL, and checks it when it is read. The same list serves the tables, the
// limits and the JSON on the wire.
//
// Texts come from agents, models and people. What is not UTF-8, and NUL, becomes
// U+FFFD, so that SQLite and Postgres keep the same; what is too long is refused,
// never cut in silence. Times are kept to the millisecond. Documents stay the bytes
// that came, and are an object or a list, as the column says. On the wire the columns
// have camelCase names, documents without their suffix, and what is not set is left
// out where it is a time.
package row

import (
	"time"

	"github.com/junctor-run/junctor/internal/base/ids"
)

// Bounds of one column, in bytes; what exceeds them is too_large.
const (
	MaxName     = 1 << 10 // ids have 128
	MaxPath     = 4 << 10
	MaxText     = 256 << 10
	MaxDocument = 256 << 10
	MaxDepth    = 64 // levels of a document
	maxID       = 128
)

// Row is one row of one table: a pointer to one of the types of this package.
type Row interface {
	// Table is the name of its table.
	Table() string
	// Columns point into the row; the first that names the row is [Key]'s.
	Columns() []Column
}

// Millis is a time on the wires that count milliseconds since 1970; 0 means no time.
type Millis int64

// At is t as Millis.
func At(t time.Time) Millis {
	if t.IsZero() {
		return 0
	}
	return Millis(t.UnixMilli())
}

// Time is m as a time; the zero time for none.
func (m Millis) Time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m)).UTC()
}

// NewID returns a random id: the prefix, which says of what, and 32 hex digits.
func NewID(prefix string) string {
	return ids.Hex(prefix+"_", 16)
}

// Key is the column that names a row: session_id of sessions and of pending decisions,
// else id.
func Key(r Row) Column {
	name := "id"
	switch r.(type) {
	case *Session, *PendingDecision:
		name = "session_id"
	}
	for _, c := range r.Columns() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// Clean makes r what may be written, or states why it cannot be: invalid_input or
// too_large, with the column and its bound.
func Clean(r Row) error {
	for _, c := range r.Columns() {
		if err := c.clean(r.Table()); err != nil {
			return err
		}
	}
	return nil
}
