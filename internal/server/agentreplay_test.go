package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/chat/agent"
)

type recording = agent.Recording

// play is a turn of a model for one message: what it answers after each number of results.
type play struct {
	name, text string
	steps      []modelAnswer // the last one is the reply
	decide     string        // of each approval
}

func plays() []play {
	call := func(name, input string) toolCall { return toolCall{name, input} }
	read := func(n int) toolCall { return call("fs_readText", fmt.Sprintf(`{"path":"in.txt","maxBytes":%d}`, n)) }
	say := func(text string) modelAnswer { return modelAnswer{text: text} }
	calls := func(list ...toolCall) modelAnswer { return modelAnswer{calls: list} }
	out := []play{
		{"plain", "hello", []modelAnswer{say("Hello.")}, ""},
		{"empty", "say nothing", []modelAnswer{say("")}, ""},
		{"umlauts", "grüße", []modelAnswer{say("Grüße – 日本")}, ""},
		{"read", "read", []modelAnswer{calls(read(1)), say("Read.")}, ""},
		{"reads at once", "read twice", []modelAnswer{calls(read(2), read(3), read(4)), say("Read.")}, ""},
		{"reads by turns", "read again", []modelAnswer{calls(read(1)), calls(read(2)), calls(read(3)), say("Read.")}, ""},
		{"a text beside calls", "talk", []modelAnswer{{text: "I look.", calls: []toolCall{read(1)}}, say("Seen.")}, ""},
		{"an unknown tool", "dance", []modelAnswer{calls(call("dance", `{}`)), say("I cannot.")}, ""},
		{"malformed arguments", "break", []modelAnswer{calls(call("fs_readText", `{"path":`)), say("Sorry.")}, ""},
		{"arguments of another type", "break it", []modelAnswer{calls(call("fs_readText", `[1]`)), say("Sorry.")}, ""},
		{"a refused input", "break more", []modelAnswer{calls(call("fs_readText", `{"file":"x"}`)), say("Sorry.")}, ""},
		{"a missing file", "read y", []modelAnswer{calls(call("fs_readText", `{"path":"y"}`)), say("It is missing.")}, ""},
		{"a list", "list", []modelAnswer{calls(call("fs_list", `{}`)), say("Listed.")}, ""},
		{"a search", "find tools", []modelAnswer{calls(call("catalog_search", `{"query":"git"}`)), say("Found.")}, ""},
		{"a description", "describe", []modelAnswer{
			calls(call("catalog_describe", `{"name":"task-agent.list"}`)), calls(call("task-agent_list", `{}`)), say("Described."),
		}, ""},
		{"the same call again", "loop", []modelAnswer{calls(read(1)), calls(read(1)), calls(read(1)), calls(read(1)), say("Enough.")}, ""},
		{"an approved write", "write", []modelAnswer{calls(call("fs_writeText", `{"path":"o.txt","text":"x"}`)), say("Written.")}, "once"},
		{"a denied write", "overwrite", []modelAnswer{calls(call("fs_writeText", `{"path":"p.txt","text":"x"}`)), say("Not written.")}, "deny"},
		{"a read beside a write", "both", []modelAnswer{
			calls(read(1), call("fs_writeText", `{"path":"q.txt","text":"x"}`), read(2)), say("Both."),
		}, "once"},
		{"the memory", "remember the milk", []modelAnswer{calls(call("memory_search", `{"query":"milk"}`)), say("Remembered.")}, ""},
		{"a difference", "compare", []modelAnswer{calls(call("diff_render", `{"before":"a","after":"b"}`)), say("They differ.")}, ""},
		{"a tool of a module", "note", []modelAnswer{calls(call("DESK_00", `{}`)), say("Noted.")}, "once"},
	}
	var long []modelAnswer
	for i := range 9 {
		long = append(long, calls(call("fs_readText", fmt.Sprintf(`{"path":"long.txt","maxBytes":%d}`, 50000+i))))
	}
	return append(out, play{"a long run", "read it all", append(long, say("Read.")), ""})
}

// Recorded turns repeat offline with the same requests, calls and reply. A change of the prompt is a
// miss that names the segment.
func TestRecordedTurnsReplay(t *testing.T) {
	t.Parallel()
	home, dir := withFile(t)
	if err := os.WriteFile(filepath.Join(dir, "long.txt"), []byte(strings.Repeat("0123456789abcde\n", 4<<10)), 0o600); err != nil {
		t.Fatalf("write: got %v, want no error", err)
	}
	all := plays()
	model := newScriptedModel(t, func(_ int, r modelRequest) modelAnswer {
		if strings.HasPrefix(fmt.Sprint(r.Messages[0].Content), "Summarise the work") {
			return modelAnswer{text: "Much was read."}
		}
		doc, _ := json.Marshal(r.Messages)
		for _, p := range all {
			if !strings.Contains(string(doc), "(("+p.text+"))") {
				continue
			}
			n := strings.Count(string(doc), `"Role":"assistant"`)
			for i := range 9 { // of the long run, the first calls are in a summary
				if strings.Contains(string(doc), fmt.Sprint(50000+i)) {
					n = i + 1
				}
			}
			return p.steps[min(n, len(p.steps)-1)]
		}
		return modelAnswer{text: "What?"}
	})
	n := serve(t, home, model.env()...)
	var ledger deskLedger
	endpointOf(t, n, host.Module{
		ID: "desk", Name: "@you/desk", Providers: []host.Provider{ledger.provider("WEATHER", "it rains in Bern")},
		Actions: desk(&ledger).Actions[:1],
	})
	folder := t.TempDir()
	recordings := make(map[string]agent.Recording)
	for i, p := range all {
		r := n.tell(t, fmt.Sprint("s", i), "(("+p.text+"))")
		if p.decide != "" && r.Error != nil {
			n.decide(t, n.agentRun(t, r.Run).Approval, p.decide)
		}
		if got := n.ended(t, r.Run); got.State != "completed" {
			t.Errorf("%s: got %+v, want a completed run", p.name, got)
			continue
		}
		var raw json.RawMessage
		if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/agent/runs/"+r.Run+"/recording", nil, &raw); err != nil {
			t.Errorf("%s: got %v, want a recording", p.name, err)
			continue
		}
		rec, err := agent.ReadRecording(raw)
		if err != nil {
			t.Fatalf("%s: got %v, want a recording", p.name, err)
		}
		recordings[p.name] = rec
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%02d.json", i)), raw, 0o600); err != nil {
			t.Fatalf("write: got %v, want no error", err)
		}
		if v, err := agent.Replay(t.Context(), rec, nil); err != nil || v.Miss != "" || v.Exchanges != len(rec.Exchanges) {
			t.Errorf("%s: got %+v and %v, want the same %d requests", p.name, v, err, len(rec.Exchanges))
		}
	}
	if len(recordings) < 20 {
		t.Errorf("recordings: got %d, want 20 or more", len(recordings))
	}
	if got := len(recordings["a long run"].Summaries); got == 0 {
		t.Errorf("summaries of the long run: got none, want some")
	}
	err := n.agent.Do(t.Context(), http.MethodGet, "/api/v1/agent/runs/"+recordings["read"].Run+"/recording", nil, nil)
	if capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("the recording of another principal: got %v, want not_found", err)
	}

	persona := "You are Ada.\n\n"
	for name, c := range map[string]struct {
		change func(r *recording)
		as     *string
		want   string
	}{
		"the character":       {func(*recording) {}, &persona, "request 1: system text 1 changed"},
		"a provider's text":   {func(r *recording) { r.Context.Segments[0].Text = "it snows" }, nil, "desk/WEATHER changed"},
		"no provider":         {func(r *recording) { r.Context.Segments = nil }, nil, "request 1: message 1, provider desk/WEATHER is missing"},
		"the person's text":   {func(r *recording) { r.Turns[0].Text = "other" }, nil, "request 1: message 1, text of the user changed"},
		"a tool's schema":     {func(r *recording) { r.Tools[0].Tool.Schema = []byte(`{"type":"object","properties":{}}`) }, nil, "tool DESK_00 changed"},
		"one tool less":       {func(r *recording) { r.Tools = r.Tools[1:] }, nil, "tool DESK_00 is missing"},
		"the order of tools":  {func(r *recording) { slices.Reverse(r.Tools) }, nil, "is at another place"},
		"a result":            {func(r *recording) { r.Results[0].Text = "other" }, nil, "2: message 3, result of fs_readText changed"},
		"an answer":           {func(r *recording) { r.Exchanges[0].Answer.Blocks[0].Input = `{"path":"z"}` }, nil, "2: message 2, call of fs_readText changed"},
		"the limits":          {func(r *recording) { r.Limits.ModelCalls = 2 }, nil, "choice of tools is new"},
		"the reply":           {func(r *recording) { r.Reply = "other" }, nil, "the reply changed"},
		"an exchange too few": {func(r *recording) { r.Exchanges = r.Exchanges[:1] }, nil, "request 2: it is not part of the recording"},
	} {
		data, err := os.ReadFile(filepath.Join(folder, "03.json"))
		if err != nil {
			t.Fatalf("read: got %v, want no error", err)
		}
		rec, err := agent.ReadRecording(data)
		if err != nil {
			t.Fatalf("decode: got %v, want no error", err)
		}
		c.change(&rec)
		if v, err := agent.Replay(t.Context(), rec, c.as); err != nil || !strings.Contains(v.Miss, c.want) {
			t.Errorf("%s: got %+v and %v, want a miss with %q", name, v, err, c.want)
		}
	}
	for _, doc := range []string{"", "{}", `{"format":2}`, `{"format":1,"turns":[{}],"exchanges":[]}`, "[]"} {
		rec, err := agent.ReadRecording([]byte(doc))
		if err == nil {
			_, err = agent.Replay(t.Context(), rec, nil)
		}
		if capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("the recording %q: got %v, want invalid_input", doc, err)
		}
	}
}
