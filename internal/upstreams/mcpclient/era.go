package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// era is the kind of protocol of a server, as far as it is known.
type era int

const (
	eraUnknown era = iota
	eraLegacy
	eraModern
)

const clientInfo = `{"name":"junctor","version":"1"}`

// establish connects, performs the handshake and stores the server's era for the next
// time. If a server no longer matches the stored era, it is detected again.
func (c *Client) establish(ctx context.Context) (link, error) {
	c.mu.Lock()
	known := c.era
	c.mu.Unlock()
	if c.cfg.SSE {
		known = eraLegacy
	}
	lk, found, err := c.try(ctx, known)
	if lk != nil && err != nil && ctx.Err() == nil {
		refusal, _ := errors.AsType[*capability.Error](err)
		switch {
		case known == eraUnknown && len(c.cfg.Command) > 0 && !lk.shared().flight.alive():
			// Some programs exit if another request precedes initialize.
			lk.close(true)
			lk, found, err = c.try(ctx, eraLegacy)
		case known == eraLegacy && !c.cfg.SSE && refusal != nil && refusal.Reason == reasonUpstream:
			lk.close(false)
			lk, found, err = c.try(ctx, eraUnknown)
		}
	}
	if lk == nil {
		return nil, err
	}
	if err != nil {
		lk.close(false)
		return nil, err
	}
	c.mu.Lock()
	c.era = found
	c.mu.Unlock()
	return lk, nil
}

// try makes one connection. If it returns a link together with an error, the caller must
// close the link.
func (c *Client) try(ctx context.Context, known era) (link, era, error) {
	lk, err := c.open(ctx)
	if err != nil {
		return nil, known, err
	}
	if known != eraLegacy {
		found, err := c.discover(ctx, lk)
		if found != eraLegacy {
			return lk, found, err
		}
		if err := lk.shared().flight.end(); err != nil {
			return lk, eraUnknown, err
		}
	}
	err = c.initialize(ctx, lk)
	refusal, _ := errors.AsType[*capability.Error](err)
	if known != eraLegacy && len(c.cfg.Command) > 0 && refusal != nil && refusal.Reason == reasonUpstream && lk.shared().flight.alive() {
		// A program that starts slowly answers server/discover only after probeTimeout, and then
		// refuses initialize.
		if found, again := c.discover(ctx, lk); found == eraModern && again == nil {
			return lk, found, nil
		}
	}
	return lk, eraLegacy, err
}

func (c *Client) open(ctx context.Context) (link, error) {
	switch {
	case len(c.cfg.Command) > 0:
		return c.openProcess()
	case c.cfg.SSE:
		return c.openSSE(ctx)
	}
	return c.openHTTP(), nil
}

// request sends one request of the client itself, outside any call, and returns its answer.
func (c *Client) request(ctx context.Context, lk link, out outgoing) answer {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ex := newExchange(ctx, c.ids.Add(1), out, nil)
	k := lk.shared()
	if err := k.flight.add(ex); err != nil {
		return answer{err: err}
	}
	defer k.flight.remove(ex)
	lk.start(ctx, ex)
	select {
	case a := <-ex.answer:
		return a
	case <-ctx.Done():
		return answer{err: ctx.Err()}
	case <-c.ctx.Done():
		return answer{err: c.errClosed()}
	}
}

// discover sends server/discover and derives the era from the answer. With eraUnknown, the
// error states why it is unknown.
func (c *Client) discover(ctx context.Context, lk link) (era, error) {
	k := lk.shared()
	asked, cancel := ctx, context.CancelFunc(func() {})
	if len(c.cfg.Command) > 0 {
		asked, cancel = context.WithTimeout(ctx, probeTimeout)
	}
	defer cancel()
	params := append([]byte(`{"_meta":`), c.modernMeta(nil, 0, json.RawMessage("{}"))...)
	out := outgoing{method: "server/discover", params: append(params, '}'), version: mcpwire.Version20260728}
	a := c.request(asked, lk, out)
	if a.fault != nil && a.fault.code == mcpwire.CodeUnsupportedVersion &&
		slices.Contains(texts(member(a.fault.data, "supported")), mcpwire.Version20260728) {
		a = c.request(asked, lk, out) // it refused a version that it lists, so servers of several versions may share the address
	}
	switch {
	case a.result != nil:
		if !slices.Contains(texts(member(a.result, "supportedVersions")), mcpwire.Version20260728) {
			return eraLegacy, nil
		}
		info := member(member(a.result, "_meta"), mcpwire.MetaPrefix+"serverInfo")
		if info == nil {
			info = member(a.result, "serverInfo")
		}
		k.server = readServer(mcpwire.Version20260728, info, a.result)
		k.explicit = len(c.cfg.Command) > 0
		return eraModern, nil
	case a.fault != nil && a.fault.code == mcpwire.CodeUnsupportedVersion:
		supported := texts(member(a.fault.data, "supported"))
		if slices.ContainsFunc(supported, legacyVersion) {
			return eraLegacy, nil
		}
		return eraUnknown, capability.Errorf(capability.CodeUnavailable, "mcp.connect", "%s speaks no revision of MCP that is spoken here: %s",
			c.cfg.Name, cut(strings.Join(supported, ", "), 256)).With(reasonVersion, "")
	case a.fault != nil && a.fault.code <= mcpwire.CodeHeaderMismatch && a.fault.code > mcpwire.CodeHeaderMismatch-10:
		return eraUnknown, c.failure(a, true) // an error that only modern servers send
	case len(c.cfg.Command) > 0:
		if ctx.Err() != nil {
			return eraUnknown, ctx.Err()
		}
		return eraLegacy, nil // another error or no answer
	case a.err != nil:
		if e, ok := errors.AsType[*capability.Error](a.err); ok && (e.Reason == reasonUpstream || e.Code == capability.CodeTooLarge) {
			return eraLegacy, nil // the server answered, though not as expected
		}
		return eraUnknown, a.err
	case undecided(a.status):
		err := c.failure(a, true)
		if e, ok := errors.AsType[*capability.Error](err); ok && a.status >= 500 {
			e.Code, e.Reason = capability.CodeUnavailable, reasonConnection
		}
		return eraUnknown, err
	}
	return eraLegacy, nil
}

// undecided reports whether an HTTP status reveals nothing about the era.
func undecided(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

func legacyVersion(v string) bool {
	return slices.Contains(mcpwire.Versions()[1:], v)
}

// initialize opens a legacy session with the newest revision that has sessions. Errors:
// unavailable, reason unsupported_version; failed for an invalid answer.
func (c *Client) initialize(ctx context.Context, lk link) error {
	k := lk.shared()
	params := []byte(`{"protocolVersion":"` + mcpwire.Version20251125 +
		`","capabilities":{"elicitation":{"form":{},"url":{}},"roots":{"listChanged":false},"extensions":` + mcpwire.ClientApps)
	if c.cfg.Sampling {
		params = append(params, `,"sampling":{}`...)
	}
	params = append(params, `},"clientInfo":`+clientInfo+`}`...)
	a := c.request(ctx, lk, outgoing{method: "initialize", params: params})
	if a.result == nil {
		return c.failure(a, a.err == nil)
	}
	version := text(a.result, "protocolVersion", 32)
	if !legacyVersion(version) && (version != mcpwire.Version20241105 || c.cfg.URL != "" && !c.cfg.SSE) {
		return capability.Errorf(capability.CodeUnavailable, "mcp.connect", "%s speaks a revision of MCP that is not spoken here: %s",
			c.cfg.Name, version).With(reasonVersion, "")
	}
	k.server = readServer(version, member(a.result, "serverInfo"), a.result)
	k.explicit = true
	if h, ok := lk.(*httpLink); ok {
		if !validSession(a.session) {
			return c.nonsense("gave its session an id that no header can carry")
		}
		h.session = a.session
	}
	return lk.post(ctx, jsonrpc.AppendRequest(nil, nil, "notifications/initialized", nil))
}

// readServer returns what a server reported about itself, with texts cut.
func readServer(version string, info, result []byte) Server {
	s := Server{
		Version: version,
		Name:    text(info, "name", 256), Title: text(info, "title", 256), Release: text(info, "version", 256),
		Instructions: text(result, "instructions", 8<<10),
		Capabilities: json.RawMessage("{}"),
	}
	if caps := member(result, "capabilities"); len(caps) > 1 && len(caps) <= 64<<10 && caps[0] == '{' {
		s.Capabilities = slices.Clone(json.RawMessage(caps))
	}
	return s
}

// texts returns the strings of an array.
func texts(raw []byte) []string {
	var out []string
	if len(raw) > 0 && len(raw) <= 1<<20 && raw[0] == '[' {
		_ = jsonx.Elements(raw, func(value []byte) error {
			if s, ok := jsonx.Text(value); ok {
				out = append(out, s)
			}
			return nil
		})
	}
	return out
}

func validSession(id string) bool {
	if len(id) > 1024 {
		return false
	}
	for i := range len(id) {
		if id[i] < 0x21 || id[i] > 0x7e {
			return false
		}
	}
	return true
}
