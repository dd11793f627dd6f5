package structured_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/platform/process"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/structured"
)

const password = "a-password-of-this-test"

// server is a program that serves HTTP. events writes what follows the first event; other requests go
// to answer, if it is not nil, before the usual answers.
func server(t *testing.T, events func(w io.Writer, c *child), answer func(w http.ResponseWriter, r *http.Request) bool) part {
	return func(c *child) process.Exit {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, pass, _ := r.BasicAuth(); user != "opencode" || pass != password {
				t.Errorf("%s came with the user %q and the password %q, want opencode and the one of the session", r.URL.Path, user, pass)
			}
			switch {
			case r.URL.Path == "/event":
				fmt.Fprint(w, "data: {\"type\":\"server.connected\",\"properties\":{}}\n\n")
				w.(http.Flusher).Flush()
				events(w, c)
			case answer != nil && answer(w, r):
			case r.URL.Path == "/question":
				fmt.Fprint(w, "[]")
			case r.URL.Path == "/session":
				fmt.Fprint(w, `{"id":"ses_1"}`)
			default:
				w.WriteHeader(http.StatusNoContent)
			}
		}))
		defer srv.Close()
		c.say("some other line")
		c.say("opencode server listening on %s", srv.URL)
		exit := c.wait()
		srv.CloseClientConnections()
		return exit
	}
}

// held lasts as long as the program.
func held(_ io.Writer, c *child) {
	select {
	case <-c.asked:
	case <-c.killed:
	}
}

func servedSpec(s *structured.Spec) {
	s.Protocol, s.Env = programs.Serve, []string{"OPENCODE_SERVER_PASSWORD=" + password}
}

func TestAServerHasAConversation(t *testing.T) {
	prompted, answered := make(chan string, 1), make(chan string, 1)
	r := start(t, programs.OpenCode, server(t, func(w io.Writer, c *child) {
		tell := func(kind, properties string) {
			fmt.Fprintf(w, "data: {\"type\":%q,\"properties\":{\"sessionID\":\"ses_1\",%s}}\n\n", kind, properties)
			w.(http.Flusher).Flush()
		}
		select {
		case <-prompted:
		case <-c.killed:
			return
		}
		tell("session.status", `"status":{"type":"busy"}`)
		// What a model writes may look like a heartbeat, and is asked all the same.
		tell("question.asked", `"id":"que_1","tool":{"type":"server.heartbeat"},"questions":[{"question":"Which?","options":[{"label":"Red"},{"label":"Blue"}]}]`)
		select {
		case <-answered:
		case <-c.killed:
			return
		}
		tell("question.replied", `"requestID":"que_1","answers":[["Blue"]]`)
		tell("message.updated", `"info":{"id":"m1","role":"assistant"}`)
		tell("message.part.updated", `"part":{"id":"p1","messageID":"m1","type":"text","text":"It is blue."}`)
		tell("message.part.updated", `"part":{"id":"p2","type":"step-finish","tokens":{"input":5,"output":2,"cache":{"read":3}}}`)
		tell("session.status", `"status":{"type":"idle"}`)
		held(w, c)
	}, func(_ http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body) // compared below
		switch r.URL.Path {
		case "/session/ses_1/prompt_async":
			if got, want := string(body), `{"parts":[{"text":"paint it","type":"text"}]}`; got != want {
				t.Errorf("the prompt is %s, want %s", got, want)
			}
			prompted <- ""
		case "/question/que_1/reply":
			if got, want := string(body), `{"answers":[["Blue"]]}`; got != want {
				t.Errorf("the answer is %s, want %s", got, want)
			}
			answered <- ""
		default:
			return false
		}
		return true
	}), servedSpec, func(s *structured.Spec) { s.Task = "paint it" })
	b := r.until(sessions.BlockedNow, 1).To.Blocker
	if err := r.Answer(context.Background(), detect.Reply{Text: "2"}); err != nil {
		t.Fatalf("answering %+v: %v", b, err)
	}
	if e := r.until(sessions.TaskComplete, 1); e.Text != "It is blue." {
		t.Errorf("the turn ended with %q, want It is blue.", e.Text)
	}
	i := r.Info()
	if i.ResumeToken != "ses_1" || i.Usage == nil || i.Usage.In != 8 || i.Usage.Out != 2 {
		t.Errorf("the session is %+v with the usage %+v, want the token ses_1, 8 tokens in and 2 out", i, i.Usage)
	}
	r.Stop(false)
	<-r.Done()
	if i := r.Info(); i.Status != detect.Stopped {
		t.Errorf("after its end it is %s: %s, want it stopped", i.Status, i.Error)
	}
	r.invariants()
}

// Whatever a server does, its session ends with the reason.
func TestAServerThatMisbehavesIsEnded(t *testing.T) {
	on := func(path string, f func(w http.ResponseWriter)) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != path {
				return false
			}
			f(w)
			return true
		}
	}
	outside := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s was requested from another server", r.URL.Path)
	}))
	defer outside.Close()
	for name, c := range map[string]struct {
		program part
		want    string
	}{
		"it prints no address": {func(c *child) process.Exit {
			for range 60 {
				c.say("opencode server listening on http://10.0.0.1:80")
			}
			return c.wait()
		}, "did not print the address"},
		"it ends at once": {func(c *child) process.Exit {
			fmt.Fprintln(c.stderr, "the port is in use")
			return process.Exit{Code: 1}
		}, "the port is in use"},
		"its events are not JSON": {server(t, func(w io.Writer, c *child) {
			fmt.Fprint(w, "data: {]\n\n")
			w.(http.Flusher).Flush()
			held(w, c)
		}, nil), "not JSON"},
		"its event is too large": {server(t, func(w io.Writer, c *child) {
			_, _ = io.Copy(w, io.LimitReader(endless{}, 9<<20))
			fmt.Fprint(w, "\n\n")
			w.(http.Flusher).Flush()
			held(w, c)
		}, nil), "more than"},
		"its events end": {server(t, func(io.Writer, *child) {}, nil), "events of the program's server ended"},
		"its answer is too large": {server(t, held, on("/question", func(w http.ResponseWriter) {
			_, _ = io.Copy(w, io.LimitReader(endless{}, 2<<20))
		})), "did not answer GET /question"},
		"it hangs up": {
			server(t, held, on("/session", func(http.ResponseWriter) { panic(http.ErrAbortHandler) })), "did not answer POST /session",
		},
		"it answers with a page": {server(t, held, on("/question", func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") })), "no questions"},
		"it sends elsewhere": {server(t, held, on("/question", func(w http.ResponseWriter) {
			w.Header().Set("Location", outside.URL)
			w.WriteHeader(http.StatusTemporaryRedirect)
		})), "no questions"},
		"its conversation has no usable id": {
			server(t, held, on("/session", func(w http.ResponseWriter) { fmt.Fprint(w, `{"id":"../x"}`) })), "no usable id",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, programs.OpenCode, c.program, servedSpec)
			<-r.Done()
			i := r.Info()
			if i.Status != detect.Error || !strings.Contains(i.Error, c.want) || strings.Contains(i.Error, password) {
				t.Errorf("it is %s: %q, want an error with %q and without the password", i.Status, i.Error, c.want)
			}
			r.invariants()
		})
	}
}
