package node

import (
	"context"
	"encoding/json"
	"mime"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// The media types of values stored as assets: JSON, and the bytes of {"$bytes": …}.
const (
	mediaJSON  = "application/json"
	mediaBytes = "application/octet-stream"
)

// envelope is the size in bytes of a message without its value.
const envelope = 4 << 10

// inline returns the largest result in bytes that is sent in its message.
func (n *Node) inline() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	limit := wire.MaxInline
	if n.reply.MaxInline > 0 {
		limit = min(limit, n.reply.MaxInline)
	}
	return max(limit-envelope, 0)
}

// outgoing returns a value for sending: itself, or, above limit bytes, a reference to the
// asset as which it was stored. Without Config.Put it is payload_too_large.
func (n *Node) outgoing(ctx context.Context, value json.RawMessage, limit int, what string) (json.RawMessage, error) {
	if len(value) <= limit {
		return value, nil
	}
	if n.cfg.Put == nil {
		return nil, cmp.Errorf(cmp.ReasonTooLarge, "the %s has %d bytes; the limit is %d, and this node has no way to send larger ones", what,
			len(value), limit)
	}
	if len(value) > cmp.MaxAsset {
		return nil, cmp.Errorf(cmp.ReasonTooLarge, "the %s has %d bytes; the limit is %d", what, len(value), cmp.MaxAsset)
	}
	data, media := []byte(value), mediaJSON
	if raw, ok, err := cmp.ReadBytes(value); err != nil {
		return nil, err
	} else if ok {
		data, media = raw, mediaBytes
	}
	a, err := n.cfg.Put(ctx, data, media)
	if err != nil {
		return nil, err
	}
	return cmp.AssetValue(a), nil
}

// arguments returns the arguments of a call. Only the gateway refers to an asset, in place of all
// arguments. A reference within them is a value like any other, because an approver of the call was
// not shown its content.
func (n *Node) arguments(ctx context.Context, w *wire.Call) (cmp.Arguments, error) {
	if w.Arguments == nil {
		return cmp.Arguments{Args: w.Args, Kwargs: w.Kwargs}, nil
	}
	value, err := n.incoming(ctx, w.Arguments)
	if err != nil {
		return cmp.Arguments{}, err
	}
	return cmp.ParseArguments(value)
}

// incoming returns a value of the gateway: if it refers to an asset, that is fetched.
func (n *Node) incoming(ctx context.Context, value json.RawMessage) (json.RawMessage, error) {
	a, ok, err := cmp.ReadAsset(value)
	if err != nil || !ok {
		return value, err
	}
	if a.Size > functions.MaxResult {
		return nil, cmp.Errorf(cmp.ReasonTooLarge, "the asset has more than %d bytes", functions.MaxResult)
	}
	if n.cfg.Fetch == nil {
		return nil, cmp.Errorf(cmp.ReasonTooLarge, "the value is an asset of %d bytes, and this node has no way to fetch one: %d travel in a message", a.Size, wire.MaxInline)
	}
	data, err := n.cfg.Fetch(ctx, a)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != a.Size {
		return nil, cmp.Errorf(cmp.ReasonDigest, "the asset %s has %d bytes, not %d", a.Digest, len(data), a.Size)
	}
	if media, _, err := mime.ParseMediaType(a.MediaType); err == nil && media == mediaJSON {
		if !jsonx.Valid(data) {
			return nil, cmp.Errorf(cmp.ReasonEncoding, "the asset %s is not the JSON it is said to be", a.Digest)
		}
		return data, cmp.CheckJSON(data)
	}
	return cmp.BytesValue(data), nil
}
