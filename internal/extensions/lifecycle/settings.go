package lifecycle

// This file masks, merges and filters the settings of an extension. A value whose name
// suggests a secret is shown as ***, and *** in a change keeps the stored value.

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// maskedValue is shown in place of a secret value.
const maskedValue = "***"

// SecretMember reports whether a member's name suggests a secret.
func SecretMember(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"key", "secret", "token", "password"}, func(word string) bool { return strings.Contains(name, word) })
}

// secretNames holds the members that the manifest declares as secrets, in addition to
// those of SecretMember.
type secretNames []string

func (n secretNames) secret(name string) bool { return SecretMember(name) || slices.Contains(n, name) }

// maskSettings replaces secret values with *** at every depth. declared are the names
// that the manifest uses as secrets, here and in the functions below.
func maskSettings(doc json.RawMessage, declared ...string) (json.RawMessage, error) {
	return rewriteSettings(doc, declared, func(json.RawMessage) (json.RawMessage, bool) {
		return json.RawMessage(`"` + maskedValue + `"`),
			true
	})
}

// publicSettings returns the settings without secret values, for the copy in the
// extension's working folder.
func publicSettings(doc json.RawMessage, declared ...string) (json.RawMessage, error) {
	return rewriteSettings(doc, declared, func(json.RawMessage) (json.RawMessage, bool) { return nil, false })
}

// mergeSettings validates new settings and replaces each *** of a secret with the stored
// value. Errors: invalid_input, if next is not an object or a *** has no stored value;
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

// hasSecrets reports whether next sets a secret to a value other than ***.
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

// rewriteSettings replaces every secret value with the result of f, or removes it if f
// returns false.
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

// mergeSetting is mergeSettings for the value at a path. A list that contains *** must
// equal the stored list as it is shown, otherwise it is refused.
func mergeSetting(stored, next json.RawMessage, is secretNames, at string, depth int) (json.RawMessage, error) {
	if depth > maxSettingsDepth {
		return nil, badSettings("the settings are more than %d deep", maxSettingsDepth)
	}
	if kindOfSetting(next) == '[' && strings.Contains(string(next), `"`+maskedValue+`"`) {
		// In a changed list, the stored value of a *** is ambiguous.
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
