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

// linked are the links of one viewer, oldest first.
type linked struct {
	order  []string
	module map[string]string // of each address
	size   int
}

// add stores a link, and drops the oldest ones beyond maxLinked.
func (l *links) add(viewer, module, uri string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = make(map[string]*linked)
	}
	own := l.of[viewer]
	if own == nil {
		own = &linked{module: make(map[string]string)}
		l.of[viewer] = own
	}
	if _, again := own.module[uri]; again {
		at := slices.Index(own.order, uri)
		own.order = slices.Delete(own.order, at, at+1)
		own.size -= len(uri)
	}
	own.module[uri] = module
	own.order = append(own.order, uri)
	for own.size += len(uri); own.size > maxLinked; own.order = own.order[1:] {
		own.size -= len(own.order[0])
		delete(own.module, own.order[0])
	}
}

// moduleOf returns the module that linked to the address, or "".
func (l *links) moduleOf(viewer, uri string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own := l.of[viewer]; own != nil {
		return own.module[uri]
	}
	return ""
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
		if kind == "resource_link" && uri != "" && len(uri) <= maxURI && !strings.HasPrefix(uri, ownScheme) {
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

// readable returns the entry that reads an address for the caller, or nil: that of a listed resource
// or a template, otherwise the reader of the upstream that linked to it or offers it to the caller
// alone. What the caller may not read by its own entry is not read by a reader either.
func (s *Surface) readable(ctx context.Context, c caller, uri string) *catalog.Entry {
	l := s.listOf(c)
	if entry := l.resource(uri); entry != nil {
		return entry
	}
	if uri == "" || len(uri) > maxURI || strings.HasPrefix(uri, ownScheme) {
		return nil
	}
	if entry := l.reader(s.links.moduleOf(c.key, uri), uri); entry != nil {
		return entry
	}
	if s.cfg.Updates == nil || len(l.readers) == 0 {
		return nil
	}
	for _, module := range s.cfg.Updates.Offering(ctx, c.who.ID, c.session, uri) {
		if entry := l.reader(module, uri); entry != nil {
			return entry
		}
	}
	return nil
}

// reader returns the entry that reads unlisted resources of a module, or nil if the caller may not
// read the address.
func (l *rendered) reader(module, uri string) *catalog.Entry {
	entry := l.readers[module]
	if entry == nil || l.withheld[module+"\x00"+uri] {
		return nil
	}
	if slices.ContainsFunc(l.refused, func(t template) bool { return t.entry.Module.Extension == module && t.matches(uri) }) {
		return nil
	}
	return entry
}
