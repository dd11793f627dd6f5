package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
	"go.yaml.in/yaml/v4"
)

// maxFile bounds config.yaml.
const maxFile = 1 << 20

// notSections are variables of the command line, not keys (decision R3).
func notSections() []string {
	return []string{"JUNCTOR_HOME", "JUNCTOR_URL", "JUNCTOR_TOKEN", "JUNCTOR_GATEWAY"}
}

// Load merges the layers and validates the result. file may be absent unless
// required. environ is os.Environ's form; flags maps key paths ("listen",
// "audit.mode") to the values given on the command line.
func Load(home, file string, required bool, environ []string, flags map[string]any) (Config, error) {
	c := Default()
	c.Home = home
	k := koanf.New(".")
	layer, err := readFile(file, required)
	if err != nil {
		return c, err
	}
	env, err := readEnv(environ)
	if err != nil {
		return c, err
	}
	for _, m := range []map[string]any{layer, env, flags} {
		if err := k.Load(confmap.Provider(m, "."), nil); err != nil {
			return c, err
		}
	}
	err = k.UnmarshalWithConf("", &c, koanf.UnmarshalConf{
		Tag: "koanf",
		DecoderConfig: &mapstructure.DecoderConfig{
			Result: &c, TagName: "koanf", ErrorUnused: true, WeaklyTypedInput: true,
			DecodeHook: mapstructure.ComposeDecodeHookFunc(
				mapstructure.StringToTimeDurationHookFunc(), mapstructure.TextUnmarshallerHookFunc(),
			),
		},
	})
	if err != nil {
		return c, fmt.Errorf("configuration: %w", err)
	}
	return c, c.Validate()
}

// Key is one line of the reference.
type Key struct {
	Path    string
	Env     string
	Type    string
	Default string
	Doc     string
}

// Keys lists every key in the order of the structs.
func Keys() []Key {
	var out []Key
	def := Default()
	walk(reflect.ValueOf(def), "", func(path string, f reflect.StructField, v reflect.Value) {
		out = append(out, Key{
			Path: path, Env: envName(path), Type: typeName(f.Type), Default: fmt.Sprint(v.Interface()), Doc: f.Tag.Get("doc"),
		})
	})
	return out
}

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

func typeName(t reflect.Type) string {
	switch t.String() {
	case "time.Duration":
		return "duration"
	case "config.Size":
		return "size"
	case "[]config.Root":
		return "list of {id, path, read_only}"
	case "[]string":
		return "list of strings"
	case "int":
		return "number"
	case "bool":
		return "true or false"
	}
	return t.String()
}

func envName(path string) string {
	return "JUNCTOR_" + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

func readEnv(environ []string) (map[string]any, error) {
	known := make(map[string]Key)
	for _, k := range Keys() {
		known[k.Env] = k
	}
	out := make(map[string]any)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "JUNCTOR_") || slices.Contains(notSections(), name) {
			continue
		}
		k, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("environment: %s is not a known key; junctor config docs lists them", name)
		}
		switch k.Path {
		case "fs.roots":
			roots, err := parseRoots(value)
			if err != nil {
				return nil, fmt.Errorf("environment: %s: %w", name, err)
			}
			out[k.Path] = roots
		case "mcp.allowed_origins":
			out[k.Path] = strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
		default:
			out[k.Path] = value
		}
	}
	return out, nil
}

// parseRoots reads id=path[:ro], comma-separated.
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

func readFile(name string, required bool) (map[string]any, error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) && !required {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", name, maxFile)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	if err := checkNode(doc.Content[0], reflect.TypeFor[Config](), ""); err != nil {
		return nil, fmt.Errorf("%s:%w", name, err)
	}
	var out map[string]any
	if err := doc.Decode(&out); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

// checkNode refuses unknown keys and wrong shapes with their line.
func checkNode(n *yaml.Node, t reflect.Type, path string) error {
	switch {
	case n.Kind == yaml.AliasNode:
		return fmt.Errorf("%d: %s: aliases are not supported", n.Line, path)
	case t.Kind() == reflect.Struct:
		if n.Kind != yaml.MappingNode {
			return fmt.Errorf("%d: %s must be a mapping", n.Line, orTop(path))
		}
		seen := make(map[string]bool)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			at := strings.TrimPrefix(path+"."+key.Value, ".")
			if seen[key.Value] {
				return fmt.Errorf("%d: %s is given twice", key.Line, at)
			}
			seen[key.Value] = true
			f, ok := field(t, key.Value)
			if !ok {
				return fmt.Errorf("%d: %s is not a known key; junctor config docs lists them", key.Line, at)
			}
			if err := checkNode(n.Content[i+1], f.Type, at); err != nil {
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

// Values is c as nested maps by key, for show.
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

func plainValue(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case fmt.Stringer: // durations and sizes as they are written
		return x.String()
	case []Root:
		roots := []any{}
		for _, r := range x {
			roots = append(roots, map[string]any{"id": r.ID, "path": r.Path, "read_only": r.ReadOnly})
		}
		return roots
	case []string:
		return append([]string{}, x...)
	}
	return v.Interface()
}
