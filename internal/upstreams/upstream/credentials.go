package upstream

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// Reasons of errors that do not count as an exit of a program.
const (
	reasonSecretMissing      = "secret_missing"
	reasonTooManyConnections = "too_many_connections"
)

// credentials holds the credentials of one connection, cached for credentialsTTL, because
// reading the secret files for each call would be slow.
type credentials struct {
	u     *upstream
	owner string // see secret

	mu    sync.Mutex
	sent  http.Header
	until time.Time
}

// header returns the record's headers with their secrets.
func (c *credentials) header(context.Context) (http.Header, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rec := &c.u.record
	if now := c.u.reg.cfg.Now(); c.sent == nil || now.After(c.until) {
		h := make(http.Header)
		for name, value := range rec.Headers {
			h.Set(name, value)
		}
		for name, ref := range rec.HeaderSecrets {
			value, err := c.u.secret(c.owner, ref)
			if err != nil {
				return nil, err
			}
			h.Set(name, value)
		}
		if ref := rec.BearerSecret; ref != "" {
			value, err := c.u.secret(c.owner, ref)
			if err != nil {
				return nil, err
			}
			h.Set("Authorization", "Bearer "+value)
		}
		c.sent, c.until = h, now.Add(credentialsTTL)
	}
	return c.sent.Clone(), nil
}

// environment returns the whole environment of a program: Config.Environment and the
// variables of the record.
func (u *upstream) environment(owner string) ([]string, error) {
	env := slices.Clone(u.reg.cfg.Environment)
	if u.record.Confinement == record.Sandboxed { // it has a home and a user of its own
		env = slices.DeleteFunc(env, func(kv string) bool {
			name, _, _ := strings.Cut(kv, "=")
			return slices.Contains([]string{"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"}, name)
		})
		env = append(env, u.reg.cfg.Registries...)
	}
	for _, name := range sortedKeys(u.record.Env) {
		env = append(env, name+"="+u.record.Env[name])
	}
	for _, name := range sortedKeys(u.record.EnvSecrets) {
		value, err := u.secret(owner, u.record.EnvSecrets[name])
		if err != nil {
			return nil, err
		}
		env = append(env, name+"="+value)
	}
	return env, nil
}

// ownerOf returns the principal whose own credentials a connection uses, or "" for the record's.
func (u *upstream) ownerOf(key string) string {
	if parts := strings.Split(key, "\x00"); u.record.OwnCredentials && len(parts) > 1 {
		return parts[1]
	}
	return ""
}

// secret returns one of the record's secrets, or, with an owner, the owner's secret of
// that purpose. A missing one is unavailable, reason secret_missing. It never falls back
// to the other, so that a caller without credentials does not act as another one.
func (u *upstream) secret(owner, name string) (string, error) {
	if owner != "" {
		name = record.OwnSecret(name, owner)
	}
	if u.reg.cfg.Secrets != nil {
		if value, err := u.reg.cfg.Secrets.Get(name); err == nil {
			return value.Reveal(), nil
		}
	}
	return "", capability.Errorf(capability.CodeUnavailable, "upstreams",
		"the secret %s of upstream %s is not in the secret store of this machine", name, u.record.Name).
		With(reasonSecretMissing, "store it with: junctor secrets set "+name)
}
