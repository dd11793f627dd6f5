package mcpserve

import (
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// listTTL is how long a client may keep a list, in milliseconds.
const listTTL = "5000"

// rendered holds the lists of one viewer at one state of the catalog.
type rendered struct {
	generation, epoch uint64

	used atomic.Bool // since the last [Surface.expire]

	agent *compile.Agent
	shown []*compile.Action

	listing
	output map[string]bool                  // tools that declare an object as output
	own    map[string]*compile.Action       // by the upstreams' names, if the view shows those
	params map[string][]mcpwire.HeaderParam // arguments that headers repeat, by tool
	// onlyTask are the tools that can only run as tasks.
	onlyTask map[string]bool

	prompts, resources, templates listing
	byPrompt                      map[string]*catalog.Entry
	byURI                         map[string]*catalog.Entry
	rivals                        map[string][]string         // the labels of several upstreams that list one address
	pages                         map[string][]*catalog.Entry // a tool of each module that shows a page, by its address
	byTemplate                    []template
	withheld                      map[string]bool           // resources that the caller may not read, by module and address
	refused                       []template                // templates that the caller may not use
	readers                       map[string]*catalog.Entry // by module: what reads resources that are not listed
}

// listing is the content of one list method: the encoded items, joined, so that a page is
// a slice of them.
type listing struct {
	joined []byte // item,item,…
	ends   []int  // end of each item in joined
	names  []string
	hash   [sha256.Size]byte
}

// add appends one item. Items must be added in the order of their names.
func (l *listing) add(name string, item []byte) {
	if len(l.joined) > 0 {
		l.joined = append(l.joined, ',')
	}
	l.joined = append(l.joined, item...)
	l.ends = append(l.ends, len(l.joined))
	l.names = append(l.names, name)
}

// insert adds one item in the order of names.
func (l *listing) insert(name string, item []byte) {
	at, _ := slices.BinarySearch(l.names, name)
	old := *l
	*l = listing{}
	for i := range old.names {
		if i == at {
			l.add(name, item)
		}
		start := 0
		if i > 0 {
			start = old.ends[i-1] + 1
		}
		l.add(old.names[i], old.joined[start:old.ends[i]])
	}
	if at == len(old.names) {
		l.add(name, item)
	}
}

func (l *listing) seal() { l.hash = sha256.Sum256(l.joined) }

// listOf returns the lists that c may see now, from the cache if nothing has changed.
func (s *Surface) listOf(c caller) *rendered {
	epoch, generation := s.epoch.Load(), s.cfg.Catalog.Snapshot().Generation
	if v, ok := s.lists.Load(c.key); ok {
		if l := v.(*rendered); l.generation == generation && l.epoch == epoch {
			if !l.used.Load() {
				l.used.Store(true)
			}
			return l
		}
	}
	agent, permitted, err := s.cfg.Engine.Agent(c.invocation())
	if err != nil {
		return &rendered{} // every context of the surface is valid
	}
	l := render(s.tools(c, agent, permitted))
	l.agent = agent
	s.renderMembers(l, c, permitted)
	l.generation, l.epoch = generation, epoch
	l.used.Store(true)
	s.lists.Store(c.key, l)
	return l
}

// tool is one action with the providers that the caller may use.
type tool struct {
	*compile.Action
	wire string
	own  bool // wire is its name at the upstream
}

// tools returns the exposed actions of the caller's context, ordered by name, without the
// providers that the caller's rules deny.
func (s *Surface) tools(c caller, agent *compile.Agent, permitted func(*catalog.Entry) bool) []tool {
	exposure := agent.Snapshot().Settings().Exposure
	shown, err := agent.Expose(compile.Limits{
		View: c.view.Exposure, Exposure: exposure, ByName: true, Own: serversOwn,
		HideOwn: exposure.OwnTools == catalog.OwnHidden && c.who.OnBehalfOf == "" && !c.view.namesOwn(),
	})
	if err != nil {
		s.cfg.Logger.Error("the catalog's exposure cannot be used", "err", err)
		return nil
	}
	var out []tool
	for _, a := range shown.Direct {
		if a = narrow(agent, a, permitted); a != nil {
			out = append(out, tool{Action: a, wire: c.view.spelling().Write(agent, a)})
		}
	}
	if c.view.OwnNames {
		ownNames(out)
	}
	slices.SortFunc(out, func(a, b tool) int { return strings.Compare(a.wire, b.wire) })
	return out
}

// serversOwn reports whether an entry is a function of junctor itself.
func serversOwn(e *catalog.Entry) bool { return e.Module.Origin == "core" }

// render encodes the definitions of the tools, in the given order.
func render(tools []tool) *rendered {
	l := &rendered{
		output: make(map[string]bool), own: make(map[string]*compile.Action), params: make(map[string][]mcpwire.HeaderParam),
		onlyTask: make(map[string]bool),
	}
	for _, t := range tools {
		text, output, ok := toolDefinition(t.Action, t.wire)
		if !ok {
			continue
		}
		l.add(t.wire, text)
		if t.own {
			l.own[t.wire] = t.Action
		} else {
			l.shown = append(l.shown, t.Action)
		}
		if output {
			l.output[t.wire] = true
		}
		if params := mcpwire.HeaderParams(t.Entries[0].Contribution.Definition); len(params) > 0 {
			l.params[t.wire] = params
		}
		if mcpwire.TaskOnly(t.Entries[0].Contribution.Definition) {
			l.onlyTask[t.wire] = true
		}
	}
	l.seal()
	return l
}

// ownNames restores the names that tools have at their upstreams, for each tool whose name
// is not used by another.
func ownNames(tools []tool) {
	claims := make(map[string]int)
	for _, t := range tools {
		claims[t.wire]++
		if name := declaredName(t.Action); name != "" && name != t.wire {
			claims[name]++
		}
	}
	for i := range tools {
		if name := declaredName(tools[i].Action); name != "" && claims[name] == 1 || name == tools[i].wire && name != "" {
			tools[i].wire, tools[i].own = name, true
		}
	}
}

// declaredName returns the name that the only provider of a minted tool declares, or "" if
// it is not a valid MCP name.
func declaredName(a *compile.Action) string {
	if len(a.Entries) != 1 || a.Entries[0].Contribution.Definition == nil {
		return ""
	}
	return plainName(a.Entries[0].Contribution.Member.Name)
}

// plainName returns the name if clients accept it, and "" otherwise.
func plainName(name string) string {
	if len(name) > 128 || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_-./", r)
	}) {
		return ""
	}
	return name
}

// ownName returns the action of an upstream's name in a view that shows these names, or nil.
func (s *Surface) ownName(c caller, name string) *compile.Action {
	if !c.view.OwnNames {
		return nil
	}
	return s.listOf(c).own[name]
}

// lease returns the key under which the meanings of the caller's names are stored.
func (c caller) lease() compile.LeaseKey {
	if c.session != "" {
		return compile.LeaseKey{Session: c.session}
	}
	return compile.LeaseKey{Token: c.key, View: c.view.name}
}

// narrow returns the action without the entries that the principal may not use, or nil if
// none is left.
func narrow(agent *compile.Agent, a *compile.Action, permitted func(*catalog.Entry) bool) *compile.Action {
	usable := func(e *catalog.Entry) bool { return e.Provider != nil && permitted(e) }
	if !slices.ContainsFunc(a.Entries, func(e *catalog.Entry) bool { return !usable(e) }) {
		return a
	}
	n := *a
	n.Entries = slices.DeleteFunc(slices.Clone(a.Entries), func(e *catalog.Entry) bool { return !usable(e) })
	if len(n.Entries) == 0 {
		return nil
	}
	_, err := agent.Select(arbitration.Request{Action: a.Canonical, Denied: func(e *catalog.Entry) bool { return !usable(e) }})
	n.RequiresSelection = err != nil
	return &n
}

// page is the result of a list method in three parts. The middle one is a slice of the
// cached list and must not be changed.
type page [3][]byte

// joined returns the parts concatenated.
func (p page) joined() []byte { return slices.Concat(p[:]...) }

// writePage writes the response of a list method without copying the items.
func writePage(w http.ResponseWriter, id json.RawMessage, p page) {
	head := jsonrpc.AppendResultHead(nil, id)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(head)+len(p[0])+len(p[1])+len(p[2])+1))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	for _, part := range [][]byte{append(head, p[0]...), p[1], append(p[2], '}')} {
		if _, err := w.Write(part); err != nil {
			return // the client has disconnected
		}
	}
}

// pageOf returns one page of a list method. An invalid cursor is a fault. For tools/list
// it records what the names mean for this caller.
func (s *Surface) pageOf(c caller, method string, cursor json.RawMessage, e mcpwire.Era) (p page, f *mcpwire.Fault) {
	l := s.listOf(c)
	list, member := &l.listing, "tools"
	switch method {
	case "prompts/list":
		list, member = &l.prompts, "prompts"
	case "resources/list":
		list, member = &l.resources, "resources"
	case "resources/templates/list":
		list, member = &l.templates, "resourceTemplates"
	default:
		if l.agent != nil {
			s.leases.Record(c.lease(), l.agent, c.view.spelling(), l.shown)
		}
	}
	from := 0
	if cursor != nil && string(cursor) != "null" {
		last, ok := openCursor(s.cfg.CursorKey, c.key, method, cursor)
		if !ok {
			return p, mcpwire.InvalidParams("the cursor is not one of this list; begin again without a cursor")
		}
		i, found := slices.BinarySearchFunc(list.names, last, strings.Compare)
		if from = i; found {
			from = i + 1
		}
	}
	to := min(from+s.cfg.PageSize, len(list.names))
	p[0] = append(append([]byte(`{"`), member...), `":[`...)
	if from < to {
		start := 0
		if from > 0 {
			start = list.ends[from-1] + 1
		}
		p[1] = list.joined[start:list.ends[to-1]]
	}
	dst := []byte{']'}
	if to < len(list.names) {
		dst = append(dst, `,"nextCursor":`...)
		dst = jsonx.AppendString(dst, sealCursor(s.cfg.CursorKey, c.key, method, l.generation, list.names[to-1]))
	}
	if e.Modern {
		dst = append(dst, `,"ttlMs":`+listTTL+`,"cacheScope":"private"`...)
	}
	var own []byte
	if n := s.missing(); n > 0 {
		own = jsonx.AppendString([]byte(`"junctor/missing":`), missingText(n))
	}
	p[2] = e.AppendClosing(dst, own)
	return p, nil
}

// missing returns the number of providers that were not reached since the server started.
func (s *Surface) missing() int {
	if s.cfg.Missing == nil {
		return 0
	}
	return s.cfg.Missing()
}

// missingText explains why something may not be listed. It is the same for every caller, so that it
// does not reveal what a caller may not see.
func missingText(n int) string {
	return strconv.Itoa(n) + " of this server's providers were not reached since it started; what they offer is not listed yet"
}

// isList reports whether the method is answered with a page.
func isList(method string) bool {
	switch method {
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list":
		return true
	}
	return false
}

// hashes returns a digest for each list, so that changes can be detected: tools, prompts,
// and resources with their templates.
func (l *rendered) hashes() [3][sha256.Size]byte {
	both := append(l.resources.hash[:], l.templates.hash[:]...)
	return [3][sha256.Size]byte{l.hash, l.prompts.hash, sha256.Sum256(both)}
}
