package noderun

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host/device"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

func opened(t *testing.T) (*Process, string) {
	t.Helper()
	home, err := os.MkdirTemp("", "nr") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	p, err := Open(t.Context(), Config{Home: home, Device: device.Config{
		Gateway: "http://127.0.0.1:1", Token: secret.New("jct_n_secret"),
		ID: "a",
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p, home
}

func TestTheOwnerSeesAndEndsANodeThatHasNotJoinedYet(t *testing.T) {
	t.Parallel()
	p, home := opened(t)
	done := make(chan error, 1)
	go func() { done <- p.Run(t.Context()) }()
	var raw json.RawMessage
	var err error
	for raw == nil { // until the socket is there
		if raw, err = Ask(t.Context(), home, http.MethodGet, "/status", nil); err != nil && capability.AsError(err).Reason != "node_not_running" {
			t.Fatalf(`%v; want not (err != nil && capability.AsError(err).Reason != "node_not_running")`, err)
		}
	}
	var r Report
	if err := json.Unmarshal(raw, &r); err != nil || r.ID != "a" || r.PID != os.Getpid() || r.State != "connecting" || r.Audit != "ok" ||
		r.Host == nil {
		t.Errorf(`%s %v; want no error, r.ID = "a", r.PID = os.Getpid(), r.State = "connecting", r.Audit = "ok", r.Host not nil`,
			raw, err)
	}
	if strings.Contains(string(raw), "jct_n_secret") {
		t.Error("the token is shown")
	}
	if info, err := os.Stat(Socket(home)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("os.Stat(Socket(home)): err = %v, want nil; info = %+v, want info.Mode().Perm() = 0o600", err, info)
	}
	if _, err := Open(t.Context(), Config{Home: home, Device: device.Config{Gateway: "http://127.0.0.1:1"}}); capability.AsError(
		err).Reason != "node_running" {
		t.Errorf(`%v; want capability.AsError( err).Reason = "node_running"`, err)
	}
	for path, code := range map[string]capability.Code{"/consent/cnf_x": capability.CodeNotFound, "/drain": capability.CodeUnavailable} {
		if _, err := Ask(t.Context(), home, http.MethodPost, path, map[string]string{"decision": "grant"}); capability.CodeOf(err) != code {
			t.Errorf("%s: %v; want capability.CodeOf(err) = %v", path, err, code)
		}
	}
	if _, err := Ask(t.Context(), home, http.MethodPost, "/leave", nil); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(Socket(home)); err == nil {
		t.Error("the socket is left behind; want an error")
	}
}

func TestTheJournalHoldsWhatMatters(t *testing.T) {
	t.Parallel()
	p, home := opened(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	j := p.journal
	j.skill(ctx, device.SkillEvent{
		Name: "skill_installed", Skill: "photos", Digest: "abc", Caller: "agent:a",
		Modules: map[string]string{"m": "d1"},
	})
	for _, r := range []device.Record{
		{CallID: "c1", Function: "look", Effect: cmp.EffectRead},
		{CallID: "c2", Function: "open.door", Effect: cmp.EffectExecute, Caller: wire.Caller{ID: "agent:a"}},
		{CallID: "c3", Function: "open.door", Effect: cmp.EffectExecute, Outcome: cmp.ReasonConsentDenied},
		{CallID: "c4", Function: "open.door", Effect: cmp.EffectWrite, Outcome: cmp.ReasonTimeout},
	} {
		j.called(ctx, r)
	}
	j.changed(device.Status{State: device.Connected, Joins: 1, Epoch: 7})
	if err := j.follow(ctx); err != nil {
		t.Error(err)
	}
	j.close()
	p.device.Close()
	p.code.Close()
	data, err := os.ReadFile(filepath.Join(Dir(home), "audit", "audit-00000001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, want := range []string{
		`"event": "skill_installed"`, `"event": "capability_executed"`, `"event": "permission_denied"`,
		`"event": "capability_timeout"`, `"event": "node_joined"`, "open.door", "m=d1", `"gateway": "a"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in %s; want text with %v", want, text, want)
		}
	}
	if strings.Contains(text, "look") {
		t.Error("a read is recorded")
	}
}
