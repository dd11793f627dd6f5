package segment

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// helperEnv makes this test binary a process that logs until it is killed.
const helperEnv = "JUNCTOR_TEST_AUDIT_DIR"

func openLog(dir string) (*audit.Log, error) {
	segs, err := Open(filepath.Join(dir, "audit"), Config{})
	if err != nil {
		return nil, err
	}
	logs, err := OpenMirror(filepath.Join(dir, "logs"), MirrorConfig{MaxBytes: 256 << 10, Keep: 100})
	if err != nil {
		return nil, err
	}
	return audit.Open(context.Background(), audit.Config{
		Segments: segs, Mirror: logs, Gateway: "gw", SegmentBytes: 128 << 10, CheckpointRecords: 50,
	})
}

func record(e audit.Event, run string, effect capability.Effect) audit.Record {
	return audit.Record{
		Event: e, Logger: "invoke", Extension: "tools.postman", Action: "fs.writeText", User: "agent:a", Success: audit.OutcomeSuccess,
		Metadata: audit.Metadata{
			RunID: run, Effect: effect, State: "completed", CapabilityID: "tools.postman/w#fs.writeText@x", CanonicalAction: "fs.writeText",
			Provider: "fs:endpoint:x", Surface: "http", Principal: audit.Principal{ID: "agent:a", Role: capability.RoleAgent},
			Permissions: []string{"fs.write"}, Decision: audit.Decision{Effect: "permit", PolicyIDs: []string{"base"}},
			ArgsHash: strings.Repeat("ab", 32), TraceID: strings.Repeat("cd", 16), BytesIn: 10, BytesOut: 20,
		},
	}
}

// tortured logs from several goroutines and prints the run of each record that
// was acknowledged. It ends by being killed.
func tortured(dir string) int {
	l, err := openLog(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go l.Run(ctx)
	var out sync.Mutex
	ack := func(kind, run string) {
		out.Lock()
		fmt.Println(kind, run)
		out.Unlock()
	}
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := 0; ; i++ {
				run := fmt.Sprintf("run_%d_%d_%d", os.Getpid(), w, i)
				if _, err := l.Append(ctx, record(audit.CapabilityStarted, run, capability.EffectWrite), audit.Buffered); err != nil {
					return
				}
				ack("begin", run)
				if _, err := l.Append(ctx, record(audit.CapabilityExecuted, run, capability.EffectWrite), audit.Durability(1+w%2)); err != nil {
					return
				}
				ack("end", run)
			}
		})
	}
	wg.Wait()
	return 0
}

func TestNoAcknowledgedRecordIsLostByKill(t *testing.T) {
	dir := t.TempDir()
	acked := map[string]string{} // run → last acknowledged
	for round := range 6 {
		kill(t, dir, acked, 100+rand.IntN(400))
		if round%2 == 1 { // half a line, as a torn write leaves it
			tear(t, filepath.Join(dir, "audit"))
		}
	}
	l, err := openLog(dir)
	ok(t, err)
	ok(t, l.Close())
	segs := openDir(t, filepath.Join(dir, "audit"), Config{ReadOnly: true})
	rep, err := audit.VerifySegments(t.Context(), segs, audit.Proofs{})
	ok(t, err)
	if rep.FirstBad != nil {
		t.Fatalf("the chain is bad: %+v; want rep.FirstBad = nil", *rep.FirstBad)
	}
	begun, ended, torn := map[string]bool{}, map[string]string{}, 0
	var want [2]bytes.Buffer
	each(t, segs, func(line []byte) {
		var v struct {
			Event    string
			Metadata struct {
				RunID  string `json:"run_id"`
				Reason string
			}
		}
		ok(t, json.Unmarshal(line, &v))
		switch v.Event {
		case "capability_started":
			begun[v.Metadata.RunID] = true
		case "audit_degraded":
			torn++
			want[1].Write(line)
			return
		default:
			if end, twice := ended[v.Metadata.RunID]; twice {
				t.Fatalf("%s ended twice: %s; want twice = false", v.Metadata.RunID, end)
			}
			ended[v.Metadata.RunID] = v.Event + " " + v.Metadata.Reason
		}
		want[0].Write(line)
	})
	if torn < 3 || torn > 6 { // those of this test, and at most one of each kill: it may end a write in the middle
		t.Fatalf("torn lines noted: got %d, want 3 to 6", torn)
	}
	interrupted := 0
	for run, kind := range acked {
		if !begun[run] || kind == "end" && ended[run] != "capability_executed " {
			t.Fatalf("%s was acknowledged (%s) and is lost: begun %v, ended %q", run, kind, begun[run], ended[run])
		}
	}
	for run := range begun {
		if ended[run] == "" {
			t.Fatalf(`%s has no end; want ended[run] other than ""`, run)
		}
		if ended[run] == "capability_failed interrupted" {
			interrupted++
		}
	}
	if len(acked) < 100 || interrupted == 0 || rep.Segments < 2 {
		t.Fatalf("the test tested little: %d runs, %d interrupted, %d segments; want len(acked) at least 100, interrupted other "+
			"than 0, rep.Segments at least 2", len(acked), interrupted, rep.Segments)
	}
	if got := joined(t, filepath.Join(dir, "logs", "capabilities.log")); got != want[0].String() {
		t.Fatalf("capabilities.log has %d bytes, the chain has %d for it; want got = want[0].String()", len(got), want[0].Len())
	}
	if got := joined(t, filepath.Join(dir, "logs", "security.log")); got != want[1].String() {
		t.Fatal("security.log differs; want got = want[1].String()")
	}
	t.Logf("%d records in %d segments, %d runs acknowledged, %d interrupted", rep.Records, rep.Segments, len(acked), interrupted)
}

// kill starts the helper and kills it after n acknowledgements.
func kill(t *testing.T, dir string, acked map[string]string, n int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	sc := bufio.NewScanner(out)
	for i := 0; sc.Scan(); i++ {
		if kind, run, found := strings.Cut(sc.Text(), " "); found {
			acked[run] = kind
		}
		if i == n {
			ok(t, cmd.Process.Kill())
		}
	}
	_ = cmd.Wait()
	if stderr.Len() > 0 {
		t.Fatalf("stderr.String() = %v, want stderr.Len() == 0", stderr.String())
	}
}

func tear(t *testing.T, dir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "audit-*.jsonl"))
	ok(t, err)
	f, err := os.OpenFile(names[len(names)-1], os.O_WRONLY|os.O_APPEND, 0)
	ok(t, err)
	_, err = f.WriteString(`{"timestamp": "2026`)
	ok(t, err)
	ok(t, f.Close())
}

func each(t *testing.T, segs *Segments, f func(line []byte)) {
	t.Helper()
	list, err := segs.List()
	ok(t, err)
	for _, s := range list {
		for _, line := range bytes.SplitAfter([]byte(content(t, segs, s.ID, 0)), []byte("\n"))[1:] {
			if len(line) > 0 {
				f(line)
			}
		}
	}
}

// joined is a copy with its rotated parts, oldest first.
func joined(t *testing.T, path string) string {
	t.Helper()
	var b strings.Builder
	for i := 20; i >= 0; i-- {
		for _, ext := range []string{".gz", ""} {
			name := fmt.Sprintf("%s.%d%s", path, i, ext)
			if i == 0 {
				name = path
			}
			if _, err := os.Stat(name); err == nil {
				b.WriteString(read(t, name))
				break
			}
		}
	}
	return b.String()
}

// The patterns a reader of the first product's manual types.
func TestTheDocumentedPatternsFindRecordsInTheLiveFile(t *testing.T) {
	dir := t.TempDir()
	l, err := openLog(dir)
	ok(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	for _, r := range []audit.Record{
		record(audit.CapabilityExecuted, "run_1", capability.EffectRead),
		record(audit.CapabilityFailed, "run_2", capability.EffectRead),
		record(audit.PermissionDenied, "run_3", capability.EffectRead),
	} {
		_, err := l.Append(t.Context(), r, audit.Written)
		ok(t, err)
	}
	live := filepath.Join(dir, "logs", "capabilities.log")
	deadline := time.Now().Add(10 * time.Second)
	for strings.Count(read(t, live), "\n") < 3 && time.Now().Before(deadline) {
		<-time.After(5 * time.Millisecond) // real files have no fake clock
	}
	for pattern, want := range map[string]int{
		`capability_executed`:               1,
		`capability_failed`:                 1,
		`"event": "capability_executed"`:    1,
		`"extension_id": "tools.postman"`:   3,
		`"event": "permission_denied".*run`: 1,
	} {
		n := 0
		for _, line := range strings.Split(read(t, live), "\n") {
			if regexp.MustCompile(pattern).MatchString(line) {
				n++
			}
		}
		if n != want {
			t.Errorf("%s finds %d lines, want %d", pattern, n, want)
		}
	}
	cancel()
	ok(t, <-done)
	ok(t, l.Close())
	if strings.Count(read(t, filepath.Join(dir, "logs", "security.log")), "\n") != 1 {
		t.Error(`security.log does not hold the denial; want strings.Count(read(t, filepath.Join(dir, "logs", "security.log")), "\n") = 1`)
	}
}
