package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/testkit/built"
	"github.com/junctor-run/junctor/internal/testkit/faketelegram"
)

// TestReadmeTour pastes the tour of the README into a shell, as its first line
// invites to, and finds every line that it says would come out.
func TestReadmeTour(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tour, found := strings.Cut(string(readme), "## A tour of fifteen minutes")
	tour, _, ended := strings.Cut(tour, "## Where to read on")
	if !found || !ended {
		t.Fatal("the README has no tour")
	}
	out := lasting(paste(t, tour, "claude mcp add junctor"))
	for _, block := range regexp.MustCompile("(?s)```text\n(.*?)```").FindAllStringSubmatch(tour, -1) {
		for line := range strings.SplitSeq(block[1], "\n") {
			at := 0
			for piece := range strings.SplitSeq(lasting(line), "…") {
				next := strings.Index(out[at:], piece)
				if next < 0 {
					t.Errorf("the README shows a line that does not come out: %s; want next at least 0", line)
					break
				}
				at += next
			}
		}
	}
}

// lasting is a text without what differs from run to run: ids, numbers, times, and the
// width of columns.
func lasting(text string) string {
	text = regexp.MustCompile(`\b[0-9a-f]{12,}\b|_[0-9a-f]{12,}\b|[0-9]+`).ReplaceAllString(text, "N")
	return regexp.MustCompile(`[ \t]+`).ReplaceAllString(text, " ")
}

// TestEndpointsPage does the same with the page about endpoints.
func TestEndpointsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/endpoints.md")
	if err != nil {
		t.Fatal(err)
	}
	paste(t, string(page),
		"connected demo", `"success":true`, "refused, and what was there stays", "missing-provenance", "pong: hello", `"result": "hi"`,
		"device-status", "handled", `"delivered":1`, "buy rope", `"total": 1`, "Content-Type: text/javascript", "would be connected",
		"exported       demo", "disconnected demo", "conforms: 2 modules", "home-machine.json",
	)
}

// paste runs the sh blocks of a text in one shell, in a folder of their own, and
// looks for texts in what they print, which it returns.
func paste(t *testing.T, text string, wants ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: builds the program")
	}
	var script strings.Builder
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		script.WriteString(block[1])
	}
	script.WriteString("kill $(jobs -p); wait\n")
	dir := t.TempDir()
	t.Cleanup(func() { noneLeft(t, dir) })
	if err := built.Copy(filepath.Join(dir, "bin", "junctor")); err != nil {
		t.Fatalf("building junctor: %v", err)
	}
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(dir, "examples")); err != nil {
		t.Fatal(err)
	}
	// The program is built already, and $PWD is a folder of ours.
	shell := strings.Replace(script.String(), "make build; ", "", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-m", "-c", shell)
	cmd.Dir = dir
	// The reader works with another server already, which no page may ask.
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "JUNCTOR_URL=http://127.0.0.1:1",
		"JUNCTOR_TOKEN=of-another-server",
	}
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range wants {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not shown; want string(out) with %v", want, want)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
	return string(out)
}

// TestChannelsPage does it with the page about channels. The reader's part in Telegram is a request to
// a service on loopback.
func TestChannelsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/channels.md")
	if err != nil {
		t.Fatalf("the page: got %v, want no error", err)
	}
	const token = "4200:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr"
	tg := faketelegram.New(t, token)
	retry := "curl -sf --max-time 5 --retry 20 --retry-delay 1 --retry-all-errors " + tg.URL + "/control "
	text := strings.NewReplacer(
		`"$BOT_TOKEN"`, "'"+token+"'", "--token-secret bot\n", "--token-secret bot --api-url "+tg.URL+"\n",
		"--name ann\n", "--name ann > pair.txt\n", "# now send the line to the bot", retry+"--data-urlencode write@pair.txt",
		"# now press Once in the conversation with the bot", retry+"-d press=once",
	).Replace(string(page))
	out := paste(t, text, "operator:ann", "it waits for you", "from an agent")
	if sent := tg.Sent(); len(sent) == 0 || !strings.Contains(sent[len(sent)-1].Text, "the build is green") || strings.Contains(out, token) {
		t.Errorf("the last message: got %+v, want the one that the page sends, and no token in what is printed", sent)
	}
}

// TestElizaOSPage does it with the page about elizaOS agents, in both directions.
func TestElizaOSPage(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("SKIPPED: the page needs node")
	}
	page, err := os.ReadFile("../../docs/elizaos.md")
	if err != nil {
		t.Fatalf("the page: got %v, want no error", err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatalf("the repository's folder: got %v, want no error", err)
	}
	text := strings.Replace(string(page), `SOURCE="$PWD"`, fmt.Sprintf("SOURCE='%s'", root), 1)
	paste(t, text, `"id":"junctor.builtin.default"`, `"ok":true,"result":{"data"`, "agent:eliza", "4.828", `{"units":["mm"`, "conforms: 1 module")
}

// TestWritingEndpointsPage does it with the page about writing one, in three languages.
func TestWritingEndpointsPage(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"node", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("SKIPPED: the page needs " + tool)
		}
	}
	page, err := os.ReadFile("../../docs/writing-endpoints.md")
	if err != nil {
		t.Fatal(err)
	}
	// The folder that is pasted into has no Go sources, and its shell no caches of Go.
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	dirs := strings.Fields(string(caches))
	text := strings.Replace(string(page), `SOURCE="$PWD"`, fmt.Sprintf("SOURCE='%s' GOCACHE='%s' GOMODCACHE='%s'", root, dirs[0], dirs[1]), 1)
	paste(t, text, "hello Node", "hello Python", "hello Go", "conforms: 1 module")
}

// noneLeft kills the programs of a folder that still run, and states which they were: a page
// must end what it begins in the background.
func noneLeft(t *testing.T, dir string) {
	t.Helper()
	running := func() (list []string) {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range files {
			if line, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(line), dir+"/") {
				list = append(list, filepath.Base(filepath.Dir(file))+" "+strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
		return list
	}
	for deadline := time.Now().Add(10 * time.Second); len(running()) > 0 && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond) // what was told to end needs a moment
	}
	for _, program := range running() {
		t.Errorf("still runs: %s", program)
		if pid, err := strconv.Atoi(strings.Fields(program)[0]); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// TestCatalogPage does it with the page about the catalog.
func TestCatalogPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/catalog.md")
	if err != nil {
		t.Fatal(err)
	}
	paste(t, string(page),
		"connected far", "fs.readText goes to fs:node:local: step 6", "fs.readText goes to fs:endpoint:far: step 1", "step 2, session_binding",
		"hello", "fs.readText goes to fs:endpoint:far: step 6", "memroy.*", "the blue pot",
	)
}

func TestExtensionsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/extensions.md")
	if err != nil {
		t.Fatal(err)
	}
	paste(t, string(page),
		"run command-line programs", "  echo  of this machine\n  wc  of this machine", "install of tools.notes done", "enabled tools.notes",
		"one $(two) three", "\n3\n", "usage", "notes.say", "capability_executed", `"dry_run": true`, "by chat", "SUCCEEDED",
		"uninstalled tools.notes",
	)
}

// TestPoliciesPage does it with the page about policies and approvals.
func TestPoliciesPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	paste(t, string(page),
		"4.828", "is known to you", "files-of-this-machine", "is approved", `"words":3`, "revoked",
	)
}

// TestUpstreamsPage does it with the page about upstreams.
func TestUpstreamsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/upstreams.md")
	if err != nil {
		t.Fatal(err)
	}
	paste(t, string(page),
		"added far: ", "added byurl: ", "tool catalog_search", "mcp.far:tool:catalog_search", "structuredContent", "all wait for your approval",
		"approved tool catalog_search, which was quarantined",
		"pin_approved", "far is ready", "upstreams: 6, and nothing waits", "added agent: 1 tool,", "a2a/taskId", "removed far", `"name":"byurl"`,
	)
}

// TestAgentsPage does it with the page about agents. Its programs are run with the
// clients they need, in package interop.
func TestAgentsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if !json.Valid([]byte(block[1])) {
			t.Errorf("no JSON:\n%s\nwant json.Valid([]byte(block[1]))", block[1])
		}
	}
	paste(t, string(page), "helper", `"name":"catalog_search"`, `"supportedVersions":["2026-07-28"`, `"protocolVersion":"2025-11-25"`,
		`"id":2,"result":{"tools"`)
}
