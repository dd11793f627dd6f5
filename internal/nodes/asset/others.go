package asset

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
	// subject is where all gateways hear who looks for a value; with a gateway's name
	// behind it, it is that one's alone. Nodes may publish to neither.
	subject = "v1.gateways.asset"
	// piece is how much of a value travels in one message.
	piece = 256 << 10
	// maxFetching and maxAnswering bound what is under way at once with other
	// gateways.
	maxFetching, maxAnswering = 4, 16
	// whoTime is how long the others have to say that they have a value: those that
	// do not stay silent. pieceTime is for each piece, tried pieceTries times, and
	// fetchTime for all of them.
	whoTime, pieceTime, fetchTime = 2 * time.Second, 5 * time.Second, time.Minute
	pieceTries                    = 3
)

// question asks for a piece of a value.
type question struct {
	Digest string `json:"digest"`
	Offset int64  `json:"offset,omitzero"`
	From   string `json:"from"` // who asks, and need not answer
}

// The headers of an answer, whose data is a piece.
const (
	headerAt, headerSize, headerType = "Gateway", "Size", "Media-Type"
)

// Run answers other gateways until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	if s.cfg.Bus == nil {
		return nil
	}
	answers, answering := errgroup.WithContext(ctx)
	answers.SetLimit(maxAnswering)
	parts, ctx := errgroup.WithContext(ctx)
	for _, pattern := range []string{subject, subject + "." + s.name} {
		sub, err := s.cfg.Bus.Subscribe(ctx, messaging.SubscribeOptions{Pattern: pattern, Pending: 1024})
		if err != nil {
			return err
		}
		parts.Go(func() error {
			defer sub.Close()
			for {
				m, err := sub.Next(ctx)
				switch {
				case messaging.Is(err, messaging.ReasonLost): // they ask again
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

// answer sends a piece of a value that is here.
func (s *Store) answer(ctx context.Context, m messaging.Message) {
	var q question
	if m.Reply == "" || jsonx.Unmarshal(m.Data, &q) != nil || q.From == s.name {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pieceTime)
	defer cancel()
	ref, there, err := s.find(ctx, q.Digest)
	if err == nil && there && q.Offset >= 0 && (q.Offset < ref.Size || q.Offset == 0) {
		var data []byte
		if data, err = s.read(ref, q.Offset); err == nil {
			err = s.cfg.Bus.Publish(ctx, messaging.Message{
				Subject: m.Reply, Data: data, Header: map[string]string{headerAt: s.name, headerSize: strconv.FormatInt(ref.Size, 10), headerType: ref.MIME},
			})
		}
	}
	if err != nil {
		s.cfg.Logger.Warn("another gateway was not given a value", "digest", q.Digest, "err", err)
	}
}

// fromOthers fetches a value that another gateway has, and keeps it here.
func (s *Store) fromOthers(ctx context.Context, digest string) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	select {
	case s.fetching <- struct{}{}:
		defer func() { <-s.fetching }()
	case <-ctx.Done():
		return capability.AsError(ctx.Err())
	}
	first, err := s.ask(ctx, subject, question{Digest: digest}, whoTime)
	if err != nil {
		if ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || messaging.Is(err, messaging.ReasonNoResponders)) {
			err = notFound(digest)
		}
		return err
	}
	at := first.Header[headerAt]
	size, err := strconv.ParseInt(first.Header[headerSize], 10, 64)
	if err != nil || size < 0 || size > cmp.MaxAsset || at == "" {
		return broken(digest)
	}
	from := &pieces{s: s, ctx: ctx, at: at, digest: digest, size: size, next: first.Data}
	if _, err = s.put(ctx, "gateway:"+at, digest, first.Header[headerType], from); err == nil {
		return nil
	}
	if from.err != nil {
		return from.err
	}
	if capability.AsError(err).Reason == cmp.ReasonDigest {
		return broken(digest)
	}
	return err
}

// pieces reads a value of another gateway.
type pieces struct {
	s          *Store
	ctx        context.Context //nolint:containedctx // of the one fetch that reads it
	at, digest string
	size, read int64
	next       []byte
	err        error // of asking
}

func (p *pieces) Read(to []byte) (int, error) {
	if p.read >= p.size {
		return 0, io.EOF
	}
	if len(p.next) == 0 {
		var m messaging.Message
		if m, p.err = p.s.piece(p.ctx, p.at, question{Digest: p.digest, Offset: p.read}); p.err == nil && len(m.Data) == 0 {
			p.err = broken(p.digest)
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

func broken(digest string) error {
	return capability.Errorf(capability.CodeUnavailable, "assets", "another gateway has the value %s, and what it sent is not that", digest).
		With("asset_broken", "try again; if it goes on, look for a fault of the disk under that gateway's home")
}

// piece asks one gateway, again where an answer was lost.
func (s *Store) piece(ctx context.Context, at string, q question) (m messaging.Message, err error) {
	for range pieceTries {
		m, err = s.ask(ctx, subject+"."+messaging.Escape(at), q, pieceTime)
		if err == nil || ctx.Err() != nil {
			return m, err
		}
	}
	return m, capability.Wrap(capability.CodeUnavailable, "assets", "the gateway that has the value "+q.Digest+" does not answer", err).
		With(cmp.ReasonConnection, "it may have stopped just now; call again")
}

func (s *Store) ask(ctx context.Context, to string, q question, within time.Duration) (messaging.Message, error) {
	q.From = s.name
	data, err := jsonx.Marshal(q)
	if err != nil {
		return messaging.Message{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return s.cfg.Bus.Request(ctx, messaging.Message{Subject: to, Data: data})
}

func (s *Store) read(ref blob.Ref, offset int64) ([]byte, error) {
	file, err := s.cfg.Blobs.Read(ref)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, piece))
}
