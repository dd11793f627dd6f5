package structured_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/junctor-run/junctor/internal/platform/process"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/structured"
)

// Whatever a program does, its session ends, states why, and cleans up.
func TestAProgramThatMisbehavesIsEnded(t *testing.T) {
	permission := `{"jsonrpc":"2.0","id":%d,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"title":"x","kind":"edit"},"options":[{"optionId":"a","name":"Yes","kind":"allow_once"}]}}`
	for name, c := range map[string]struct {
		program part
		kind    string
		text    string
	}{
		"it says nothing": {func(c *child) process.Exit { return c.wait() }, "handshake", "1m0s"},
		"it says garbage": {func(c *child) process.Exit {
			for range 60 {
				c.say("this is not JSON")
			}
			return c.wait()
		}, "protocol", "not messages"},
		"it answers the opening with an error": {func(c *child) process.Exit {
			c.receive(t)
			c.say(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Internal error","data":{"details":"no node"}}}`)
			return c.wait()
		}, "refused", "no node"},
		"it speaks another version": {func(c *child) process.Exit {
			c.receive(t)
			c.say(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":2}}`)
			return c.wait()
		}, "refused", "version"},
		"it ends in the middle of a turn": {func(c *child) process.Exit {
			greet(t, c)
			c.receive(t, "go")
			fmt.Fprintln(c.stderr, "\x1b[31mthe key ghp_"+strings.Repeat("aB3", 12)+" is bad")
			return process.Exit{Code: 0}
		}, "exit", "the key"},
		"it ends before it began": {func(c *child) process.Exit {
			fmt.Fprintln(c.stderr, "cannot find module")
			return process.Exit{Code: 1}
		}, "exit", "cannot find module"},
		"it closes its output and lives on": {func(c *child) process.Exit {
			c.outW.Close()
			<-c.killed
			return process.Exit{}
		}, "exit", ""},
		"it asks without end": {func(c *child) process.Exit {
			greet(t, c)
			c.receive(t, "go")
			for i := range 100 {
				c.say(permission, i)
			}
			return c.wait()
		}, "protocol", "too much"},
		"it asks and reads no answers": {func(c *child) process.Exit {
			greet(t, c)
			for {
				if _, err := fmt.Fprintf(c.out, `{"jsonrpc":"2.0","id":"%s","method":"nonsense"}`+"\n", strings.Repeat("i", 200)); err != nil {
					return process.Exit{}
				}
			}
		}, "protocol", "does not read"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cleaned := 0
				r := start(t, programs.OpenCode, c.program, func(s *structured.Spec) {
					s.Task, s.Cleanup = "go", func() error { cleaned++; return nil }
				})
				<-r.Done()
				i := r.Info()
				e := r.until(sessions.Failed, 1)
				if i.Status != detect.Error || e.Kind != c.kind || !strings.Contains(e.Text, c.text) || i.Error != e.Text {
					t.Errorf("it is %s, failed by %q: %q; want i.Status = detect.Error, e.Kind = %v, e.Text with %v, i.Error = %v",
						i.Status, e.Kind, e.Text, c.kind, c.text, e.Text)
				}
				if strings.Contains(e.Text, "ghp_aB3") || strings.Contains(e.Text, "\x1b") {
					t.Errorf(`it told %q; want e.Text without "ghp_aB3", e.Text without "\x1b"`, e.Text)
				}
				if cleaned != 1 {
					t.Errorf("it was cleaned up %d times; want cleaned = 1", cleaned)
				}
				r.invariants()
			})
		})
	}
}

func TestLinesThatMeanNothingAreCountedAndPassedOver(t *testing.T) {
	r := start(t, programs.Claude, func(c *child) process.Exit {
		hello(t, c)
		_, _ = io.Copy(c.out, io.LimitReader(endless{}, 9<<20)) // longer than a line may be
		c.say("")
		c.say("a word of a library")
		c.say(`{"type":"of_tomorrow"}`)
		c.say(`{"type":"control_response","response":{"subtype":"success","request_id":"never asked"}}`)
		c.say(`{"type":"control_request","request_id":"1","request":{"subtype":"hook_callback"}}`)
		if both := c.receive(t) + c.receive(t); !strings.Contains(both, `"content":"go"`) ||
			!strings.Contains(both, `"request_id":"1","subtype":"error"`) {
			t.Errorf(`it was told %s; want both with "\"content\":\"go\"", both with "\"request_id\":\"1\",\"subtype\":\"error\""`,
				both)
		}
		c.say(inited)
		c.say(`{"type":"assistant","message":{"content":[{"type":"text","text":"half a \ud83d"}]}}`)
		c.say(success, 1)
		return c.wait()
	}, func(s *structured.Spec) { s.Task = "go" })
	r.until(sessions.TaskComplete, 1)
	if n := r.Counts(); n.Garbage != 2 || n.Unknown != 3 {
		t.Errorf("it counted %+v; want n.Garbage = 2, n.Unknown = 3", n)
	}
	if lines := strings.Join(r.Lines(10), "\n"); !strings.Contains(lines, "half a \uFFFD") {
		t.Errorf(`it shows %q; want lines with "half a \uFFFD"`, lines)
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return copy(b, bytes.Repeat([]byte("x"), len(b))), nil }

func TestWhatIsShownIsBoundedAndPlain(t *testing.T) {
	r := start(t, programs.Gemini, func(c *child) process.Exit {
		greet(t, c)
		c.receive(t, "go")
		for range 3_000 {
			c.say(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\u001b[31mred\u0007\n%s"}}}}`, strings.Repeat("y", 1_000))
		}
		c.say(`{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`)
		return c.wait()
	}, func(s *structured.Spec) { s.Task = "go" })
	e := r.until(sessions.TaskComplete, 1)
	lines := r.Lines(1_000_000)
	if all := strings.Join(lines, "\n"); len(lines) > 1_001 || len(all) > 110_000 || strings.ContainsAny(all, "\x1b\x07") {
		t.Errorf(`it shows %d lines, %d bytes; want len(lines) at most 1_001, len(all) at most 110_000, all without any of "\x1b\x07"`,
			len(lines), len(all))
	}
	if len(e.Text) > 1<<20 || len(e.Text) < 1<<19 {
		t.Errorf("the turn ended with %d bytes; want len(e.Text) at most 1 << 20, len(e.Text) at least 1 << 19", len(e.Text))
	}
}

func TestAStopIsForEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, programs.Claude, func(c *child) process.Exit { // deaf to what it is asked
			<-c.killed
			return process.Exit{}
		})
		r.Stop(false)
		r.Stop(false)
		<-r.Done()
		if i := r.Info(); i.Status != detect.Stopped || i.ExitSignal != "SIGKILL" {
			t.Errorf(`it is %+v; want i.Status = detect.Stopped, i.ExitSignal = "SIGKILL"`, i)
		}
		r.Stop(true)
		r.invariants()
	})
}

func TestWhatCannotBeStartedIsCleanedUp(t *testing.T) {
	for name, spec := range map[string]sessions.Spec{
		"no protocol": {Framework: programs.Aider, Dir: t.TempDir()},
		"no folder":   {Framework: programs.Claude, Dir: t.TempDir() + "/none"},
		"no program":  {Framework: programs.Claude, Dir: t.TempDir()},
	} {
		cleaned := 0
		spec.Cleanup = func() error { cleaned++; return nil }
		_, err := structured.Start(structured.Config{Start: func(process.Spec, io.Writer) (structured.Child, error) {
			return nil, errors.New("no")
		}}, structured.Spec{Spec: spec})
		if err == nil || cleaned != 1 {
			t.Errorf("%s: %v, and it was cleaned up %d times; want an error, cleaned = 1", name, err, cleaned)
		}
	}
}

func TestSigningInIsForPeople(t *testing.T) {
	r := start(t, programs.Gemini, func(c *child) process.Exit {
		c.receive(t)
		c.say(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}`)
		c.receive(t, "session/new")
		c.say(`{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"Authentication required"}}`)
		return c.wait()
	})
	if e := r.until(sessions.LoginRequired, 1); !strings.Contains(e.Text, "Authentication required") {
		t.Errorf(`%+v; want e.Text with "Authentication required"`, e)
	}
	if _, err := r.Send(context.Background(), "text", false); reason(err) != "agent_blocked" {
		t.Errorf(`%v; want reason(err) = "agent_blocked"`, err)
	}
}
