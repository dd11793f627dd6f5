package catalog

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog/actions"
)

// compile builds the snapshot of the batches. It is a pure function: the same
// batches in the same order give the same content and etag.
func compile(generation uint64, batches []capability.Batch) *Snapshot {
	n := 0
	for i := range batches {
		for j := range batches[i].Modules {
			n += len(batches[i].Modules[j].Contributions)
		}
	}
	s := &Snapshot{
		Generation: generation,
		Entries:    make([]*Entry, 0, n),
		byID:       make(map[capability.ID]*Entry, n),
		byAction:   make(map[capability.Action][]*Entry, n),
		byMember:   make(map[capability.Member][]*Entry, 2*n),
		byWire:     make(map[string][]*Entry, n),
	}
	for i := range batches {
		providers := make(map[capability.ProviderKey]capability.Provider, len(batches[i].Providers))
		for _, p := range batches[i].Providers {
			providers[p.Key()] = p
		}
		for j := range batches[i].Modules {
			m := &batches[i].Modules[j]
			s.Modules = append(s.Modules, m)
			// Of two contributions that claim one id the first is kept: which one that
			// is must not depend on their order either.
			own := make([]*capability.Contribution, len(m.Contributions))
			for k := range m.Contributions {
				own[k] = &m.Contributions[k]
			}
			slices.SortStableFunc(own, compareContributions)
			for _, c := range own {
				s.add(m, c, providers)
			}
		}
	}
	slices.SortFunc(s.Entries, compareEntries)
	slices.SortFunc(s.Modules, func(a, b *capability.Module) int { return cmp.Compare(a.Extension, b.Extension) })
	for _, e := range s.Entries {
		s.byAction[e.Action] = append(s.byAction[e.Action], e)
		if m := e.Contribution.Member; !m.IsZero() {
			s.byMember[m] = append(s.byMember[m], e)
			if ext := (capability.Member{Module: e.Module.Extension, Kind: m.Kind, Name: m.Name}); ext != m {
				s.byMember[ext] = append(s.byMember[ext], e)
			}
		}
	}
	allocateNames(s)
	s.Etag = etag(s)
	return s
}

func compareContributions(a, b *capability.Contribution) int {
	if n := cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Action, b.Action)); n != 0 {
		return n
	}
	one, _ := json.Marshal(a) // rare: it is a conflict
	two, _ := json.Marshal(b)
	return bytes.Compare(one, two)
}

// compareEntries is the deterministic order of selection's last step: extension
// id, contribution id, provider key.
func compareEntries(a, b *Entry) int {
	return cmp.Or(
		cmp.Compare(a.Module.Extension, b.Module.Extension),
		cmp.Compare(a.Contribution.ID, b.Contribution.ID),
		cmp.Compare(a.Key(), b.Key()),
	)
}

func (s *Snapshot) add(m *capability.Module, c *capability.Contribution, providers map[capability.ProviderKey]capability.Provider) {
	e := &Entry{Action: c.Action, Contribution: c, Module: m, Provider: providers[c.Provider], Effect: c.Effect}
	if e.Action == "" {
		e.Action = mintAction(m.Extension, c.ID)
	}
	if row, ok := actions.Lookup(e.Action); ok {
		e.Action, e.Row = row.ID, &row
	}
	switch e.Effect {
	case capability.EffectRead, capability.EffectWrite, capability.EffectAdmin:
	default: // also what nobody knows (decision R22)
		e.Effect = capability.EffectExternal
	}
	if e.Row != nil && (c.Effect == "" || !e.Effect.AtLeast(e.Row.Effect)) {
		e.Effect = e.Row.Effect // a module may call its work more dangerous, never less
	}
	_, _, instance := c.Provider.Parts()
	e.ID = capability.ID(m.Extension + "/" + c.ID + "#" + string(e.Action) + "@" + instance)
	e.audience = audienceOf(c.Kind, e.Row)
	if doc := e.InputSchema(); len(doc) > 0 {
		e.schema = sync.OnceValues(func() (*Schema, error) { return compileSchema(e.ID, doc) })
	}
	if first, taken := s.byID[e.ID]; taken {
		s.Conflicts = append(s.Conflicts, Conflict{
			Class: "runtime_id", Key: string(e.ID), Kept: first.Module.Extension,
			Members: []string{first.Module.Extension, m.Extension},
		})
		return
	}
	s.byID[e.ID] = e
	s.Entries = append(s.Entries, e)
}

// mintAction names the action of a single tool: ext.<extension>.<contribution>
// (catalog spec, section 3); both parts are in the id grammar already.
func mintAction(extension, contribution string) capability.Action {
	return capability.Action("ext." + extension + "." + contribution)
}

func etag(s *Snapshot) string {
	h := sha256.New()
	var b []byte // of one entry, so that the hash is written to once for each
	for _, e := range s.Entries {
		c := e.Contribution
		b = put(b[:0], string(e.ID), e.Tool, e.WireName, c.Kind, c.Title, c.Description, string(e.Effect), string(c.Provider))
		b = put(b, string(c.Availability.State), c.Availability.Reason, c.Member.Module, c.Member.Kind, c.Member.Name, e.Module.Digest)
		b = put(b, c.Permissions...)
		b = append(append(append(append(b, c.InputSchema...), 0), c.OutputSchema...), 0)
		b = append(strconv.AppendInt(b, int64(c.Rank), 10), 0)
		_, _ = h.Write(b)
	}
	for _, m := range s.Modules {
		_, _ = h.Write(put(b[:0], m.Extension, m.ID, m.Name, m.Version, m.Endpoint, m.Digest))
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// put appends each part with a terminator, and their number, so that no two lists
// of parts run together into the same bytes.
func put(b []byte, parts ...string) []byte {
	for _, p := range parts {
		b = append(append(b, p...), 0)
	}
	return append(b, byte(len(parts)))
}
