package server_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/endpoints/reference"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// TestTheCatalogTellsWhatItDoes: a choice can be looked up by its id, a change is
// sent to subscribers, and both can be read afterwards.
func TestTheCatalogTellsWhatItDoes(t *testing.T) {
	t.Parallel()
	device, err := reference.New(reference.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = device.Close() })
	far := httptest.NewServer(router.Handler(router.RequireToken(secret.Value{}, device), router.HandlerOptions{}))
	t.Cleanup(far.Close)
	n := serve(t, t.TempDir())
	var out struct {
		Invocation struct {
			Selection struct {
				ExplanationID string `json:"explanation_id"`
			}
		}
	}
	if err := n.admin.Invoke(t.Context(), client.Invocation{Target: "fs.list"}, &out); err != nil {
		t.Fatal(err)
	}
	var story struct {
		Text        string
		Explanation struct {
			Action string
		}
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/catalog/explanations/"+out.Invocation.Selection.ExplanationID, nil,
		&story); err != nil {
		t.Fatal(err)
	}
	if story.Explanation.Action != "fs.list" || !strings.Contains(story.Text, "fs:node:local") {
		t.Errorf(`%+v; want story.Explanation.Action = "fs.list", story.Text with "fs:node:local"`, story)
	}
	if a := n.request(t, "GET", "/api/v1/catalog/explanations/exp_none", n.token(t, "admin"), ""); a.status != http.StatusNotFound {
		t.Errorf("%d %s; want a.status = http.StatusNotFound", a.status, a.body)
	}

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+"/api/v1/catalog/changes", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+n.token(t, "admin"))
	req.Header.Set("Accept", "text/event-stream")
	stream, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	own, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+"/api/v1/catalog/agent/changes", nil)
	if err != nil {
		t.Fatal(err)
	}
	own.Header.Set("Authorization", "Bearer "+n.token(t, "agent"))
	mine, err := http.DefaultClient.Do(own)
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Body.Close()
	n.connect(t, "far", far.URL, false)
	etags := make(map[string]bool)
	for notices := bufio.NewScanner(mine.Body); len(etags) < 2 && notices.Scan(); {
		if data, ok := strings.CutPrefix(notices.Text(), "data: "); ok {
			var notice struct{ Etag string }
			if err := json.Unmarshal([]byte(data), &notice); err != nil {
				t.Fatal(err)
			}
			etags[notice.Etag] = true
		}
	}
	if len(etags) != 2 {
		t.Errorf("an agent was told %v; want len(etags) = 2", etags)
	}
	var heard struct {
		Generation uint64
		Changes    []struct{ Op, CanonicalAction string }
	}
	lines := bufio.NewScanner(stream.Body)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if err := json.Unmarshal([]byte(data), &heard); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(data, "model.status") {
				break
			}
		}
	}
	if len(heard.Changes) == 0 || heard.Changes[0].Op != "added" {
		t.Fatalf(`%+v; want len(heard.Changes) other than 0, heard.Changes[0].Op = "added"`, heard)
	}
	var since struct{ Events []struct{ Reset bool } }
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/catalog/changes?since=7", nil, &since); err != nil {
		t.Fatal(err)
	}
	if len(since.Events) == 0 {
		t.Errorf("nothing happened since generation 7; got len(since.Events) = %v; want len(since.Events) other than 0",
			len(since.Events))
	}
	if a := n.request(t, "GET", "/api/v1/catalog/changes?since=x", n.token(t, "admin"), ""); a.status != http.StatusBadRequest {
		t.Errorf("%d %s; want a.status = http.StatusBadRequest", a.status, a.body)
	}
	var told struct {
		Events []struct{ Event, CorrelationID string }
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/catalog/telemetry?event=capability.provider.selected", nil, &told); err != nil {
		t.Fatal(err)
	}
	if len(told.Events) == 0 || !strings.HasPrefix(told.Events[0].CorrelationID, "run_") {
		t.Errorf(`%+v; want len(told.Events) other than 0, told.Events[0].CorrelationID beginning with "run_"`, told)
	}
	slots := 0
	for _, r := range n.records(t, "limit=100") {
		if r.Event == "capability_slot_selected" {
			slots++
		}
	}
	if slots < 2 {
		t.Errorf("%d records of slots; want slots at least 2", slots)
	}
	var judged struct {
		OK       bool
		Outcomes []struct {
			ID, Order string
			OK        bool
		}
	}
	pack := map[string]any{"scenarios": json.RawMessage(`[{"id":"X","extensions":[{"id":"chat","contributions":[{"id":"a","kind":"adapter.runtime","actions":["message.send"]}]}],
		"ask":[{"op":"rejected","expect":{}},{"op":"select","action":"message.send","expect":{"step":4}}]}]`)}
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/catalog/eval", pack, &judged); err != nil || !judged.OK ||
		len(judged.Outcomes) != 6 {
		t.Errorf("%v %+v; want no error, judged.OK = true, len(judged.Outcomes) = 6", err, judged)
	}
	var chosen struct{ Selection struct{ Step int } }
	ask := map[string]any{"action": "fs.list", "selector": map[string]string{"node": "local"}}
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/catalog/select", ask, &chosen); err != nil || chosen.Selection.Step != 1 {
		t.Errorf("%v %+v; want no error, chosen.Selection.Step = 1", err, chosen)
	}
	n.terminate(t)
}

// The page of a tool needs one action, not a catalog of many thousands. It asks by the name that the list of tools
// shows.
func TestOneActionOfTheAgentCatalog(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	type answer struct {
		Actions []struct{ Name, CanonicalAction string }
	}
	get := func(query string) (a answer) {
		if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/catalog/agent"+query, nil, &a); err != nil {
			t.Fatalf("GET the catalog%s: %v", query, err)
		}
		return a
	}
	whole := get("")
	if len(whole.Actions) < 2 {
		t.Fatalf("the catalog: got %+v, want two actions at least", whole)
	}
	for _, action := range whole.Actions {
		for _, name := range []string{action.Name, action.CanonicalAction} {
			if got := get("?action=" + url.QueryEscape(name)); !slices.Contains(got.Actions, action) || len(got.Actions) == len(whole.Actions) {
				t.Errorf("action=%s: got %+v, want %+v and not all", name, got, action)
			}
		}
	}
	var list struct {
		Tools []struct{ Tool, Decision, State string }
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/tools", nil, &list); err != nil || len(list.Tools) == 0 {
		t.Fatalf("the list of tools: got %+v, %v, want some", list, err)
	}
	for _, tool := range list.Tools {
		if got := get("?action=" + url.QueryEscape(tool.Tool)); tool.Decision != "deny" && tool.State == "ready" && len(got.Actions) == 0 {
			t.Errorf("action=%s, which is in the list: got none, want one", tool.Tool)
		}
	}
	if got := get("?action=missing"); len(got.Actions) != 0 {
		t.Errorf("action=missing: got %+v, want none", got)
	}
}
