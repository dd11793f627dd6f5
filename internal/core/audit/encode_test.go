package audit

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

var update = flag.Bool("update", false, "write the golden files")

func ptr[T any](v T) *T { return &v }

func goldenRecords() []Record {
	full := sample()
	full.Event, full.Success, full.ExitCode = CapabilityFailed, OutcomeFailure, ptr(3)
	full.Command, full.Error = "postman:send", "upstream said:\n\t\"no\"\x1b[31m"
	full.Metadata.Node = Node{ID: "phone", Epoch: 4, Function: "notify", Skill: "alarm", PayloadDigest: "p", ModuleDigest: "m"}
	full.Metadata.StdoutHash, full.Metadata.StderrHash = "cd", "ef"
	full.Metadata.Sandbox, full.Metadata.Truncated = "tier2", true
	full.Metadata.Principal.OnBehalfOf = "operator:ann"
	full.Metadata.View, full.Metadata.Parent, full.Metadata.Task, full.Metadata.Pin = "coding", "run_p", "tsk_1", "pin_1"
	full.Metadata.Decision.Approval = "cnf_1"
	full.Metadata.Code, full.Metadata.Reason = capability.CodeFailed, "exit_status"
	return []Record{
		sample(), full,
		{Time: sample().Time, Event: ServerStarted, Logger: "server", Metadata: Metadata{Attrs: []Attr{{"version", "1.0"}}}},
		{
			Time: sample().Time, Event: LoginFailed, Logger: "server",
			Error: "Authorization: Bearer abc for jct_a_xyz at https://u:p@h/ in /home/ann/x",
		},
	}
}

func TestRecordsAreEncodedAsTheGoldenFileHasThem(t *testing.T) {
	segs := &memSegments{}
	l := open(t, Config{Segments: segs, Gateway: "gw1", Home: "/home/ann"})
	for _, r := range goldenRecords() {
		add(t, l, r, Buffered)
	}
	got := strings.Join(segs.records(), "\n") + "\n"
	const path = "testdata/records.golden"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Fatalf("result differs from want (-want +got):\n%s", d)
	}
}

func TestKeysComeInTheOrderOfTheSpec(t *testing.T) {
	segs := &memSegments{}
	l := open(t, Config{Segments: segs})
	add(t, l, sample(), Buffered)
	line := segs.records()[0]
	top := strings.Split("timestamp level logger event extension_id command action runner session_id user_id success duration_seconds exit_code metadata tool args_count work_dir run_id permissions decision sandbox duration_ms state truncated error seq prev_hash hash", " ")
	at := 0
	for _, k := range top {
		i := strings.Index(line[at:], `"`+k+`": `)
		if i < 0 {
			t.Fatalf("key %s is missing or out of order in %s; want i at least 0", k, line)
		}
		at += i
	}
	if regexp.MustCompile(`[^ ]":[^ ]|",[^ ]`).MatchString(line) {
		t.Fatalf("separator without a space in %s; want not regexp.MustCompile(`[^ ]\":[^ ]|\",[^ ]`).MatchString(line)", line)
	}
}

func TestALineIsOneValidJSONLineOfBoundedLength(t *testing.T) {
	long := strings.Repeat("ab\n\x00\u2028\xff\"é\u0085", 4000)
	r := sample()
	r.Level = ""
	for _, f := range []*string{
		&r.Logger, &r.Extension, &r.Command, &r.Action, &r.Runner, &r.Session, &r.User, &r.Error, &r.Metadata.Tool, &r.Metadata.WorkDir,
		&r.Metadata.ArgsHash, &r.Metadata.StdoutHash, &r.Metadata.StderrHash, &r.Metadata.RunID, &r.Metadata.Sandbox, &r.Metadata.State,
		&r.Metadata.CapabilityID, &r.Metadata.CanonicalAction, &r.Metadata.Provider, &r.Metadata.Surface, &r.Metadata.Principal.ID,
		&r.Metadata.Principal.OnBehalfOf, &r.Metadata.View, &r.Metadata.Client, &r.Metadata.TraceID, &r.Metadata.Parent, &r.Metadata.Task,
		&r.Metadata.Gateway, &r.Metadata.Pin, &r.Metadata.UpstreamCallID, &r.Metadata.Reason, &r.Metadata.Node.ID, &r.Metadata.Node.Function,
		&r.Metadata.Node.Skill, &r.Metadata.Node.PayloadDigest, &r.Metadata.Node.ModuleDigest, &r.Metadata.Decision.Effect,
		&r.Metadata.Decision.Grant, &r.Metadata.Decision.Approval, &r.Metadata.Selection.DecidedBy, &r.Metadata.Selection.ExplanationID,
	} {
		*f = long
	}
	for range 200 {
		r.Metadata.Permissions = append(r.Metadata.Permissions, long)
		r.Metadata.Decision.PolicyIDs = append(r.Metadata.Decision.PolicyIDs, long)
		r.Metadata.Attrs = append(r.Metadata.Attrs, Attr{long, long})
	}
	segs := &memSegments{}
	l := open(t, Config{Segments: segs})
	add(t, l, r, Buffered)
	lines := segs.records()
	if len(lines) != 1 || len(lines[0]) >= MaxLine {
		t.Fatalf("%d lines, first of %d bytes; want len(lines) = 1, len(lines[0]) less than %v", len(lines), len(lines[0]), MaxLine)
	}
	if !json.Valid([]byte(lines[0])) {
		t.Fatalf("not JSON: %s; want json.Valid([]byte(lines[0]))", lines[0])
	}
	for i := range len(lines[0]) {
		if c := lines[0][i]; c < 0x20 || c == 0x7f {
			t.Fatalf("control %#x in the line; want c at least 0x20, c other than 0x7f", c)
		}
	}
	m, _ := decode(t, lines[0])["metadata"].(map[string]any)
	if m["truncated"] != true || m["sandbox"] == nil {
		t.Fatalf(`the flag is missing, or the fields are: the last resort was used: %v; want m["truncated"] = true, m["sandbox"] not nil`,
			m)
	}
}

func FuzzQuoteMakesJSONStrings(f *testing.F) {
	f.Add("plain", 10)
	f.Add("a\"b\\\x00\xff\u2028é漢\U0001F600", 7)
	red := newRedactor("", nil)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = 6 + (limit%2000+2000)%2000
		w := writer{red: red}
		w.quote(s, limit)
		var back string
		if err := json.Unmarshal(w.b, &back); err != nil {
			t.Fatalf("%q: %v", w.b, err)
		}
		if len(w.b) > limit+2 {
			t.Fatalf("%d bytes, limit %d; want len(w.b) at most limit + 2", len(w.b), limit)
		}
		if want := strings.ToValidUTF8(s, "\uFFFD"); !w.cut && back != jsonRound(s) && back != want {
			t.Fatalf("%q became %q; want not (!w.cut && back != jsonRound(s) && back != want)", s, back)
		}
	})
}

// jsonRound replaces each invalid byte on its own, as encoding/json does.
func jsonRound(s string) string {
	b, _ := json.Marshal(s)
	var out string
	_ = json.Unmarshal(b, &out)
	return out
}

func TestSecretsDoNotReachTheLog(t *testing.T) {
	red := newRedactor("/home/ann/", func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") })
	for _, c := range []struct{ name, in, want string }{
		{"our token", "token jct_a_AbC-_123 refused", "token [redacted] refused"},
		{"two tokens", "jct_a_x,jct_o_y", "[redacted],[redacted]"},
		{"bearer", "sent bearer eyJhbGci.x.y; retry", "sent bearer [redacted]; retry"},
		{"upper case bearer", "BEARER abc", "BEARER [redacted]"},
		{"authorization header", "Authorization: Basic dXNlcjpwYXNz", "Authorization: [redacted]"},
		{"authorization in JSON", `{"authorization":"Bearer abc","a":1}`, `{"authorization":"[redacted]","a":1}`},
		{"authorization without scheme", "authorization=abc123", "authorization=[redacted]"},
		{"url user", "get https://ann:pw@host/x?y", "get https://[redacted]@host/x?y"},
		{"url at in path", "get https://host/a@b", "get https://host/a@b"},
		{"password with at", "ssh://u:p@ss@host", "ssh://[redacted]@host"},
		{"home", "open /home/ann/x: and /home/ann", "open ~/x: and ~"},
		{"longer name than home", "/home/annette/x", "/home/annette/x"},
		{"registered secret", "pw hunter2", "pw ***"},
		{"clean", "fs.readText", "fs.readText"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := red.clean(c.in); got != c.want {
				t.Fatalf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestDigestsAreKeyed(t *testing.T) {
	a := open(t, Config{Segments: &memSegments{}, Key: []byte("a")})
	b := open(t, Config{Segments: &memSegments{}, Key: []byte("b")})
	if x, y := a.Digest([]byte("v")), a.Digest([]byte("v")); x != y || len(x) != 64 {
		t.Fatalf("%s and %s; want x = %v, len(x) = 64", x, y, y)
	}
	if a.Digest([]byte("v")) == b.Digest([]byte("v")) {
		t.Fatal(`the key does not matter; want a.Digest([]byte("v")) other than b.Digest([]byte("v"))`)
	}
}

func TestEveryEventHasOneRow(t *testing.T) {
	src, err := os.ReadFile("event.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[Event]EventRow{}
	for _, r := range EventTable() {
		if _, twice := rows[r.Event]; twice {
			t.Errorf("%s twice; want twice = false", r.Event)
		}
		rows[r.Event] = r
		if !slices.Contains([]Level{Debug, Info, Warning, Error}, r.Level) {
			t.Errorf("%s has level %q; want []Level{Debug, Info, Warning, Error} with %v", r.Event, r.Level, r.Level)
		}
	}
	consts := regexp.MustCompile(`(?m)^\t\w+\s+Event = "(\w+)"`).FindAllSubmatch(src, -1)
	if len(consts) != len(rows) {
		t.Errorf("%d constants, %d rows; want len(consts) = %v", len(consts), len(rows), len(rows))
	}
	for _, c := range consts {
		if _, ok := rows[Event(c[1])]; !ok {
			t.Errorf("%s has no row; want ok = true", c[1])
		}
	}
	// Rows whose mirror files must not change.
	const c, s = MirrorCapabilities, MirrorSecurity
	want := map[Event]EventRow{}
	for _, r := range []EventRow{
		{CapabilityStarted, Debug, c, false},
		{CapabilityExecuted, Info, c, true},
		{CapabilitySlow, Warning, c, false},
		{CapabilityFailed, Error, c, true},
		{CapabilityTimeout, Error, c, true},
		{SecurityViolation, Error, s | c, true},
		{PermissionDenied, Warning, s | c, true},
		{CapabilityCancelled, Info, c, true},
		{CommandRouted, Info, c, false},
		{SandboxDegraded, Warning, s | c, false},
		{EgressAllowed, Info, c, false},
		{EgressDenied, Warning, s, false},
		{GrantUsed, Info, s, false},
	} {
		want[r.Event] = r
		if d := cmp.Diff(r, rows[r.Event]); d != "" {
			t.Errorf("rows[r.Event] differs from want (-want +got):\n%s", d)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	enc := encoder{newRedactor("/home/ann", nil), "gw1"}
	r := sample()
	r.Time = time.Now()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = enc.encode(buf[:0], &r)
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkChain(b *testing.B) {
	enc := encoder{newRedactor("/home/ann", nil), "gw1"}
	r := sample()
	body := enc.encode(nil, &r)
	l := open(b, Config{Segments: &memSegments{}})
	c := &l.chain
	b.ReportAllocs()
	for b.Loop() {
		c.buf = c.buf[:0]
		c.seq++
		c.link(body)
	}
	_ = bytes.Clone(c.buf)
}

// TestNoMemberIsWrittenTwice: many readers refuse a line that has a name twice.
func TestNoMemberIsWrittenTwice(t *testing.T) {
	segs := &memSegments{}
	l := open(t, Config{Segments: segs, Gateway: "gw1"})
	rec := Record{Time: sample().Time, Event: TaskStatusChanged, Logger: "tasks"}
	always := []string{"tool", "args_count", "work_dir", "run_id", "permissions", "decision", "sandbox", "duration_ms", "state", "truncated"}
	for _, key := range always {
		rec.Metadata.Attrs = append(rec.Metadata.Attrs, Attr{key, "x"})
	}
	add(t, l, rec, Buffered)
	var got struct {
		Metadata map[string]any `json:"metadata"`
	}
	if err := jsonx.Unmarshal([]byte(segs.records()[0]), &got); err != nil {
		t.Fatalf("%v: %s", err, segs.records()[0])
	}
	for _, key := range always {
		if got.Metadata["attr_"+key] != "x" {
			t.Errorf(`%s is lost: %v; want got.Metadata["attr_"+key] = "x"`, key, got.Metadata)
		}
	}
}

// An attribute whose name a member of the record has already, and a repeated one.
func TestAnAttributeDoesNotRepeatAMember(t *testing.T) {
	segs := &memSegments{}
	l := open(t, Config{Segments: segs, Gateway: "gw1"})
	full := Metadata{
		CapabilityID: "c", CanonicalAction: "a", Provider: "p", Surface: "s", Principal: Principal{ID: "admin:root"}, Effect: "read", View: "v",
		Client: "c", TraceID: "t", Parent: "p", Task: "t", Selection: Selection{Step: 1}, Pin: "p", UpstreamCallID: "u", BytesIn: 1,
		Timings: Timings{Queue: 1}, Node: Node{ID: "n"}, Code: "failed", Reason: "r",
	}
	// Each member that the full record has is the name of an attribute as well.
	add(t, l, Record{Time: sample().Time, Event: GrantCreated, Logger: "policy", Metadata: full}, Buffered)
	var first struct {
		Metadata map[string]any `json:"metadata"`
	}
	if err := jsonx.Unmarshal([]byte(segs.records()[0]), &first); err != nil {
		t.Fatalf("the record: got %v, want no error: %s", err, segs.records()[0])
	}
	rec := Record{Time: sample().Time, Event: GrantCreated, Logger: "policy", Metadata: full}
	for _, name := range slices.Sorted(maps.Keys(first.Metadata)) {
		rec.Metadata.Attrs = append(rec.Metadata.Attrs, Attr{name, "x"})
	}
	for from := range slices.Chunk(rec.Metadata.Attrs, 20) {
		one := rec
		one.Metadata.Attrs = append(slices.Clone(from), Attr{"free", "1"}, Attr{"free", "2"})
		add(t, l, one, Buffered)
		var got struct {
			Metadata map[string]any `json:"metadata"`
		}
		line := segs.records()[len(segs.records())-1]
		if err := jsonx.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("attributes with the names of members: got %v, want no error: %s", err, line)
		}
		for _, attr := range from {
			if got.Metadata["attr_"+attr.Key] != "x" {
				t.Errorf("the attribute %s: got %v, want attr_%s with x", attr.Key, got.Metadata, attr.Key)
			}
		}
		if got.Metadata["free"] != "1" || got.Metadata["attr_free"] != "2" {
			t.Errorf("a repeated attribute: got %v and %v, want 1 and 2", got.Metadata["free"], got.Metadata["attr_free"])
		}
	}
}
