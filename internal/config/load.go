package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
	"go.yaml.in/yaml/v4"
)

// notSections returns the JUNCTOR_ variables that configure the command line and have no key.
func notSections() []string {
	return []string{"JUNCTOR_HOME", "JUNCTOR_URL", "JUNCTOR_TOKEN", "JUNCTOR_GATEWAY"}
}

// Load merges the layers and validates the result. file may be absent unless
// required. environ is os.Environ's form; flags maps key paths ("listen",
// "audit.mode") to the values given on the command line. programs lists the coding CLIs
// that the configuration may name; if nil, it can name none.
func Load(home, file string, required bool, environ []string, flags map[string]any, programs []Program) (Config, error) {
	c := Default()
	c.Home, c.Programs = home, programs
	k := koanf.New(".")
	layer, err := readFile(file, required)
	if err != nil {
		return c, err
	}
	env, err := readEnv(environ)
	if err != nil {
		return c, err
	}
	for path, t := range leaves() {
		if text, ok := flags[path].(string); ok {
			if err := checkText(t, text); err != nil {
				return c, fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	alias, err := aliases(environ, programs)
	if err != nil {
		return c, err
	}
	foreign, path, err := foreignFile(environ, programs)
	if err != nil {
		return c, err
	}
	for _, m := range []map[string]any{layer, alias.keys, env, flags} {
		if err := k.Load(confmap.Provider(m, "."), nil); err != nil {
			return c, err
		}
	}
	c.Foreign = Foreign{Path: path, Secrets: foreign.secrets, Given: alias.secrets}
	for _, key := range k.Keys() {
		if strings.HasPrefix(key, "agents.") {
			c.Foreign.Said = append(c.Foreign.Said, key)
		}
	}
	all := koanf.New(".")
	if err := all.Load(confmap.Provider(foreign.keys, "."), nil); err != nil {
		return c, err
	}
	if err := all.Merge(k); err != nil {
		return c, err
	}
	if all.Exists("approvals.wait") { // it is for every client that is not set itself
		c.Clients = nil
	}
	if err := decode(all, &c); err != nil {
		return c, err
	}
	if environ, err = withElizaFiles(environ); err != nil {
		return c, err
	}
	if c.Eliza, err = ReadEliza(environ); err != nil {
		return c, err
	}
	return c, c.Validate()
}

func decode(k *koanf.Koanf, c *Config) error {
	err := k.UnmarshalWithConf("", c, koanf.UnmarshalConf{
		Tag: "koanf",
		DecoderConfig: &mapstructure.DecoderConfig{
			Result: c, TagName: "koanf", ErrorUnused: true, WeaklyTypedInput: true,
			DecodeHook: mapstructure.ComposeDecodeHookFunc(
				mapstructure.StringToTimeDurationHookFunc(), mapstructure.TextUnmarshallerHookFunc(),
			),
		},
	})
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}

// leaves returns the type of each key.
func leaves() map[string]reflect.Type {
	out := make(map[string]reflect.Type)
	walk(reflect.ValueOf(Default()), "", func(path string, f reflect.StructField, _ reflect.Value) { out[path] = f.Type })
	return out
}

// checkText returns an error if text is not a value of type t. It is stricter than the
// decoder, which takes 5 for a duration of 5 ns.
func checkText(t reflect.Type, text string) error {
	switch {
	case t.Kind() == reflect.Pointer:
		return checkText(t.Elem(), text)
	case t == reflect.TypeFor[time.Duration]():
		if _, err := time.ParseDuration(text); err != nil {
			return fmt.Errorf("%q is not a duration; write 30s, 5m or 1h30m", text)
		}
	case t == reflect.TypeFor[Size]():
		return new(Size).UnmarshalText([]byte(text))
	case t.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%q is neither true nor false", text)
		}
	case t.Kind() == reflect.Int:
		if _, err := strconv.Atoi(text); err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
	}
	return nil
}

// Key is one line of the reference.
type Key struct {
	Path    string
	Env     string
	Type    string
	Default string
	Doc     string
	// Runtime reports whether the key can also be set while the server runs.
	Runtime bool
}

// Keys lists every key in the order of the structs.
func Keys() []Key {
	var out []Key
	def := Default()
	walk(reflect.ValueOf(def), "", func(path string, f reflect.StructField, v reflect.Value) {
		out = append(out, Key{
			Path: path, Env: envName(path), Type: typeName(f.Type), Default: defaultText(v), Doc: f.Tag.Get("doc"),
			Runtime: f.Tag.Get("runtime") == "true",
		})
	})
	return out
}

// defaultText returns a default in the form of the file, "" if none exists.
func defaultText(v reflect.Value) string {
	text := fmt.Sprint(v.Interface())
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		if short, whole := strings.CutSuffix(text, "m0s"); whole {
			text = short + "m"
		}
		if short, whole := strings.CutSuffix(text, "h0m"); whole {
			text = short + "h"
		}
	case v.Type() == reflect.TypeFor[[]string]():
		return strings.Join(v.Interface().([]string), ", ")
	case text == "[]", text == "map[]":
		return ""
	case v.Type() == reflect.TypeFor[map[string]Client]():
		data, _ := json.Marshal(plainValue(v)) // texts only
		return string(data)
	}
	return text
}

// walk calls leaf with the path, field and value of every key in the struct v, recursively.
func walk(v reflect.Value, prefix string, leaf func(string, reflect.StructField, reflect.Value)) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := f.Tag.Get("koanf")
		if name == "-" || name == "" {
			continue
		}
		path := strings.TrimPrefix(prefix+"."+name, ".")
		if f.Type.Kind() == reflect.Struct {
			walk(v.Field(i), path, leaf)
			continue
		}
		leaf(path, f, v.Field(i))
	}
}

// typeName returns the name of a type for the reference and for errors.
func typeName(t reflect.Type) string {
	switch t.String() {
	case "time.Duration":
		return "duration"
	case "config.Size":
		return "size"
	case "[]config.Root":
		return "list of {id, path, read_only}"
	case "[]config.PublicRoute":
		return "list of {endpoint, module, method, path}"
	case "[]config.ModelRoute":
		return "list of {class, kind, url, name, key_secret, action, price_in, price_out}"
	case "[]config.View":
		return "list of {name, exposure, modules, own_names, name_limit, dotted}"
	case "map[string]config.Client":
		return "{approvals_wait} by name"
	case "[]string":
		return "list"
	case "int":
		return "number"
	case "bool":
		return "boolean"
	}
	return t.String()
}

func envName(path string) string {
	return "JUNCTOR_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// readEnv returns the values of the JUNCTOR_ variables by key path. An unknown variable or a
// malformed value is an error.
func readEnv(environ []string) (map[string]any, error) {
	known := make(map[string]string) // name → path
	types := leaves()
	for path := range types {
		known[envName(path)] = path
	}
	out := make(map[string]any)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "JUNCTOR_") || slices.Contains(notSections(), name) {
			continue
		}
		path, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("environment: %s is not a known key", name)
		}
		switch types[path] {
		case reflect.TypeFor[[]Root]():
			roots, err := parseRoots(value)
			if err != nil {
				return nil, fmt.Errorf("environment: %s: %w", name, err)
			}
			out[path] = roots
		case reflect.TypeFor[[]PublicRoute]():
			routes, err := parsePublicRoutes(value)
			if err != nil {
				return nil, fmt.Errorf("environment: %s: %w", name, err)
			}
			out[path] = routes
		case reflect.TypeFor[[]ModelRoute]():
			routes, err := parseModelRoutes(value)
			if err != nil {
				return nil, fmt.Errorf("environment: %s: %w", name, err)
			}
			out[path] = routes
		case reflect.TypeFor[[]View]():
			views, err := parseViews(value)
			if err != nil {
				return nil, fmt.Errorf("environment: %s: %w", name, err)
			}
			out[path] = views
		case reflect.TypeFor[map[string]Client]():
			if value == "" {
				break
			}
			doc, err := parse([]byte("clients: " + value)) // JSON is YAML
			if err != nil {
				return nil, fmt.Errorf("environment: %s: clients are written as a JSON object: %w", name, err)
			}
			out[path] = doc["clients"]
		case reflect.TypeFor[[]string]():
			out[path] = strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
		default:
			if err := checkText(types[path], value); err != nil {
				return nil, fmt.Errorf("environment: %s: %w", name, err)
			}
			out[path] = value
		}
	}
	return out, nil
}

// parseRoots parses a comma-separated list of id=path[:ro].
func parseRoots(s string) ([]any, error) {
	var out []any
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		id, path, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not id=path", part)
		}
		path, ro := strings.CutSuffix(path, ":ro")
		out = append(out, map[string]any{"id": id, "path": path, "read_only": ro})
	}
	return out, nil
}

// readFile reads and checks config.yaml. The result is nil if the file is missing and not
// required.
func readFile(name string, required bool) (map[string]any, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) && !required {
		return nil, nil
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no file %s", name)
	case err != nil:
		return nil, fmt.Errorf("the file %s cannot be read", name)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", name, maxFile)
	}
	out, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", name, err)
	}
	return out, nil
}

// parse parses and checks one YAML document; its errors begin with the line.
func parse(data []byte) (map[string]any, error) {
	var doc, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf(" %w", err)
	}
	if err := d.Decode(&more); err == nil {
		return nil, fmt.Errorf("%d: a second document; there can be only one", more.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf(" %w", err)
	}
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return nil, nil
	}
	if err := checkNode(doc.Content[0], reflect.TypeFor[Config](), ""); err != nil {
		return nil, err
	}
	var out map[string]any
	if err := doc.Decode(&out); err != nil {
		return nil, fmt.Errorf(" %w", err)
	}
	return out, nil
}

// checkNode returns an error, which begins with the line, for an unknown or duplicate key, a
// missing value, an alias or a value that does not fit type t.
func checkNode(n *yaml.Node, t reflect.Type, path string) error {
	switch {
	case n.Tag == "!!null":
		return fmt.Errorf("%d: %s has no value; leave the line out", n.Line, path)
	case n.Kind == yaml.AliasNode:
		return fmt.Errorf("%d: %s: aliases are not supported", n.Line, path)
	case t.Kind() == reflect.Struct || t.Kind() == reflect.Map:
		if n.Kind != yaml.MappingNode {
			return fmt.Errorf("%d: %s must be a mapping", n.Line, orTop(path))
		}
		seen := make(map[string]bool)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			at := strings.TrimPrefix(path+"."+key.Value, ".")
			if key.Kind != yaml.ScalarNode {
				return fmt.Errorf("%d: a key of %s must be a name", key.Line, orTop(path))
			}
			if seen[key.Value] {
				return fmt.Errorf("%d: %s is given twice", key.Line, at)
			}
			seen[key.Value] = true
			var value reflect.Type
			if t.Kind() == reflect.Map {
				value = t.Elem()
			} else if f, ok := field(t, key.Value); ok {
				value = f.Type
			} else {
				return fmt.Errorf("%d: %s is not a known key", key.Line, at)
			}
			if err := checkNode(n.Content[i+1], value, at); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			return fmt.Errorf("%d: %s must be a list", n.Line, path)
		}
		for i, item := range n.Content {
			if err := checkNode(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case n.Kind != yaml.ScalarNode:
		return fmt.Errorf("%d: %s must be a single value (%s)", n.Line, path, typeName(t))
	default:
		if err := checkText(t, n.Value); err != nil {
			return fmt.Errorf("%d: %s: %w", n.Line, path, err)
		}
	}
	return nil
}

func orTop(path string) string {
	if path == "" {
		return "the configuration"
	}
	return path
}

func field(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("koanf") == name && name != "-" {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// Values returns the settings as nested maps by key, for display.
func Values(c Config) map[string]any {
	out := make(map[string]any)
	walk(reflect.ValueOf(c), "", func(path string, _ reflect.StructField, v reflect.Value) {
		at := out
		names := strings.Split(path, ".")
		for _, name := range names[:len(names)-1] {
			next, ok := at[name].(map[string]any)
			if !ok {
				next = make(map[string]any)
				at[name] = next
			}
			at = next
		}
		at[names[len(names)-1]] = plainValue(v)
	})
	return out
}

// plainValue converts a setting to maps, lists and simple values; durations and sizes become
// text.
func plainValue(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case fmt.Stringer: // durations and sizes in their text form
		return x.String()
	case []Root:
		roots := []any{}
		for _, r := range x {
			roots = append(roots, map[string]any{"id": r.ID, "path": r.Path, "read_only": r.ReadOnly})
		}
		return roots
	case []PublicRoute:
		routes := []any{}
		for _, r := range x {
			routes = append(routes, map[string]any{"endpoint": r.Endpoint, "module": r.Module, "method": r.Method, "path": r.Path})
		}
		return routes
	case []ModelRoute:
		return plainModelRoutes(x)
	case []View:
		return plainViews(x)
	case map[string]Client:
		clients := make(map[string]any)
		for name, c := range x {
			clients[name] = map[string]any{}
			if c.ApprovalsWait != nil {
				clients[name] = map[string]any{"approvals_wait": c.ApprovalsWait.String()}
			}
		}
		return clients
	case []string:
		return append([]string{}, x...)
	}
	return v.Interface()
}
