// Package deviceaction holds the actions of a device: local code that the device's owner has
// approved by placing it there. Actions are registered by a program or found in a folder;
// skills are bound to them by name.
package deviceaction

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// Action is local code. Handle is as that of a function.
type Action struct {
	Name        string
	Description string
	Metadata    json.RawMessage // an object; nil: {}
	Stream      bool
	Timeout     time.Duration // 0: the capability's, or the node's
	Handle      functions.Handler
}

func (a *Action) complete() error {
	a.Name = strings.TrimSpace(a.Name)
	if len(a.Metadata) == 0 {
		a.Metadata = json.RawMessage("{}")
	}
	a.Metadata = slices.Clone(a.Metadata)
	switch {
	case a.Name == "" || len(a.Name) > maxName || strings.ContainsFunc(a.Name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return cmp.Errorf(cmp.ReasonParams, "the name of an action must be 1 to %d bytes without control characters, not %.80q", maxName, a.Name)
	case len(a.Description) > maxDescription || len(a.Metadata) > maxMetadata:
		return cmp.Errorf(cmp.ReasonParams, "the action %s has a description of more than %d bytes or metadata of more than %d", a.Name,
			maxDescription, maxMetadata)
	case a.Metadata[0] != '{' || !jsonx.Valid(a.Metadata):
		return cmp.Errorf(cmp.ReasonParams, "the metadata of the action %s is not an object", a.Name)
	case a.Handle == nil || a.Timeout < 0:
		return cmp.Errorf(cmp.ReasonParams, "the action %s has no handler, or a negative time-out", a.Name)
	}
	return nil
}

// Set holds the actions of a device. The zero value is empty and ready; it is safe
// for concurrent use.
type Set struct {
	mu         sync.RWMutex
	registered map[string]Action // by the program
	found      map[string]Action // in the folder; they are behind what is registered
	modules    int               // code files of the folder
	status     cmp.Sandbox
}

// Register adds an action, or replaces the one with its name. Skills that are bound to the
// old action keep it until they are installed again.
func (s *Set) Register(a Action) error {
	if err := a.complete(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.registered == nil {
		s.registered = make(map[string]Action)
	}
	if _, known := s.registered[a.Name]; !known && len(s.registered) >= MaxActions {
		return cmp.Errorf(cmp.ReasonTooLarge, "a device has at most %d actions", MaxActions)
	}
	s.registered[a.Name] = a
	return nil
}

// Get returns the action of exactly that name.
func (s *Set) Get(name string) (Action, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if a, ok := s.registered[name]; ok {
		return a, true
	}
	a, ok := s.found[name]
	return a, ok
}

// List returns the public descriptions of the actions, sorted by name.
func (s *Set) List() map[string]cmp.Action {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make(map[string]cmp.Action, len(s.registered)+len(s.found))
	for _, from := range []map[string]Action{s.found, s.registered} {
		for name, a := range maps.All(from) {
			out[name] = cmp.Action{Description: a.Description, Metadata: slices.Clone(a.Metadata)}
		}
	}
	return out
}

// Status returns the outcome of the last attempt to load the folder, and the number of
// modules loaded from it.
func (s *Set) Status() (sandbox cmp.Sandbox, modules int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.status, s.modules
}
