// Package settings holds the rules for an extension's own settings: what is shown
// of them, what a change may leave untouched, and what the extension itself finds
// of them in its working folder. A value whose name speaks of a secret is never
// shown, and what is shown in its place never overwrites it.
package settings

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// MaxBytes bounds the settings of one extension, as JSON.
const MaxBytes = 64 << 10

// Masked is shown in place of a secret value.
const Masked = "***"

const maxDepth = 16

// Secret reports whether a member's name speaks of a secret.
func Secret(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"key", "secret", "token", "password"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// names says which members are secrets: those whose name says so, and those that the
// manifest declares to be.
type names []string

func (n names) secret(name string) bool { return Secret(name) || slices.Contains(n, name) }

// Mask replaces secret values by ***, however deep they are. declared are the names
// that the manifest uses as secrets, here and below.
func Mask(doc json.RawMessage, declared ...string) (json.RawMessage, error) {
	return rewrite(doc, declared, func(json.RawMessage) (json.RawMessage, bool) { return json.RawMessage(`"` + Masked + `"`), true })
}

// Public leaves secret values out: it is what an extension finds in its working
// folder.
func Public(doc json.RawMessage, declared ...string) (json.RawMessage, error) {
	return rewrite(doc, declared, func(json.RawMessage) (json.RawMessage, bool) { return nil, false })
}

// Merge checks new settings and puts the stored value where a secret is *** in
// them. invalid_input for what is no object or holds *** where nothing is stored;
// too_large beyond 64 KiB.
func Merge(stored, next json.RawMessage, declared ...string) (json.RawMessage, error) {
	if len(next) > MaxBytes {
		return nil, capability.Errorf(capability.CodeTooLarge, "settings", "the settings have more than %d bytes", MaxBytes)
	}
	out, err := merge(stored, next, declared, "", 0)
	if err != nil {
		return nil, err
	}
	if len(out) == 0 || out[0] != '{' {
		return nil, bad("the settings are not an object")
	}
	return out, nil
}

// HasSecrets reports whether a change would write a secret value; *** does not.
func HasSecrets(next json.RawMessage, declared ...string) bool {
	found := false
	_, _ = rewrite(next, declared, func(v json.RawMessage) (json.RawMessage, bool) {
		found = found || string(v) != `"`+Masked+`"`
		return v, true
	})
	return found
}

func bad(format string, args ...any) error {
	return capability.Errorf(capability.CodeInvalidInput, "settings", format, args...).With("invalid_settings", "")
}

// rewrite passes every secret value through f, which may drop it.
func rewrite(doc json.RawMessage, is names, f func(json.RawMessage) (json.RawMessage, bool)) (json.RawMessage, error) {
	return walk(doc, is, f, 0)
}

func walk(doc json.RawMessage, is names, f func(json.RawMessage) (json.RawMessage, bool), depth int) (json.RawMessage, error) {
	if depth > maxDepth {
		return nil, bad("the settings are more than %d deep", maxDepth)
	}
	switch kind(doc) {
	case '{':
		var all map[string]json.RawMessage
		if err := jsonx.Unmarshal(doc, &all); err != nil {
			return nil, bad("the settings cannot be read: %.200s", err)
		}
		for name, v := range all {
			if is.secret(name) {
				var keep bool
				if all[name], keep = f(v); !keep {
					delete(all, name)
				}
				continue
			}
			next, err := walk(v, is, f, depth+1)
			if err != nil {
				return nil, err
			}
			all[name] = next
		}
		return jsonx.Marshal(all)
	case '[':
		var all []json.RawMessage
		if err := jsonx.Unmarshal(doc, &all); err != nil {
			return nil, bad("the settings cannot be read: %.200s", err)
		}
		for i, v := range all {
			next, err := walk(v, is, f, depth+1)
			if err != nil {
				return nil, err
			}
			all[i] = next
		}
		return jsonx.Marshal(all)
	}
	return doc, nil
}

func kind(doc json.RawMessage) byte {
	for _, c := range doc {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}

func merge(stored, next json.RawMessage, is names, at string, depth int) (json.RawMessage, error) {
	if depth > maxDepth {
		return nil, bad("the settings are more than %d deep", maxDepth)
	}
	if kind(next) == '[' && strings.Contains(string(next), `"`+Masked+`"`) {
		// Which value of the list it stands for cannot be told.
		if kind(stored) == '[' {
			if shown, err := Mask(stored, is...); err == nil && same(shown, next) {
				return stored, nil
			}
		}
		return nil, bad("%s: a secret in a list must be written out when the list changes", at)
	}
	if kind(next) != '{' {
		if !jsonx.Valid(next) {
			return nil, bad("%s is not JSON", at)
		}
		return next, nil
	}
	var old, all map[string]json.RawMessage
	if err := jsonx.Unmarshal(next, &all); err != nil {
		return nil, bad("the settings cannot be read: %.200s", err)
	}
	if kind(stored) == '{' {
		if err := jsonx.Unmarshal(stored, &old); err != nil {
			return nil, bad("the stored settings cannot be read")
		}
	}
	for name, v := range all {
		if is.secret(name) && string(v) == `"`+Masked+`"` {
			if _, there := old[name]; !there {
				return nil, bad("%s/%s: nothing is stored that %s could stand for", at, name, Masked)
			}
			all[name] = old[name]
			continue
		}
		one, err := merge(old[name], v, is, at+"/"+name, depth+1)
		if err != nil {
			return nil, err
		}
		all[name] = one
	}
	return jsonx.Marshal(all)
}

func same(a, b json.RawMessage) bool {
	x, err := jsonx.Sorted(a)
	if err != nil {
		return false
	}
	y, err := jsonx.Sorted(b)
	return err == nil && string(x) == string(y)
}
