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

// transcripts stores the input and output of sessions of threads, one piece per turn, and their usage.
type transcripts struct {
	registry *threads.Registry
	logger   *slog.Logger
	held     map[string][]threads.Piece // of sessions without thread, by session
	count    int
}

// run stores pieces until ctx or the sessions end. It logs a gap if it was too slow.
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

// next waits for an event. late reports that pieces are held and holdInterval has passed, so
// that they should be tried again.
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

// turn stores the text of a message, a completed or a failed turn, with tokens masked.
func (r *transcripts) turn(ctx context.Context, e sessions.Event) {
	p := threads.Piece{At: e.At, Content: secret.MaskTokens(e.Text)}
	switch e.Type {
	case sessions.Message:
		p.Direction = row.Direction(e.Direction)
	case sessions.TaskComplete:
		p.Direction = row.Stdout
	case sessions.TurnFailed, sessions.Failed:
		p.Direction = row.System
	case sessions.Used: // of a session that is not registered yet, a later event has it too
		err := r.registry.Spend(ctx, e.Session, *e.Usage)
		if err != nil && capability.CodeOf(err) != capability.CodeNotFound && ctx.Err() == nil {
			r.logger.Warn("the usage of a session is not stored", "session", e.Session, "err", err)
		}
		return
	default:
		return
	}
	if p.Content != "" {
		r.write(ctx, e.Session, []threads.Piece{p})
	}
}

// write stores the held pieces of a session and those of come. If no thread has the session
// yet, it holds them again, unless they are too old or too many.
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
