package a2a

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Card holds the parts of an agent's card that this package uses.
type Card struct {
	Name, Version, Description string
	// Binding and Protocol are those of the interface that is used: "JSONRPC" or
	// "HTTP+JSON", "1.0" or "0.3".
	Binding, Protocol string
	// Definitions are the skills as tools of MCP, in the order of the card. They are
	// the stranger's words, and judged by their publisher.
	Definitions [][]byte
	// TTL is for how long the card holds, as its server says; 0: it does not say.
	TTL time.Duration
}

// fetched is the last answer, for conditional requests.
type fetched struct {
	card Card
	etag string
}

// document holds the members of a card that are read; the second part is of A2A v0.3.
type document struct {
	Name                string      `json:"name"`
	Version             string      `json:"version"`
	Description         string      `json:"description"`
	Skills              []jsonx.Raw `json:"skills"`
	SupportedInterfaces []endpoint  `json:"supportedInterfaces"`
	Capabilities        struct {
		Streaming bool `json:"streaming"`
	} `json:"capabilities"`

	URL                  string `json:"url"`
	PreferredTransport   string `json:"preferredTransport"`
	ProtocolVersion      string `json:"protocolVersion"`
	AdditionalInterfaces []struct {
		URL       string `json:"url"`
		Transport string `json:"transport"`
	} `json:"additionalInterfaces"`
}

// endpoint is one interface of a card.
type endpoint struct {
	URL      string `json:"url"`
	Binding  string `json:"protocolBinding"`
	Protocol string `json:"protocolVersion"`
	Tenant   string `json:"tenant,omitzero"`
}

const (
	bindingRPC  = string(a2a.TransportProtocolJSONRPC)
	bindingREST = string(a2a.TransportProtocolHTTPJSON)
	version10   = string(a2a.Version)
	version03   = "0.3"
)

// Connect fetches the card. Errors: unavailable, with the reasons connection_failed,
// address_denied, unauthenticated, unsupported_version, other_origin and signature_invalid.
func (a *Agent) Connect(ctx context.Context) (Card, error) {
	got, err := a.fetch(ctx, nil)
	if err != nil {
		return Card{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen, a.fresh = got, true
	return got.card, nil
}

// Card fetches and returns the current card; its first call after Connect returns the card
// that Connect fetched. A card that can no longer be fetched is also reported to Down.
func (a *Agent) Card(ctx context.Context) (Card, error) {
	a.mu.Lock()
	seen, fresh := a.seen, a.fresh
	a.fresh = false
	a.mu.Unlock()
	if fresh {
		return seen.card, nil
	}
	got, err := a.fetch(ctx, seen)
	if err != nil {
		if ctx.Err() == nil {
			a.down(err)
		}
		return Card{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = got
	return got.card, nil
}

const opConnect = "upstream.connect"

// fetch gets the card, or keeps the one before where its server reports that it is the same.
func (a *Agent) fetch(ctx context.Context, before *fetched) (*fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.at.String(), http.NoBody)
	if err != nil {
		return nil, capability.Wrap(capability.CodeUnavailable, opConnect, "the address of the card cannot be used", err)
	}
	secret, err := a.credentials(ctx, a.at)
	if err != nil {
		return nil, err
	}
	for name, values := range secret {
		req.Header[name] = values
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("A2A-Version", version10)
	if before != nil && before.etag != "" {
		req.Header.Set("If-None-Match", before.etag)
	}
	res, err := a.http.Do(req)
	if err != nil {
		return nil, unreached(err)
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusNotModified && before != nil:
		same := *before
		same.card.TTL = age(res.Header)
		return &same, nil
	case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		return nil, capability.Errorf(capability.CodeUnavailable, opConnect, "the agent does not show its card: status %d",
			res.StatusCode).With("unauthenticated", "see that its credentials are right")
	case res.StatusCode != http.StatusOK:
		return nil, capability.Errorf(capability.CodeUnavailable, opConnect, "the address of the card answers with status %d",
			res.StatusCode).With(reasonConnection, "see that it is the address of an agent card")
	}
	body, err := readAll(res.Body, MaxCard)
	if err != nil {
		return nil, err
	}
	card, err := a.read(body, len(secret) > 0)
	if err != nil {
		return nil, err
	}
	card.TTL = age(res.Header)
	etag := res.Header.Get("ETag")
	if len(etag) > 256 {
		etag = ""
	}
	return &fetched{card: card, etag: etag}, nil
}

// age is for how long an answer reports that it holds, at most a day.
func age(h http.Header) time.Duration {
	for word := range strings.SplitSeq(h.Get("Cache-Control"), ",") {
		if text, ok := strings.CutPrefix(strings.TrimSpace(word), "max-age="); ok {
			n, err := strconv.Atoi(text)
			if err == nil && n > 0 {
				return min(time.Duration(min(n, 86400))*time.Second, 24*time.Hour)
			}
		}
	}
	return 0
}

// read makes a Card of a document. secret reports that there are credentials.
func (a *Agent) read(body []byte, secret bool) (Card, error) {
	if len(a.cfg.Keys) > 0 {
		var err error
		if body, err = verified(body, a.cfg.Keys); err != nil {
			return Card{}, err
		}
	}
	var doc document
	if err := jsonx.Unmarshal(body, &doc); err != nil {
		return Card{}, capability.Wrap(capability.CodeUnavailable, opConnect, "what is at the URL is not an agent card",
			err).With(reasonUpstream, "see that it is the address of an agent card")
	}
	if len(doc.Skills) > MaxSkills {
		return Card{}, capability.Errorf(capability.CodeUnavailable, opConnect, "the card has %d skills; %d is the most", len(doc.Skills),
			MaxSkills).With("too_many_skills", "")
	}
	where, err := a.choose(&doc, secret)
	if err != nil {
		return Card{}, err
	}
	digest, err := digestOf(body)
	if err != nil {
		return Card{}, err
	}
	card := Card{Name: doc.Name, Version: doc.Version, Description: doc.Description, Binding: where.Binding, Protocol: where.Protocol}
	for _, skill := range doc.Skills {
		if d, ok := a.definition(&doc, skill, where, digest); ok {
			card.Definitions = append(card.Definitions, d)
		}
	}
	return card, nil
}

// choose returns the first supported interface that may be reached: JSON-RPC of A2A
// v1.0, HTTP+JSON of v1.0, or JSON-RPC of v0.3.
func (a *Agent) choose(doc *document, secret bool) (endpoint, error) {
	list := doc.SupportedInterfaces
	if doc.URL != "" && strings.HasPrefix(doc.ProtocolVersion, version03+".") {
		if doc.PreferredTransport == "" {
			doc.PreferredTransport = bindingRPC
		}
		list = append(list, endpoint{URL: doc.URL, Binding: doc.PreferredTransport, Protocol: version03})
		for _, more := range doc.AdditionalInterfaces {
			list = append(list, endpoint{URL: more.URL, Binding: more.Transport, Protocol: version03})
		}
	}
	elsewhere := false
	for _, want := range []endpoint{
		{Binding: bindingRPC, Protocol: version10},
		{Binding: bindingREST, Protocol: version10},
		{Binding: bindingRPC, Protocol: version03},
	} {
		for _, i := range list {
			if i.Binding != want.Binding || i.Protocol != want.Protocol || !a.reachable(i.URL) || len(i.Tenant) > 256 {
				continue
			}
			if u, err := url.Parse(i.URL); secret && (err != nil || !a.own(u)) {
				elsewhere = true
				continue
			}
			return i, nil
		}
	}
	if elsewhere {
		return endpoint{}, capability.Errorf(capability.CodeUnavailable, opConnect,
			"the agent wants its messages at another origin than its card's, and credentials do not go there").With("other_origin",
			"use the card of that origin")
	}
	return endpoint{}, capability.Errorf(capability.CodeUnavailable, opConnect,
		"the agent offers neither JSON-RPC nor HTTP+JSON of A2A 1.0, nor JSON-RPC of 0.3, at an address that may be reached").
		With(reasonVersion, "its addresses must be https; an agent on this machine or its network is added with --local")
}

// digestOf is of all that a card says besides its skills, each of which has a pin of
// its own, and its signatures, which differ each time.
func digestOf(body []byte) (string, error) {
	var err error
	for _, name := range []string{"skills", "signatures"} {
		if _, body, err = jsonx.Cut(body, name); err != nil {
			break
		}
	}
	if err == nil {
		body, err = jsonx.Sorted(body)
	}
	if err != nil {
		return "", capability.Wrap(capability.CodeUnavailable, opConnect, "what is at the URL is not an agent card", err).With(reasonUpstream,
			"see that it is the address of an agent card")
	}
	sum := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

const inputSchema = `{"type":"object","required":["message"],"properties":{"message":{"type":"string","description":"What the agent is to do, in words."},` +
	`"data":{"type":"object","description":"Structured input beside the words."},` +
	`"context":{"type":"string","description":"Id of an earlier conversation with this agent that this goes on with."},` +
	`"files":{"type":"array","maxItems":16,"items":{"type":"object","properties":{"url":{"type":"string"},"bytes":{"type":"string","contentEncoding":"base64"},"name":{"type":"string"},"mimeType":{"type":"string"}}}}}}`

// pinned is what a definition says for calls. It is in _meta under a name of ours, so
// it is pinned and shown to operators, and agents do not see it.
type pinned struct {
	Agent     string    `json:"agent,omitzero"`
	Version   string    `json:"version,omitzero"`
	Interface endpoint  `json:"interface"`
	Streaming bool      `json:"streaming"`
	Skill     jsonx.Raw `json:"skill"`
	Card      string    `json:"card"` // digest of the rest of the card
}

type definition struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitzero"`
	Description string          `json:"description,omitzero"`
	InputSchema jsonx.Raw       `json:"inputSchema"`
	Annotations map[string]bool `json:"annotations"`
	Meta        struct {
		A2A pinned `json:"junctor/a2a"`
	} `json:"_meta"`
}

type skill struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
}

// definition is one skill as a tool; ok is false for one without an id.
func (a *Agent) definition(doc *document, raw jsonx.Raw, where endpoint, digest string) (out []byte, ok bool) {
	var s skill
	if jsonx.Unmarshal(raw, &s) != nil || s.ID == "" {
		return nil, false
	}
	d := definition{
		Name: "agent_" + slug(a.cfg.Name) + "_" + slug(s.ID), Title: s.Name, Description: s.Description,
		InputSchema: jsonx.Raw(inputSchema), Annotations: map[string]bool{"openWorldHint": true},
	}
	if d.Description == "" {
		d.Description = doc.Description
	}
	d.Meta.A2A = pinned{
		Agent: doc.Name, Version: doc.Version, Interface: where, Streaming: doc.Capabilities.Streaming, Skill: raw,
		Card: digest,
	}
	out, err := jsonx.Marshal(d)
	return out, err == nil
}

// slug has letters, digits, _ and - only; what else there is becomes _.
func slug(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-':
			return r
		}
		return '_'
	}, s)
}
