package server_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestAProgramIsChosen requires that an unnamed program is chosen and set up by the
// configuration, that settings made at run time override it, and that results are counted,
// all across a restart.
func TestAProgramIsChosen(t *testing.T) {
	t.Parallel()
	_, env := agentHome(t)
	foreign := filepath.Join(t.TempDir(), "agent.json")
	write := func(doc string) {
		t.Helper()
		if err := os.WriteFile(foreign, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"env":{"PARALLAX_DEFAULT_APPROVAL_PRESET":"standard","CUSTOM_CREDENTIAL_KEYS":"MY_SERVICE","MY_SERVICE":"of-the-file"},"agents":{"defaults":{"subscriptionProvider":"anthropic-subscription"}}}`)
	code := t.TempDir()
	env = append(env, "ELIZA_CONFIG_PATH="+foreign, "PARALLAX_CODING_DIRECTORY="+code,
		`PTY_SERVICE_CONFIG={"defaultCols":90,"defaultRows":30}`)
	home := t.TempDir()
	n := serve(t, home, env...)
	admin := n.token(t, "admin")
	type settings struct {
		Preset       string `json:"defaultApprovalPreset"`
		Strategy     string `json:"agentSelectionStrategy"`
		Type         string `json:"defaultAgentType"`
		Preferred    string `json:"preferredAgentType"`
		Reason       string `json:"preferredAgentReason"`
		Subscription string `json:"configuredSubscriptionProvider"`
		Frameworks   []struct {
			ID                   string
			Installed, AuthReady bool
			Recommended          bool
		}
	}
	get := func(n *node) (s settings) {
		t.Helper()
		a := n.request(t, "GET", "/api/coding-agents/settings", admin, "")
		if err := json.Unmarshal([]byte(a.body), &s); err != nil || a.status != http.StatusOK {
			t.Fatalf("%d %s; want no error, a.status = http.StatusOK", a.status, a.body)
		}
		return s
	}
	s := get(n)
	if s.Preset != "standard" || s.Strategy != "fixed" || s.Type != "" || s.Preferred != "claude" || s.Reason == "" ||
		s.Subscription != "anthropic-subscription" || len(s.Frameworks) != 7 {
		t.Errorf(`%+v; want s.Preset = "standard", s.Strategy = "fixed", s.Type = "", s.Preferred = "claude", s.Reason other `+
			`than "", s.Subscription = "anthropic-subscription", len(s.Frameworks) = 7`, s)
	}
	for _, f := range s.Frameworks {
		if is := f.ID == "claude"; f.Installed != is || f.AuthReady != is || f.Recommended != is {
			t.Errorf("%+v; want f.Installed = %v, f.AuthReady = %v, f.Recommended = %v", f, is, is, is)
		}
	}
	// The request names no program.
	spawned := n.spawnAgent(t, `{"task":"fix the bug","metadata":{"keepAliveAfterComplete":true}}`)
	if spawned.ApprovalPreset != "standard" || !strings.HasPrefix(spawned.Workdir, code+"/") || spawned.Cols != 90 || spawned.Rows != 30 ||
		spawned.AgentType != "claude" {
		t.Errorf(`%+v; want spawned.ApprovalPreset = "standard", spawned.Workdir beginning with code + "/", spawned.Cols = 90, `+
			`spawned.Rows = 30, spawned.AgentType = "claude"`, spawned)
	}
	eventually(t, "the program has the forwarded variable", func() bool { // until its exec it has the server's
		data, err := os.ReadFile("/proc/" + strconv.Itoa(spawned.Pid) + "/environ")
		return err == nil && strings.Contains(string(data), "MY_SERVICE=of-the-file")
	})
	metrics := func(n *node) (m map[string]struct{ Spawned, Completed, CompletedViaFastPath int }) {
		t.Helper()
		a := n.request(t, "GET", "/api/task-agents/metrics", admin, "")
		if err := json.Unmarshal([]byte(a.body), &m); err != nil || a.status != http.StatusOK {
			t.Fatalf("%d %s; want no error, a.status = http.StatusOK", a.status, a.body)
		}
		return m
	}
	eventually(t, "its completion is counted", func() bool {
		m := metrics(n)["claude"]
		return m.Spawned == 1 && m.Completed == 1 && m.CompletedViaFastPath == 1
	})
	n.request(t, "POST", "/api/coding-agents/"+spawned.ID+"/stop", admin, `{"force":true}`)

	// The file changes; then an operator sets it here.
	write(`{"env":{"PARALLAX_DEFAULT_APPROVAL_PRESET":"readonly","PARALLAX_DEFAULT_AGENT_TYPE":"codex"}}`)
	if s := get(n); s.Preset != "readonly" || s.Type != "codex" || s.Preferred != "claude" || s.Subscription != "" {
		t.Errorf(`%+v; want s.Preset = "readonly", s.Type = "codex", s.Preferred = "claude", s.Subscription = ""`, s)
	}
	patch := func(body string, status int) string {
		t.Helper()
		a := n.request(t, "PATCH", "/api/coding-agents/settings", admin, body)
		if a.status != status {
			t.Errorf("%s: %d %s; want a.status = %v", body, a.status, a.body, status)
		}
		return a.body
	}
	patch(`{"defaultApprovalPreset":"permissive","defaultAgentType":"shell","agentSelectionStrategy":"fixed"}`, http.StatusOK)
	if out := patch(`{"defaultApprovalPreset":"yolo"}`, http.StatusBadRequest); !strings.Contains(out, "bad_setting") {
		t.Errorf("answer = %s, want the code bad_setting", out)
	}
	patch(`{"colour":"red"}`, http.StatusBadRequest)
	if a := n.request(t, "PATCH", "/api/coding-agents/settings", n.token(t, "agent"), `{}`); a.status != http.StatusForbidden {
		t.Errorf("an agent sets it: %d; want a.status = http.StatusForbidden", a.status)
	}
	if a := n.request(t, "GET", "/api/v1/audit?event=config_changed", admin, ""); strings.Count(a.body, "defaultAgentType") != 1 ||
		strings.Contains(a.body, "yolo") {
		t.Errorf(`the record of what was set: %s; want strings.Count(a.body, "defaultAgentType") = 1, a.body without "yolo"`, a.body)
	}
	n.terminate(t)

	n = serve(t, home, env...)
	if s := get(n); s.Preset != "permissive" || s.Type != "shell" {
		t.Errorf(`%+v; want s.Preset = "permissive", s.Type = "shell"`, s)
	}
	if m := metrics(n)["claude"]; m.Completed != 1 {
		t.Errorf("%+v; want m.Completed = 1", m)
	}
	if sh := n.spawnAgent(t, `{"agentType":"auto","task":"true"}`); sh.AgentType != "shell" || sh.ApprovalPreset != "permissive" {
		t.Errorf(`%+v; want sh.AgentType = "shell", sh.ApprovalPreset = "permissive"`, sh)
	}
	n.terminate(t)
}

// TestNothingIsInstalled: a task for whatever there is states what to do.
func TestNothingIsInstalled(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir(), "PATH="+t.TempDir(), "HOME="+t.TempDir())
	a := n.request(t, "POST", "/api/coding-agents/spawn", n.token(t, "admin"), `{"task":"x"}`)
	if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "agent_not_installed") ||
		!strings.Contains(a.body, "preflight") {
		t.Errorf(`%d %s; want a.status = http.StatusServiceUnavailable, a.body with "agent_not_installed", a.body with "preflight"`,
			a.status, a.body)
	}
	n.terminate(t)
}

// TestAnIdleSessionIsStopped: idleTimeoutMs of PTY_SERVICE_CONFIG.
func TestAnIdleSessionIsStopped(t *testing.T) {
	t.Parallel()
	_, env := agentHome(t)
	n := serve(t, t.TempDir(), append(env, `PTY_SERVICE_CONFIG={"idleTimeoutMs":700}`)...)
	s := n.spawnAgent(t, `{"agentType":"claude","task":"one","metadata":{"keepAliveAfterComplete":true}}`)
	eventually(t, "it is stopped", func() bool { return n.shown(t, s.ID).Status == "stopped" })
	n.terminate(t)
}
