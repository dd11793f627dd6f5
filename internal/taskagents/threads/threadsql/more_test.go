package threadsql_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

func filters(t *testing.T, w *world) {
	made := make(map[string]string) // title by id
	for _, th := range []row.Thread{
		{
			Title: "red", OriginalRequest: "Investigate the ÄRGER", Kind: row.Research, RoomID: "r1", WorldID: "w", OwnerUserID: "u",
			ScenarioID: "s", BatchID: "b",
		},
		{Title: "green", OriginalRequest: "deploy it", Kind: row.Ops, RoomID: "r1", Metadata: raw(`{"deep":{"list":["Needle \"x\""],"n":4711}}`)},
		{Title: "blue", OriginalRequest: "paint it", RoomID: "r2"},
	} {
		c := must(w.Create(t.Context(), threads.Plan{Thread: th, Parts: []threads.Part{{Title: "p"}}}))(t)
		made[c.Thread.ID] = th.Title
	}
	byTitle := func(title string) string {
		for id, t := range made {
			if t == title {
				return id
			}
		}
		return ""
	}
	w.begin(t, byTitle("red"), "pty-1", w.detail(t, byTitle("red")).Nodes[1].ID)
	w.begin(t, byTitle("green"), "pty-2", "")
	w.begin(t, byTitle("green"), "pty-3", "")
	w.to(t, "pty-2", row.SessionCompleted)
	w.to(t, "pty-1", row.SessionCompleted)
	must(w.UpdateSession(t.Context(), "pty-1", func(s *row.Session) { s.LastActivityAt = row.At(at(1000)) }))(t)
	must(w.Control(t.Context(), byTitle("blue"), threads.Archive, ""))(t)
	must(w.UpdateThread(t.Context(), byTitle("red"), func(x *row.Thread) { x.Summary = "100% of it_self done" }))(t)
	yes, no := true, false
	red := w.detail(t, byTitle("red"))
	for _, one := range []struct {
		name string
		f    threads.Filter
		want string
	}{
		{"all that are not archived, the last active first", threads.Filter{}, "red green"},
		{"archived ones too", threads.Filter{Archived: true}, "red green blue"},
		{"a status", threads.Filter{Statuses: []row.ThreadStatus{row.ThreadDone}}, "red"},
		{"statuses, archived by its name", threads.Filter{Statuses: []row.ThreadStatus{row.ThreadArchived, row.ThreadActive}}, "green blue"},
		{"a kind", threads.Filter{Kind: row.Ops}, "green"},
		{"a room", threads.Filter{RoomID: "r1"}, "red green"},
		{"a room of archived ones", threads.Filter{RoomID: "r2", Archived: true}, "blue"},
		{"world, owner, scenario, batch", threads.Filter{WorldID: "w", OwnerUserID: "u", ScenarioID: "s", BatchID: "b"}, "red"},
		{"another owner", threads.Filter{OwnerUserID: "u2"}, ""},
		{"created after", threads.Filter{CreatedAfter: red.CreatedAt.Add(time.Millisecond)}, "green"},
		{"created before", threads.Filter{CreatedBefore: red.CreatedAt}, "red"},
		{"updated at all", threads.Filter{UpdatedAfter: red.CreatedAt, UpdatedBefore: red.UpdatedAt}, "red green"},
		{"updated after", threads.Filter{UpdatedAfter: red.UpdatedAt}, "red"},
		{"updated before", threads.Filter{UpdatedBefore: red.UpdatedAt.Add(-time.Millisecond)}, "green"},
		{"active after", threads.Filter{ActivityAfter: at(1000)}, "red"},
		{"active before", threads.Filter{ActivityBefore: at(999), Archived: true}, "green blue"},
		{"with a live session", threads.Filter{Active: &yes}, "green"},
		{"without one", threads.Filter{Active: &no, Archived: true}, "red blue"},
		{"a word of the title", threads.Filter{Search: "GREE"}, "green"},
		{"a word of the request, in another case", threads.Filter{Search: "ärger"}, "red"},
		{"words of two places", threads.Filter{Search: "red  investigate"}, "red"},
		{"a word of the metadata", threads.Filter{Search: `needle "X"`}, "green"},
		{"a number of the metadata", threads.Filter{Search: "4711"}, "green"},
		{"no key of the metadata", threads.Filter{Search: "deep"}, ""},
		{"a percent sign is one", threads.Filter{Search: "0%"}, "red"},
		{"an underscore is one", threads.Filter{Search: "it_s"}, "red"},
		{"and nothing else", threads.Filter{Search: "it_ "}, "red"},
		{"nor an exclamation mark", threads.Filter{Search: "!"}, ""},
		{"limited", threads.Filter{Archived: true, Limit: 2}, "red green"},
	} {
		list, err := w.List(t.Context(), one.f)
		if err != nil {
			t.Fatalf("err = %v, want nil; one.name = %q", err, one.name)
		}
		var got []string
		for _, s := range list {
			got = append(got, s.Title)
		}
		if s := strings.Join(got, " "); s != one.want {
			t.Errorf("%s: %q, not %q; want s = %v", one.name, s, one.want, one.want)
		}
		one.f.Limit = 0
		if n := must(w.Count(t.Context(), one.f))(t); n != len(list) && one.name != "limited" {
			t.Errorf(`%s: counted as %d; want not (n != len(list) && one.name != "limited")`, one.name, n)
		}
	}
	for _, f := range []threads.Filter{
		{Limit: 501},
		{Limit: -1},
		{Kind: "x"},
		{Statuses: []row.ThreadStatus{"x"}},
		{Search: strings.Repeat("x", 1025)},
		{Search: strings.Repeat("x ", 17)},
		{RoomID: strings.Repeat("x", 1025)},
	} {
		if _, err := w.List(t.Context(), f); reason(err) != "invalid_filter" {
			t.Errorf(`w.List(t.Context(), f): reason(err) = %q, want "invalid_filter"; f = %+v`, reason(err), f)
		}
	}
	for search, want := range map[string]string{"it": "green", "self": "red", "paint": "blue", "deploy it": "green", "needle": "green"} {
		if s := must(w.Find(t.Context(), search, ""))(t); s.Title != want {
			t.Errorf("%q means %s, not %s; want s.Title = %v", search, s.Title, want, want)
		}
	}
	if _, err := w.Find(t.Context(), "nowhere", ""); reason(err) != threads.ReasonNotFound {
		t.Errorf("%v; want reason(err) = threads.ReasonNotFound", err)
	}
}

// hostileTexts are what would be noticed if a text became a part of a statement.
func hostileTexts() []string {
	return []string{
		`'; DROP TABLE task_threads; --`, `"\'\`, `%' OR '1'='1`, `_`, `!%!`, "?1 $1 :a @b", "a\x00b\xff\xfe", "\u2028🙂\r\n\t", "-- /* */",
		`'||(SELECT 1)||'`, `{}[]`,
	}
}

func hostile(t *testing.T, w *world) {
	quoted := func(s string) []byte { return []byte(`{"k":` + string(must(quote(s), nil)(t)) + `}`) }
	for i, s := range hostileTexts() {
		kept := row.Text(s)
		c, err := w.Create(t.Context(), threads.Plan{
			Brief: s,
			Thread: row.Thread{
				AgentID: s, RoomID: s, WorldID: s, OwnerUserID: s, ScenarioID: s, BatchID: s, Title: s, OriginalRequest: s, Summary: s,
				Metadata:           quoted(s),
				AcceptanceCriteria: []byte(`[` + string(must(quote(s), nil)(t)) + `]`),
			},
			Parts: []threads.Part{{Title: s, Instructions: s, AgentType: s, Label: s, Workdir: s, Repo: s, Criteria: []string{"x"}}},
		})
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		id, pty := c.Thread.ID, fmt.Sprint("pty-", i)
		must(w.Register(t.Context(), threads.Registration{ThreadID: id, Node: c.Nodes[1].ID, Session: row.Session{
			SessionID: pty, AgentID: s, Framework: s, ProviderSource: s, Label: s, OriginalTask: s, Workdir: s, Repo: s, CompletionSummary: s,
			Metadata: quoted(s),
		}}))(t)
		must(w.Decide(t.Context(), row.Decision{
			SessionID: pty, EventType: s, PromptText: s, Decision: row.Ignore, Response: s, Reasoning: s,
			Metadata: quoted(s),
		}))(t)
		must(0, w.Record(t.Context(), row.Event{ThreadID: id, SessionID: pty, EventType: s, Summary: s, Data: quoted(s)}))(t)
		must(w.AddArtifact(t.Context(), row.Artifact{
			ThreadID: id, ArtifactType: s, Title: s, Path: s, URI: s, MimeType: s,
			Metadata: quoted(s),
		}))(t)
		must(w.AddEvidence(t.Context(), row.Evidence{
			ThreadID: id, EvidenceType: s, Title: s, Summary: s, Path: s, URI: s, Content: quoted(s),
			Metadata: quoted(s),
		}))(t)
		must(w.PutMail(t.Context(), row.MailboxItem{ThreadID: id, Sender: s, Recipient: s, Subject: s, Body: s, Metadata: quoted(s)}))(t)
		must(w.StartJob(t.Context(), row.VerifierJob{ThreadID: id, VerifierType: s, Title: s, Instructions: s, Config: quoted(s)}))(t)
		must(0, w.PutPending(t.Context(), row.PendingDecision{SessionID: pty, PromptText: s, RecentOutput: s, LLMDecision: quoted(s)}))(t)
		must(0, w.Transcribe(t.Context(), pty, []threads.Piece{{Direction: row.Stdout, Content: s}}))(t)

		d := w.detail(t, id)
		e := d.Events[len(d.Events)-2] // the one before validation_started
		for j, got := range []string{
			d.AgentID, d.RoomID, d.BatchID, d.Title, d.OriginalRequest, d.Summary.Summary, row.Meta(d.Metadata, "k"), d.Nodes[1].Title,
			d.Nodes[1].Workdir, d.Nodes[1].AgentType, d.Mailbox[0].Body,
			d.Sessions[0].Framework, d.Sessions[0].CompletionSummary, row.Meta(d.Sessions[0].Metadata, "k"), d.Decisions[0].EventType,
			d.Decisions[0].Response, d.Decisions[0].Reasoning,
			d.Artifacts[0].ArtifactType, d.Artifacts[0].Path, d.Artifacts[0].URI, d.Evidence[0].Summary, row.Meta(d.Evidence[0].Content, "k"),
			d.Mailbox[1].Recipient,
			d.VerifierJobs[0].Title, row.Meta(d.VerifierJobs[0].Config, "k"), d.PendingDecisions[0].PromptText, d.Transcripts[0].Content,
			d.LatestSessionLabel,
		} {
			if got != kept {
				t.Errorf("%q comes back as %q (%d); want got = %v", s, got, j, kept)
			}
		}
		if d.DecisionCount != 1 || e.EventType == "" {
			t.Errorf(`%+v; want d.DecisionCount = 1, e.EventType other than ""`, d.Summary)
		}
		for _, f := range []threads.Filter{
			{RoomID: s},
			{WorldID: s},
			{OwnerUserID: s},
			{ScenarioID: s},
			{BatchID: s},
			{Search: s, Limit: threads.MaxLimit},
		} {
			list := must(w.List(t.Context(), f))(t)
			if f.Search == "" && len(list) != 1 || !slices.ContainsFunc(list, func(x threads.Summary) bool { return x.ID == id }) {
				t.Errorf("%q in a filter selects %d", s, len(list))
			}
			for _, x := range list {
				f.Search = row.Text(f.Search)
				if in := strings.ToLower(x.Title); f.Search != "" && slices.ContainsFunc(f.Words(),
					func(word string) bool { return !strings.Contains(in, word) }) {
					t.Errorf("%q finds %q", s, x.Title)
				}
			}
		}
		if mail := must(w.Mail(t.Context(), threads.MailQuery{ThreadID: id, Recipient: kept}))(t); len(mail) != 2 {
			t.Errorf("%q has %d messages; want len(mail) = 2", s, len(mail))
		}
		for _, err := range []error{
			w.MoveMail(t.Context(), id, s, row.MailConsumed, ""), second(w.Detail(t.Context(), s, threads.Selection{})),
			second(w.Session(t.Context(), s)),
			second(w.Register(t.Context(), threads.Registration{ThreadID: id, Session: row.Session{SessionID: s + " "}})),
		} {
			if err == nil {
				t.Errorf("%q is an id; want an error", s)
			}
		}
	}
	if n := must(w.Count(t.Context(), threads.Filter{}))(t); n != len(hostileTexts()) {
		t.Errorf("n = %d, want %d", n, len(hostileTexts()))
	}
}

func second[T any](_ T, err error) error { return err }

func meeting(t *testing.T, w *world) {
	c := w.thread(t, "one", 4)
	id := c.Thread.ID
	var all sync.WaitGroup
	var mu sync.Mutex
	ends := 0
	for i := range 4 {
		pty := fmt.Sprint("pty-", i)
		w.begin(t, id, pty, c.Nodes[i+1].ID)
		all.Go(func() {
			for range 5 {
				if _, err := w.Decide(t.Context(), row.Decision{SessionID: pty, EventType: "blocked", Decision: row.Respond}); err != nil {
					t.Error(err)
				}
				if err := w.Transcribe(t.Context(), pty, []threads.Piece{{Direction: row.Stdout, Content: "x"}}); err != nil {
					t.Error(err)
				}
				if d, err := w.Detail(t.Context(), id, threads.Selection{}); err != nil || d.Status != threads.Status(d.Thread, d.Sessions, d.Nodes) {
					t.Errorf("w.Detail: err = %v, want nil; d.Status = %q, want %q", err, d.Status, threads.Status(d.Thread, d.Sessions, d.Nodes))
				}
			}
			m, err := w.UpdateSession(t.Context(), pty, func(s *row.Session) { s.Status = row.SessionCompleted })
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if m.Thread.Status == row.ThreadDone {
				ends++
			}
		})
	}
	all.Wait()
	d := w.detail(t, id)
	if ends != 1 || d.DecisionCount != 20 || len(d.Decisions) != 20 || len(d.Transcripts) != 20 {
		t.Errorf("ends = %v, want 1; d.DecisionCount = %v, want 20; len(d.Decisions) = %v, want 20; len(d.Transcripts) = %v, want 20",
			ends, d.DecisionCount, len(d.Decisions), len(d.Transcripts))
	}
}

func refused(t *testing.T, w *world) {
	c, other := w.thread(t, "one", 1), w.thread(t, "two", 1)
	id := c.Thread.ID
	w.begin(t, id, "pty-1", c.Nodes[1].ID)
	w.begin(t, other.Thread.ID, "pty-2", "")
	before := w.detail(t, id)
	long := strings.Repeat("x", row.MaxText+1)
	for name, one := range map[string]struct {
		err  error
		code capability.Code
	}{
		"a session of another thread": {
			w.Record(t.Context(), row.Event{ThreadID: id, SessionID: "pty-2", EventType: "x"}),
			capability.CodeNotFound,
		},
		"a node of another thread": {
			second(w.PutMail(t.Context(), row.MailboxItem{ThreadID: id, NodeID: other.Nodes[1].ID})),
			capability.CodeNotFound,
		},
		"another thread's node claimed": {
			second(w.Register(t.Context(), threads.Registration{ThreadID: id, Node: other.Nodes[1].ID, Session: row.Session{SessionID: "pty-3"}})),
			capability.CodeNotFound,
		},
		"the goal claimed": {second(w.Register(t.Context(), threads.Registration{
			ThreadID: id, Node: c.Nodes[0].ID,
			Session: row.Session{SessionID: "pty-3"},
		})), capability.CodeConflict},
		"registered twice": {
			second(w.Register(t.Context(), threads.Registration{ThreadID: id, Session: row.Session{SessionID: "pty-2"}})),
			capability.CodeConflict,
		},
		"replacing nothing": {second(w.Register(t.Context(), threads.Registration{
			ThreadID: id, Replaces: []string{"pty-2"},
			Session: row.Session{SessionID: "pty-3"},
		})), capability.CodeNotFound},
		"no session": {
			second(w.Decide(t.Context(), row.Decision{SessionID: "pty-9", EventType: "x", Decision: row.Ignore})),
			capability.CodeNotFound,
		},
		"no verdict": {
			second(w.Decide(t.Context(), row.Decision{SessionID: "pty-1", EventType: "x", Decision: "perhaps"})),
			capability.CodeInvalidInput,
		},
		"no status": {
			second(w.UpdateSession(t.Context(), "pty-1", func(s *row.Session) { s.Status = "dreaming" })),
			capability.CodeInvalidInput,
		},
		"no JSON": {w.Record(t.Context(), row.Event{ThreadID: id, EventType: "x", Data: raw(`{"a":`)}), capability.CodeInvalidInput},
		"a list as metadata": {
			second(w.AddArtifact(t.Context(), row.Artifact{ThreadID: id, ArtifactType: "x", URI: "u", Metadata: raw(`[1]`)})),
			capability.CodeInvalidInput,
		},
		"deep JSON": {w.Record(t.Context(), row.Event{
			ThreadID: id, EventType: "x",
			Data: raw(strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65)),
		}), capability.CodeInvalidInput},
		"long JSON": {
			w.Record(t.Context(), row.Event{ThreadID: id, EventType: "x", Data: raw(`{"a":"` + long + `"}`)}),
			capability.CodeTooLarge,
		},
		"a long text": {second(w.Decide(t.Context(), row.Decision{
			SessionID: "pty-1", EventType: "x", Decision: row.Ignore,
			Response: long,
		})), capability.CodeTooLarge},
		"no kind of event": {w.Record(t.Context(), row.Event{ThreadID: id}), capability.CodeInvalidInput},
		"a strange way": {w.Transcribe(t.Context(), "pty-1", []threads.Piece{
			{Direction: row.Stdin, Content: "a"},
			{Direction: "up", Content: "b"},
		}), capability.CodeInvalidInput},
		"an empty artifact": {second(w.AddArtifact(t.Context(), row.Artifact{ThreadID: id, ArtifactType: "x"})), capability.CodeInvalidInput},
		"a time before time": {
			second(w.UpdateSession(t.Context(), "pty-1", func(s *row.Session) { s.LastInputSentAt = -5 })),
			capability.CodeInvalidInput,
		},
		"a negative count": {
			second(w.UpdateSession(t.Context(), "pty-1", func(s *row.Session) { s.IdleCheckCount = -1 })),
			capability.CodeInvalidInput,
		},
		"a goal set":       {second(w.SetNode(t.Context(), id, c.Nodes[0].ID, row.NodeCompleted)), capability.CodeConflict},
		"a session's node": {second(w.SetNode(t.Context(), id, c.Nodes[1].ID, row.NodeCompleted)), capability.CodeConflict},
		"another's job":    {second(w.EndJob(t.Context(), id, "job_none", row.JobPassed, "")), capability.CodeNotFound},
		"evidence of no job": {
			second(w.AddEvidence(t.Context(), row.Evidence{ThreadID: id, EvidenceType: "x", VerifierJobID: "job_none"})),
			capability.CodeNotFound,
		},
		"no thread": {second(w.Control(t.Context(), "thr_none", threads.Stop, "")), capability.CodeNotFound},
	} {
		if capability.CodeOf(one.err) != one.code {
			t.Errorf("%s: %v; want capability.CodeOf(one.err) = %v", name, one.err, one.code)
		}
	}
	if diff := cmp.Diff(before, w.detail(t, id)); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	if m := must(w.SetNode(t.Context(), other.Thread.ID, other.Nodes[1].ID, row.NodeCanceled))(t); m.Nodes[0].Status != row.NodeBlocked {
		t.Errorf("m.Nodes[0].Status = %q, want row.NodeBlocked; statuses(m.Nodes) = %q", m.Nodes[0].Status, statuses(m.Nodes))
	}
}

func shared(t *testing.T, w *world) {
	root := must(filepath.EvalSymlinks(t.TempDir()))(t)
	work := filepath.Join(root, "work")
	must(0, os.MkdirAll(work, 0o700))(t)
	c := w.thread(t, "one", 1)
	id := c.Thread.ID
	must(w.Register(t.Context(), threads.Registration{ThreadID: id, Session: row.Session{SessionID: "pty-1", Label: "a", Workdir: work}}))(t)
	must(w.UpdateSession(t.Context(), "pty-1", func(s *row.Session) { s.CompletionSummary = "See http://localhost:3000/app." }))(t)
	roots := threads.ShareRoots{Allowed: []string{root}, Resolve: filepath.EvalSymlinks}
	var all sync.WaitGroup
	var mu sync.Mutex
	found := 0
	for range 3 {
		all.Go(func() {
			s, err := w.Share(t.Context(), id, roots)
			if err != nil || len(s.Targets) != 2 || !s.Capabilities["preview"] || s.Capabilities["artifacts"] || !s.Capabilities["workspace"] {
				t.Errorf("%+v %v", s, err)
			}
			mu.Lock()
			defer mu.Unlock()
			found += len(s.Found)
		})
	}
	all.Wait()
	d := w.detail(t, id)
	n := 0
	for _, e := range d.Events {
		if e.EventType == row.ShareDiscovered {
			n++
		}
	}
	if found != 2 || len(d.Artifacts) != 2 || n != 2 {
		t.Errorf("found = %v, want 2; len(d.Artifacts) = %v, want 2; n = %v, want 2", found, len(d.Artifacts), n)
	}
	s := must(w.Share(t.Context(), id, threads.ShareRoots{Resolve: filepath.EvalSymlinks}))(t) // nothing is allowed now
	if len(s.Targets) != 1 || s.Targets[0].Kind != threads.PreviewURL || s.Targets[0].Source != "artifact:"+d.Artifacts[0].ID {
		t.Errorf(`%+v; want len(s.Targets) = 1, s.Targets[0].Kind = threads.PreviewURL, s.Targets[0].Source = "artifact:" + `+
			"d.Artifacts[0].ID", s.Targets)
	}
}

func damaged(t *testing.T, w *world) {
	c := w.thread(t, "one", 1)
	w.begin(t, c.Thread.ID, "pty-1", "")
	for _, one := range []struct{ column, value string }{
		{"status", "dreaming"},
		{"metadata_json", `[]`},
		{"metadata_json", `{"a":`},
		{"metadata_json", ``},
		{"registered_at", "-1"},
		{"registered_at", "0"},
		{"task_delivered", "7"},
	} {
		var was any
		if err := w.db.SQL().QueryRowContext(t.Context(), `SELECT `+one.column+` FROM task_sessions`).Scan(&was); err != nil {
			t.Fatal(err)
		}
		set := func(v any) {
			t.Helper()
			if s, ok := v.(string); ok && (one.column == "registered_at" || one.column == "task_delivered") {
				var n int64
				if _, err := fmt.Sscan(s, &n); err != nil {
					t.Fatal(err)
				}
				v = n
			}
			if b, ok := v.([]byte); ok {
				v = string(b)
			}
			if _, err := w.db.SQL().ExecContext(t.Context(), `UPDATE task_sessions SET `+one.column+` = ?`, v); err != nil {
				t.Fatal(err)
			}
		}
		set(one.value)
		if _, err := w.Session(t.Context(), "pty-1"); reason(err) != row.ReasonDamaged {
			t.Errorf("%s = %q: %v; want reason(err) = row.ReasonDamaged", one.column, one.value, err)
		}
		set(was)
	}
}

func bounds(t *testing.T, w *world) {
	c := w.thread(t, "one", 1)
	id := c.Thread.ID
	fill := func(table, columns, values string, n int) {
		t.Helper()
		_, err := w.db.SQL().ExecContext(t.Context(), `INSERT INTO `+table+` (thread_id, `+columns+`) SELECT `+values+
			` FROM (WITH RECURSIVE many (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM many WHERE i + 1 < `+fmt.Sprint(n)+
			`) SELECT i FROM many) AS numbers`)
		if err != nil {
			t.Fatal(err)
		}
	}
	of := `'` + id + `', `
	fill(`task_artifacts`, `id, artifact_type, title, path, uri, mime_type, metadata_json, created_at`,
		of+`'a' || i, 'x', '', '', 'u', '', '{}', 1`, threads.MaxRows)
	if _, err := w.AddArtifact(t.Context(), row.Artifact{ThreadID: id, ArtifactType: "x", URI: "u"}); reason(err) != threads.ReasonFull ||
		capability.CodeOf(err) != capability.CodeOverloaded {
		t.Errorf("%v; want reason(err) = threads.ReasonFull, capability.CodeOf(err) = capability.CodeOverloaded", err)
	}
	fill(`task_events`, `id, event_type, timestamp, summary, data_json, created_at`, of+`'e' || i, 'x', 1, '', '{}', 1`, threads.MaxEvents)
	if err := w.Record(t.Context(), row.Event{ThreadID: id, EventType: "last"}); err != nil {
		t.Fatal(err)
	}
	d := must(w.Detail(t.Context(), id, threads.Selection{Fields: []threads.Field{threads.FieldEvents}}))(t)
	if n := len(d.Events); n != threads.MaxEvents || d.Events[0].ID != "e1" || d.Events[n-1].EventType != "last" {
		t.Errorf(`len(d.Events) = %v, want threads.MaxEvents; d.Events = %+v, want d.Events[0].ID = "e1" and d.Events[n-1].EventType = "last"`,
			n, d.Events)
	}
	fill(`task_sessions`, `id, agent_id, session_id, framework, provider_source, label, original_task, workdir, repo, status, decision_count, auto_resolved_count,
		registered_at, last_activity_at, idle_check_count, task_delivered, completion_summary, last_seen_decision_index,
		last_input_sent_at, stopped_at, created_at, updated_at, metadata_json`,
		of+`'s' || i, '', 'pty-' || i, '', '', '', '', '', '', 'active', 0, 0, 1, 1, 0, 0, '', 0, 0, 0, 1, 1, '{}'`, threads.MaxSessions)
	fill(`task_transcripts`, `id, session_id, timestamp, direction, content, metadata_json, created_at, bytes`,
		of+`'t' || i, 'pty-0', 1, 'stdout', 'x', '{}', 1, 1048576`, 20)
	d = must(w.Detail(t.Context(), id, threads.Selection{Fields: []threads.Field{threads.FieldTranscripts}}))(t)
	if n := len(d.Transcripts); n != threads.MaxTranscriptBytes>>20 || d.Transcripts[n-1].ID != "t19" {
		t.Errorf(`len(d.Transcripts) = %v, want threads.MaxTranscriptBytes>>20; d.Transcripts = %+v, want d.Transcripts[n-1].ID = "t19"`,
			n, d.Transcripts)
	}
	if _, err := w.Register(t.Context(), threads.Registration{
		ThreadID: id,
		Session:  row.Session{SessionID: "pty-more"},
	}); reason(err) != threads.ReasonFull {
		t.Errorf("%v; want reason(err) = threads.ReasonFull", err)
	}
	must(w.Control(t.Context(), id, threads.Resume, ""))(t) // the thread follows its new sessions
}
