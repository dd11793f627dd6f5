package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/junctor-run/junctor/internal/testkit/fakecli"
)

// misbehave is what else a scripted program does:
//
//	burst BYTES        prints so much at once
//	ignores            does not listen to SIGTERM and SIGHUP
//	forks N            so many processes in sessions of their own, whose numbers are in a file
func misbehave(s *fakecli.Screen, verb, rest string) (answer string) {
	switch verb {
	case "burst":
		size, _ := strconv.Atoi(rest)
		const line = "\x1b[1mthe\x1b[0m answer goes on, and on, with ✳ signs\r\n"
		for printed := 0; printed < size; printed += 1000 * len(line) {
			s.Print(strings.Repeat(line, 1000))
		}
	case "ignores":
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	case "forks":
		n, _ := strconv.Atoi(rest)
		for range n {
			cmd := exec.Command("sleep", "3600")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := cmd.Start(); err != nil {
				return err.Error()
			}
			file, err := os.OpenFile("children", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return err.Error()
			}
			fmt.Fprintln(file, cmd.Process.Pid)
			_ = file.Close()
		}
	}
	return ""
}

// TestProgramsThatMisbehave covers the whole stack: a burst of 10 MB, a program that ignores
// signals, and children that it started in sessions of their own.
func TestProgramsThatMisbehave(t *testing.T) {
	t.Parallel()
	_, env := scriptedHome(t)
	n := serve(t, t.TempDir(), append(env, "JUNCTOR_AGENTS_RECORD=true")...)
	admin := n.token(t, "admin")
	s := n.spawnAgent(t, `{"agentType":"claude","task":"ignores\nforks 20\nburst 10485760\nsay that was all","metadata":{"keepAliveAfterComplete":true}}`)
	at := "/api/coding-agents/" + s.ID
	eventuallyWithin(t, 60*time.Second, "the turn ends after the burst", func() bool { return n.shown(t, s.ID).Phase == "done" })
	eventually(t, "its last line is seen", func() bool { // what it told by its hooks is known before what it printed
		a := n.request(t, "GET", at+"/output?lines=10000", admin, "")
		return strings.Contains(a.body, "that was all") && len(a.body) < 1<<20
	})
	if a := n.request(t, "GET", at+"/buffered-output", admin, ""); len(a.body) > 1<<20 {
		t.Errorf("%d bytes are kept; want len(a.body) at most 1 << 20", len(a.body))
	}
	if info, err := os.Stat(filepath.Join(n.home, "agents", "recordings", s.ID+".cast")); err != nil || info.Size() > 17<<20 ||
		info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v; want no error, info.Size() at most 17 << 20, info.Mode().Perm() = 0o600", info, err)
	}
	children := pids(t, filepath.Join(s.Workdir, "children"))
	if len(children) != 20 || !alive(children[0]) {
		t.Fatalf("children: %v; want len(children) = 20, alive(children[0])", children)
	}
	n.ask(t, "POST", at+"/stop", "", http.StatusOK, nil)
	eventually(t, "it is killed though it does not listen", func() bool {
		return n.shown(t, s.ID).Status == "stopped" ||
			n.shown(t, s.ID).Status == "error"
	})
	eventually(t, "what it started has ended too", func() bool {
		for _, pid := range append(children, s.Pid) {
			if alive(pid) {
				return false
			}
		}
		return true
	})
	n.terminate(t)
}

func pids(t *testing.T, path string) (list []int) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, pid)
	}
	return list
}

func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(data), ") Z ")
}

// TestBodiesOfTheTaskAgentsDoors: what is too large, too deep, of another type or no JSON is
// refused by every route that takes a body, and ends no server.
func TestBodiesOfTheTaskAgentsDoors(t *testing.T) {
	t.Parallel()
	_, env := scriptedHome(t)
	n := serve(t, t.TempDir(), env...)
	s := n.spawnAgent(t, `{"agentType":"claude","task":"variable ELIZA_HOOK_TOKEN","metadata":{"keepAliveAfterComplete":true}}`)
	token := n.ofEnv(t, s, "ELIZA_HOOK_TOKEN")
	var made createdThread
	n.ask(t, "POST", threadsAt+"/threads", `{"task":"linger","agentType":"claude","approvalPreset":"autonomous"}`, http.StatusCreated, &made)
	bodies := map[string]string{
		"huge":        `{"x":"` + strings.Repeat("x", 1<<20) + `"}`,
		"deep":        strings.Repeat(`{"metadata":`, 20_000) + "1" + strings.Repeat("}", 20_000),
		"deep list":   strings.Repeat("[", 100_000),
		"twice":       `{"input":"a","input":"b","task":"a","task":"b","level":"notify","level":"notify","message":"a","message":"b","event":"Stop","event":"x"}`,
		"no JSON":     `{"input":`,
		"a list":      `[]`,
		"a number":    `7`,
		"a lone half": `{"input":"\ud800"}`,
		"no UTF-8":    "{\"input\":\"\xff\xfe\"}",
		"other types": `{"input":{},"task":[1],"keys":7,"label":{},"force":"yes","level":[],"action":{},"approved":"x","agents":"all","repo":[],"message":9,"hook_event_name":[],"title":{},"body":[],"name":9,"defaultApprovalPreset":{},"code":[]}`,
	}
	agents, thread := "/api/coding-agents/"+s.ID, threadsAt+"/threads/"+made.ThreadID
	for _, route := range []string{
		"POST /api/coding-agents/hooks", "POST /api/coding-agents/spawn", "PATCH /api/coding-agents/settings",
		"POST /api/coding-agents/auth/claude", "POST " + agents + "/send", "POST " + agents + "/choose", "POST " + agents + "/stop",
		"POST " + agents + "/scratch/promote", "POST " + threadsAt + "/threads", "POST " + thread + "/control",
		"POST " + threadsAt + "/confirm/" + s.ID, "POST " + threadsAt + "/supervision",
		"POST /api/workspace/provision", "POST /api/workspace/x/commit", "POST /api/workspace/x/push", "POST /api/workspace/x/pr",
		"POST /api/workspace/x/finalize",
		"POST /api/issues", "POST /api/issues/o/n/1/comment",
	} {
		method, path, _ := strings.Cut(route, " ")
		as := n.token(t, "admin")
		if strings.HasSuffix(path, "/hooks") {
			as = token
		}
		for name, body := range bodies {
			a := n.request(t, method, path, as, body)
			if name == "huge" && a.status != http.StatusRequestEntityTooLarge || a.status < 400 || a.status >= 500 &&
				a.status != http.StatusBadGateway || len(a.body) > 4096 {
				t.Errorf(`%s, %s: %d %.300s; want not (name == "huge" && a.status != http.StatusRequestEntityTooLarge), `+
					"a.status at least 400, not (a.status >= 500 && a.status != http.StatusBadGateway), len(a.body) at most 4096", route,
					name, a.status, a.body)
			}
		}
	}
	if got := n.shown(t, s.ID); got.Status != "ready" {
		t.Errorf(`%+v; want got.Status = "ready"`, got)
	}
	if th := n.thread(t, made.ThreadID); th.Status != "active" {
		t.Errorf(`%+v; want th.Status = "active"`, th)
	}
	n.terminate(t)
}

// TestWhoDoesNotReadIsNotWaitedFor: people who open streams and leave them, while an agent
// prints, hold up neither the agent nor the server.
func TestWhoDoesNotReadIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	_, env := scriptedHome(t)
	n := serve(t, t.TempDir(), env...)
	s := n.spawnAgent(t, `{"agentType":"claude","metadata":{"keepAliveAfterComplete":true}}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 20 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+threadsAt+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+n.token(t, "admin"))
		res, err := http.DefaultClient.Do(req)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("response = %v, error %v, want status 200", res, err)
		}
		defer res.Body.Close()
		conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(n.url, "http")+"/api/coding-agents/console",
			&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + n.token(t, "admin")}}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.CloseNow() }()
		if err := conn.Write(ctx, websocket.MessageText, []byte(`{"type":"subscribe","sessionId":"`+s.ID+`"}`)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "it can be told something", func() bool { return n.shown(t, s.ID).Status == "ready" })
	n.ask(t, "POST", "/api/coding-agents/"+s.ID+"/send", `{"input":"burst 4194304"}`, http.StatusOK, nil)
	eventuallyWithin(t, 60*time.Second, "it prints to its end", func() bool { return n.shown(t, s.ID).CompletedTurns == 1 })
	n.ask(t, "POST", "/api/coding-agents/"+s.ID+"/stop", `{"force":true}`, http.StatusOK, nil)
	n.terminate(t)
}
