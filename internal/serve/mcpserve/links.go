package mcpserve

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/invoke"
)

// links stores the resources to which upstreams have linked in results, by viewer. A link may be to a
// resource that its upstream does not list, and only the upstream that linked to it is asked for it.
// The zero value is empty.
type links struct {
	mu sync.Mutex
	of map[string]*linked
}

// linked are the links of one viewer.
type linked struct {
	modules     map[string][]string // those that linked to each address
	of          map[string]*share   // by module
	size, count int
}

// share are the links of one module, oldest first.
type share struct {
	order []string
	size  int
}

// weight is what a share takes of maxLinked, with a link counted as if it had the average length that fits.
func (s *share) weight() int { return s.size + len(s.order)*(maxLinked/maxLinks) }

// add stores a link. Beyond maxLinked and maxLinks, the module that takes most loses its oldest ones, so
// that none can drop those of others.
func (l *links) add(viewer, module, uri string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = make(map[string]*linked)
	}
	own := l.of[viewer]
	if own == nil {
		own = &linked{modules: make(map[string][]string), of: make(map[string]*share)}
		l.of[viewer] = own
	}
	if slices.Contains(own.modules[uri], module) {
		own.drop(module, slices.Index(own.of[module].order, uri))
	}
	if len(own.modules[uri]) >= maxLinkers {
		return
	}
	if own.of[module] == nil {
		own.of[module] = &share{}
	}
	s := own.of[module]
	s.order, own.modules[uri] = append(s.order, uri), append(own.modules[uri], module)
	s.size, own.size, own.count = s.size+len(uri), own.size+len(uri), own.count+1
	for own.size > maxLinked || own.count > maxLinks {
		largest := module
		for name, s := range own.of {
			if s.weight() > own.of[largest].weight() {
				largest = name
			}
		}
		own.drop(largest, 0)
	}
}

// drop removes a module's link, by its position.
func (l *linked) drop(module string, at int) {
	s := l.of[module]
	uri := s.order[at]
	s.order = slices.Delete(s.order, at, at+1)
	s.size, l.size, l.count = s.size-len(uri), l.size-len(uri), l.count-1
	if l.modules[uri] = slices.DeleteFunc(l.modules[uri], func(m string) bool { return m == module }); len(l.modules[uri]) == 0 {
		delete(l.modules, uri)
	}
}

// modulesOf returns the modules that linked to the address.
func (l *links) modulesOf(viewer, uri string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own := l.of[viewer]; own != nil {
		return slices.Clone(own.modules[uri])
	}
	return nil
}

// forget drops the links of a viewer.
func (l *links) forget(viewer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, viewer)
}

// remember stores the resources to which an upstream's result links.
func (s *Surface) remember(c caller, reply invoke.Reply) {
	if !bytes.Contains(reply.Result, []byte(`"resource_link"`)) || !returnsMCP(reply.Provider) {
		return
	}
	entry, ok := s.cfg.Catalog.Snapshot().Capability(reply.Capability)
	if !ok {
		return
	}
	stored := 0
	block := func(value []byte) {
		var kind, uri string
		_ = jsonx.Members(value, func(name string, value []byte) {
			switch name {
			case "type":
				kind, _ = jsonx.Text(value)
			case "uri":
				uri, _ = jsonx.Text(value)
			}
		})
		if kind == "resource_link" && uri != "" && len(uri) <= maxURI && !strings.HasPrefix(uri, ownScheme) && stored < maxResultLinks {
			stored++
			s.links.add(c.key, entry.Module.Extension, uri)
		}
	}
	_ = jsonx.Members(reply.Result, func(name string, value []byte) {
		switch name {
		case "content": // of a tool
			each(value, block)
		case "messages": // of a prompt, each with one block
			each(value, func(message []byte) {
				_ = jsonx.Members(message, func(name string, value []byte) {
					if name == "content" {
						block(value)
					}
				})
			})
		}
	})
}

// each calls f for every element of an array.
func each(array []byte, f func(element []byte)) {
	var list []json.RawMessage
	if jsonx.Unmarshal(array, &list) == nil {
		for _, element := range list {
			f(element)
		}
	}
}

// readable returns the entry that reads an address for the caller, or nil: that of a listed resource,
// the reader of the upstream that linked to it, a template, or the reader of the upstream that offers it
// to the caller alone or shows it as a page. A link may be a secret of its upstream, so no template of
// another one gets it. What the caller may not read by its own entry is not read by a reader either. If
// several upstreams offer the address, it is read from none of them, and rivals are their labels.
func (s *Surface) readable(ctx context.Context, c caller, uri string) (entry *catalog.Entry, rivals []string) {
	l, from := s.listOf(c), s.links.modulesOf(c.key, uri)
	if rivals = l.rivals[uri]; len(rivals) > 0 || uri == "" || len(uri) > maxURI {
		return nil, rivals
	}
	var found []*catalog.Entry
	if e := l.byURI[uri]; e != nil {
		found = append(found, e)
	}
	for _, module := range from {
		if e := l.reader(module, uri); e != nil && l.mayShow(module, uri) {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		found = slices.DeleteFunc(l.resource(uri), func(e *catalog.Entry) bool {
			return len(from) > 0 && !slices.Contains(from, e.Module.Extension)
		})
	}
	if len(found) == 0 && !strings.HasPrefix(uri, ownScheme) {
		var offering []string
		if shown := l.pages[uri]; len(shown) > 0 {
			offering = append(offering, shown[0].Module.Extension)
		} else if s.cfg.Updates != nil && len(l.readers) > 0 {
			offering = s.cfg.Updates.Offering(ctx, c.who, c.session, uri)
		}
		for _, module := range offering {
			if e := l.reader(module, uri); e != nil && l.mayShow(module, uri) {
				found = append(found, e)
			}
		}
	}
	if rivals = labels(found); len(rivals) != 1 {
		return nil, rivals
	}
	return found[0], nil
}

// reader returns the entry that reads unlisted resources of a module, or nil if the caller may not
// read the address.
func (l *rendered) reader(module, uri string) *catalog.Entry {
	entry := l.readers[module]
	if entry == nil || l.withheld[module+"\x00"+uri] {
		return nil
	}
	tried := 0 // a template that is not matched is taken for one that does
	if slices.ContainsFunc(l.refused, func(t template) bool {
		if t.entry.Module.Extension != module || !strings.HasPrefix(uri, t.start) {
			return false
		}
		tried++
		return t.matches == nil || tried > maxTried || len(uri) > maxMatched || t.matches(uri)
	}) {
		return nil
	}
	return entry
}
