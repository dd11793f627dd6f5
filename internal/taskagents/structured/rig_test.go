package structured_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/process"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/structured"
)

// part is what a program of the tests does; it ends with its return.
type part func(c *child) process.Exit

// child is a program that is a function.
type child struct {
	spec   process.Spec
	stderr io.Writer
	in     *bufio.Reader // what it reads
	out    io.Writer     // what it writes

	inRead, outRead *io.PipeReader
	inWrite, outW   *io.PipeWriter
	asked, killed   chan struct{}
	done            chan struct{}
	once, twice     sync.Once
	exit            process.Exit
}

func (c *child) Read(b []byte) (int, error)  { return c.outRead.Read(b) }
func (c *child) Write(b []byte) (int, error) { return c.inWrite.Write(b) }
func (c *child) Close() error                { return c.inWrite.Close() }
func (c *child) Pid() int                    { return 4711 }
func (c *child) Done() <-chan struct{}       { return c.done }
func (c *child) Exit() process.Exit          { <-c.done; return c.exit }
func (c *child) Ask()                        { c.once.Do(func() { close(c.asked) }) }

func (c *child) Kill() {
	c.twice.Do(func() {
		close(c.killed)
		c.inRead.Close()
		c.outW.Close()
	})
}

// say writes a message.
func (c *child) say(format string, args ...any) { fmt.Fprintf(c.out, format+"\n", args...) }

// receive reads a message and checks that it holds all of the words.
func (c *child) receive(t *testing.T, words ...string) string {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return ""
	}
	for _, w := range words {
		if !strings.Contains(line, w) {
			t.Errorf("the program was told %.500s, without %s; want line with %v", line, w, w)
		}
	}
	return strings.TrimSpace(line)
}

// wait waits until it is asked to end, or killed.
func (c *child) wait() process.Exit {
	select {
	case <-c.asked:
		return process.Exit{}
	case <-c.killed:
		return process.Exit{Code: -9, Signal: "SIGKILL"}
	}
}

func run(spec process.Spec, stderr io.Writer, p part) *child {
	c := &child{spec: spec, stderr: stderr, asked: make(chan struct{}), killed: make(chan struct{}), done: make(chan struct{})}
	c.inRead, c.inWrite = io.Pipe()
	c.outRead, c.outW = io.Pipe()
	c.in, c.out = bufio.NewReader(c.inRead), c.outW
	go func() {
		exit := p(c)
		select {
		case <-c.killed:
			exit = process.Exit{Code: -9, Signal: "SIGKILL"}
		default:
		}
		c.exit = exit
		c.inRead.Close()
		c.outW.Close()
		close(c.done)
	}()
	return c
}

// rig is a session and what it told.
type rig struct {
	*structured.Session
	t   *testing.T
	dir string

	mu     sync.Mutex
	events []sessions.Event
	news   chan struct{}
}

func start(t *testing.T, name programs.Name, p part, change ...func(*structured.Spec)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), news: make(chan struct{}, 1)}
	spec := structured.Spec{Spec: sessions.Spec{
		ID: "pty-1-0a", AgentType: string(name), Framework: name, Argv: []string{"/bin/agent", "--structured"}, Dir: r.dir,
	}}
	for _, c := range change {
		c(&spec)
	}
	s, err := structured.Start(structured.Config{
		Version: "1",
		Start: func(spec process.Spec, stderr io.Writer) (structured.Child, error) {
			return run(spec, stderr, p), nil
		},
		Tell: func(e sessions.Event) {
			r.mu.Lock()
			r.events = append(r.events, e)
			r.mu.Unlock()
			select {
			case r.news <- struct{}{}:
			default:
			}
		},
	}, spec)
	if err != nil {
		t.Fatal(err)
	}
	r.Session = s
	t.Cleanup(func() {
		s.Stop(true)
		<-s.Done()
	})
	return r
}

// until waits for the nth event of a type.
func (r *rig) until(kind sessions.Type, nth int) sessions.Event {
	r.t.Helper()
	limit := time.NewTimer(30 * time.Second) // for a test that fails; in a bubble it costs nothing
	defer limit.Stop()
	for {
		left := nth
		r.mu.Lock()
		for _, e := range r.events {
			if e.Type == kind {
				if left--; left == 0 {
					r.mu.Unlock()
					return e
				}
			}
		}
		r.mu.Unlock()
		select {
		case <-r.news:
		case <-limit.C:
			r.t.Fatalf("there was no %s number %d; it went through %v and shows %q", kind, nth, r.words(), r.Lines(50))
		}
	}
}

// words are the states that the session went through, as recordings spell them.
func (r *rig) words() (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Type == sessions.State {
			list = append(list, e.To.Word())
		}
	}
	return slices.Compact(list)
}

func (r *rig) went(want ...string) {
	r.t.Helper()
	if got := r.words(); !slices.Equal(got, want) {
		r.t.Errorf("it went through %v, and should through %v; want got = %v", got, want, want)
	}
}

// send sends, and fails the test where that does not work.
func (r *rig) send(text string) {
	r.t.Helper()
	outcome, err := r.Send(context.Background(), text, false)
	if err != nil || outcome != sessions.Delivered {
		r.t.Fatalf("sending %q: %s, %v; want no error, outcome = sessions.Delivered", text, outcome, err)
	}
}

// invariants of every session: events in order, moves that are allowed.
func (r *rig) invariants() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	last := uint64(0)
	for _, e := range r.events {
		if e.Type == sessions.Output {
			continue
		}
		if e.Seq != last+1 {
			r.t.Errorf("event %d came after %d; want e.Seq = last + 1", e.Seq, last)
		}
		last = e.Seq
		if e.Type == sessions.State && !detect.Allowed(e.From.State, e.To.State) {
			r.t.Errorf("it moved from %s to %s; want not (e.Type == sessions.State && !detect.Allowed(e.From.State, e.To.State))",
				e.From.State, e.To.State)
		}
	}
}

// line is one of a recording.
type line struct {
	Dir string          `json:"dir"`
	Msg json.RawMessage `json:"msg"`
}

// recording reads one, with its folder replaced by dir.
func recording(t *testing.T, name, dir string) (list []line) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name + ".ndjson")
	if err != nil {
		t.Fatal(err)
	}
	short := strings.SplitN(name, "-", 2)[0]
	text := strings.ReplaceAll(string(data), "/tmp/fx/st-"+short+"/project", dir)
	for l := range strings.Lines(text) {
		var one line
		if err := json.Unmarshal([]byte(l), &one); err != nil {
			t.Fatal(err)
		}
		list = append(list, one)
	}
	return list
}

// replay is a program that does what a recorded one did, and sees that it is told what
// that one was told. change may put another message into our side's place; "": any.
func replay(t *testing.T, list *[]line, change func(string) string) part {
	return func(c *child) process.Exit {
		ids := strings.NewReplacer()
		for i, l := range *list {
			if l.Dir == "from_cli" {
				c.say("%s", compact(t, []byte(ids.Replace(string(l.Msg)))))
				continue
			}
			got := c.receive(t)
			if got == "" {
				return process.Exit{Code: -1}
			}
			if strings.Contains(got, `"subtype":"initialize"`) { // its ids are ours to choose
				ids = strings.NewReplacer("init1", between(got, `"request_id":"`, `"`))
			}
			want := ids.Replace(string(l.Msg))
			if change != nil {
				want = change(want)
			}
			if want == "" {
				continue
			}
			if a, b := known(t, got), known(t, want); a != b {
				t.Errorf("message %d is\n%s\nand should be\n%s\nwant a = %v", i, a, b, b)
			}
		}
		return c.wait()
	}
}

func compact(t *testing.T, data []byte) string {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Errorf("%v: %s", err, data)
	}
	out, _ := json.Marshal(v)
	return string(out)
}

// known is a message without what states who we are.
func known(t *testing.T, text string) string {
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Errorf("%v: %s", err, text)
	}
	if p, ok := v["params"].(map[string]any); ok {
		delete(p, "clientInfo")
	}
	out, _ := json.Marshal(v)
	return string(out)
}

func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}
