package console

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
)

// Pages of tools (MCP Apps) are tried with a published server, and with one that wants more.
func TestPagesOfToolsStayInTheirFrames(t *testing.T) {
	program := build(t)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	home := filepath.Join(t.TempDir(), "home")
	model, err := scriptedmodel.Start(scriptedmodel.Script{"PLAY-CLOCK": {
		{Call: &scriptedmodel.Call{Names: []string{"clock__get-time"}, Args: map[string]any{}}}, {Say: "It is that time."},
	}})
	if err != nil {
		t.Fatalf("starting a model: %v", err)
	}
	t.Cleanup(model.Close)
	url, _ := serve(ctx, t, program, home, "127.0.0.1:0",
		"JUNCTOR_MODEL_URL="+model.URL()+"/v1", "JUNCTOR_MODEL_NAME=m", "JUNCTOR_APPROVALS_WAIT=0s")
	admin := dial(t, url, home, "admin")
	interop, err := filepath.Abs("..")
	if err != nil {
		t.Fatalf("the folder of the tests: %v", err)
	}
	for name, words := range map[string][]string{
		"clock":   {interop + "/node_modules/@modelcontextprotocol/server-basic-vanillajs/dist/index.js", "--stdio"},
		"hostile": {interop + "/console/appserver.mjs"},
	} {
		add := exec.CommandContext(ctx, program, append([]string{"mcp", "add", name, "--trust-hints=no", "--ro=" + interop, "--", "node"}, words...)...)
		add.Env = append(os.Environ(), "JUNCTOR_HOME="+home)
		if out, err := add.CombinedOutput(); err != nil {
			t.Fatalf("adding %s: %v\n%s", name, err, out)
		}
	}
	var link struct{ URL string }
	if err := admin.Do(ctx, http.MethodPost, "/api/v1/console/codes", nil, &link); err != nil {
		t.Fatalf("asking for a link: %v", err)
	}
	token, err := os.ReadFile(filepath.Join(home, "run", "admin.token"))
	if err != nil {
		t.Fatalf("reading the token: %v", err)
	}
	driver := exec.CommandContext(ctx, "node", "apps.mjs", url, link.URL)
	driver.Stderr = os.Stderr
	driver.Env = append(os.Environ(), "ADMIN_TOKEN="+strings.TrimSpace(string(token)))
	answer, err := driver.Output()
	if err != nil {
		t.Fatalf("the browser's script: %v", err)
	}
	var seen struct {
		Called, Confirmed, Asks, Allowed, URL string
		Decided, Done                         string
		Again, Paged                          bool
		Axe, Texts                            []string
		Pages                                 int
		Hostile                               struct {
			Input           struct{ Text string }
			Result, Text    string
			Worked, Blocked []string
		}
	}
	if err := json.Unmarshal(answer, &seen); err != nil {
		t.Fatalf("the script's answer: %v in %s", err, answer)
	}
	acts := "let the page ui://get-time/mcp-app.html of mcp.clock act"
	if !strings.Contains(seen.Called, "call ") || !strings.Contains(seen.Confirmed, acts) || !seen.Again {
		t.Errorf("the published page: confirmed %q, then %q, a new time: %v; want the call, the page by name, true",
			seen.Called, seen.Confirmed, seen.Again)
	}
	// What a page receives is its person's own.
	var runs struct{ Runs []struct{ ID string } }
	if err := admin.Do(ctx, http.MethodGet, "/api/v1/agent/runs?session=pages", nil, &runs); err != nil || len(runs.Runs) != 1 {
		t.Fatalf("the runs of the chat: got %+v, %v, want one", runs, err)
	}
	for _, who := range []string{"admin", "agent"} {
		err := dial(t, url, home, who).Do(ctx, http.MethodGet, "/api/v1/agent/runs/"+runs.Runs[0].ID+"/pages/run_0", nil, nil)
		got := capability.AsError(err)
		if got == nil || got.Code != capability.CodeNotFound || (got.Reason == "no_page") != (who == "admin") {
			t.Errorf("the page of an unknown call for %s: got %v, want not_found, of the call for an admin only", who, err)
		}
	}
	h := seen.Hostile
	if h.Input.Text != "x" || h.Result != "shown x" || h.Text != "reported 0" || len(h.Worked) > 0 {
		t.Errorf("the hostile page got %+v, want the input x, its result, its own tool, and nothing else", h)
	}
	// A name that does not exist would fail as well: what counts is that the browser did not try it.
	for _, url := range []string{"https://undeclared.example/", "https://declared.example/"} {
		if !slices.Contains(h.Blocked, url) {
			t.Errorf("the page's policy blocked %q, want %s among them", h.Blocked, url)
		}
	}
	if host := "connect to https://declared.example"; seen.Asks != "It asks to "+host || !strings.Contains(seen.Allowed, host) {
		t.Errorf("it asks %q, confirmed %q; want the one host that it may declare", seen.Asks, seen.Allowed)
	}
	if !strings.Contains(seen.Decided, "clock/get-time was approved") || seen.Done != "get-time" || !seen.Paged || len(seen.Axe) > 0 {
		t.Errorf("the chat shows the decision %q, the call %q, its page: %v, findings %q; want clock/get-time approved, get-time with its page, and none",
			seen.Decided, seen.Done, seen.Paged, seen.Axe)
	}
	if len(seen.Texts) > 0 {
		t.Errorf("the description of a tool is more than text on %q, want on no page", seen.Texts)
	}
	if seen.Pages != 1 || !strings.Contains(seen.URL, "/console/catalog/") {
		t.Errorf("then %d pages at %s, want one at the tool", seen.Pages, seen.URL)
	}
}
