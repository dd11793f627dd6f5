package interop

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/platform/process"
)

// operator sends a request to the HTTP API with the token of the home's administrator.
func (r *recovering) operator(t *testing.T, method, path, body string) (status int, answer string) {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(r.home, "run", "admin.token"))
	ok(t, err)
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.address+"/api/coding-agents"+path, strings.NewReader(body))
	ok(t, err)
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	res, err := http.DefaultClient.Do(req)
	ok(t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	ok(t, err)
	return res.StatusCode, string(data)
}

// TestAShellAsATaskAgent: a real shell, told what to do, calls the commands that are
// meant for what the server starts.
func TestAShellAsATaskAgent(t *testing.T) {
	r := newRecovering(t)
	spawn := func(name string) string {
		status, answer := r.operator(t, "POST", "/spawn", `{"agentType":"shell","name":"`+name+
			`","task":"echo here I am","metadata":{"threadId":"one"}}`)
		var made struct{ SessionID string }
		if err := json.Unmarshal([]byte(answer), &made); err != nil || status != http.StatusCreated {
			t.Fatalf("%d %s; want no error, status = http.StatusCreated", status, answer)
		}
		until(t, "the first task is done", func() bool {
			_, shown := r.operator(t, "GET", "/"+made.SessionID, "")
			return strings.Contains(shown, `"phase":"done"`)
		})
		return made.SessionID
	}
	one, two := spawn("first"), spawn("second")
	said := 0
	say := func(id, text string) (out string) {
		t.Helper()
		said++
		end := "end" + strconv.Itoa(said)
		in, err := json.Marshal(map[string]string{"input": text + "; echo " + end[:3] + "''" + end[3:]})
		ok(t, err)
		if status, answer := r.operator(t, "POST", "/"+id+"/send", string(in)); status != http.StatusOK {
			t.Fatalf("%d %s; want status = http.StatusOK", status, answer)
		}
		until(t, text, func() bool {
			_, out = r.operator(t, "GET", "/"+id+"/output?lines=40", "")
			return strings.Contains(out, end)
		})
		return out[strings.LastIndex(out[:strings.LastIndex(out, end)], "pty> "):] // from its own prompt on
	}
	if out := say(one, r.binary+" child context"); !strings.Contains(out, "session="+one) || !strings.Contains(out, "label=first") ||
		!strings.Contains(out, "variant=swarm") {
		t.Errorf("output = %q, want the session, label first and variant swarm", out)
	}
	if out := say(one, r.binary+" child decision we use tabs"); !strings.Contains(out, "DECISION: we use tabs") {
		t.Errorf(`say = %q, want it to contain "DECISION: we use tabs"`, out)
	}
	if out := say(two, r.binary+" child parent context"); !strings.Contains(out, "we use tabs") {
		t.Errorf(`say(two, r.binary+" child parent context") = %q, want it to contain "we use tabs"`, out)
	}
	if out := say(two, r.binary+" child parent memory x || echo status $?"); !strings.Contains(out, "belongs to no conversation") ||
		!strings.Contains(out, "status 5") {
		t.Errorf(`say = %q, want it to contain "belongs to no conversation" and it to contain "status 5"`, out)
	}
	// Another's is not told, whatever the helper says it is.
	if out := say(two, "PARALLAX_SESSION_ID="+one+" "+r.binary+" child parent context || echo status $?"); strings.Contains(out,
		"here I am") || !strings.Contains(out, "of another session") {
		t.Errorf(`say = %q, want it not to contain "here I am" and it to contain "of another session"`, out)
	}
	if out := say(two, "echo '{}' | "+r.binary+" child hook gemini"); !strings.Contains(out, `continue`) {
		t.Errorf(`say = %q, want it to contain "continue"`, out)
	}
	if status, _ := r.operator(t, "POST", "/"+one+"/stop", "{}"); status != http.StatusOK {
		t.Errorf(`r.operator(t, "POST", "/"+one+"/stop", "{}"): status = %v, want http.StatusOK`, status)
	}
	until(t, "it is over", func() bool {
		_, shown := r.operator(t, "GET", "/"+one, "")
		return strings.Contains(shown, `"status":"stopped"`)
	})
	if status, answer := r.operator(t, "GET", "/"+one+"/parent-context", ""); status == http.StatusOK {
		t.Errorf("%d %s; want status other than http.StatusOK", status, answer)
	}
}

// TestAttach looks at a session through the program, in a terminal of its own, types
// there, and leaves it running.
func TestAttach(t *testing.T) {
	r := newRecovering(t)
	_, answer := r.operator(t, "POST", "/spawn", `{"agentType":"shell","task":"echo before"}`)
	var made struct{ SessionID string }
	ok(t, json.Unmarshal([]byte(answer), &made))
	id := made.SessionID
	until(t, "the first task is done", func() bool {
		_, shown := r.operator(t, "GET", "/"+id, "")
		return strings.Contains(shown, `"phase":"done"`)
	})
	attach := func(args ...string) (*process.Process, *bufio.Reader) {
		t.Helper()
		p, err := process.Start(process.Spec{
			Argv: append([]string{r.binary, "--home", r.home, "tasks", "attach", id}, args...), Env: append(environment(), "TERM=xterm-256color"),
			Dir: t.TempDir(), Cols: 90, Rows: 25,
		})
		ok(t, err)
		t.Cleanup(func() {
			p.Kill()
			<-p.Done()
			_ = p.Close()
		})
		return p, bufio.NewReader(p)
	}
	read := func(out *bufio.Reader, word string) string {
		t.Helper()
		var seen strings.Builder
		for !strings.Contains(seen.String(), word) {
			c, err := out.ReadByte()
			if err != nil {
				t.Fatalf("no %q in %q", word, seen.String())
			}
			seen.WriteByte(c)
		}
		return seen.String()
	}
	p, out := attach()
	read(out, "before") // the snapshot
	watcher, watched := attach("--watch")
	read(watched, "before")
	until(t, "it has the size of this terminal", func() bool {
		_, shown := r.operator(t, "GET", "/"+id, "")
		return strings.Contains(shown, `"cols":90,"rows":25`) && strings.Contains(shown, `"control":true`)
	})
	_, err := p.Write([]byte("echo by''hand\r"))
	ok(t, err)
	read(out, "\abyhand")
	read(watched, "\abyhand")
	ok(t, p.Resize(100, 30))
	until(t, "it follows", func() bool {
		_, shown := r.operator(t, "GET", "/"+id, "")
		return strings.Contains(shown, `"cols":100,"rows":30`)
	})
	_, err = p.Write([]byte{0x1d})
	ok(t, err)
	if e := p.Exit(); e.Code != 0 {
		t.Errorf("%+v; want e.Code = 0", e)
	}
	until(t, "nobody is in control", func() bool {
		_, shown := r.operator(t, "GET", "/"+id, "")
		return !strings.Contains(shown, `"control":true`)
	})
	if status, answer := r.operator(t, "POST", "/"+id+"/send", `{"input":"echo after''wards"}`); status != http.StatusOK {
		t.Errorf("%d %s; want status = http.StatusOK", status, answer)
	}
	read(watched, "\aafterwards")
	_, _ = r.operator(t, "POST", "/"+id+"/stop", "{}")
	read(watched, "the session is over")
	if e := watcher.Exit(); e.Code != 0 {
		t.Errorf("%+v; want e.Code = 0", e)
	}
	if out, err := exec.Command(r.binary, "--home", r.home, "tasks", "attach", "pty-1-a").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "no session") {
		t.Errorf(`%s %v; want an error, string(out) with "no session"`, out, err)
	}
}
