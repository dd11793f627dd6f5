// Package oauthclienttest keeps tokens for the tests of those who use package
// oauthclient.
package oauthclienttest

import (
	"slices"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/secret"
)

// Vault is a store in memory, which shows what is in it. The zero value is empty and
// ready; it is safe for concurrent use.
type Vault struct {
	mu sync.Mutex
	m  map[string]string
}

// Get is not_found for a name without a value.
func (v *Vault) Get(name string) (secret.Value, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s, ok := v.m[name]; ok {
		return secret.New(s), nil
	}
	return secret.Value{}, capability.Errorf(capability.CodeNotFound, "secrets.get", "none")
}

// Set never fails.
func (v *Vault) Set(name string, value secret.Value) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.m == nil {
		v.m = make(map[string]string)
	}
	v.m[name] = value.Reveal()
	return nil
}

// Remove never fails.
func (v *Vault) Remove(name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.m, name)
	return nil
}

// Names returns the names that begin with prefix, sorted.
func (v *Vault) Names(prefix string) (names []string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name := range v.m {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Text is all values, one on each line; "" if it is empty.
func (v *Vault) Text() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var values []string
	for _, value := range v.m {
		values = append(values, value)
	}
	slices.Sort(values)
	return strings.Join(values, "\n")
}
