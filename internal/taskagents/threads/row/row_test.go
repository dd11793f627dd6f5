package row

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

func rows() []Row {
	return []Row{
		&Thread{}, &Session{}, &Decision{}, &Event{}, &Artifact{}, &TranscriptItem{}, &PendingDecision{}, &Node{}, &Dependency{}, &Claim{},
		&MailboxItem{}, &VerifierJob{}, &Evidence{},
	}
}

// TestColumnNames pins the columns of every table.
func TestColumnNames(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"task_threads":           "id, agent_id, room_id, world_id, owner_user_id, scenario_id, batch_id, title, kind, status, original_request, summary, acceptance_criteria_json, current_plan_json, search_text, created_at, updated_at, closed_at, archived_at, last_user_turn_at, last_coordinator_turn_at, metadata_json",
		"task_sessions":          "id, thread_id, agent_id, session_id, framework, provider_source, label, original_task, workdir, repo, status, decision_count, auto_resolved_count, registered_at, last_activity_at, idle_check_count, task_delivered, completion_summary, last_seen_decision_index, last_input_sent_at, stopped_at, created_at, updated_at, metadata_json",
		"task_decisions":         "id, thread_id, session_id, timestamp, event_type, prompt_text, decision, response, reasoning, metadata_json, created_at",
		"task_events":            "id, thread_id, session_id, event_type, timestamp, summary, data_json, created_at",
		"task_artifacts":         "id, thread_id, session_id, artifact_type, title, path, uri, mime_type, metadata_json, created_at",
		"task_transcripts":       "id, thread_id, session_id, timestamp, direction, content, metadata_json, created_at",
		"task_pending_decisions": "session_id, thread_id, prompt_text, recent_output, llm_decision_json, task_context_json, created_at, updated_at",
		"task_nodes":             "id, thread_id, parent_node_id, kind, status, title, instructions, acceptance_criteria_json, required_capabilities_json, expected_artifacts_json, assigned_session_id, assigned_label, agent_type, workdir, repo, priority, depth, sequence, created_from, metadata_json, created_at, updated_at, started_at, completed_at",
		"task_dependencies":      "id, thread_id, from_node_id, to_node_id, dependency_kind, required_status, metadata_json, created_at",
		"task_claims":            "id, thread_id, node_id, session_id, claim_type, status, claimed_at, released_at, metadata_json",
		"task_mailbox":           "id, thread_id, node_id, session_id, sender, recipient, subject, body, delivery_state, metadata_json, created_at, delivered_at",
		"task_verifier_jobs":     "id, thread_id, node_id, status, verifier_type, title, instructions, config_json, metadata_json, created_at, started_at, completed_at",
		"task_evidence":          "id, thread_id, node_id, session_id, verifier_job_id, evidence_type, title, summary, path, uri, content_json, metadata_json, created_at",
	}
	for _, r := range rows() {
		var got []string
		for _, c := range Columns(r) {
			got = append(got, c.Name())
		}
		if diff := cmp.Diff(want[r.Table()], strings.Join(got, ", ")); diff != "" {
			t.Errorf(`%s: %s; want diff = ""`, r.Table(), diff)
		}
		delete(want, r.Table())
	}
	if len(want) > 0 {
		t.Errorf("len(want) = %v, want at most 0; want = %v", len(want), want)
	}
}

// TestTheWireHasTheColumns requires each column to be a member in camelCase, except the search
// text, and the event type of a decision, which is named event.
func TestTheWireHasTheColumns(t *testing.T) {
	t.Parallel()
	for _, r := range rows() {
		typ := reflect.TypeOf(r).Elem()
		columns := Columns(r)
		if typ.NumField() != len(columns) {
			t.Errorf("%s has %d fields and %d columns; want typ.NumField() = %v", typ, typ.NumField(), len(columns), len(columns))
			continue
		}
		for i, c := range columns {
			words := strings.Split(strings.TrimSuffix(c.Name(), "_json"), "_")
			for j := 1; j < len(words); j++ {
				words[j] = strings.ToUpper(words[j][:1]) + words[j][1:]
			}
			want := strings.Join(words, "")
			if r.Table() == "task_decisions" && c.Name() == "event_type" {
				want = "event"
			}
			if c.Name() == "search_text" {
				want = "-"
			}
			if got, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ","); got != want {
				t.Errorf("%s.%s is %q on the wire, not %q; want got = %v", typ, typ.Field(i).Name, got, want, want)
			}
		}
	}
}

func full(r Row) {
	v := reflect.ValueOf(r).Elem()
	for i, c := range Columns(r) {
		switch f := v.Field(i).Addr().Interface().(type) {
		case *string:
			*f = c.Name()
		case *int:
			*f = i
		case *bool:
			*f = true
		case *Millis:
			*f = Millis(1e12 + i)
		case *time.Time:
			*f = time.UnixMilli(int64(2e12 + i)).UTC()
		case *json.RawMessage:
			*f = json.RawMessage(c.(*document).form[:1] + " " + c.(*document).form[1:])
		}
	}
	switch r := r.(type) {
	case *Thread:
		r.Kind, r.Status = Ops, ThreadBlocked
	case *Session:
		r.Status = SessionWaiting
	case *Decision:
		r.Decision = Complete
	case *TranscriptItem:
		r.Direction = Keys
	case *Node:
		r.Kind, r.Status = HandoffNode, NodeCanceled
	case *Dependency:
		r.DependencyKind, r.RequiredStatus = Handoff, NodeCompleted
	case *Claim:
		r.ClaimType, r.Status = ClaimOwnership, ClaimFailed
	case *MailboxItem:
		r.DeliveryState = MailConsumed
	case *VerifierJob:
		r.Status = JobPassed
	}
}

func TestARowComesBackAsItWas(t *testing.T) {
	t.Parallel()
	for _, r := range rows() {
		full(r)
		if err := Clean(r); err != nil {
			t.Error(err)
			continue
		}
		again := reflect.New(reflect.TypeOf(r).Elem()).Interface().(Row)
		into := Columns(again)
		for i, c := range Columns(r) {
			if err := into[i].Scan(c.Value()); err != nil {
				t.Errorf("into[i].Scan(c.Value()) = %v, want nil; r.Table() = %q", err, r.Table())
			}
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Errorf("diff (-want +got):\n%s", diff)
		}
		if Key(r) == nil || !strings.HasSuffix(Key(r).Name(), "id") {
			t.Errorf("%s: key = %v, want a column that ends in id", r.Table(), Key(r))
		}
		wire, err := jsonx.Marshal(r)
		if err != nil {
			t.Error(err)
		}
		read := reflect.New(reflect.TypeOf(r).Elem()).Interface()
		if err := jsonx.UnmarshalStrict(wire, read); err != nil {
			t.Errorf("%v: %s", err, wire)
		}
	}
}

func TestWhatNoColumnTakes(t *testing.T) {
	t.Parallel()
	session := func(change func(*Session)) Row {
		s := &Session{}
		full(s)
		change(s)
		return s
	}
	for name, one := range map[string]struct {
		r    Row
		code capability.Code
	}{
		"no id":              {session(func(s *Session) { s.ID = "" }), capability.CodeInvalidInput},
		"an id with a blank": {session(func(s *Session) { s.SessionID = "a b" }), capability.CodeInvalidInput},
		"a long id":          {session(func(s *Session) { s.SessionID = strings.Repeat("a", 129) }), capability.CodeTooLarge},
		"a long label":       {session(func(s *Session) { s.Label = strings.Repeat("a", MaxName+1) }), capability.CodeTooLarge},
		"a long path":        {session(func(s *Session) { s.Workdir = strings.Repeat("a", MaxPath+1) }), capability.CodeTooLarge},
		"no status":          {session(func(s *Session) { s.Status = "" }), capability.CodeInvalidInput},
		"another's status":   {session(func(s *Session) { s.Status = "done" }), capability.CodeInvalidInput},
		"no registration":    {session(func(s *Session) { s.RegisteredAt = 0 }), capability.CodeInvalidInput},
		"a far time":         {session(func(s *Session) { s.StoppedAt = lastMillis + 1 }), capability.CodeInvalidInput},
		"twice a member":     {session(func(s *Session) { s.Metadata = json.RawMessage(`{"a":1,"a":2}`) }), capability.CodeInvalidInput},
		"two values":         {session(func(s *Session) { s.Metadata = json.RawMessage(`{}{}`) }), capability.CodeInvalidInput},
		"a text":             {session(func(s *Session) { s.Metadata = json.RawMessage(`"{"`) }), capability.CodeInvalidInput},
		"blanks":             {session(func(s *Session) { s.Metadata = json.RawMessage(`   `) }), capability.CodeInvalidInput},
		"another required status": {
			&Dependency{
				ID: "d", ThreadID: "t", FromNodeID: "a", ToNodeID: "b", DependencyKind: Blocks, RequiredStatus: NodeRunning,
				CreatedAt: time.Unix(1, 0),
			}, capability.CodeInvalidInput,
		},
	} {
		if err := Clean(one.r); capability.CodeOf(err) != one.code {
			t.Errorf("%s: %v; want capability.CodeOf(err) = %v", name, err, one.code)
		}
	}
	s := session(func(s *Session) {
		s.Label, s.Metadata, s.RegisteredAt = "a\x00\xffb\xed\xa0\x80", nil, 1
	}).(*Session)
	if err := Clean(s); err != nil || s.Label != "a\uFFFD\uFFFDb\uFFFD" || string(s.Metadata) != "{}" {
		t.Errorf(`%v %q %s; want no error, s.Label = "a\uFFFD\uFFFDb\uFFFD", string(s.Metadata) = "{}"`, err, s.Label, s.Metadata)
	}
	if t1 := Millis(0).Time(); !t1.IsZero() || At(t1) != 0 {
		t.Error("no time is one; want t1.IsZero(), At(t1) = 0")
	}
}

func TestDepthCountsWhatIsOpen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{`1`: 0, `{}`: 1, `[[],[[]]]`: 3, `{"a":"[[[["}`: 1, `["\"[[",{"b\\":[]}]`: 3} {
		if got := depth([]byte(text)); got != want {
			t.Errorf("%s: %d; want got = %v", text, got, want)
		}
	}
}

func TestMetadataIsReadAndReplaced(t *testing.T) {
	t.Parallel()
	was := json.RawMessage(`{"n":1.10,"k":"v"}`)
	is := WithMeta(WithMeta(was, "k", `"ü`), "new", "x")
	if Meta(is, "k") != `"ü` || Meta(is, "new") != "x" || Meta(is, "n") != "" || Meta(is, "none") != "" ||
		string(was) != `{"n":1.10,"k":"v"}` || !strings.Contains(string(is), "1.10") {
		t.Errorf(`%s; want Meta(is, "k") = "\"ü", Meta(is, "new") = "x", Meta(is, "n") = "", Meta(is, "none") = "", `+
			`string(was) = "{\"n\":1.10,\"k\":\"v\"}", string(is) with "1.10"`, is)
	}
	if got := WithMeta(is, "k", ""); strings.Contains(string(got), `"k"`) {
		t.Errorf(`%s; want string(got) without "\"k\""`, got)
	}
	if got := WithMeta(nil, "k", ""); string(got) != "{}" || Meta(nil, "k") != "" {
		t.Errorf(`%s; want string(got) = "{}", Meta(nil, "k") = ""`, got)
	}
}

// FuzzScan: another program may have written into the database's file.
func FuzzScan(f *testing.F) {
	f.Add("{}", int64(1))
	f.Add(`{"a":[`, int64(-1))
	f.Fuzz(func(t *testing.T, text string, n int64) {
		for _, r := range rows() {
			for _, c := range Columns(r) {
				for _, kept := range []any{text, n, []byte(text), nil} {
					if c.Scan(kept) != nil {
						continue
					}
					// What was read can be written, unless it is only longer or other than we write.
					if err := c.clean(r.Table()); err != nil && capability.CodeOf(err) != capability.CodeTooLarge &&
						capability.CodeOf(err) != capability.CodeInvalidInput {
						t.Errorf("%s.%s: %v", r.Table(), c.Name(), err)
					}
				}
			}
		}
	})
}
