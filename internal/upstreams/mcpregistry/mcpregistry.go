// Package mcpregistry reads entries of an MCP registry over its read API v0.1 and plans the
// upstream that an entry describes. It trusts nothing that the registry sends: names, versions,
// sizes and pages are checked, and an entry never determines more than arguments of a known runner.
package mcpregistry

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// Reasons of errors.
const (
	ReasonOff         = "registry_off"
	ReasonUnreached   = "registry_unreached"
	ReasonInvalid     = "registry_invalid"     // it sends what its API forbids
	ReasonUnsupported = "registry_unsupported" // the entry needs what junctor does not offer
	ReasonDeleted     = "registry_deleted"
	ReasonInput       = "registry_input"
)

const pageSize = 100

// Config configures a Client.
type Config struct {
	Base string // address of the registry; "": none
	// NPM and PyPI are the addresses of the package registries that the runners use, or "" if they use
	// their own, which are then not known.
	NPM, PyPI string
	HTTP      *http.Client
	// LookPath finds a program of this machine.
	LookPath func(program string) (string, error)
}

// Client reads one registry.
type Client struct {
	cfg    Config
	mu     sync.Mutex
	states map[string]state // by name@version
}

type state struct {
	status string
	at     time.Time
}

// New returns a client. It sends nothing.
func New(cfg Config) *Client {
	client := *cfg.HTTP
	client.Timeout = requestTimeout
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) > 3 || req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
			return http.ErrUseLastResponse
		}
		return nil
	}
	cfg.HTTP = &client
	return &Client{cfg: cfg, states: make(map[string]state)}
}

// Listed is an entry in the result of a search.
type Listed struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Version     string `json:"version"`
	Status      string `json:"status"` // active or deprecated
	// Packages are the forms that junctor can add: npm, pypi, oci, remote.
	Packages []string `json:"packages"`
	score    int
}

// Found is the result of a search.
type Found struct {
	Servers []Listed `json:"servers"`
	Dropped int      `json:"dropped,omitempty"` // entries that the registry should not have sent
	More    bool     `json:"more,omitempty"`    // the registry has more
}

// Search returns the entries whose name contains one of the words, those first that have most of them
// in name, title and description. Errors: unavailable; invalid_input.
func (c *Client) Search(ctx context.Context, text string) (Found, error) {
	words := strings.Fields(strings.ToLower(text))
	if len(words) == 0 || len(words) > maxWords || len(text) > maxName {
		return Found{}, capability.Errorf(capability.CodeInvalidInput, "registry.search",
			"search for 1 to %d words of at most %d bytes together", maxWords, maxName).
			With(ReasonInput, "")
	}
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	out := Found{Servers: []Listed{}}
	seen := make(map[string]bool)
	for _, word := range words {
		cursors := map[string]bool{"": true}
		for cursor, page := "", 0; ; page++ {
			if page == maxPages {
				out.More = true
				break
			}
			var answer struct {
				Servers  []json.RawMessage
				Metadata struct{ NextCursor string }
			}
			query := url.Values{"search": {word}, "version": {"latest"}, "limit": {fmt.Sprint(pageSize)}}
			if cursor != "" {
				query.Set("cursor", cursor)
			}
			if err := c.get(ctx, "/v0.1/servers?"+query.Encode(), &answer); err != nil {
				return Found{}, err
			}
			for _, raw := range answer.Servers[:min(len(answer.Servers), pageSize)] {
				var i item
				if json.Unmarshal(raw, &i) != nil {
					out.Dropped++
					continue
				}
				e, err := i.entry()
				if err != nil || e.Status == StatusDeleted {
					out.Dropped++
					continue
				}
				l := Listed{
					Name: e.Name, Title: e.Title, Description: e.Description, Version: e.Version, Status: e.Status, Packages: e.packages(),
				}
				if l.score = score(&l, words); l.score > 0 && !seen[l.Name] {
					seen[l.Name] = true
					out.Servers = append(out.Servers, l)
				}
			}
			if cursor = answer.Metadata.NextCursor; cursor == "" {
				break
			}
			if cursors[cursor] || len(cursor) > 4096 {
				return Found{}, invalid("its list repeats a page")
			}
			cursors[cursor] = true
		}
	}
	slices.SortFunc(out.Servers, func(a, b Listed) int { return cmp.Or(b.score-a.score, strings.Compare(a.Name, b.Name)) })
	if len(out.Servers) > maxShown {
		out.Servers, out.More = out.Servers[:maxShown], true
	}
	return out, nil
}

// score counts where the words are.
func score(l *Listed, words []string) (n int) {
	for _, word := range words {
		for i, text := range []string{l.Description, l.Title, l.Name} {
			if strings.Contains(strings.ToLower(text), word) {
				n += 1 << i
			}
		}
	}
	if l.Status == StatusDeprecated {
		n = (n + 1) / 2
	}
	return n
}

// Get returns one version of an entry; "" is the latest. Errors: not_found; unavailable.
func (c *Client) Get(ctx context.Context, name, version string) (Entry, error) {
	if !nameGrammar.MatchString(name) || len(name) > maxName {
		return Entry{}, capability.Errorf(capability.CodeInvalidInput, "registry.get",
			"%.100q is not the name of an entry, such as io.github.someone/server", name).With(ReasonInput, "find it with: junctor mcp search WORDS")
	}
	if version = cmp.Or(version, "latest"); len(version) > maxVersion {
		return Entry{}, capability.Errorf(capability.CodeInvalidInput, "registry.get", "a version has at most %d characters", maxVersion).
			With(ReasonInput, "")
	}
	var i item
	if err := c.get(ctx, "/v0.1/servers/"+url.PathEscape(name)+"/versions/"+url.PathEscape(version), &i); err != nil {
		return Entry{}, err
	}
	e, err := i.entry()
	if err != nil {
		return Entry{}, err
	}
	if e.Name != name || version != "latest" && e.Version != version {
		return Entry{}, invalid(fmt.Sprintf("it answered %.100s %.40s to the question for %s %s", e.Name, e.Version, name, version))
	}
	c.remember(e)
	return e, nil
}

func (c *Client) remember(e Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.states) >= maxStates {
		clear(c.states)
	}
	c.states[e.Name+"@"+e.Version] = state{e.Status, time.Now()}
}

// Status returns the status of an entry, which is at most an hour old: active, deprecated or deleted.
// An entry that the registry does not have is deleted.
func (c *Client) Status(ctx context.Context, name, version string) (string, error) {
	c.mu.Lock()
	known, ok := c.states[name+"@"+version]
	c.mu.Unlock()
	if ok && time.Since(known.at) < statusTTL {
		return known.status, nil
	}
	e, err := c.Get(ctx, name, version)
	if capability.CodeOf(err) == capability.CodeNotFound {
		c.remember(Entry{Name: name, Version: version, Status: StatusDeleted})
		return StatusDeleted, nil
	}
	return e.Status, err
}

// On reports whether a registry is configured.
func (c *Client) On() bool { return c.cfg.Base != "" }

// get requests a path of the registry.
func (c *Client) get(ctx context.Context, path string, out any) error {
	if !c.On() {
		return capability.Errorf(capability.CodeUnavailable, "registry", "no MCP registry is configured").
			With(ReasonOff, "set upstreams.registries.mcp to the address of one")
	}
	return c.fetch(ctx, strings.TrimSuffix(c.cfg.Base, "/")+path, "application/json", out)
}

// fetch requests a JSON document.
func (c *Client) fetch(ctx context.Context, address, accept string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return invalid("an address cannot be read")
	}
	req.Header.Set("Accept", accept)
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return capability.Wrap(capability.CodeUnavailable, "registry", req.URL.Host+" cannot be reached", err).
			With(ReasonUnreached, "check upstreams.registries and the network")
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return capability.Errorf(capability.CodeNotFound, "registry", "%s does not have it", req.URL.Host).
			With("registry_not_found", "find the name with: junctor mcp search WORDS")
	case resp.StatusCode != http.StatusOK:
		return capability.Errorf(capability.CodeUnavailable, "registry", "%s answered %s", req.URL.Host, resp.Status).With(ReasonUnreached, "")
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
	switch {
	case err != nil:
		return capability.Wrap(capability.CodeUnavailable, "registry", req.URL.Host+" ended early", err).With(ReasonUnreached, "")
	case len(body) > maxPage:
		return invalid(fmt.Sprintf("an answer has more than %d bytes", maxPage))
	}
	if err := json.Unmarshal(body, out); err != nil {
		return invalid("an answer is not of its form")
	}
	return nil
}

func invalid(what string) error {
	return capability.Errorf(capability.CodeUnavailable, "registry", "the registry cannot be trusted: %s", what).
		With(ReasonInvalid, "report it to the operator of the registry")
}

var (
	nameGrammar    = regexp.MustCompile(`^[A-Za-z0-9.-]+/[A-Za-z0-9._-]+$`)
	versionGrammar = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+_-]*$`)
)
