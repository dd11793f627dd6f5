package arbitration

import (
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/core/catalog"
)

// howToName returns a hint how the caller selects one of the candidates: with a selector field
// of the family if it distinguishes them, else with the provider key.
func howToName(candidates []*catalog.Entry) string {
	if len(candidates) == 0 {
		return ""
	}
	for _, field := range candidates[0].Family.SelectorFields {
		var values []string
		for _, e := range candidates {
			if v, ok := SelectorValue(e, field); ok {
				values = append(values, v)
			}
		}
		slices.Sort(values)
		if values = slices.Compact(values); len(values) == len(candidates) {
			return fmt.Sprintf("set selector.%s to one of: %s", field, strings.Join(values, ", "))
		}
	}
	return "set selector.provider to one of: " + strings.Join(Keys(candidates), ", ")
}

// SelectorValue returns the value of a selector field that matches the entry. ok is false if
// the field cannot identify it.
func SelectorValue(e *catalog.Entry, field string) (value string, ok bool) {
	_, kind, instance := e.Key().Parts()
	switch field {
	case "provider":
		return string(e.Key()), true
	case "channel", "kind", "store":
		return unescape(kind), true
	case "account", "instance":
		return unescape(instance), true
	case "endpoint", "node":
		return unescape(instance), kind == field
	case "extension":
		return e.Module.Extension, true
	}
	return "", false
}

// unescape undoes the percent encoding of a provider key's segment.
func unescape(segment string) string {
	if !strings.Contains(segment, "%") {
		return segment
	}
	var b strings.Builder
	for i := 0; i < len(segment); i++ {
		if segment[i] == '%' && i+2 < len(segment) {
			hi, lo := strings.IndexByte("0123456789ABCDEF", segment[i+1]), strings.IndexByte("0123456789ABCDEF", segment[i+2])
			if hi >= 0 && lo >= 0 {
				b.WriteByte(byte(hi<<4 | lo))
				i += 2
				continue
			}
		}
		b.WriteByte(segment[i])
	}
	return b.String()
}
