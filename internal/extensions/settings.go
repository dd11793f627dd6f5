package extensions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/secret"
)

// settings holds the settings of one extension and its access to stored secrets.
type settings struct {
	values map[string]json.RawMessage
	stored func(name string) (secret.Value, error)
	// declared are the names that the manifest uses as secrets.
	declared []string
	digest   string
}

// settings reads the settings of an extension. Its stored returns permission_denied for
// a secret that the package does not declare.
func (x *Service) settings(ctx context.Context, l *lifecycle.Loaded) (settings, error) {
	s := settings{stored: func(name string) (secret.Value, error) {
		if !declared(l.Package, name) { // the extension has no consent for it
			return secret.Value{}, fault.PermissionDenied("env.secrets", "the manifest does not say that it uses the stored secret "+name)
		}
		return x.secrets.Get(name)
	}}
	s.declared = slices.Collect(maps.Values(l.Package.Manifest.Env.Secrets))
	raw, err := x.manager.RawConfig(ctx, l.ID)
	if err != nil {
		return s, err
	}
	if s.digest, err = digestOf(raw); err != nil {
		return s, err
	}
	if err := jsonx.Unmarshal(raw, &s.values); err != nil {
		return s, capability.Wrap(capability.CodeInternal, "runner", "the settings of "+l.ID+" cannot be read", err)
	}
	return s, nil
}

// settingsDigest returns a digest of all settings of an extension.
func (x *Service) settingsDigest(ctx context.Context, id string) (string, error) {
	raw, err := x.manager.RawConfig(ctx, id)
	if err != nil {
		return "", err
	}
	return digestOf(raw)
}

// digestOf returns a digest of settings that does not depend on their order.
func digestOf(doc json.RawMessage) (string, error) {
	if len(doc) == 0 {
		doc = json.RawMessage("{}")
	}
	sorted, err := jsonx.Sorted(doc)
	sum := sha256.Sum256(sorted)
	return hex.EncodeToString(sum[:]), err
}

// declared reports whether a package declares the use of a stored secret, for a
// variable or for the database of an action. The consent screen shows both.
func declared(p *extension.Package, name string) bool {
	named := slices.Collect(maps.Values(p.Manifest.Env.Secrets))
	return slices.Contains(named, name) || slices.ContainsFunc(p.Commands, func(c extension.Command) bool {
		return slices.ContainsFunc(c.Actions, func(a extension.Action) bool { return a.DSNRef == name })
	})
}

// plain returns a setting for use in a command line. It reports false for secrets,
// because other users of the machine can see the arguments of a program.
func (s settings) plain(name string) (string, bool) {
	if s.secret(name) {
		return "", false
	}
	return s.text(name)
}

// text returns a setting as text: a string unquoted, anything else as JSON.
func (s settings) text(name string) (string, bool) {
	raw, ok := s.values[name]
	if !ok {
		return "", false
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, true
	}
	return string(raw), true
}

// secrets returns the values for wanted (variable to name): the setting of that name, or
// else the stored secret. Variables without a value are left out.
func (s settings) secrets(wanted map[string]string) map[string]secret.Value {
	out := make(map[string]secret.Value, len(wanted))
	for variable, name := range wanted {
		if text, ok := s.text(name); ok {
			out[variable] = secret.New(text)
		} else if value, err := s.stored(name); err == nil {
			out[variable] = value
		}
	}
	return out
}

// secret returns a setting of an extension, or a stored secret that its manifest names, as a
// secret. If neither exists: invalid_input.
func (x *Service) secret(ctx context.Context, l *lifecycle.Loaded, name string) (secret.Value, error) {
	s, err := x.settings(ctx, l)
	if err != nil {
		return secret.Value{}, err
	}
	value, ok := s.secrets(map[string]string{name: name})[name]
	if !ok {
		return value, fault.InvalidArgs("set it among the settings, or store it and name it under env.secrets of the manifest",
			"the extension has no setting or secret %.100q", name)
	}
	return value, nil
}

// secret reports whether a setting must not be shown, because its name suggests a secret
// or the manifest uses it as one.
func (s settings) secret(name string) bool {
	return secretName(name) || slices.Contains(s.declared, name)
}

func secretName(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"key", "secret", "token", "password"}, func(word string) bool { return strings.Contains(name, word) })
}
