package structured_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/process"
	"github.com/junctor-run/junctor/internal/taskagents/permit"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/structured"
)

// greet is the beginning of an ACP program.
func greet(t *testing.T, c *child) {
	c.receive(t, `"method":"initialize"`)
	c.say(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}`)
	if strings.Contains(c.receive(t, `"cwd":`), "session/load") {
		c.say(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"of old"}}}}`)
		c.say(`{"jsonrpc":"2.0","id":2,"result":null}`)
		return
	}
	c.say(`{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s1"}}`)
}

// hello is the beginning of Claude Code.
func hello(t *testing.T, c *child) {
	id := between(c.receive(t, `"subtype":"initialize"`), `"request_id":"`, `"`)
	c.say(`{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":{}}}`, id)
}

const (
	inited  = `{"type":"system","subtype":"init","session_id":"t1"}`
	success = `{"type":"result","subtype":"success","is_error":false,"result":"done %d","session_id":"t1"}`
)

func TestTextsAreTurnsOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, programs.Claude, func(c *child) process.Exit {
			hello(t, c)
			for i := range 3 {
				c.receive(t, fmt.Sprintf("text %d", i))
				c.say(inited)
				c.say(success, i)
			}
			return c.wait()
		})
		r.until(sessions.ReadyAgain, 1)
		for i := range 3 {
			r.send(fmt.Sprintf("text %d", i))
		}
		if e := r.until(sessions.TaskComplete, 3); e.Text != "done 2" {
			t.Errorf(`the last turn ended with %q; want e.Text = "done 2"`, e.Text)
		}
		r.went("starting", "ready", "busy", "done", "busy", "done", "busy", "done")
		r.Stop(false)
		<-r.Done()
		if _, err := r.Send(context.Background(), "more", false); reason(err) != "session_ended" {
			t.Errorf(`after its end: %v; want reason(err) = "session_ended"`, err)
		}
		if err := r.Interrupt(context.Background()); reason(err) != "session_ended" {
			t.Errorf(`after its end: %v; want reason(err) = "session_ended"`, err)
		}
		r.invariants()
	})
}

func TestABusyProgramGetsATextAtOnceWhereItsProtocolCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, programs.Claude, func(c *child) process.Exit {
			hello(t, c)
			c.receive(t, "first")
			c.say(inited)
			c.receive(t, "second")
			c.say(success, 2)
			return c.wait()
		}, func(s *structured.Spec) { s.Task = "first" })
		r.until(sessions.BusyNow, 1)
		if outcome, err := r.Send(context.Background(), "second", true); outcome != sessions.Delivered || err != nil {
			t.Errorf("%s, %v; want outcome = sessions.Delivered, no error", outcome, err)
		}
		r.until(sessions.TaskComplete, 1)
	})
}

func TestMessagesThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, programs.Gemini, func(c *child) process.Exit {
			greet(t, c)
			c.receive(t, "busy for ever")
			return c.wait()
		}, func(s *structured.Spec) { s.Task = "busy for ever" })
		r.until(sessions.BusyNow, 1)
		ctx, cancel := context.WithCancel(context.Background())
		for range sessions.MaxQueued + 1 { // one is held by who says them
			go func() { _, _ = r.Send(ctx, "wait", true) }()
			synctest.Wait()
		}
		if _, err := r.Send(ctx, "one more", false); reason(err) != "too_many_messages" {
			t.Errorf(`%v; want reason(err) = "too_many_messages"`, err)
		}
		if n := r.Info().Queued; n != sessions.MaxQueued {
			t.Errorf("%d wait; want n = sessions.MaxQueued", n)
		}
		cancel()
		for text, code := range map[string]capability.Code{
			"": capability.CodeInvalidInput, " \x00 ": capability.CodeInvalidInput,
			strings.Repeat("x", sessions.MaxMessage+1): capability.CodeTooLarge,
		} {
			if _, err := r.Send(context.Background(), text, false); err == nil || capability.AsError(err).Code != code {
				t.Errorf("a text of %d bytes: %v; want an error, capability.AsError(err).Code = %v", len(text), err, code)
			}
		}
	})
}

func TestATextThatIsNotTakenIsTold(t *testing.T) {
	t.Run("nothing is said", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, programs.Claude, func(c *child) process.Exit {
				hello(t, c)
				c.receive(t, "text")
				return c.wait()
			})
			outcome, err := r.Send(context.Background(), "text", false)
			if outcome != sessions.NotSent || reason(err) != "submit_failed" {
				t.Errorf(`%s, %v; want outcome = sessions.NotSent, reason(err) = "submit_failed"`, outcome, err)
			}
			r.until(sessions.SubmitFailed, 1)
			r.went("starting", "ready", "busy", "failed:submit")
		})
	})
	t.Run("it is refused", func(t *testing.T) {
		r := start(t, programs.Codex, func(c *child) process.Exit {
			c.receive(t, "initialize")
			c.say(`{"id":1,"result":{}}`)
			c.receive(t, "initialized")
			c.receive(t, "thread/start")
			c.say(`{"id":2,"result":{"thread":{"id":"th"}}}`)
			c.receive(t, "turn/start")
			c.say(`{"id":3,"error":{"code":-32600,"message":"the input is too long"}}`)
			return c.wait()
		})
		if _, err := r.Send(context.Background(), "text", false); reason(err) != "submit_failed" || !strings.Contains(err.Error(), "too long") {
			t.Errorf(`%v; want reason(err) = "submit_failed", err.Error() with "too long"`, err)
		}
	})
}

func TestATurnIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, programs.OpenCode, func(c *child) process.Exit {
			greet(t, c)
			c.receive(t, "session/prompt")
			c.say(`{"jsonrpc":"2.0","id":"q","method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"title":"x","kind":"edit"},"options":[{"optionId":"a","name":"Yes","kind":"allow_once"}]}}`)
			c.receive(t, "session/cancel")
			c.receive(t, `"outcome":"cancelled"`, `"id":"q"`)
			c.say(`{"jsonrpc":"2.0","id":3,"result":{"stopReason":"cancelled"}}`)
			c.receive(t, "session/prompt")
			c.receive(t, "session/cancel")
			return c.wait()
		}, func(s *structured.Spec) { s.Task = "go" })
		r.until(sessions.BlockedNow, 1)
		if err := r.Interrupt(context.Background()); err != nil {
			t.Error(err)
		}
		r.went("starting", "ready", "busy", "blocked:permission", "busy", "ready:interrupted")
		if err := r.Interrupt(context.Background()); reason(err) != "no_turn" {
			t.Errorf(`without a turn: %v; want reason(err) = "no_turn"`, err)
		}
		r.send("again")
		if err := r.Interrupt(context.Background()); reason(err) != "interrupt_ignored" {
			t.Errorf(`of a program that goes on: %v; want reason(err) = "interrupt_ignored"`, err)
		}
	})
}

func TestAConversationIsTakenUpAgain(t *testing.T) {
	resume := func(s *structured.Spec) { s.Resume = "s1" }
	t.Run("claude", func(t *testing.T) {
		r := start(t, programs.Claude, func(c *child) process.Exit {
			hello(t, c)
			return c.wait()
		}, resume)
		r.until(sessions.ReadyAgain, 1)
		if token := r.Info().ResumeToken; token != "s1" {
			t.Errorf(`it is %q; want token = "s1"`, token)
		}
	})
	t.Run("codex", func(t *testing.T) {
		r := start(t, programs.Codex, func(c *child) process.Exit {
			c.receive(t, "initialize")
			c.say(`{"id":1,"result":{}}`)
			c.receive(t, "initialized")
			c.receive(t, "thread/resume", `"threadId":"s1"`)
			c.say(`{"id":2,"error":{"code":-32600,"message":"no rollout found"}}`)
			return c.wait()
		}, resume)
		if e := r.until(sessions.Failed, 1); e.Kind != "refused" || !strings.Contains(e.Text, "no rollout found") {
			t.Errorf(`%+v; want e.Kind = "refused", e.Text with "no rollout found"`, e)
		}
	})
	t.Run("acp", func(t *testing.T) {
		r := start(t, programs.Gemini, func(c *child) process.Exit { greet(t, c); return c.wait() }, resume)
		r.until(sessions.ReadyAgain, 1)
		if lines := r.Lines(10); len(lines) != 0 || r.Info().ResumeToken != "s1" {
			t.Errorf(`of the earlier conversation it shows %q; want len(lines) = 0, r.Info().ResumeToken = "s1"`, lines)
		}
	})
}

func TestFilesAreThoseOfTheWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	outside := t.TempDir()
	for path, text := range map[string]string{dir + "/a.txt": "1\n2\n3\n", outside + "/secret": "secret", dir + "/binary": "\xff\xfe"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, dir+"/out"); err != nil {
		t.Fatal(err)
	}
	ask := func(id int, method, path, more string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"fs/%s_text_file","params":{"sessionId":"s1","path":%q%s}}`, id, method, path, more)
	}
	cases := []struct{ ask, want string }{
		{ask(10, "read", dir+"/a.txt", ""), `"content":"1\n2\n3\n"`},
		{ask(11, "read", dir+"/a.txt", `,"line":2,"limit":1`), `"content":"2\n"`},
		{ask(12, "read", dir+"/../"+filepath.Base(outside)+"/secret", ""), "outside"},
		{ask(13, "read", outside+"/secret", ""), "outside"},
		{ask(14, "read", dir+"/out/secret", ""), "outside"},
		{ask(15, "read", "a.txt", ""), "outside"},
		{ask(16, "read", dir+"/none", ""), "no such file"},
		{ask(17, "read", dir, ""), "outside"},
		{ask(18, "read", dir+"/binary", ""), "not UTF-8"},
		{ask(19, "write", dir+"/sub/new.txt", `,"content":"new"`), `"result":null`},
		{ask(20, "write", dir+"/out/new.txt", `,"content":"new"`), "outside"},
		{ask(21, "write", dir+"/out", `,"content":"new"`), "error"},
		{strings.Replace(ask(22, "read", dir+"/a.txt", ""), `"s1"`, `"s2"`, 1), "-32602"},
		{`{"jsonrpc":"2.0","id":23,"method":"terminal/create","params":{}}`, "-32601"},
	}
	done := make(chan struct{})
	r := start(t, programs.OpenCode, func(c *child) process.Exit {
		defer close(done)
		greet(t, c)
		for _, one := range cases {
			c.say("%s", one.ask)
			c.receive(t, one.want, `"id":`+between(one.ask, `"id":`, `,`))
		}
		return process.Exit{}
	}, func(s *structured.Spec) { s.Dir = dir })
	<-done
	<-r.Done()
	if data, err := os.ReadFile(dir + "/sub/new.txt"); err != nil || string(data) != "new" {
		t.Errorf(`the file that was written holds %q, %v; want no error, string(data) = "new"`, data, err)
	}
	if list, _ := os.ReadDir(outside); len(list) != 1 {
		t.Errorf("outside there are %v; want len(list) = 1", list)
	}
	if i := r.Info(); i.Status != detect.Stopped {
		t.Errorf("it is %+v; want i.Status = detect.Stopped", i)
	}
}

func TestAProgramThatStandsStillIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, programs.Gemini, func(c *child) process.Exit {
			greet(t, c)
			c.receive(t, "go")
			return c.wait()
		}, func(s *structured.Spec) { s.Task = "go" })
		r.until(sessions.BusyNow, 1)
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if w := len(filter(r, sessions.Wedged)); w != 0 {
			t.Errorf("it was told too early; got w = %v; want w = 0", w)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if w := len(filter(r, sessions.Wedged)); w != 1 {
			t.Errorf("it was told %d times; want w = 1", w)
		}
	})
}

func filter(r *rig, kind sessions.Type) (list []sessions.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Type == kind {
			list = append(list, e)
		}
	}
	return list
}

func TestWhatAPresetRefusesIsNotWrittenEither(t *testing.T) {
	dir := t.TempDir()
	done := make(chan struct{})
	start(t, programs.OpenCode, func(c *child) process.Exit {
		defer close(done)
		greet(t, c)
		c.say(`{"jsonrpc":"2.0","id":7,"method":"fs/write_text_file","params":{"sessionId":"s1","path":%q,"content":"x"}}`, dir+"/new.txt")
		c.receive(t, `"id":7`, "error", "does not allow writing files")
		return process.Exit{}
	}, func(s *structured.Spec) {
		s.Dir = dir
		s.Judge = func(_ context.Context, a structured.Ask) permit.Decision {
			return permit.Judge(permit.Request{Framework: programs.OpenCode, Preset: programs.Readonly, Tool: a.Tool, Input: a.Input, Workdir: dir})
		}
	})
	<-done
	if list, _ := os.ReadDir(dir); len(list) != 0 {
		t.Errorf("there are %v; want len(list) = 0", list)
	}
}
