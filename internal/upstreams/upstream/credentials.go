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

// Reasons of errors that decide whether a connection is tried again.
const (
	reasonSecretMissing      = "secret_missing"
	reasonTooManyConnections = "too_many_connections"
)

// credentials are what one connection shows of its owner, remembered for a moment:
// secrets are files, and one read for each call would be felt.
type credentials struct {
	u     *upstream
	owner string // see secret

	mu    sync.Mutex
	sent  http.Header
	until time.Time
}

const credentialsTTL = 5 * time.Second

// header are the record's headers with its secrets, for the client.
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

// environment is the whole of what a program gets: a list of harmless variables of
// ours, and what the record adds.
func (u *upstream) environment(owner string) ([]string, error) {
	env := slices.Clone(u.reg.cfg.Environment)
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

// ownerOf is the principal whose own credentials a connection shows; "" shows the
// record's.
func (u *upstream) ownerOf(key string) string {
	if parts := strings.Split(key, "\x00"); u.record.OwnCredentials && len(parts) > 1 {
		return parts[1]
	}
	return ""
}

// secret is the value of one of the record's secrets, or of the owner's own in its
// place; unauthenticated where it is not in the store of this machine. The two are never exchanged
// for each other: a caller without credentials does not act as another one.
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
