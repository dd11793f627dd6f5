package db

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// ReadParam parses a typed parameter: name=text, or name:=value with a JSON string,
// number, true, false or null. Anything else is invalid_input.
func ReadParam(typed string) (Param, error) {
	name, value, ok := strings.Cut(typed, "=")
	literal := strings.HasSuffix(name, ":")
	name = strings.TrimSuffix(name, ":")
	if !ok || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" || isDigit(name[0]) {
		return Param{}, fault.InvalidArgs("", "a parameter is written name=text, or name:=value for a number, true, false or null")
	}
	p := Param{Name: name, Value: json.RawMessage(value)}
	if !literal {
		doc, err := json.Marshal(value)
		p.Value = doc
		return p, err
	}
	_, err := p.scalar()
	return p, err
}

// scalar returns the value for SQLite: nil, bool, int64, float64 or string.
func (p Param) scalar() (any, error) {
	v, ok := scalar(p.Value)
	if n, is := v.(json.Number); ok && is {
		if i, err := n.Int64(); err == nil {
			return i, nil
		}
		f, err := n.Float64()
		v, ok = f, err == nil
	}
	if !ok {
		return nil, fault.InvalidArgs("", "the value of the parameter %s is not a JSON string, number, true, false or null", p.Name)
	}
	return v, nil
}

// scalar decodes one JSON value. It reports false for an array, an object and anything
// that is not JSON.
func scalar(doc json.RawMessage) (any, bool) {
	dec := json.NewDecoder(strings.NewReader(string(doc)))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil || dec.More() {
		return nil, false
	}
	switch v.(type) {
	case []any, map[string]any:
		return nil, false
	}
	return v, true
}

// cellOf encodes a value of SQLite as JSON, and reports whether it was cut.
func cellOf(v any) (doc json.RawMessage, truncated bool) {
	switch x := v.(type) {
	case string:
		v, truncated = cut(x)
	case []byte:
		n := min(len(x), MaxCell/2-2)
		v, truncated = `\x`+hex.EncodeToString(x[:n]), n < len(x)
	case time.Time: // the driver converts columns that are declared as dates
		format := "2006-01-02 15:04:05.999999999"
		if x.Hour()+x.Minute()+x.Second()+x.Nanosecond() == 0 {
			format = "2006-01-02"
		}
		if _, offset := x.Zone(); offset != 0 {
			format += "Z07:00"
		}
		v = x.Format(format)
	}
	doc, err := json.Marshal(v)
	if err != nil { // an infinite number
		doc, _ = json.Marshal(strconv.FormatFloat(v.(float64), 'g', -1, 64))
	}
	return doc, truncated
}

// cut returns the first MaxCell bytes of a text, with … if it was longer.
func cut(s string) (string, bool) {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= MaxCell {
		return s, false
	}
	return text.CutBytes(s, MaxCell) + "…", true
}

// check validates an answer of the worker, which is untrusted because the database file
// may have taken over its process: the limits apply, and every cell is a scalar.
func (a *answer) check() error {
	ok := len(a.Columns) <= maxColumns && len(a.Rows) <= MaxRows
	for _, row := range a.Rows {
		ok = ok && len(row) == len(a.Columns)
		for i := range row {
			v, scalar := scalar(row[i])
			if text, is := v.(string); is && len(text) > MaxCell+len("…") {
				ok = false
			}
			ok = ok && scalar
		}
	}
	if !ok {
		return capability.Errorf(capability.CodeFailed, op, "the answer cannot be read").With("execution_failed", "")
	}
	return nil
}

// render returns the answer as JSON or as a table for people, with the number of rows;
// changed selects "n rows changed" for a statement without columns.
func (a *answer) render(asJSON, changed bool) (string, error) {
	if asJSON {
		return a.asJSON()
	}
	var b strings.Builder
	if len(a.Columns) > 0 {
		a.table(&b)
	}
	switch {
	case changed && len(a.Columns) == 0:
		b.WriteString(plural(a.Affected, "row") + " changed\n")
	case a.Truncated:
		b.WriteString("(" + plural(int64(len(a.Rows)), "row") + "; there is more than is shown)\n")
	default:
		b.WriteString("(" + plural(int64(len(a.Rows)), "row") + ")\n")
	}
	return b.String(), nil
}

func plural(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.FormatInt(n, 10) + " " + noun
}

// asJSON returns an array of objects, whose members have the order of the columns.
func (a *answer) asJSON() (string, error) {
	names := make([][]byte, len(a.Columns))
	for i, c := range a.Columns {
		name, err := json.Marshal(c)
		if err != nil {
			return "", err
		}
		names[i] = name
	}
	var b strings.Builder
	b.WriteByte('[')
	for n, row := range a.Rows {
		if n > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n  {")
		for i, cell := range row {
			if i > 0 {
				b.WriteString(", ")
			}
			b.Write(names[i])
			b.WriteString(": ")
			b.Write(cell)
		}
		b.WriteByte('}')
	}
	b.WriteString("\n]\n")
	return b.String(), nil
}

// table writes aligned columns; columns with numbers are aligned to the right. Each
// cell is one line.
func (a *answer) table(b *strings.Builder) {
	lines := make([][]string, 0, len(a.Rows)+1)
	header := make([]string, len(a.Columns))
	for i, c := range a.Columns {
		header[i] = fault.OneLine(c)
	}
	lines = append(lines, header)
	numeric := make([]bool, len(a.Columns))
	for _, row := range a.Rows {
		line := make([]string, len(row))
		for i, cell := range row {
			v, _ := scalar(cell)
			switch x := v.(type) {
			case nil:
				line[i] = "NULL"
			case string:
				line[i] = fault.Clean(strings.NewReplacer("\n", "⏎", "\t", " ").Replace(x))
			case json.Number:
				line[i], numeric[i] = x.String(), true
			default:
				line[i] = string(cell)
			}
		}
		lines = append(lines, line)
	}
	width := make([]int, len(a.Columns))
	for _, line := range lines {
		for i, cell := range line {
			width[i] = max(width[i], min(utf8.RuneCountInString(cell), 60)) // so that one long text does not widen the whole column
		}
	}
	rule := make([]string, len(width))
	for i, w := range width {
		rule[i] = strings.Repeat("-", w)
	}
	for n, line := range append(lines[:1:1], append([][]string{rule}, lines[1:]...)...) {
		for i, cell := range line {
			pad := strings.Repeat(" ", max(width[i]-utf8.RuneCountInString(cell), 0))
			switch {
			case numeric[i] && n > 1:
				cell = pad + cell
			case i < len(line)-1:
				cell += pad
			}
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(cell)
		}
		b.WriteByte('\n')
	}
}
