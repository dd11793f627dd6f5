package nodes

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/store/blob"
	"github.com/junctor-run/junctor/protocol/cmp"
)

const (
	// assetSubject is the subject of requests to all gateways; followed by the name of a
	// gateway, of requests to that one. Nodes may publish to neither.
	assetSubject = "v1.gateways.asset"
	// assetPieceSize is the size in bytes of a piece of a value in one message.
	assetPieceSize = 256 << 10
	pieceTries     = 3
)

// assetQuery requests a piece of a value.
type assetQuery struct {
	Digest string `json:"digest"`
	Offset int64  `json:"offset,omitzero"`
	From   string `json:"from"` // the requesting gateway, which does not reply to itself
}

// The headers of an answer; its data is one piece.
const (
	headerGateway, headerSize, headerType = "Gateway", "Size", "Media-Type"
)

// Run answers other gateways until ctx ends.
func (s *assetStore) Run(ctx context.Context) error {
	if s.cfg.Bus == nil {
		return nil
	}
	answers, answering := errgroup.WithContext(ctx)
	answers.SetLimit(maxAssetAnswers)
	parts, ctx := errgroup.WithContext(ctx)
	for _, pattern := range []string{assetSubject, assetSubject + "." + s.name} {
		sub, err := s.cfg.Bus.Subscribe(ctx, messaging.SubscribeOptions{Pattern: pattern, Pending: 1024})
		if err != nil {
			return err
		}
		parts.Go(func() error {
			defer sub.Close()
			for {
				m, err := sub.Next(ctx)
				switch {
				case messaging.Is(err, messaging.ReasonLost): // the other gateways repeat their requests
				case err != nil:
					return err
				default:
					answers.Go(func() error { s.answer(answering, m); return nil })
				}
			}
		})
	}
	err := errors.Join(parts.Wait(), answers.Wait())
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || messaging.Is(err, messaging.ReasonClosed)) {
		return nil
	}
	return err
}

// answer sends the requested piece if this gateway has the value; otherwise it sends nothing.
func (s *assetStore) answer(ctx context.Context, m messaging.Message) {
	var q assetQuery
	if m.Reply == "" || jsonx.Unmarshal(m.Data, &q) != nil || q.From == s.name {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pieceTimeout)
	defer cancel()
	ref, there, err := s.find(ctx, q.Digest)
	if err == nil && there && q.Offset >= 0 && (q.Offset < ref.Size || q.Offset == 0) {
		var data []byte
		if data, err = s.read(ref, q.Offset); err == nil {
			err = s.cfg.Bus.Publish(ctx, messaging.Message{
				Subject: m.Reply, Data: data, Header: map[string]string{
					headerGateway: s.name, headerSize: strconv.FormatInt(ref.Size, 10),
					headerType: ref.MIME,
				},
			})
		}
	}
	if err != nil {
		s.cfg.Logger.Warn("another gateway was not given a value", "digest", q.Digest, "err", err)
	}
}

// fromOthers fetches a value from another gateway and stores it on this one.
func (s *assetStore) fromOthers(ctx context.Context, digest string) error {
	ctx, cancel := context.WithTimeout(ctx, assetFetchTimeout)
	defer cancel()
	select {
	case s.fetching <- struct{}{}:
		defer func() { <-s.fetching }()
	case <-ctx.Done():
		return capability.AsError(ctx.Err())
	}
	first, err := s.ask(ctx, assetSubject, assetQuery{Digest: digest}, locateTimeout)
	if err != nil {
		if ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || messaging.Is(err, messaging.ReasonNoResponders)) {
			err = assetNotFound(digest)
		}
		return err
	}
	at := first.Header[headerGateway]
	size, err := strconv.ParseInt(first.Header[headerSize], 10, 64)
	if err != nil || size < 0 || size > cmp.MaxAsset || at == "" {
		return brokenAsset(digest)
	}
	from := &assetReader{s: s, ctx: ctx, at: at, digest: digest, size: size, next: first.Data}
	if _, err = s.Put(ctx, "", digest, first.Header[headerType], from); err == nil {
		return nil
	}
	if from.err != nil {
		return from.err
	}
	if capability.AsError(err).Reason == cmp.ReasonDigest {
		return brokenAsset(digest)
	}
	return err
}

// assetReader reads a value of another gateway.
type assetReader struct {
	s          *assetStore
	ctx        context.Context //nolint:containedctx // of the one fetch that reads it
	at, digest string
	size, read int64
	next       []byte
	err        error // of the last request
}

func (p *assetReader) Read(to []byte) (int, error) {
	if p.read >= p.size {
		return 0, io.EOF
	}
	if len(p.next) == 0 {
		var m messaging.Message
		if m, p.err = p.s.piece(p.ctx, p.at, assetQuery{Digest: p.digest, Offset: p.read}); p.err == nil && len(m.Data) == 0 {
			p.err = brokenAsset(p.digest)
		}
		if p.err != nil {
			return 0, p.err
		}
		p.next = m.Data
	}
	n := copy(to, p.next[:min(int64(len(p.next)), p.size-p.read)])
	p.next, p.read = p.next[n:], p.read+int64(n)
	return n, nil
}

func brokenAsset(digest string) error {
	return capability.Errorf(capability.CodeUnavailable, "assets", "another gateway has the value %s, and what it sent is not that", digest).
		With("asset_broken", "try again; if it goes on, look for a fault of the disk under that gateway's home")
}

// piece requests a piece from one gateway, and repeats the request if an answer was lost.
func (s *assetStore) piece(ctx context.Context, at string, q assetQuery) (m messaging.Message, err error) {
	for range pieceTries {
		m, err = s.ask(ctx, assetSubject+"."+messaging.Escape(at), q, pieceTimeout)
		if err == nil || ctx.Err() != nil {
			return m, err
		}
	}
	return m, capability.Wrap(capability.CodeUnavailable, "assets", "the gateway that has the value "+q.Digest+" does not answer", err).
		With(cmp.ReasonConnection, "it may have stopped just now; call again")
}

func (s *assetStore) ask(ctx context.Context, to string, q assetQuery, within time.Duration) (messaging.Message, error) {
	q.From = s.name
	data, err := jsonx.Marshal(q)
	if err != nil {
		return messaging.Message{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return s.cfg.Bus.Request(ctx, messaging.Message{Subject: to, Data: data})
}

func (s *assetStore) read(ref blob.Ref, offset int64) ([]byte, error) {
	file, err := s.cfg.Blobs.Read(ref)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, assetPieceSize))
}
