package extensions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/secret"
)

// settings holds the settings of one extension and its access to stored secrets.
type settings struct {
	values map[string]json.RawMessage
	stored func(name string) (secret.Value, error)
	// declared are the names that the package uses as secrets.
	declared []string
	digest   string
}

// settings reads the settings of an extension. Its stored returns permission_denied for
// a secret that the package does not declare.
func (x *Service) settings(ctx context.Context, l *lifecycle.Loaded) (settings, error) {
	s := settings{declared: l.Package.SecretNames()} // which the consent screen shows
	s.stored = func(name string) (secret.Value, error) {
		if !slices.Contains(s.declared, name) { // the extension has no consent for it
			return secret.Value{}, fault.PermissionDenied("env.secrets", "the manifest does not say that it uses the stored secret "+name)
		}
		return x.secrets.Get(name)
	}
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

// secret returns a setting of an extension that is a secret, or a stored secret that its manifest names.
// If neither exists: invalid_input, also for another setting, because a caller chooses where it is sent.
func (x *Service) secret(ctx context.Context, l *lifecycle.Loaded, name string) (secret.Value, error) {
	s, err := x.settings(ctx, l)
	if err != nil {
		return secret.Value{}, err
	}
	value, ok := s.secrets(map[string]string{name: name})[name]
	if !ok || !s.secret(name) {
		return secret.Value{}, fault.InvalidArgs("set it among the settings, under a name with key, token, secret or password, "+
			"or name it under env.secrets of the manifest", "the extension has no setting or secret %.100q that is kept secret", name)
	}
	return value, nil
}

// secret reports whether a setting must not be shown, because its name suggests a secret
// or the package uses it as one.
func (s settings) secret(name string) bool {
	return lifecycle.SecretMember(name) || slices.Contains(s.declared, name)
}
