// Package row defines the thirteen rows of the task registry and the values of their columns.
// The fields of a row name its columns, and each [Column] cleans its value before it is written,
// converts it for SQL, and checks it when it is read. The same list serves the tables, the
// limits and the JSON on the wire.
//
// Texts come from agents, models and users. Invalid UTF-8 and NUL are replaced by U+FFFD, so that
// SQLite and Postgres store the same; texts that are too long are refused, not cut. Times have
// millisecond precision. Documents are stored as received, and are an object or a list, depending
// on the column. On the wire the columns have camelCase names, documents without their suffix, and
// times that are not set are left out.
package row

import (
	"time"

	"github.com/junctor-run/junctor/internal/base/ids"
)

// Row is one row of one table: a pointer to one of the types of this package.
type Row interface {
	// Table returns the name of its table.
	Table() string
}

// Millis is a time on the wires that count milliseconds since 1970; 0 means no time.
type Millis int64

// At converts t to Millis; the zero time to 0.
func At(t time.Time) Millis {
	if t.IsZero() {
		return 0
	}
	return Millis(t.UnixMilli())
}

// Time converts m to a time; 0 to the zero time.
func (m Millis) Time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m)).UTC()
}

// NewID returns a random id: the prefix, which names the kind of row, and 32 hex digits.
func NewID(prefix string) string {
	return ids.Hex(prefix+"_", 16)
}

// Key returns the key column of a row: session_id of sessions and pending decisions, otherwise id.
func Key(r Row) Column {
	name := "id"
	switch r.(type) {
	case *Session, *PendingDecision:
		name = "session_id"
	}
	for _, c := range Columns(r) {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// Clean normalises the columns of r before it is written. It fails with invalid_input or too_large,
// naming the column and its bound.
func Clean(r Row) error {
	for _, c := range Columns(r) {
		if err := c.clean(r.Table()); err != nil {
			return err
		}
	}
	return nil
}
