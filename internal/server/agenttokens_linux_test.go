package server_test

import (
	"bytes"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// ofEnv is a variable of the program of a session whose task was to tell it: "variable NAME".
func (n *node) ofEnv(t *testing.T, s shownAgent, name string) string {
	t.Helper()
	var value []byte
	eventually(t, name+" is told", func() (ok bool) {
		var err error
		value, err = os.ReadFile(filepath.Join(s.Workdir, name))
		return err == nil && len(value) > 0
	})
	return string(value)
}

// TestTheTokenOfATaskAgent: a program's token is good for its own hooks, its own bridge and
// /mcp, over every door that there is.
func TestTheTokenOfATaskAgent(t *testing.T) {
	t.Parallel()
	_, env := scriptedHome(t)
	n := serve(t, t.TempDir(), append(env, "JUNCTOR_AGENTS_RECORD=true", "SERVER_SECRET=not-for-agents")...)
	const body = `{"agentType":"claude","task":"variable ELIZA_HOOK_TOKEN\nvariable SERVER_SECRET","metadata":{"keepAliveAfterComplete":true}}`
	one, two := n.spawnAgent(t, body), n.spawnAgent(t, body)
	token := n.ofEnv(t, one, "ELIZA_HOOK_TOKEN")
	n.ofEnv(t, two, "ELIZA_HOOK_TOKEN")
	secret := filepath.Join(one.Workdir, "SERVER_SECRET")
	eventually(t, "the program has written the second variable", func() bool { return exists(secret) })
	if data, err := os.ReadFile(secret); err != nil || len(data) > 0 {
		t.Errorf("SERVER_SECRET in the program = %q, %v; want it to be unset", data, err)
	}
	for _, route := range strings.Fields(`
		GET:/api/v1/status GET:/api/v1/catalog/agent POST:/api/v1/catalog/agent GET:/api/v1/catalog/explain
		POST:/api/v1/catalog/select GET:/api/v1/catalog/agent/changes
		GET:/api/v1/catalog/operator GET:/api/v1/modules POST:/api/v1/invocations GET:/api/v1/invocations
		DELETE:/api/v1/invocations/run_1 GET:/api/v1/invocations/run_1/artifacts
		GET:/api/v1/tokens POST:/api/v1/tokens GET:/api/v1/secrets PUT:/api/v1/secrets/x GET:/api/v1/grants POST:/api/v1/grants
		GET:/api/v1/confirmations POST:/api/v1/confirmations/x
		GET:/api/v1/audit GET:/api/v1/audit/tail GET:/api/v1/events POST:/api/v1/events/publish GET:/api/v1/doctor
		GET:/api/v1/providers GET:/api/v1/actions
		GET:/api/v1/extensions GET:/api/v1/extensions/x POST:/api/v1/extensions/install POST:/api/v1/extensions/execute
		GET:/api/v1/sandbox GET:/api/v1/upstreams POST:/api/v1/upstreams
		GET:/api/v1/nodes POST:/api/v1/nodes/x/calls GET:/api/v1/calls GET:/api/v1/tasks GET:/api/v1/tasks/tsk_1
		POST:/api/v1/tasks/tsk_1/cancel POST:/api/v1/tasks/tsk_1/answer
		GET:/api/v1/chat/sessions POST:/api/v1/chat/messages GET:/api/v1/chat/slash-commands POST:/api/v1/chat/refresh-commands
		GET:/api/v1/nowhere
		POST:/api/cmp/mcp POST:/api/cmp/a2a POST:/v1/capabilities GET:/v1/capabilities POST:/v1/x POST:/a2a GET:/api/capability-router/endpoints
		POST:/api/capability-router/connect GET:/api/capability-router/saved GET:/nodes/connect
		GET:/api/workspace POST:/api/workspace/provision GET:/api/workspace/x GET:/api/workspace/x/diff
		POST:/api/workspace/x/commit POST:/api/workspace/x/push POST:/api/workspace/x/pr
		POST:/api/workspace/x/finalize DELETE:/api/workspace/x GET:/api/issues POST:/api/issues GET:/api/issues/o/n/1
		POST:/api/issues/o/n/1/comment POST:/api/issues/o/n/1/close`) {
		n.refuses(t, route, token)
	}
	for _, route := range strings.Fields(`GET: GET:/preflight GET:/metrics GET:/settings PATCH:/settings GET:/approval-presets
	GET:/approval-config GET:/workspace-files GET:/scratch GET:/console
		POST:/spawn POST:/auth/claude POST:/auth/github
		GET:/ID POST:/ID/send POST:/ID/choose POST:/ID/stop GET:/ID/output GET:/ID/buffered-output GET:/ID/explain GET:/ID/screen
		GET:/ID/recording
		POST:/ID/scratch/keep POST:/ID/scratch/delete POST:/ID/scratch/promote
		GET:/coordinator/events GET:/coordinator/status GET:/coordinator/threads POST:/coordinator/threads
		GET:/coordinator/threads/count GET:/coordinator/threads/thr_1
		GET:/coordinator/threads/thr_1/share POST:/coordinator/threads/thr_1/control POST:/coordinator/threads/thr_1/archive
		POST:/coordinator/threads/thr_1/reopen
		GET:/coordinator/tasks/ID GET:/coordinator/pending GET:/coordinator/supervision POST:/coordinator/supervision
		POST:/coordinator/confirm/ID`) {
		method, path, _ := strings.Cut(route, ":")
		for _, base := range []string{"/api/coding-agents", "/api/task-agents"} {
			n.refuses(t, method+":"+base+strings.ReplaceAll(path, "ID", one.ID), token) // its own, too
		}
	}
	own, hook := "/api/coding-agents/"+one.ID, `{"hook_event_name":"PostToolUse","tool_name":"Read"}`
	as := func(name string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("X-Parallax-Session-Id", name) }
	}
	for name, c := range map[string]struct {
		answer answer
		status int
		says   string
	}{
		"its hooks":          {n.request(t, "POST", "/api/coding-agents/hooks", token, hook), 200, "{}"},
		"its hooks, by name": {n.request(t, "POST", "/api/coding-agents/hooks", token, hook, as(one.ID)), 200, "{}"},
		"another's hooks":    {n.request(t, "POST", "/api/coding-agents/hooks", token, hook, as(two.ID)), 401, "other_session"},
		"another's hooks, in the body": {n.request(t, "POST", "/api/coding-agents/hooks", token,
			`{"event":"Stop","sessionId":"`+two.ID+`"}`), 200, "session_not_found"},
		"hooks with it in the query": {n.request(t, "POST", "/api/coding-agents/hooks?token="+token, "", hook), 401, ""},
		"its bridge":                 {n.request(t, "GET", own+"/parent-context", token, ""), 200, one.ID},
		"its bridge, by the query":   {n.request(t, "GET", own+"/active-workspaces?token="+token, "", ""), 200, "count"},
		"another's bridge": {
			n.request(t, "GET", "/api/coding-agents/"+two.ID+"/parent-context", token, ""), 403,
			"other_session",
		},
		"another's bridge, by query": {
			n.request(t, "GET", "/api/coding-agents/"+two.ID+"/memory?q=a&token="+token, "", ""), 403,
			"other_session",
		},
		"another place with it in a query": {n.request(t, "GET", own+"/output?token="+token, "", ""), 401, ""},
		"/mcp with it in the query":        {n.request(t, "POST", "/mcp?token="+token, "", `{}`), 401, ""},
		"a page of another site": {n.request(t, "POST", "/api/coding-agents/hooks", token, hook,
			func(r *http.Request) { r.Header.Set("Origin", "https://example.com") }), 403, "origin_not_allowed"},
		"a name that was bound again": {n.request(t, "GET", own+"/parent-context", token, "",
			func(r *http.Request) { r.Host = "attacker.example" }), 403, "host_not_allowed"},
		"the same, of an operator": {n.request(t, "GET", "/api/coding-agents", n.token(t, "admin"), "",
			func(r *http.Request) { r.Host = "attacker.example:7777" }), 403, "host_not_allowed"},
	} {
		if c.answer.status != c.status || !strings.Contains(c.answer.body, c.says) {
			t.Errorf("%s: %d %s; want c.answer.status = %v, c.answer.body with %v",
				name, c.answer.status, c.answer.body, c.status, c.says)
		}
	}
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
	`
	if a := n.request(t, "POST", "/mcp", token, hello, func(r *http.Request) {
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Content-Type", "application/json")
	}); a.status != 200 || !strings.Contains(a.body, "serverInfo") {
		t.Errorf(`/mcp: %d %s; want a.status = 200, a.body with "serverInfo"`, a.status, a.body)
	}
	conn, res, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(n.url, "http")+"/api/coding-agents/console",
		&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
	if err == nil {
		_ = conn.CloseNow()
		t.Error("a program has the console; want an error")
	} else if res == nil || res.StatusCode != http.StatusForbidden {
		t.Errorf("response = %v, error %v, want status 403", res, err)
	}
	n.ask(t, "POST", own+"/stop", `{"force":true}`, 200, nil)
	eventually(t, "its token ends with it", func() bool {
		return n.request(t, "POST", "/api/coding-agents/hooks", token, hook).status == 401 &&
			n.request(t, "GET", own+"/parent-context", token, "").status == 410
	})
	n.terminate(t)
	if bytes.Contains(n.stderr.Bytes(), []byte(token)) {
		t.Error("the token is in the server's log")
	}
	n.nowhere(t, token, one.Workdir)
}

// refuses sees that a route, "METHOD:path", does not take a session's token.
func (n *node) refuses(t *testing.T, route, token string) {
	t.Helper()
	method, path, _ := strings.Cut(route, ":")
	if a := n.request(t, method, path, token, "{}"); a.status != http.StatusForbidden && a.status != http.StatusUnauthorized {
		t.Errorf("%s: %d %s; want not (a.status != http.StatusForbidden && a.status != http.StatusUnauthorized)",
			route, a.status, a.body)
	}
}

// nowhere sees that no file of the home holds a text, but those of one folder, and that
// no other user may read the files of agents.
func (n *node) nowhere(t *testing.T, text, but string) {
	t.Helper()
	err := filepath.WalkDir(n.home, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == but {
			return fs.SkipDir
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if strings.HasPrefix(path, filepath.Join(n.home, "agents")) && info.Mode().Perm()&0o077 != 0 && info.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%s is open to others: %s", path, info.Mode())
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			t.Errorf("%s holds it; want data without []byte(text)", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
