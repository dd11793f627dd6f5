package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// copyingModel is a model that reads in.txt, writes what it read to out.txt, and reports, in the form
// of OpenAI's chat completions.
func copyingModel(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			Messages []struct {
				Role    string
				Content any
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Errorf("the request to the model: got %v, want JSON", err)
		}
		results := 0
		for _, m := range req.Messages {
			if m.Role == "tool" {
				results++
			}
		}
		call := func(name, input string) string {
			return fmt.Sprintf(`{"tool_calls":[{"index":0,"id":"c%d","type":"function","function":{"name":%q,"arguments":%q}}]}`, results, name, input)
		}
		delta := `{"content":"It is copied."}`
		switch results {
		case 0:
			delta = call("fs_readText", `{"path":"in.txt"}`)
		case 1:
			delta = call("fs_writeText", `{"path":"out.txt","text":"`+strings.Repeat("long ", 200)+`"}`)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":%s}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n", delta)
		io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s
}

// A person at a terminal sees the whole call before they decide, and the agent goes on at once.
func TestChatShowsACallOfTheAgentWholeBeforeThePersonDecides(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "in.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatalf("write: got %v, want no error", err)
	}
	model := copyingModel(t)
	h := &patient{home: filepath.Join(t.TempDir(), "home"), env: []string{
		"JUNCTOR_FS_ROOTS=files=" + dir, "JUNCTOR_MODEL_URL=" + model.URL + "/v1", "JUNCTOR_MODEL_NAME=tiny",
	}}
	h.serve(t)
	s := h.sit(t, 120, 60, dir, nil, "chat", "--session", "s1")
	s.until("Session s1")
	s.keys("copy it\r")
	s.until("Approve once? yes, no, or later:")
	if !strings.Contains(s.text(), "the agent of admin:local-admin") {
		t.Errorf("the approval shows\n%s\nwant for whom the agent acts", s.text())
	}
	if got := strings.Count(s.raw(), "long"); got < 200 {
		t.Errorf("the input that was shown has %d of its words, want all 200", got)
	}
	s.keys("maybe\r")
	s.keys("later\r")
	s.until("it waits: junctor approvals approve")
	s.keys("are you there?\r")
	s.until("Approve once? yes, no, or later:")
	if _, err := os.Stat(filepath.Join(dir, "out.txt")); err == nil {
		t.Errorf("out.txt before the approval: got a file, want none")
	}
	s.keys("yes\r")
	s.until("(fs.readText, fs.writeText with approval apr_")
	if !strings.Contains(s.text(), "It is copied.") {
		t.Errorf("the conversation shows\n%s\nwant the reply", s.text())
	}
	s.keys("/quit\r")
	if code := s.ends(); code != 0 {
		t.Errorf("exit status: got %d, want 0", code)
	}
	if _, err := os.Stat(filepath.Join(dir, "out.txt")); err != nil {
		t.Errorf("out.txt after the approval: got %v, want a file", err)
	}
	listed := h.run(t, "chat", "runs", "--session", "s1")
	if !strings.Contains(listed, "completed") {
		t.Errorf("chat runs: got %s, want a completed run", listed)
	}
	id := strings.Fields(strings.Split(listed, "\n")[1])[0]
	if shown := h.run(t, "chat", "show", id); !strings.Contains(shown, "fs.writeText") || !strings.Contains(shown, "apr_") {
		t.Errorf("chat show: got %s, want the call with its approval", shown)
	}
	if trail := h.run(t, "audit", "trail", id); !strings.Contains(trail, "fs.writeText") || !strings.Contains(trail, "approved by") {
		t.Errorf("audit trail of the run: got %s, want the call and who approved it", trail)
	}
}

// A reply may claim what was not done.
func TestChatSaysThatNoToolWasCalled(t *testing.T) {
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"I have sent the mail.\"}}]}\n\n"+
			"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(model.Close)
	h := &patient{home: filepath.Join(t.TempDir(), "home"), env: []string{"JUNCTOR_MODEL_URL=" + model.URL + "/v1", "JUNCTOR_MODEL_NAME=tiny"}}
	h.serve(t)
	s := h.sit(t, 120, 30, t.TempDir(), nil, "chat", "--session", "s1")
	s.until("Session s1")
	s.keys("send it\r")
	s.until("(no tool was called)")
	if !strings.Contains(s.text(), "I have sent the mail.") {
		t.Errorf("the conversation shows\n%s\nwant the reply", s.text())
	}
	s.keys("/quit\r")
	if code := s.ends(); code != 0 {
		t.Errorf("exit status: got %d, want 0", code)
	}
}

// Ctrl-C while the agent works ends its run, too.
func TestCtrlCInAChatStopsTheAgent(t *testing.T) {
	asked, leave := make(chan struct{}, 8), make(chan struct{})
	model := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(model.Close)
	t.Cleanup(func() { close(leave) })
	h := &patient{home: filepath.Join(t.TempDir(), "home"), env: []string{"JUNCTOR_MODEL_URL=" + model.URL + "/v1", "JUNCTOR_MODEL_NAME=tiny"}}
	h.serve(t)
	s := h.sit(t, 120, 30, t.TempDir(), nil, "chat", "--session", "s1")
	s.until("Session s1")
	s.keys("think\r")
	<-asked
	s.keys("\x03")
	if code := s.ends(); code != 130 {
		t.Errorf("exit status: got %d, want 130", code)
	}
	if listed := h.run(t, "chat", "runs"); !strings.Contains(listed, "cancelled") {
		t.Errorf("chat runs: got %s, want the run cancelled", listed)
	}
}

// A run is recorded, and repeats without a server; another character is named as what differs.
func TestARecordedRunIsRepeatedOffline(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "in.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatalf("write: got %v, want no error", err)
	}
	h := &patient{home: filepath.Join(t.TempDir(), "home"), env: []string{
		"JUNCTOR_FS_ROOTS=files=" + dir, "JUNCTOR_MODEL_URL=" + copyingModel(t).URL + "/v1", "JUNCTOR_MODEL_NAME=tiny",
		"JUNCTOR_AGENT_TOOLS=reads",
	}}
	h.serve(t)
	chat := h.command(t, "chat", "--session", "s1")
	chat.Stdin = strings.NewReader("copy it\n")
	if out, err := chat.CombinedOutput(); err != nil || !strings.Contains(string(out), "It is copied.") {
		t.Fatalf("chat: got %v and %s, want the reply", err, out)
	}
	id := strings.Fields(strings.Split(h.run(t, "chat", "runs"), "\n")[1])[0]
	file := filepath.Join(dir, "turn.json")
	if err := os.WriteFile(file, []byte(h.run(t, "chat", "record", id)), 0o600); err != nil {
		t.Fatalf("write: got %v, want no error", err)
	}
	if got := h.run(t, "chat", "usage"); !strings.Contains(got, "admin:local-admin") || !strings.Contains(got, "REQUESTS") {
		t.Errorf("chat usage: got %s, want the day of the person", got)
	}
	offline := &patient{home: filepath.Join(t.TempDir(), "none")}
	if got := offline.run(t, "chat", "eval", file, file); strings.Count(got, "3 of 3") != 2 || strings.Count(got, "same") != 2 {
		t.Errorf("chat eval: got %s, want both recordings the same", got)
	}
	character := filepath.Join(dir, "ada.txt")
	if err := os.WriteFile(character, []byte("You are Ada."), 0o600); err != nil {
		t.Fatalf("write: got %v, want no error", err)
	}
	out, err := offline.command(t, "agent", "eval", "--character", character, file).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "request 1: system text 1 changed") ||
		!strings.Contains(string(out), "1 of 1 recordings differ") {
		t.Errorf("agent eval with another character: got %v and %s, want the segment that changed", err, out)
	}
}
