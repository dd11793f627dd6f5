package taskagents

import (
	"context"
	"log/slog"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/secret"
)

// A session begins a moment before its thread has it. What it says and is told until then
// is held so long, and so many pieces of all sessions; those of no thread have no transcript.
const (
	holdTTL      = time.Minute
	holdInterval = time.Second
	maxHeld      = 256
)

// transcripts writes what sessions of threads say and are told, a turn at a time.
type transcripts struct {
	registry *threads.Registry
	logger   *slog.Logger
	held     map[string][]threads.Piece // of sessions that no thread has yet
	count    int
}

// run writes until ctx or the sessions end.
func (r *transcripts) run(ctx context.Context, live *sessions.Manager) {
	heard := live.Subscribe()
	defer func() { heard.Close() }()
	for {
		e, ok, late, err := r.next(ctx, heard)
		switch {
		case ok:
			r.turn(ctx, e)
			continue
		case late:
			for session := range r.held {
				r.write(ctx, session, nil)
			}
			continue
		case err == nil || ctx.Err() != nil:
			return
		}
		r.logger.Warn("transcripts of sessions have a gap", "err", err)
		heard.Close()
		heard = live.Subscribe()
	}
}

// next waits for an event, and no longer than what is held should be looked at.
func (r *transcripts) next(ctx context.Context, heard *sessions.Subscription) (e sessions.Event, ok, late bool, err error) {
	if len(r.held) == 0 {
		e, ok, err = heard.Next(ctx)
		return e, ok, false, err
	}
	soon, cancel := context.WithTimeout(ctx, holdInterval)
	defer cancel()
	e, ok, err = heard.Next(soon)
	return e, ok, !ok && err == nil && soon.Err() != nil && ctx.Err() == nil, err
}

func (r *transcripts) turn(ctx context.Context, e sessions.Event) {
	p := threads.Piece{At: e.At, Content: secret.MaskTokens(e.Text)}
	switch e.Type {
	case sessions.Message:
		p.Direction = row.Direction(e.Direction)
	case sessions.TaskComplete:
		p.Direction = row.Stdout
	case sessions.TurnFailed, sessions.Failed:
		p.Direction = row.System
	default:
		return
	}
	if p.Content != "" {
		r.write(ctx, e.Session, []threads.Piece{p})
	}
}

// write writes what is held of a session, and what has come.
func (r *transcripts) write(ctx context.Context, session string, come []threads.Piece) {
	was := len(r.held[session])
	pieces := append(r.held[session], come...)
	delete(r.held, session)
	r.count -= was
	err := r.registry.Transcribe(ctx, session, pieces)
	switch {
	case err == nil || ctx.Err() != nil:
	case capability.CodeOf(err) != capability.CodeNotFound:
		r.logger.Warn("a turn is not in the transcript", "session", session, "err", err)
	case time.Since(pieces[0].At) < holdTTL && r.count+len(pieces) <= maxHeld:
		r.held[session] = pieces
		r.count += len(pieces)
	}
}
