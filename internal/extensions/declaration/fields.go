package declaration

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// unknown returns the RFC 6901 paths of members for which a Go type has no field, sorted.
// Raw JSON and types with their own decoder are not inspected.
func unknown(data []byte, t reflect.Type) []string {
	w := walker{}
	w.walk(data, t, "")
	slices.Sort(w.found)
	return w.found
}

type walker struct{ found []string }

func (w *walker) walk(data []byte, t reflect.Type, path string) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || len(w.found) >= maxDiagnostics {
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
	case t.Kind() == reflect.Struct && data[0] == '{':
		w.object(data, t, path)
	case t.Kind() == reflect.Slice && data[0] == '[':
		var items []json.RawMessage
		if plain(t.Elem()) || json.Unmarshal(data, &items) != nil {
			return
		}
		for i, item := range items {
			w.walk(item, t.Elem(), path+"/"+strconv.Itoa(i))
		}
	}
}

func (w *walker) object(data []byte, t reflect.Type, path string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil {
		return
	}
	fields := make(map[string]reflect.Type)
	fieldsOf(t, fields)
	if len(fields) == 0 {
		return // a type with its own decoder, such as time.Time
	}
	for name, value := range members {
		at := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(Clean(name, 64))
		if of, ok := fields[name]; ok {
			w.walk(value, of, at)
		} else if len(w.found) < maxDiagnostics {
			w.found = append(w.found, at)
		}
	}
}

func fieldsOf(t reflect.Type, out map[string]reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			fieldsOf(f.Type, out)
		case f.IsExported() && name != "" && name != "-":
			out[name] = f.Type
		}
	}
}

// plain reports whether values of a type have no members.
func plain(t reflect.Type) bool {
	return t.Kind() != reflect.Struct && t.Kind() != reflect.Pointer && t.Kind() != reflect.Slice
}
