package search

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/core/catalog/compile"
)

// piece is the inverted index of one chunk of a catalog. It is immutable except for used,
// which its Index guards. It refers to actions by position, so that it does not keep a
// snapshot in memory.
type piece struct {
	terms  map[string]uint32 // → number of the term
	starts []uint32          // by number of the term: index of its first post; one more at the end
	list   []post
	names  []uint8 // by action: how many words its name has, at most maxNameWords
	used   uint64
}

// post is the weighted number of occurrences of a term in one action. Each field is weighed by its own
// length, so that a name with a word that was not asked for counts less than one without, however long
// the descriptions are.
type post struct {
	doc    uint32
	weight float32
	named  bool // it is a word of the action's name
}

// posts returns the posts of a term, in the order of actions.
func (p *piece) posts(term string) []post {
	n, ok := p.terms[term]
	if !ok {
		return nil
	}
	return p.list[p.starts[n]:p.starts[n+1]]
}

// read indexes the words of the actions.
func read(actions []*compile.Action) *piece {
	type place struct {
		term uint32
		post
	}
	p := &piece{names: make([]uint8, len(actions)), terms: make(map[string]uint32, 4*len(actions))}
	var (
		r      reader
		places []place
		counts []uint32  // by term
		weight []float32 // by term, in the action at hand
		named  []bool    // the same
		here   []uint32  // terms of the current action
	)
	for i, x := range actions {
		r.words, here = r.words[:0], here[:0]
		r.action(x)
		for _, w := range r.words {
			n, known := p.terms[w.text]
			if !known {
				n = uint32(len(p.terms))
				p.terms[strings.Clone(w.text)] = n // otherwise the whole description would stay in memory
				counts, weight, named = append(counts, 0), append(weight, 0), append(named, false)
			}
			if weight[n] == 0 {
				here = append(here, n)
			}
			weight[n] += w.weight
			if w.named && !named[n] && p.names[i] < maxNameWords {
				named[n] = true
				p.names[i]++
			}
		}
		for _, n := range here {
			places = append(places, place{n, post{uint32(i), weight[n], named[n]}})
			counts[n]++
			weight[n], named[n] = 0, false
		}
	}
	p.starts, p.list = make([]uint32, len(counts)+1), make([]post, len(places))
	for n, count := range counts {
		p.starts[n+1] = p.starts[n] + count
	}
	next := slices.Clone(p.starts)
	for _, at := range places {
		p.list[next[at.term]] = at.post
		next[at.term]++
	}
	return p
}

// reader collects the words of one action.
type reader struct {
	words []word
	parts []string
}

type word struct {
	text   string
	weight float32
	named  bool
}

// text adds the words of a field. usual is how many words such a field usually has: those of a longer one
// count less.
func (r *reader) text(s string, weight, usual float32) {
	r.parts = tokens(r.parts[:0], s)
	weight /= 1 - b + b*float32(len(r.parts))/usual
	for _, t := range r.parts {
		r.words = append(r.words, word{text: t, weight: weight})
	}
}

// name adds the words of the name of an action.
func (r *reader) name(s string) {
	at := len(r.words)
	r.text(s, weightName, usualName)
	added := r.words[at:]
	for i := range added {
		whole := i+1 < len(added) && len(added[i].text) > len(added[i+1].text) && strings.HasPrefix(added[i].text, added[i+1].text)
		added[i].named = !whole // of readText, read and text
	}
}

// action adds the weighted words of an action to r.words: its name, title, description and
// argument names, and the aliases, labels and tags of its first maxEntries providers.
func (r *reader) action(x *compile.Action) {
	r.name(x.Name)
	r.text(x.Title, weightTitle, usualName)
	description := x.Description
	if len(description) > maxDescription {
		description = description[:maxDescription]
	}
	r.text(description, weightDescription, usualDescription)
	var seen []string
	once := func(s string, weight float32) {
		if s != "" && !slices.Contains(seen, s) {
			seen = append(seen, s)
			r.text(s, weight, usualName)
		}
	}
	if x.Family.ID != "" {
		for _, alias := range x.Family.Aliases {
			once(alias, weightAlias)
		}
	}
	for i, e := range x.Entries {
		if i == maxEntries {
			break
		}
		for _, alias := range e.Contribution.Aliases {
			once(alias, weightAlias)
		}
		once(e.Label(), weightLabel)
		for _, tag := range e.Contribution.Tags {
			once(tag, weightTag)
		}
	}
	r.arguments(x.Entries[0].InputSchema())
}

// arguments adds the argument names: the members of "properties" at the top level of the
// schema. The result is undefined for malformed JSON.
func (r *reader) arguments(schema []byte) {
	depth, within, key := 0, false, true // key: a string here is a member's name
	for i := 0; i < len(schema); i++ {
		switch schema[i] {
		case '{', '[':
			depth++
			key = schema[i] == '{'
		case '}', ']':
			if depth--; within && depth == 1 {
				return
			}
			key = false
		case ',':
			key = true
		case ':':
			key = false
		case '"':
			start := i + 1
			for i++; i < len(schema) && schema[i] != '"'; i++ {
				if schema[i] == '\\' {
					i++
				}
			}
			if i >= len(schema) || !key {
				continue
			}
			name := schema[start:i]
			if within && depth == 2 {
				r.text(string(name), weightArgument, 1)
			} else if depth == 1 {
				within = string(name) == "properties"
			}
		}
	}
}

// tokens appends the segments of the fold of s, and the words within a camel-case segment.
func tokens(out []string, s string) []string {
	for i := 0; i < len(s); {
		if !wordByte(s[i]) {
			i++
			continue
		}
		start := i
		for i < len(s) && wordByte(s[i]) {
			i++
		}
		segment := s[start:i]
		out = append(out, term(segment))
		from := 0
		for k := 1; k <= len(segment); k++ {
			if k < len(segment) && !boundary(segment, k) {
				continue
			}
			if k-from < len(segment) {
				out = append(out, term(segment[from:k]))
			}
			from = k
		}
	}
	return out
}

func wordByte(c byte) bool { return lower(c) || upper(c) || '0' <= c && c <= '9' }
func lower(c byte) bool    { return 'a' <= c && c <= 'z' }
func upper(c byte) bool    { return 'A' <= c && c <= 'Z' }

// boundary reports whether a camel-case word begins at k, such as Text in readText and Server
// in HTTPServer.
func boundary(s string, k int) bool {
	return upper(s[k]) && (!upper(s[k-1]) || k+1 < len(s) && lower(s[k+1]))
}
