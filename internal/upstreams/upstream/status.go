package upstream

import (
	"cmp"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/upstreams/oauthclient"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// Status is the state of one upstream. It contains no secrets.
type Status struct {
	record.Record
	State  capability.State `json:"state"`
	Reason string           `json:"reason,omitempty"`
	Since  time.Time        `json:"since"`
	// Failed is true if it is not started again until an operator restarts it.
	Failed      bool    `json:"failed,omitempty"`
	Server      *Server `json:"server,omitempty"` // of the last connection
	Connections int     `json:"connections"`
	// Tier is that of a confined program while it runs. Limit is the limit that it or a part of
	// it went over last.
	Tier  string `json:"tier,omitempty"`
	Limit string `json:"limit,omitempty"`
	// Unseen are the paths that the command names and the confined program cannot read.
	Unseen []string `json:"unseen,omitempty"`
	// Undecided is true if it is unconfined because it was stored before programs were confined.
	Undecided bool      `json:"confinement_undecided,omitempty"`
	Added     time.Time `json:"added"`
	Synced    time.Time `json:"synced,omitzero"` // when lists were read last
	Counts    Counts    `json:"counts"`
	// Lists holds, by kind, why a list is missing or incomplete.
	Lists map[ingest.Kind]string `json:"lists,omitempty"`

	// Login is the state of its tokens; nil without OAuth.
	Login *oauthclient.State `json:"login,omitempty"`
	// Logins are those of the principals, if each has its own.
	Logins []LoginOf `json:"logins,omitempty"`

	// Set only by Show.
	Definitions []DefinitionStatus `json:"definitions,omitempty"`
	Dropped     []ingest.Dropped   `json:"dropped,omitempty"`
	Stderr      string             `json:"stderr,omitempty"` // the end of a program's error output
}

// Counts holds the numbers of listed definitions.
type Counts struct {
	Tools       int `json:"tools"`
	Prompts     int `json:"prompts"`
	Resources   int `json:"resources"` // templates too
	Held        int `json:"held"`
	Quarantined int `json:"quarantined"`
	Dropped     int `json:"dropped"`
}

// DefinitionStatus is one definition.
type DefinitionStatus struct {
	Kind        ingest.Kind     `json:"kind"`
	Name        string          `json:"name"`
	State       ingest.PinState `json:"state"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"` // its beginning
	// Declares is what a tool claims about its effect: reads, writes, destroys, or "" for nothing.
	Declares string    `json:"declares,omitempty"`
	Pin      string    `json:"pin"`
	Offered  string    `json:"offered_pin,omitempty"`
	Seen     time.Time `json:"seen"`
	Advice   []string  `json:"advice,omitempty"`
}

// List returns every upstream, ordered by name.
func (r *Registry) List() []Status {
	out := []Status{}
	for _, u := range r.all() {
		out = append(out, u.brief())
	}
	return out
}

// Show returns one upstream with its definitions.
func (r *Registry) Show(name string) (Status, error) {
	u, err := r.get(name)
	if err != nil {
		return Status{}, err
	}
	u.changing.Lock()
	defer u.changing.Unlock()
	return u.status(true), nil
}

func (u *upstream) brief() Status {
	u.changing.Lock()
	defer u.changing.Unlock()
	return u.status(false)
}

// status returns the status; whole includes the definitions and the error output. The
// caller holds changing.
func (u *upstream) status(whole bool) Status {
	u.mu.Lock()
	s := Status{
		Record: u.record, State: u.state.State, Reason: u.state.Reason, Since: u.state.Since, Failed: u.failed(),
		Connections: len(u.conns), Added: u.added, Synced: u.synced, Stderr: u.stderr, Limit: u.limit, Undecided: u.undecided,
	}
	if u.damaged != "" {
		s.Reason += " (" + u.damaged + ")"
	}
	if u.current != nil {
		s.Connections++
		if p := u.current.process; p != nil {
			s.Tier, s.Limit = p.Placement().Tier.String(), cmp.Or(p.Limit(), u.limit)
		}
		if content := u.current.client.Stderr(); content != "" && whole {
			s.Stderr = tail(u.masked(content))
		}
	}
	if u.server.Version != "" {
		server := u.server
		server.Name, server.Title, server.Release = cleanText(server.Name, 120), cleanText(server.Title, 120), cleanText(server.Release, 64)
		server.Instructions = text.CutBytes(ingest.Shown(server.Instructions), 8<<10)
		s.Server = &server
	}
	lists := make(map[ingest.Kind]string)
	for kind, why := range u.listed {
		lists[kind] = why
	}
	u.mu.Unlock()
	if s.Logins = u.logins.list(); u.tokens != nil && u.logins == nil {
		login := u.tokens.State()
		s.Login = &login
	}
	s.Unseen = u.unseen()
	s.Stderr = ingest.Shown(s.Stderr)
	for _, kind := range ingest.Kinds() {
		l := u.listings[kind]
		if l == nil {
			continue
		}
		if s.Counts.Dropped += len(l.Dropped) + l.More; l.Truncated != "" && lists[kind] == "" {
			lists[kind] = l.Truncated
		}
		if whole {
			s.Dropped = append(s.Dropped, l.Dropped...)
		}
	}
	if len(lists) > 0 {
		s.Lists = lists
	}
	for _, p := range u.pins.Sorted() {
		if !p.Listed {
			continue
		}
		s.Counts.add(p)
		if whole {
			s.Definitions = append(s.Definitions, statusOf(p))
		}
	}
	if !whole {
		s.Stderr = ""
	}
	return s
}

func (c *Counts) add(p *ingest.PinRow) {
	switch p.Kind {
	case ingest.Tool:
		c.Tools++
	case ingest.Prompt:
		c.Prompts++
	case ingest.Instructions:
	default:
		c.Resources++
	}
	switch p.State {
	case ingest.Held:
		c.Held++
	case ingest.Quarantined:
		c.Quarantined++
	}
}

func statusOf(p *ingest.PinRow) DefinitionStatus {
	d := DefinitionStatus{Kind: p.Kind, Name: p.Name, State: p.State, Pin: p.Pin.Pin, Offered: p.Offered, Seen: p.Seen}
	if p.Shown != nil {
		d.Title, d.Description, d.Advice = p.Shown.Title, text.CutBytes(p.Shown.Description, 300), p.Shown.Advice
		d.Declares = declares(p.Shown)
	}
	if p.Offer != nil {
		d.Advice = p.Offer.Advice
	}
	return d
}

// declares returns DefinitionStatus.Declares.
func declares(d *ingest.Definition) string {
	switch {
	case d.Destructive: // outweighs a claim that it only reads
		return "destroys"
	case d.ReadOnly:
		return "reads"
	case d.Writes:
		return "writes"
	}
	return ""
}

// Diff returns the definitions that wait for an approval.
func (r *Registry) Diff(name string) ([]ingest.PinDifference, error) {
	u, err := r.get(name)
	if err != nil {
		return nil, err
	}
	u.changing.Lock()
	defer u.changing.Unlock()
	out := []ingest.PinDifference{}
	for _, p := range u.pins.Sorted() {
		if d, waits := p.Waits(); waits {
			out = append(out, d)
		}
	}
	return out, nil
}
