package threads

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// coalesce is the time after the first piece within which pieces with the same direction are
// joined to one row.
const coalesce = 250 // milliseconds

// belongs fails unless the session and node that a row refers to are in the thread.
func (w *work) belongs(session, node string) error {
	if session != "" {
		if _, err := w.session(session); err != nil {
			return err
		}
	}
	if node != "" {
		if _, err := w.node(node); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) stamp(at *row.Millis) {
	if *at == 0 {
		*at = row.At(w.now)
	}
}

// Decide records a decision about a session, increments the session's counter and writes the event
// decision_recorded. A zero time means now. The registry sets id, thread and creation time.
func (r *Registry) Decide(ctx context.Context, d row.Decision) (Moved, error) {
	return r.changeOf(ctx, d.SessionID, func(w *work, s *row.Session) error {
		d := d
		d.ID, d.ThreadID, d.CreatedAt = row.NewID("dec"), s.ThreadID, w.now
		w.stamp(&d.Timestamp)
		if err := w.add(&d); err != nil {
			return err
		}
		s.DecisionCount++
		if d.Decision == row.AutoResolved {
			s.AutoResolvedCount++
		}
		w.g.Thread.LastCoordinatorTurnAt = d.Timestamp.Time()
		w.event(row.DecisionRecorded, s.SessionID, fmt.Sprintf("%s: %s", d.EventType, d.Decision), struct {
			ID string `json:"decisionId"`
		}{d.ID})
		return nil
	})
}

// Record adds an event of any type. A zero time means now.
func (r *Registry) Record(ctx context.Context, e row.Event) error {
	_, err := r.change(ctx, e.ThreadID, func(w *work) error {
		e := e
		e.ID, e.CreatedAt = row.NewID("evt"), w.now
		w.stamp(&e.Timestamp)
		w.events = append(w.events, &e)
		return w.belongs(e.SessionID, "")
	})
	return err
}

// AddArtifact records an artifact, which must have a path or a URI, and writes the event
// artifact_recorded.
func (r *Registry) AddArtifact(ctx context.Context, a row.Artifact) (row.Artifact, error) {
	if a.Path == "" && a.URI == "" {
		return a, capability.Errorf(capability.CodeInvalidInput, "threads", "an artifact is a file or an address, and this one is neither").
			With(row.ReasonInvalid, "give a path or a uri")
	}
	a.ID = row.NewID("art")
	_, err := r.change(ctx, a.ThreadID, func(w *work) error {
		return w.artifact(&a, row.ArtifactRecorded)
	})
	return a, err
}

func (w *work) artifact(a *row.Artifact, event string) error {
	a.CreatedAt = w.now
	if err := w.belongs(a.SessionID, ""); err != nil {
		return err
	}
	if err := w.add(a); err != nil {
		return err
	}
	w.event(event, a.SessionID, a.Title, struct {
		ID   string `json:"artifactId"`
		Type string `json:"artifactType"`
	}{a.ID, a.ArtifactType})
	return nil
}

// AddEvidence records evidence of a validation, without an event, because its job has events.
func (r *Registry) AddEvidence(ctx context.Context, e row.Evidence) (row.Evidence, error) {
	e.ID = row.NewID("evd")
	_, err := r.change(ctx, e.ThreadID, func(w *work) error {
		e.CreatedAt = w.now
		if err := w.belongs(e.SessionID, e.NodeID); err != nil {
			return err
		}
		if e.VerifierJobID != "" {
			if _, err := w.job(e.VerifierJobID); err != nil {
				return err
			}
		}
		return w.add(&e)
	})
	return e, err
}

// Piece is one text of a transcript. A zero time means now.
type Piece struct {
	At        time.Time
	Direction row.Direction
	Content   string
}

// Transcribe appends pieces to a session's transcript. Pieces with the same direction within
// 250 ms become one row; a piece longer than MaxText bytes becomes several. If the transcript has
// more than MaxTranscribe bytes (each row counts RowOverhead more), its oldest rows are replaced
// by one marker row. It fails with not_found if the session is not registered.
func (r *Registry) Transcribe(ctx context.Context, session string, pieces []Piece) error {
	if len(pieces) == 0 {
		return nil
	}
	s, err := r.Session(ctx, session)
	if err != nil {
		return err
	}
	now := r.now().UTC().Truncate(time.Millisecond)
	rows := rowsOf(pieces, now)
	return r.store.Change(ctx, s.ThreadID, func(tx Tx) error { // no status depends on it, so no graph is read
		w := &work{Tx: tx, ctx: ctx, now: now}
		for i := range rows {
			rows[i].ThreadID, rows[i].SessionID, rows[i].CreatedAt = s.ThreadID, session, now
			if err := w.put(&rows[i], false); err != nil {
				return err
			}
		}
		return w.TrimTranscript(ctx, session, MaxTranscribe, marker)
	})
}

// rowsOf returns the rows of pieces, without the columns that all rows of a session share.
func rowsOf(pieces []Piece, now time.Time) (rows []row.TranscriptItem) {
	var content strings.Builder // of the last row
	flush := func() {
		if len(rows) > 0 {
			rows[len(rows)-1].Content = content.String()
		}
		content.Reset()
	}
	for _, p := range pieces {
		if p.At.IsZero() {
			p.At = now
		}
		at := row.At(p.At)
		for rest := row.Text(p.Content); rest != ""; {
			last := len(rows) - 1
			if last < 0 || rows[last].Direction != p.Direction || at < rows[last].Timestamp || at > rows[last].Timestamp+coalesce ||
				row.MaxText-content.Len() < utf8.UTFMax {
				flush()
				rows = append(rows, row.TranscriptItem{ID: row.NewID("trn"), Timestamp: at, Direction: p.Direction})
			}
			piece := text.CutBytes(rest, row.MaxText-content.Len())
			content.WriteString(piece)
			rest = rest[len(piece):]
		}
	}
	flush()
	return rows
}

// marker returns the row that replaces removed rows of a transcript.
func marker(last row.TranscriptItem, gone Gone) row.TranscriptItem {
	last.Direction = row.System
	last.Content = fmt.Sprintf("%d earlier rows of this transcript, %d bytes, are not kept", gone.Rows, gone.Bytes)
	if raw, err := jsonx.Marshal(gone); err == nil {
		last.Metadata = raw
	}
	return last
}
