package agents

import (
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// Info is the public view of a session.
type Info struct {
	sessions.Info
	Owner     string          `json:"owner,omitempty"` // id of the principal that started it
	Preset    programs.Preset `json:"approvalPreset,omitempty"`
	Decisions []string        `json:"decisions,omitempty"` // the last ten that it shared
	Notes     []string        `json:"notes,omitempty"`     // parts of the request that could not be fulfilled
}

const shownDecisions = 10

// info adds the data of the session's agent to i, as long as it is kept.
func (a *Agents) info(i sessions.Info) Info {
	out := Info{Info: i}
	a.mu.Lock()
	g := a.running[i.ID]
	a.mu.Unlock()
	if g == nil {
		return out
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	out.Owner, out.Preset, out.Notes = g.owner, g.preset, g.notes
	for _, d := range g.decisions {
		out.Decisions = append(out.Decisions, d.Shared)
	}
	return out
}

// List returns all sessions, including those that ended recently, the oldest first.
func (a *Agents) List() []Info {
	list := []Info{}
	for _, s := range a.cfg.Sessions.List() {
		list = append(list, a.info(s.Info()))
	}
	return list
}

// Left returns the ids of ended sessions whose preparations could not be undone.
func (a *Agents) Left() (ids []string) {
	entries, err := os.ReadDir(a.folder())
	if err != nil {
		return nil
	}
	for _, e := range entries {
		id := e.Name()
		if !sessions.ValidID(id) {
			continue
		}
		made, err := e.Info()
		if err != nil || time.Since(made.ModTime()) < removalGrace {
			continue
		}
		if s, err := a.cfg.Sessions.Get(id); err != nil || !s.Info().Live() && time.Since(s.Info().EndedAt) > removalGrace {
			ids = append(ids, id)
		}
	}
	return ids
}

// Get returns the view of a session and the session itself. It fails with not_found, reason
// session_not_found.
func (a *Agents) Get(id string) (Info, sessions.Live, error) {
	s, err := a.cfg.Sessions.Get(id)
	if err != nil {
		return Info{}, nil, err
	}
	return a.info(s.Info()), s, nil
}

// Keep prevents the automatic stop of a session after a completed turn. It fails with
// not_found, reason session_not_found.
func (a *Agents) Keep(id string) (Info, error) {
	i, s, err := a.Get(id)
	if err != nil {
		return i, err
	}
	a.mu.Lock()
	g := a.running[s.ID()]
	a.mu.Unlock()
	if g != nil {
		g.goOn()
		g.mu.Lock()
		g.keep = true
		g.mu.Unlock()
	}
	return i, nil
}

// startAnswers returns the automatic answers to a program's start-up dialogs.
func startAnswers(name programs.Name, p programs.Preset) []programs.Answer {
	if answers := programs.Of(name).Answers; answers != nil {
		return answers(p)
	}
	return nil
}

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
