package analyze

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/internal/base/text"
)

const firstLines = 10

func itoa(n int) string { return strconv.Itoa(n) }

// extract returns the analysis without a model: the format, the size and the first
// lines of the content, and the outline of JSON. It is deterministic.
func extract(content string) string {
	var b strings.Builder
	format, value := detect(content)
	lines := strings.Split(strings.TrimRight(content, "\n"), "\n")
	fmt.Fprintf(&b, "Format: %s\nSize: %d characters, %d %s\n", format, utf8.RuneCountInString(content), len(lines),
		plural(len(lines), "line"))
	if format == "JSON" {
		outline(&b, value)
	}
	b.WriteString("\nFirst lines:\n")
	for _, line := range lines[:min(firstLines, len(lines))] {
		if short := text.CutBytes(line, maxLine); short != line {
			line = short + "…"
		}
		b.WriteString("  " + line + "\n")
	}
	if more := len(lines) - firstLines; more > 0 {
		fmt.Fprintf(&b, "  … %d more %s\n", more, plural(more, "line"))
	}
	return b.String()
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// detect guesses the format (JSON, HTML, XML or text) by the beginning of the content.
// The value is that of JSON, else nil.
func detect(content string) (string, any) {
	s := strings.TrimSpace(content)
	if strings.HasPrefix(s, "{") || strings.HasPrefix(s, "[") {
		if value, err := parse([]byte(s)); err == nil {
			return "JSON", value
		}
	}
	if strings.HasPrefix(s, "<") {
		start := strings.ToLower(text.CutBytes(s, 512))
		if strings.HasPrefix(start, "<!doctype html") || strings.Contains(start, "<html") {
			return "HTML", nil
		}
		return "XML", nil
	}
	return "text", nil
}

// parse reads exactly one JSON value, with numbers as [json.Number]. Duplicate names
// are accepted, because services do send them.
func parse(data []byte) (any, error) {
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	return value, nil
}

// outline writes the type and depth of a value, and the members of an object or the
// number of array items by type.
func outline(b *strings.Builder, value any) {
	fmt.Fprintf(b, "Top level: %s\nDepth: %d\n", describe(value), depth(value))
	switch v := value.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		if len(keys) > 0 {
			b.WriteString("Keys:\n")
		}
		for i, k := range keys {
			if i == maxKeys {
				fmt.Fprintf(b, "  … %d more\n", len(keys)-maxKeys)
				break
			}
			fmt.Fprintf(b, "  %s: %s\n", label(k), describe(v[k]))
		}
	case []any:
		kinds := make(map[string]int)
		for _, item := range v {
			kinds[kind(item)]++
		}
		for _, k := range slices.Sorted(maps.Keys(kinds)) {
			fmt.Fprintf(b, "  %d × %s\n", kinds[k], k)
		}
	}
}

// label returns a name or value of JSON as one line without control characters, cut to
// maxLine bytes.
func label(s string) string { return text.CutBytes(text.OneLine(text.StripControl(s)), maxLine) }

func describe(value any) string {
	switch v := value.(type) {
	case map[string]any:
		return fmt.Sprintf("object with %d %s", len(v), plural(len(v), "key"))
	case []any:
		return fmt.Sprintf("array of %d %s", len(v), plural(len(v), "item"))
	}
	return kind(value)
}

func kind(value any) string {
	switch value.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case json.Number:
		return "number"
	case bool:
		return "boolean"
	}
	return "null"
}

// depth returns how deeply objects and arrays are nested; 0 for a scalar.
func depth(value any) int {
	most := 0
	switch v := value.(type) {
	case map[string]any:
		for _, item := range v {
			most = max(most, depth(item))
		}
		return most + 1
	case []any:
		for _, item := range v {
			most = max(most, depth(item))
		}
		return most + 1
	}
	return 0
}
