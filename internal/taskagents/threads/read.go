package threads

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// check sets the defaults of a filter, or fails with invalid_input.
func (f *Filter) check() error {
	bad := func(format string, args ...any) error {
		return capability.Errorf(capability.CodeInvalidInput, "threads", format, args...).With("invalid_filter", "")
	}
	if f.Limit == 0 {
		f.Limit = DefaultLimit
	}
	f.Search = row.Text(f.Search)
	for _, one := range []*string{&f.RoomID, &f.WorldID, &f.OwnerUserID, &f.AgentID, &f.ScenarioID, &f.BatchID} {
		if *one = row.Text(*one); len(*one) > row.MaxName {
			return bad("a filter has at most %d bytes", row.MaxName)
		}
	}
	switch {
	case f.Limit < 1 || f.Limit > MaxLimit:
		return bad("a list has 1 to %d threads, not %d", MaxLimit, f.Limit)
	case len(f.Search) > maxSearch || len(f.Words()) > maxSearchWords:
		return bad("a search has at most %d bytes and %d words", maxSearch, maxSearchWords)
	case len(f.Statuses) > maxStatuses || slices.ContainsFunc(f.Statuses, func(s row.ThreadStatus) bool { return !s.Valid() }):
		return bad("%.200q is not a list of states; use open, active, waiting_on_user, blocked, validating, done, failed, archived or interrupted", f.Statuses)
	case f.Kind != "" && !f.Kind.Valid():
		return bad("%.40q is not a kind; use coding, research, planning, ops or mixed", f.Kind)
	}
	return nil
}

// Words returns the words of the search in lower case.
func (f *Filter) Words() []string { return strings.Fields(strings.ToLower(f.Search)) }

// List returns threads, the last active first. Requests and summaries are cut to MaxListed
// characters.
func (r *Registry) List(ctx context.Context, f Filter) ([]Summary, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	return r.store.Threads(ctx, f)
}

// Count returns the number of threads that the filter selects, ignoring its limit.
func (r *Registry) Count(ctx context.Context, f Filter) (int, error) {
	if err := f.check(); err != nil {
		return 0, err
	}
	return r.store.Count(ctx, f)
}

// Find returns the thread that best matches words: in its title, otherwise in its request,
// its summary, or elsewhere. Of several, it returns the one that was active last. agent is
// the principal that created it; if empty, all principals' threads are searched.
func (r *Registry) Find(ctx context.Context, search, agent string) (Summary, error) {
	list, err := r.List(ctx, Filter{Search: search, AgentID: agent, Archived: true, Limit: MaxLimit})
	if err != nil {
		return Summary{}, err
	}
	f := Filter{Search: search}
	for _, where := range []func(Summary) string{
		func(s Summary) string { return s.Title },
		func(s Summary) string { return s.OriginalRequest },
		func(s Summary) string { return s.Summary },
		func(Summary) string { return search },
	} {
		for _, s := range list {
			in := strings.ToLower(where(s))
			if !slices.ContainsFunc(f.Words(), func(w string) bool { return !strings.Contains(in, w) }) {
				return s, nil
			}
		}
	}
	return Summary{}, capability.Errorf(capability.CodeNotFound, "threads", "no thread has all of these words: %.100q",
		search).With(ReasonNotFound, "use fewer words")
}

// Detail returns the current state of a thread with the lists that s selects. It fails with
// not_found, reason thread_not_found.
func (r *Registry) Detail(ctx context.Context, thread string, s Selection) (Detail, error) {
	if s.Fields == nil {
		s.Fields = Fields()
	}
	for _, f := range s.Fields {
		if !slices.Contains(Fields(), f) {
			return Detail{}, capability.Errorf(capability.CodeInvalidInput, "threads", "a thread has no field %.40q", f).With("invalid_fields", "")
		}
	}
	if s.Transcripts == 0 {
		s.Transcripts = DefaultTranscript
	}
	if s.Transcripts < 0 || s.Transcripts > MaxTranscript {
		return Detail{}, capability.Errorf(capability.CodeInvalidInput, "threads", "a detail has 1 to %d rows of transcripts",
			MaxTranscript).With("invalid_limit", "")
	}
	d, ok, err := r.store.Detail(ctx, thread, s)
	if err == nil && !ok {
		err = notFound(thread)
	}
	return d, err
}

// Session returns the row of a session by its SessionID. It fails with not_found.
func (r *Registry) Session(ctx context.Context, id string) (row.Session, error) {
	s := row.Session{SessionID: id}
	ok, err := r.store.Get(ctx, &s)
	if err == nil && !ok {
		err = noSession(id)
	}
	return s, err
}

// Lesson is the result of an earlier session, or a decision that it shared.
type Lesson struct {
	Label, Repo string
	Status      row.SessionStatus // "" for a decision
	Text        string
	at          row.Millis
}

// Lessons returns the newest lessons of the last 48 hours, the oldest first. If agent is not "", they
// are those of the threads that this principal created.
func (r *Registry) Lessons(ctx context.Context, agent string) (list []Lesson, err error) {
	after := r.now().Add(-lessonTTL)
	sessions, decisions, err := r.store.Recent(ctx, agent, after, maxLessons)
	for _, s := range sessions {
		list = append(list, Lesson{s.Label, s.Repo, s.Status, s.CompletionSummary, s.LastActivityAt})
	}
	for _, e := range decisions {
		list = append(list, Lesson{Label: row.Meta(e.Data, "label"), Text: e.Summary, at: e.Timestamp})
	}
	list = slices.DeleteFunc(list, func(l Lesson) bool { return l.at < row.At(after) })
	slices.SortStableFunc(list, func(a, b Lesson) int { return cmp.Compare(a.at, b.at) })
	return list[max(0, len(list)-maxLessons):], err
}

// Shared holds the parts of a thread that may be shared.
type Shared struct {
	ThreadID     string           `json:"threadId"`
	Title        string           `json:"title"`
	Status       row.ThreadStatus `json:"status"`
	Summary      string           `json:"summary"`
	Targets      []Target         `json:"targets"` // may be empty
	Capabilities map[string]bool  `json:"capabilities"`
	Found        []row.Artifact   `json:"-"` // artifacts that this call recorded
}

// Share returns the targets of a thread that can be shared. New ones are recorded as artifacts,
// each with the event share_discovered.
func (r *Registry) Share(ctx context.Context, thread string, roots ShareRoots) (Shared, error) {
	d, err := r.Detail(ctx, thread, Selection{Fields: []Field{FieldSessions, FieldArtifacts}})
	if err != nil {
		return Shared{}, err
	}
	out := Shared{ThreadID: d.ID, Title: d.Title, Status: d.Status, Summary: d.Summary.Summary, Targets: []Target{}}
	targets, found := FindTargets(d.Thread, d.Artifacts, d.Sessions, roots)
	out.Targets = append(out.Targets, targets...)
	can := func(kinds ...TargetKind) bool {
		return slices.ContainsFunc(targets, func(t Target) bool { return slices.Contains(kinds, t.Kind) })
	}
	out.Capabilities = map[string]bool{"artifacts": can(ArtifactURI, ArtifactPath), "preview": can(PreviewURL), "workspace": can(Workspace)}
	if len(found) == 0 {
		return out, nil
	}
	_, err = r.change(ctx, thread, func(w *work) error {
		out.Found = nil
		for _, a := range found {
			known := row.Artifact{ID: a.ID}
			if ok, err := w.Get(w.ctx, &known); err != nil || ok {
				if err != nil {
					return err
				}
				continue
			}
			if err := w.artifact(&a, row.ShareDiscovered); err != nil {
				return err
			}
			out.Found = append(out.Found, a)
		}
		return nil
	})
	if err != nil && capability.AsError(err).Reason == ReasonFull {
		err = nil // the targets can be shared without being recorded
	}
	return out, err
}
