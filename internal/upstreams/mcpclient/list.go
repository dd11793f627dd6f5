package mcpclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

var errEnough = errors.New("enough")

// List reads all pages of a list and calls each for every definition in the server's
// order. each may retain the bytes. An error of each ends List and is returned. A reached
// limit is not an error but sets Page.Truncated. Other errors are those of Call; the
// definitions before one have been passed to each.
func (c *Client) List(ctx context.Context, l List, each func(definition json.RawMessage) error) (Page, error) {
	lk, err := c.connected(ctx)
	if err != nil {
		return Page{}, err
	}
	timed, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var page Page
	var cursor json.RawMessage
	seen := make(map[string]bool)
	items, size := 0, 0
	for pages := 0; ; pages++ {
		if pages == maxListPages {
			page.Truncated = "pages"
			return page, nil
		}
		a, next, err := c.page(timed, lk, l, cursor)
		lk = next
		if err != nil {
			if pages > 0 && timed.Err() != nil && ctx.Err() == nil {
				page.Truncated = "time"
				return page, nil
			}
			if ctx.Err() != nil {
				err = c.ended(ctx)
			}
			return page, err
		}
		if ms, err := strconv.ParseFloat(string(member(a, "ttlMs")), 64); err == nil && ms > 0 {
			if ttl := time.Duration(min(ms, 86_400_000)) * time.Millisecond; page.TTL == 0 || ttl < page.TTL {
				page.TTL = ttl
			}
		}
		list := member(a, l.member())
		if len(list) == 0 || list[0] != '[' {
			return page, c.nonsense("answered without a list of %s", l)
		}
		err = jsonx.Elements(list, func(value []byte) error {
			switch {
			case items == maxListItems:
				page.Truncated = "items"
				return errEnough
			case size+len(value) > maxListBytes:
				page.Truncated = "bytes"
				return errEnough
			}
			items, size = items+1, size+len(value)
			return each(bytes.Clone(value))
		})
		if errors.Is(err, errEnough) {
			return page, nil
		}
		if err != nil {
			return page, err
		}
		cursor = member(a, "nextCursor")
		if len(cursor) == 0 || cursor[0] != '"' {
			return page, nil
		}
		if seen[string(cursor)] || len(cursor) > 64<<10 {
			page.Truncated = "cursor"
			return page, nil
		}
		seen[string(cursor)] = true
	}
}

// page reads one page. It also returns the link, which is a new one if the session was renewed.
func (c *Client) page(ctx context.Context, lk link, l List, cursor json.RawMessage) (json.RawMessage, link, error) {
	for renewed := false; ; renewed = true {
		k := lk.shared()
		params := []byte{'{'}
		if cursor != nil {
			params = jsonx.AppendMember(params, "cursor", cursor)
		}
		if k.server.Modern() {
			params = jsonx.AppendMember(params, "_meta", c.modernMeta(nil, 0, json.RawMessage(`{"extensions":`+mcpwire.ClientApps+"}")))
		}
		a := c.request(ctx, lk, outgoing{method: string(l) + "/list", params: append(params, '}')})
		if k.contradicted(a) && !renewed {
			if _, err := c.renew(ctx, lk); err != nil {
				return nil, lk, err
			}
			next, err := c.connected(ctx)
			if err != nil {
				return nil, lk, err
			}
			lk = next
			continue
		}
		if a.result == nil {
			return nil, lk, c.failure(a, true)
		}
		return a.result, lk, nil
	}
}
