// Package console tries the web console in a real browser.
package console

import (
	"archive/zip"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/testkit/built"
	"github.com/junctor-run/junctor/internal/testkit/fakeregistry"
	"github.com/junctor-run/junctor/secret"
)

// missing reports why the test cannot run here.
func missing() string {
	if _, err := exec.LookPath("node"); err != nil {
		return "node is not installed"
	}
	if _, err := os.Stat("../node_modules/playwright-core"); err != nil {
		return "the packages of interop are not installed (make interop-deps)"
	}
	for _, path := range []string{"/usr/lib/chromium/chromium", "/opt/google/chrome/chrome"} {
		if _, err := os.Stat(path); err == nil {
			return ""
		}
	}
	return "chromium is not installed"
}

// build makes the page and the program. It returns the program. Where the test cannot run it is skipped,
// or with INTEROP_REQUIRED fails for want of anything but the browser.
func build(t *testing.T) string {
	t.Helper()
	if why := missing(); why != "" {
		if os.Getenv("INTEROP_REQUIRED") != "" && why != "chromium is not installed" {
			t.Fatalf("%s, want everything that the test needs", why)
		}
		t.Skip(why)
	}
	if out, err := exec.Command("make", "-C", "../..", "console").CombinedOutput(); err != nil {
		t.Fatalf("make console: %v\n%s", err, out)
	}
	if _, err := os.Stat("../../internal/console/web/dist/index.html"); err != nil {
		t.Skip("the console's packages cannot be had here")
	}
	return built.Junctor(t)
}

// serve starts a server with further variables, which the end of the test stops. It returns its address.
func serve(ctx context.Context, t *testing.T, program, home, listen string, env ...string) (url string, server *exec.Cmd) {
	t.Helper()
	server = exec.CommandContext(ctx, program, "serve", "--home", home, "--listen", listen)
	server.Env = append(os.Environ(), env...)
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatalf("starting the server: %v", err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(os.Interrupt)
		_ = server.Wait()
	})
	var ready struct{ URL string }
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		t.Fatalf("reading the server's first line: %v", err)
	}
	return ready.URL, server
}

// declaration is a file of config.d, with a server that nothing connects to.
const declaration = "upstreams:\n  team:\n    url: https://team.example/mcp\n    disabled: true\n"

func TestTheConsoleInABrowser(t *testing.T) {
	program := build(t)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	home := filepath.Join(t.TempDir(), "home")
	files := t.TempDir()
	registry := fakeregistry.Start(t, fakeregistry.Remote("example/weather", "1.0.0", "https://weather.example/mcp",
		`{"name":"X-Region","description":"where","isRequired":true}`))
	env := []string{"JUNCTOR_FS_ROOTS=files=" + files, "JUNCTOR_AGENTS_RECORD=true", "JUNCTOR_UPSTREAMS_REGISTRIES_MCP=" + registry.URL}
	declares := filepath.Join(home, "config.d")
	err := os.MkdirAll(declares, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(declares, "team.yaml"), []byte(declaration), 0o600)
	}
	if err != nil {
		t.Fatalf("writing a declaration: %v", err)
	}
	url, server := serve(ctx, t, program, home, "127.0.0.1:0", env...)
	admin, agent := dial(t, url, home, "admin"), dial(t, url, home, "agent")
	if err := admin.Do(ctx, http.MethodPost, "/api/v1/apply", nil, nil); err != nil {
		t.Fatalf("applying the declaration: %v", err)
	}

	if err := os.WriteFile(filepath.Join(files, "plan.md"), []byte("as it was\n"), 0o600); err != nil {
		t.Fatalf("writing a file: %v", err)
	}
	// What an agent asks for is shown as text, whatever it holds, and whole.
	text := "<img src=x onerror=\"window.hacked=1\"> \u202egnp.exe \x1b[31m" + strings.Repeat("every byte of it. ", 16<<10) + "the end"
	err = agent.Do(ctx, http.MethodPost, "/api/v1/invocations", map[string]any{
		"target": "fs.writeText", "input": map[string]any{"path": "plan.md", "text": text},
	}, nil)
	approval, _ := capability.AsError(err).Details["approval"].(string)
	if approval == "" {
		t.Fatalf("got %v, want an approval", err)
	}
	denial := map[string]any{"setting": "deny", "target": "fs.list"}
	if err := admin.Do(ctx, http.MethodPost, "/api/v1/policy/changes", denial, nil); err != nil {
		t.Fatalf("denying fs.list: %v", err)
	}
	err = agent.Do(ctx, http.MethodPost, "/api/v1/invocations", map[string]any{"target": "fs.list", "input": map[string]any{"path": "."}}, nil)
	if capability.CodeOf(err) != capability.CodeUnknownCapability {
		t.Errorf("a denied call: got %v, want unknown_capability", err)
	}
	var link struct{ URL string }
	if err := admin.Do(ctx, http.MethodPost, "/api/v1/console/codes", nil, &link); err != nil {
		t.Fatal(err)
	}
	agentToken, err := os.ReadFile(filepath.Join(home, "run", "agent.token"))
	if err != nil {
		t.Fatal(err)
	}
	addChannel(t, admin, url)
	extension := filepath.Join(t.TempDir(), "words.zip")
	if err := zipFolder(extension, "../../examples/extensions/words"); err != nil {
		t.Fatalf("packing an extension: %v", err)
	}
	for range 600 { // more than a page of the audit
		err := agent.Do(ctx, http.MethodPost, "/api/v1/invocations", map[string]any{
			"target": "fs.readText", "input": map[string]any{"path": "plan.md"},
		}, nil)
		if err != nil {
			t.Fatalf("reading a file: %v", err)
		}
	}
	repo, finished, paused := makeTasks(t, admin, program, home)
	// The browser's script asks on its output and finds the answers in files that begin with this.
	codeFile := filepath.Join(t.TempDir(), "code")
	driver := exec.CommandContext(ctx, "node", "console.mjs", url, link.URL, approval, strings.TrimSpace(string(agentToken)), codeFile, finished, paused, extension)
	driver.Stderr = os.Stderr
	lines, err := driver.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	var seen struct {
		Violations, Errors, Axe, Wide, Low []string
		Notes                              struct {
			Fragment, SecondTab, Script, Approved, Badge, Survived, CookieSeen bool
			Input, Diff, Merged, Discarded, Question, Stopped, Paired, Played  string
			Credential, Planned, Why, Replayed, May                            string
			Imported, Blind, Enabled, First                                    bool
			Consent                                                            string
			Managed, Fixed                                                     string
			Digest, Lost                                                       string
			Change, Bar, Behind, Columns, Cells, Keys                          []string
			JSON, Rest                                                         string
			Named                                                              bool
			Asked, Back                                                        int
			Stolen, Halves                                                     []int
			Pinned, For                                                        []string
			Effect                                                             string
			Given                                                              []any
			Leaked, Chooses                                                    bool
			Begun, Cause, Runs                                                 string
			NamedShell                                                         string `json:"named_shell"`
			RefusedAbove                                                       bool   `json:"refused_above"`
		}
	}
	scan := bufio.NewScanner(lines)
	scan.Buffer(nil, 8<<20)
	for scan.Scan() {
		asked, answer := scan.Text(), ""
		switch word, _, _ := strings.Cut(asked, " "); word {
		case "code":
			var open struct {
				Verifications []struct{ Code, What string }
			}
			if err := admin.Do(ctx, http.MethodGet, "/api/v1/console/verifications", nil, &open); err != nil || len(open.Verifications) != 1 {
				t.Fatalf("%s: got %+v, %v, want one verification", asked, open, err)
			}
			answer = open.Verifications[0].Code
		case "kill":
			_ = server.Process.Kill()
			_ = server.Wait()
		case "start":
			_, server = serve(ctx, t, program, home, strings.TrimPrefix(url, "http://"), env...)
		default:
			if err := json.Unmarshal(scan.Bytes(), &seen); err != nil {
				t.Errorf("the browser's answer: %v in %.300s, want one JSON object", err, asked)
			}
			continue
		}
		// Written beside and renamed, so that the browser never reads half of it.
		file := codeFile + "." + regexp.MustCompile("[^a-z]").ReplaceAllString(asked, "_")
		if err := errors.Join(os.WriteFile(file+".new", []byte(answer), 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}
	if err := driver.Wait(); err != nil {
		t.Fatalf("the browser's script: %v", err)
	}
	for name, list := range map[string][]string{
		"violations of the content policy": seen.Violations, "errors of the page": seen.Errors,
		"serious findings of accessibility": seen.Axe, "pages wider than 320 pixels": seen.Wide,
		"buttons lower than 40 pixels on a phone": seen.Low,
	} {
		if len(list) > 0 {
			t.Errorf("%s: got %q, want none", name, list)
		}
	}
	n := seen.Notes
	if n.Blind || !n.Enabled || !strings.Contains(n.Consent, "runs a script that can only compute") || !n.First {
		t.Errorf("an extension: enabled unread %v, enabled %v, shown %q; the first record shown: %v; want it read first, and every record",
			n.Blind, n.Enabled, n.Consent, n.First)
	}
	if n.Fragment || !n.SecondTab || n.Script || !n.Approved || !n.Badge || !n.Survived || n.Asked != http.StatusForbidden {
		t.Errorf("got %+v, want no code in the address, a second tab that is signed in, no script of the text run, an approval, a badge, and a page that survives kill -9", n)
	}
	if !strings.Contains(n.Input, "<img src=x") || !strings.HasSuffix(n.Input, "the end") || strings.ContainsAny(n.Input, "\u202e\x1b") {
		t.Errorf("the input on the page: %d bytes, %.80q…, want all of it, with invisible characters shown", len(n.Input), n.Input)
	}
	var exact struct{ Path, Text string }
	if err := json.Unmarshal([]byte(n.JSON), &exact); err != nil || exact.Path != "plan.md" || exact.Text != text ||
		strings.Join(n.Keys, " ") != "path text" || !strings.Contains(n.Rest, "the tag 39 of many") {
		t.Errorf("the input on the page has the members %q, and as JSON %.80q…, %v, that of another call %q; want path and text, exactly what was asked, and all tags",
			n.Keys, n.JSON, err, n.Rest)
	}
	if got := strings.Join(n.Bar, " "); got != "Now Approvals Tasks Chat More" || len(n.Behind) < 11 {
		t.Errorf("a phone has %q in its bar and %q behind More, want the four pages of every day, and the others", got, n.Behind)
	}
	if h := n.Halves; len(h) != 4 || h[0] != 0 || h[1] < 12 || h[2] < 44 || h[3] != 0 || strings.Join(n.Pinned, "|") != "Approve once|Deny" {
		t.Errorf("the bar of an approval on a phone: got %q, with the difference of widths, gap, height and offset %d; want Approve once and Deny, 0, 12 or more, 44 or more, 0", n.Pinned, h)
	}
	if n.Effect != "write: changes what is stored" {
		t.Errorf("the effect of an approval: got %q, want its words, and its value as the title", n.Effect)
	}
	if len(n.For) != 2 || !strings.HasPrefix(n.For[0], "agent:") || n.For[1] != "For "+n.For[0] {
		t.Errorf("the catalog shows decisions for %q, want an agent, and its name above the column", n.For)
	}
	if len(n.Given) != 3 || n.Given[0] != float64(http.StatusOK) || !strings.HasSuffix(fmt.Sprint(n.Given[1]), "/mcp") ||
		n.Given[2] != true || n.Leaked {
		t.Errorf("a new token: got the status, address and whether the lines have it %v, found after a reload or stored %v; want 200, /mcp, true, false", n.Given, n.Leaked)
	}
	if got := strings.Join(append(n.Columns, n.Cells...), "|"); n.Named ||
		got != "Title|Program|State|Waits for|Age|sleep 600|shell|waiting on user|your answer" {
		t.Errorf("the tasks: got %q, with the names of columns on a phone %v; want columns of title, program, state, what is waited for and age", got, n.Named)
	}
	if want := "Confirm: run the text as shell commands"; n.NamedShell != want || !n.RefusedAbove {
		t.Errorf("the dialog of a task of the shell: got %q, and its refusal above the bar %v; want %q, true", n.NamedShell, n.RefusedAbove, want)
	}
	if want := "fs.list forbidden by the rule “action fs.list” for agent:local-agent"; n.Cause != want {
		t.Errorf("a refused call on Now: got %q, want %q", n.Cause, want)
	}
	if want := "Runs as admin:local-admin: allowed, no one else is asked. It changes what is stored."; n.Runs != want {
		t.Errorf("what a trial of a tool would do: got %q, want %q", n.Runs, want)
	}
	if n.Begun != "shell" || !n.Chooses {
		t.Errorf("a task begun on the page: got the program %q, and that it waits for a choice of one %v; want shell, true", n.Begun, n.Chooses)
	}
	if n.Lost != "" || float64(n.Back) > atMost(5000) {
		t.Errorf("after kill -9 the pages lost %q and were live again after %d ms, want nothing, and %.0f ms at most", n.Lost, n.Back, atMost(5000))
	}
	var asked struct {
		Approval struct {
			Digest string `json:"input_digest"`
		}
	}
	err = admin.Do(ctx, http.MethodGet, "/api/v1/approvals/"+approval, nil, &asked)
	if err != nil || n.Digest == "" || n.Digest != asked.Approval.Digest {
		t.Errorf("the digest on the page is %q, that of the approval %q, %v; want the same", n.Digest, asked.Approval.Digest, err)
	}
	if n.May != "asks first" {
		t.Errorf("whether an agent may store a text: got %q, want that it asks first", n.May)
	}
	if n.Why != "chosen" || !strings.HasPrefix(n.Replayed, "Now the same") {
		t.Errorf("the explanation of a call ends with %q, and chosen again: %q; want chosen, and the same provider", n.Why, n.Replayed)
	}
	if n.Managed != "managed by config.d/team.yaml" || n.Fixed != "Restart; config.d/team.yaml; change it there" {
		t.Errorf("the page of a declared server has %q and %q, want its file, and only a button that restarts it", n.Managed, n.Fixed)
	}
	if got := strings.Join(n.Change, "|"); got != "- as it was\n|+ <img src=x" {
		t.Errorf("the change of the file: got %q, want its old line and the new one", got)
	}
	if !regexp.MustCompile(`^\d+:\d\d of \d+:\d\d$`).MatchString(n.Played) {
		t.Errorf("the recording is at %q, want a time of its length", n.Played)
	}
	if !strings.Contains(n.Diff, "+from the agent \\u202e") || !strings.Contains(n.Merged, "main is at") ||
		!strings.Contains(n.Discarded, "/result") {
		t.Errorf("the task's changes are %q, merged %q, discarded %q; want the new line, main with it, and the branches",
			n.Diff, n.Merged, n.Discarded)
	}
	if data, err := os.ReadFile(filepath.Join(repo, "new.txt")); err != nil || !strings.Contains(string(data), "from the agent") {
		t.Errorf("the merged file is %q, %v, want the line of the agent", data, err)
	}
	if !strings.Contains(n.Question, "It is paused. Is it to go on?") || n.Stopped == "" {
		t.Errorf("the paused task asks %q and is then %q, want its question, and another state after the answer", n.Question, n.Stopped)
	}
	if !regexp.MustCompile(`^/pair [A-Z2-9]{8}$`).MatchString(n.Paired) {
		t.Errorf("what a person sends to be paired: got %q, want /pair and a code", n.Paired)
	}
	if !strings.Contains(n.Credential, "notes-api-token") || n.Imported {
		t.Errorf("the import names %q, the credential is on the page then: %v; want notes-api-token, and it is gone", n.Credential, n.Imported)
	}
	if want := "https://weather.example/mcp\nX-Region: north"; n.Planned != want {
		t.Errorf("the registry's server: got %q, want its address and what is sent: %q", n.Planned, want)
	}
	if !n.CookieSeen {
		t.Log("the browser sent no cookie to the other port, so stealing it was not tried")
	}
	for _, status := range n.Stolen {
		if status < 400 {
			t.Errorf("with the cookie alone: got status %d, want a refusal each time: %v", status, n.Stolen)
		}
	}
}

// zipFolder packs a folder into a new zip file.
func zipFolder(file, folder string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := zip.NewWriter(f)
	return errors.Join(w.AddFS(os.DirFS(folder)), w.Close(), f.Close())
}

// addChannel adds an account of a chat service, with a person.
func addChannel(t *testing.T, admin *client.Client, url string) {
	t.Helper()
	for _, req := range []struct {
		method, path string
		body         any
	}{
		{http.MethodPut, "/api/v1/secrets/pager", []byte("whsec_a2V5IG9mIHRoZSBwYWdlciBvZiB0aGUgdGVzdA==")},
		{http.MethodPost, "/api/v1/channels", map[string]any{"kind": "webhook", "account": "pager", "secret": "pager", "url": url, "guests": []string{"g1"}}},
		{http.MethodPost, "/api/v1/channels/webhook/pager/people", map[string]string{"role": "operator", "name": "ann", "user": "u1"}},
	} {
		if err := admin.Do(t.Context(), req.method, req.path, req.body, nil); err != nil {
			t.Fatalf("%s %s: got %v, want no error", req.method, req.path, err)
		}
	}
}

// makeTasks creates a task with finished work in a new checkout, and one that is paused. It returns
// the checkout and the ids of their threads.
func makeTasks(t *testing.T, admin *client.Client, program, home string) (repo, finished, paused string) {
	t.Helper()
	repo = filepath.Join(t.TempDir(), "repo")
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = repo
		cmd.Env = append(os.Environ(), "JUNCTOR_HOME="+home, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
	}
	if err := os.Mkdir(repo, 0o700); err != nil {
		t.Fatal(err)
	}
	run("git", "init", "-q", "-b", "main")
	run("git", "commit", "-q", "--allow-empty", "-m", "first")
	run(program, "tasks", "create", `printf 'from the agent \342\200\256\n' > new.txt; echo written`, "--agent", "shell", "--wait")
	run(program, "tasks", "create", "sleep 600", "--agent", "shell", "--scratch")
	var threads []struct{ ID, OriginalRequest string }
	if err := admin.Do(t.Context(), http.MethodGet, "/api/coding-agents/coordinator/threads", nil, &threads); err != nil || len(threads) != 2 {
		t.Fatalf("got %+v, %v, want two threads", threads, err)
	}
	finished, paused = threads[0].ID, threads[1].ID
	if strings.HasPrefix(threads[0].OriginalRequest, "sleep") {
		finished, paused = paused, finished
	}
	run(program, "tasks", "control", paused, "pause")
	return repo, finished, paused
}

func dial(t *testing.T, url, home, role string) *client.Client {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(home, "run", role+".token"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{URL: url, Token: secret.New(strings.TrimSpace(string(token)))})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
