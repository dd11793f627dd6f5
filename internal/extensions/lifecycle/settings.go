package lifecycle

// This file holds the rules for an extension's own settings: what is shown
// of them, what a change may leave untouched, and what the extension itself finds
// of them in its working folder. A value whose name speaks of a secret is never
// shown, and what is shown in its place never overwrites it.

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// maxSettings bounds the settings of one extension, as JSON.
const maxSettings = 64 << 10

// maskedValue is shown in place of a secret value.
const maskedValue = "***"

const maxSettingsDepth = 16

// secretMember reports whether a member's name speaks of a secret.
func secretMember(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"key", "secret", "token", "password"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// secretNames states which members are secrets: those whose name says so, and those that the
// manifest declares to be.
type secretNames []string

func (n secretNames) secret(name string) bool { return secretMember(name) || slices.Contains(n, name) }

// maskSettings replaces secret values by ***, however deep they are. declared are the names
// that the manifest uses as secrets, here and below.
func maskSettings(doc json.RawMessage, declared ...string) (json.RawMessage, error) {
	return rewriteSettings(doc, declared, func(json.RawMessage) (json.RawMessage, bool) {
		return json.RawMessage(`"` + maskedValue + `"`),
			true
	})
}

// publicSettings leaves secret values out: it is what an extension finds in its working
// folder.
func publicSettings(doc json.RawMessage, declared ...string) (json.RawMessage, error) {
	return rewriteSettings(doc, declared, func(json.RawMessage) (json.RawMessage, bool) { return nil, false })
}

// mergeSettings checks new settings and puts the stored value where a secret is *** in
// them. invalid_input for a value that is not an object or holds *** where nothing is stored;
// too_large beyond 64 KiB.
func mergeSettings(stored, next json.RawMessage, declared ...string) (json.RawMessage, error) {
	if len(next) > maxSettings {
		return nil, capability.Errorf(capability.CodeTooLarge, "settings", "the settings have more than %d bytes", maxSettings)
	}
	out, err := mergeSetting(stored, next, declared, "", 0)
	if err != nil {
		return nil, err
	}
	if len(out) == 0 || out[0] != '{' {
		return nil, badSettings("the settings are not an object")
	}
	return out, nil
}

// hasSecrets reports whether a change would write a secret value; *** does not.
func hasSecrets(next json.RawMessage, declared ...string) bool {
	found := false
	_, _ = rewriteSettings(next, declared, func(v json.RawMessage) (json.RawMessage, bool) {
		found = found || string(v) != `"`+maskedValue+`"`
		return v, true
	})
	return found
}

func badSettings(format string, args ...any) error {
	return capability.Errorf(capability.CodeInvalidInput, "settings", format, args...).With("invalid_settings", "")
}

// rewriteSettings passes every secret value through f, which may drop it.
func rewriteSettings(doc json.RawMessage, is secretNames, f func(json.RawMessage) (json.RawMessage, bool)) (json.RawMessage, error) {
	return walkSettings(doc, is, f, 0)
}

func walkSettings(doc json.RawMessage, is secretNames, f func(json.RawMessage) (json.RawMessage, bool),
	depth int,
) (json.RawMessage, error) {
	if depth > maxSettingsDepth {
		return nil, badSettings("the settings are more than %d deep", maxSettingsDepth)
	}
	switch kindOfSetting(doc) {
	case '{':
		var all map[string]json.RawMessage
		if err := jsonx.Unmarshal(doc, &all); err != nil {
			return nil, badSettings("the settings cannot be read: %.200s", err)
		}
		for name, v := range all {
			if is.secret(name) {
				var keep bool
				if all[name], keep = f(v); !keep {
					delete(all, name)
				}
				continue
			}
			next, err := walkSettings(v, is, f, depth+1)
			if err != nil {
				return nil, err
			}
			all[name] = next
		}
		return jsonx.Marshal(all)
	case '[':
		var all []json.RawMessage
		if err := jsonx.Unmarshal(doc, &all); err != nil {
			return nil, badSettings("the settings cannot be read: %.200s", err)
		}
		for i, v := range all {
			next, err := walkSettings(v, is, f, depth+1)
			if err != nil {
				return nil, err
			}
			all[i] = next
		}
		return jsonx.Marshal(all)
	}
	return doc, nil
}

func kindOfSetting(doc json.RawMessage) byte {
	for _, c := range doc {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}

func mergeSetting(stored, next json.RawMessage, is secretNames, at string, depth int) (json.RawMessage, error) {
	if depth > maxSettingsDepth {
		return nil, badSettings("the settings are more than %d deep", maxSettingsDepth)
	}
	if kindOfSetting(next) == '[' && strings.Contains(string(next), `"`+maskedValue+`"`) {
		// Which value of the list it stands for cannot be told.
		if kindOfSetting(stored) == '[' {
			if shown, err := maskSettings(stored, is...); err == nil && sameSetting(shown, next) {
				return stored, nil
			}
		}
		return nil, badSettings("%s: a secret in a list must be written out when the list changes", at)
	}
	if kindOfSetting(next) != '{' {
		if !jsonx.Valid(next) {
			return nil, badSettings("%s is not JSON", at)
		}
		return next, nil
	}
	var old, all map[string]json.RawMessage
	if err := jsonx.Unmarshal(next, &all); err != nil {
		return nil, badSettings("the settings cannot be read: %.200s", err)
	}
	if kindOfSetting(stored) == '{' {
		if err := jsonx.Unmarshal(stored, &old); err != nil {
			return nil, badSettings("the stored settings cannot be read")
		}
	}
	for name, v := range all {
		if is.secret(name) && string(v) == `"`+maskedValue+`"` {
			if _, there := old[name]; !there {
				return nil, badSettings("%s/%s: nothing is stored that %s could stand for", at, name, maskedValue)
			}
			all[name] = old[name]
			continue
		}
		one, err := mergeSetting(old[name], v, is, at+"/"+name, depth+1)
		if err != nil {
			return nil, err
		}
		all[name] = one
	}
	return jsonx.Marshal(all)
}

func sameSetting(a, b json.RawMessage) bool {
	x, err := jsonx.Sorted(a)
	if err != nil {
		return false
	}
	y, err := jsonx.Sorted(b)
	return err == nil && string(x) == string(y)
}
