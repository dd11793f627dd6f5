package threadsql_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/threads/threadsql"
)

// The process that is killed is this test binary with these in its environment: the
// database, and a name for what it writes.
const (
	killedDB   = "JUNCTORTEST_THREADS_DB"
	killedName = "JUNCTORTEST_THREADS_NAME"
)

// writes is the number of operations.
const writes = 1000

// writeUntilKilled writes to the registry for as long as the process lives, and prints
// every operation once it was acknowledged: what is printed must be on the disk.
func writeUntilKilled() {
	path := os.Getenv(killedDB)
	if path == "" {
		return
	}
	if err := write(context.Background(), path, os.Getenv(killedName)); err != nil {
		fmt.Println("fault", err)
	}
	os.Exit(0)
}

func write(ctx context.Context, path, name string) error {
	db, err := store.Open(ctx, path)
	if err != nil {
		return err
	}
	s, err := threadsql.Open(ctx, db)
	if err != nil {
		return err
	}
	r, err := threads.New(threads.Config{Store: s, Gateway: "g1", Now: time.Now})
	if err != nil {
		return err
	}
	n := 0
	said := func(what string, args ...any) {
		fmt.Printf("%s %s\n", what, fmt.Sprint(args...))
		n++
	}
	for i := 0; n < writes; i++ {
		c, err := r.Create(ctx, threads.Plan{
			Thread: row.Thread{Title: fmt.Sprint(name, i)}, Brief: "b",
			Parts: []threads.Part{{Title: "a"}, {Title: "b", DependsOn: []int{0}}},
		})
		if err != nil {
			return err
		}
		said("thread", c.Thread.ID)
		var before []string
		for j := range 4 {
			pty := fmt.Sprintf("pty-%s-%d-%d", name, i, j)
			// The first fails and is replaced, the rest completes; the last stays at work.
			part := 1 + min(j/2, 1)
			if _, err := r.Register(ctx, threads.Registration{
				ThreadID: c.Thread.ID, Node: c.Nodes[part].ID, Replaces: before,
				Session: row.Session{SessionID: pty},
			}); err != nil {
				return err
			}
			said("session", pty)
			for k := range 6 {
				if err := r.Transcribe(ctx, pty, []threads.Piece{{Direction: row.Stdout, Content: fmt.Sprint(pty, "-", k)}}); err != nil {
					return err
				}
				said("transcript", pty, "-", k)
				if k%3 != 0 {
					continue
				}
				if _, err := r.Decide(ctx, row.Decision{SessionID: pty, EventType: fmt.Sprint(pty, "-", k), Decision: row.Respond}); err != nil {
					return err
				}
				said("decision", pty, "-", k)
			}
			if j == 3 {
				break
			}
			to := row.SessionCompleted
			if before = nil; j%2 == 0 {
				to, before = row.SessionError, []string{pty}
			}
			if _, err := r.UpdateSession(ctx, pty, func(s *row.Session) { s.Status = to }); err != nil {
				return err
			}
			said("status", pty, " ", to)
		}
	}
	return nil
}

// TestKilledInTheMiddleOfWrites requires every acknowledged write to be stored, and none to be
// partial. The database begins empty, without its tables.
func TestKilledInTheMiddleOfWrites(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "junctor.db")
	r := rand.New(rand.NewPCG(1, 2))
	acknowledged := map[string][]string{}
	total, killed := 0, 0
	for run := 0; total < writes; run++ {
		all, died := runUntil(t, path, fmt.Sprint("r", run), 1+r.IntN(400))
		if died {
			killed++
		}
		for _, line := range all {
			what, id, _ := strings.Cut(line, " ")
			if what == "fault" {
				t.Fatalf(`what = %q, want other than "fault"; line = %q`, what, line)
			}
			acknowledged[what] = append(acknowledged[what], id)
			total++
		}
		w := over(t, file(t, path))
		check(t, w, acknowledged)
		if _, err := w.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if live, err := w.store.Live(t.Context()); err != nil || len(live) > 0 {
			t.Errorf("sessions live after a restart: w.store.Live(t.Context()): err = %v, want nil; len(live) = %v, want at most 0", err, len(live))
		}
		if t.Failed() {
			t.FailNow()
		}
		if total >= writes {
			w.hold(t)
		}
	}
	t.Logf("%d operations, killed %d times", total, killed)
	if killed == 0 {
		t.Errorf("nothing was killed; got killed = %v; want killed other than 0", killed)
	}
}

// runUntil starts the writer and kills it once it has acknowledged so many operations;
// lines are all it has acknowledged when it was gone.
func runUntil(t *testing.T, path, name string, enough int) (lines []string, died bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), killedDB+"="+path, killedName+"="+name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		if lines = append(lines, scanner.Text()); len(lines) == enough {
			if err := cmd.Process.Kill(); err != nil { // SIGKILL
				t.Fatal(err)
			}
		}
	}
	err = cmd.Wait()
	return lines, err != nil
}

// check compares what was acknowledged with what is there, which must be sound.
func check(t *testing.T, w *world, acknowledged map[string][]string) {
	t.Helper()
	there := map[string]bool{}
	status := map[string]row.SessionStatus{}
	for _, s := range must(w.List(t.Context(), threads.Filter{Limit: threads.MaxLimit}))(t) {
		d := w.detail(t, s.ID)
		there["thread "+d.ID] = true
		for _, broken := range violations(d) {
			t.Errorf("thread %s: %s", d.ID, broken)
		}
		if len(d.Nodes) != 3 || len(d.Dependencies) != 3 || len(d.Mailbox) != 2 {
			t.Errorf("a thread with half a plan: %d %d %d; want len(d.Nodes) = 3, len(d.Dependencies) = 3, len(d.Mailbox) = 2",
				len(d.Nodes), len(d.Dependencies), len(d.Mailbox))
		}
		for _, x := range d.Sessions {
			there["session "+x.SessionID], status[x.SessionID] = true, x.Status
		}
		for _, x := range d.Decisions {
			there["decision "+x.EventType] = true
		}
		for _, x := range d.Transcripts {
			there["transcript "+x.Content] = true
		}
	}
	for what, ids := range acknowledged {
		for _, id := range ids {
			if what == "status" {
				pty, want, _ := strings.Cut(id, " ")
				if status[pty] != row.SessionStatus(want) {
					t.Errorf("%s was acknowledged as %s and is %s; want status[pty] = row.SessionStatus(want)", pty, want, status[pty])
				}
				continue
			}
			if !there[what+" "+id] {
				t.Errorf("%s %s was acknowledged and is lost", what, id)
			}
		}
	}
}
