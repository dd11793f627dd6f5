package session

import (
	"context"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
)

// Default limits of stored results.
const truncatedMarker = "\n… (cut here: the result was longer)"

// ResultsConfig tunes Results. The zero value of every member but Store is the
// default.
type ResultsConfig struct {
	Store Store
	// Redact removes secrets from a text before it is stored. If nil, texts are stored
	// unchanged.
	Redact func(string) string
	Now    func() time.Time
	TTL    time.Duration
	Max    int          // bytes of one result, at least 1 KiB
	Bounds ResultBounds // of all results; zero members mean MaxResults and MaxEntries
}

// Results stores the last result of each session, and of each extension in a session. It is safe
// for concurrent use.
type Results struct{ cfg ResultsConfig }

// NewResults returns a Results with the given store and the defaults for zero members.
func NewResults(cfg ResultsConfig) *Results {
	if cfg.Redact == nil {
		cfg.Redact = func(s string) string { return s }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.TTL <= 0 {
		cfg.TTL = ResultTTL
	}
	if cfg.Max <= 0 {
		cfg.Max = MaxResult
	}
	cfg.Max = max(cfg.Max, 1<<10)
	if cfg.Bounds.Bytes <= 0 {
		cfg.Bounds.Bytes = MaxResults
	}
	if cfg.Bounds.Entries <= 0 {
		cfg.Bounds.Entries = MaxEntries
	}
	return &Results{cfg}
}

// Save stores the result of a successful run. It redacts the text and cuts it at the limit, with a
// marker. An empty text is not stored, so that the previous result stays. Callers must not
// save failed runs.
func (s *Results) Save(ctx context.Context, o Owner, r Result) error {
	if err := o.Check(); err != nil {
		return err
	}
	if !ValidID(r.Extension) {
		return capability.Errorf(capability.CodeInvalidInput, op, "the result names no extension")
	}
	if r.Text == "" {
		return nil
	}
	var cut bool
	r.Text, cut = Cut(s.cfg.Redact(strings.ToValidUTF8(r.Text, "\uFFFD")), s.cfg.Max)
	r.Truncated = r.Truncated || cut
	r.Saved = s.cfg.Now()
	if _, err := s.cfg.Store.SweepResults(ctx, r.Saved.Add(-s.cfg.TTL)); err != nil {
		return err
	}
	return s.cfg.Store.PutResult(ctx, o, r, s.cfg.Bounds)
}

// Cut returns s unchanged if it has at most most bytes. Otherwise it cuts s between two characters,
// appends a marker within the limit, and returns true.
func Cut(s string, most int) (string, bool) {
	if len(s) <= most {
		return s, false
	}
	return text.CutBytes(s, max(most-len(truncatedMarker), 0)) + truncatedMarker, true
}

// Reader is the extension that requests a result.
type Reader struct {
	Extension string
	// Any is true if the reader has the permission session.read: it may read results of other
	// extensions in the session.
	Any bool
}

// Last returns the last result for a reader: that of its own extension, else that of the session.
// If none exists, or the session's belongs to another extension and the reader lacks the
// permission, the error is not_found, reason no_response.
func (s *Results) Last(ctx context.Context, o Owner, by Reader) (Result, error) {
	if err := o.Check(); err != nil {
		return Result{}, err
	}
	now := s.cfg.Now()
	before := now.Add(-s.cfg.TTL)
	if by.Extension != "" {
		if r, ok, err := s.cfg.Store.LastResult(ctx, o, by.Extension, before, now); ok || err != nil {
			return r, err
		}
	}
	r, ok, err := s.cfg.Store.LastResult(ctx, o, "", before, now)
	switch {
	case err != nil:
		return Result{}, err
	case !ok:
		return Result{}, none("nothing has run in this session yet, or it was too long ago")
	case !by.Any && r.Extension != by.Extension:
		return Result{}, none("the last result belongs to another extension, and reading it needs the permission session.read")
	}
	return r, nil
}

func none(text string) error {
	return capability.Errorf(capability.CodeNotFound, op, "%s", text).With("no_response", "run a command first, or pass text")
}

// Metadata is like Last, but returns the result without its text.
func (s *Results) Metadata(ctx context.Context, o Owner, by Reader) (Result, error) {
	r, err := s.Last(ctx, o, by)
	r.Text = ""
	return r, err
}

// Clear deletes the results of a session.
func (s *Results) Clear(ctx context.Context, o Owner) error {
	if err := o.Check(); err != nil {
		return err
	}
	return s.cfg.Store.ClearResults(ctx, o)
}

// Sweep deletes expired results and returns their number. It only frees space, because Last does
// not return expired results.
func (s *Results) Sweep(ctx context.Context) (int, error) {
	return s.cfg.Store.SweepResults(ctx, s.cfg.Now().Add(-s.cfg.TTL))
}

// Stats returns figures about the stored results.
func (s *Results) Stats(ctx context.Context) (Stats, error) {
	n, bytes, err := s.cfg.Store.ResultStats(ctx)
	return Stats{n, bytes, int(s.cfg.TTL.Hours()), s.cfg.Max}, err
}
