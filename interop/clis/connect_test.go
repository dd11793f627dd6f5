package clis

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
	"github.com/junctor-run/junctor/internal/testkit/built"
)

// TestTheConsoleConnectsThePrograms lets a person connect a program in the web console, with a real browser, who
// sees its first request, approves its first change, and finds what was done. The program waits for the approval.
func TestTheConsoleConnectsThePrograms(t *testing.T) {
	bin, _ := commands(t)
	for _, needed := range []string{"/usr/lib/chromium/chromium", "../node_modules/playwright-core", "../../internal/console/web/dist/index.html"} {
		if _, err := os.Stat(needed); err != nil {
			t.Skipf("SKIPPED: there is no %s", filepath.Base(needed))
		}
	}
	binary := built.Junctor(t)
	for _, c := range []struct {
		name, title string
		list        string // what its list of servers has
		args        func(base, task string) []string
	}{
		{"claude", "Claude Code", "✔ Connected", func(_, task string) []string {
			return []string{"-p", task, "--allowedTools", "mcp__junctor"}
		}},
		{"codex", "Codex", "enabled", func(base, task string) []string {
			return []string{
				"exec", "--skip-git-repo-check", "-c", `model_provider="scripted"`, "-c", `model="gpt-5.5"`,
				"-c", `mcp_servers.junctor.default_tools_approval_mode="approve"`, // junctor asks
				"-c", `model_providers.scripted={name="scripted",base_url="` + base + `/v1",env_key="OPENAI_API_KEY",wire_api="responses"}`, task,
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(bin, c.name)); err != nil {
				t.Skipf("%s is not installed; run: make test-agents", c.name)
			}
			const play, text = "PLAY-CONNECTED", "as the person saw it\n"
			fake, err := scriptedmodel.Start(scriptedmodel.Script{play: {
				{Call: &scriptedmodel.Call{
					Names: []string{"fs_writeText", "mcp__junctor__fs_writeText"},
					Args:  map[string]any{"path": "note.txt", "text": text}, Namespace: "mcp__junctor",
				}},
				{Say: "The note is there."},
			}})
			if err != nil {
				t.Fatalf("starting the model: %v", err)
			}
			t.Cleanup(fake.Close)
			files := t.TempDir()
			p := newPlane(t, binary, map[string]string{".claude.json": `{"hasCompletedOnboarding":true}`, ".codex/config.toml": "model = \"mine\"\n"},
				"ANTHROPIC_BASE_URL="+fake.URL(), "CLAUDE_CODE_MAX_RETRIES=1", "JUNCTOR_FS_ROOTS=files="+files)
			ctx, cancel := context.WithTimeout(t.Context(), 2*waitTimeout)
			defer cancel()
			program := func(args ...string) *exec.Cmd {
				cmd := exec.CommandContext(ctx, filepath.Join(bin, c.name), args...)
				cmd.Env, cmd.Dir = p.env, p.user
				return cmd
			}
			var link struct{ URL string }
			if _, answer := p.request(t, "POST", "/api/v1/console/codes", nil); json.Unmarshal([]byte(answer), &link) != nil || link.URL == "" {
				t.Fatalf("a link of the console: got %s, want one", answer)
			}
			codeFile := filepath.Join(t.TempDir(), "code")
			driver := exec.CommandContext(ctx, "node", "../console/connect.mjs", p.url, link.URL, c.title, codeFile, os.Getenv("PICTURES"))
			driver.Stderr, driver.Env = os.Stderr, append(os.Environ(), "ADMIN_TOKEN="+p.token)
			lines, err := driver.StdoutPipe()
			if err == nil {
				err = driver.Start()
			}
			if err != nil {
				t.Fatalf("the browser's script: %v, want it to start", err)
			}
			var seen struct {
				Clicks, Seconds                             int
				Difference, Input, Confirmed, Trail, Undone string
			}
			var said []byte
			done := make(chan error, 1)
			scan := bufio.NewScanner(lines)
			scan.Buffer(nil, 1<<20)
			for scan.Scan() {
				asked := scan.Text()
				switch asked {
				case "list":
					out, err := program("mcp", "list").CombinedOutput()
					if err != nil || !strings.Contains(string(out), "junctor") || !strings.Contains(string(out), c.list) {
						t.Errorf("%s mcp list: %v\n%s\nwant junctor and %q", c.name, err, out, c.list)
					}
					if c.name == "codex" { // it lists its servers without asking them
						out, err := program(c.args(fake.URL(), "Say something.")...).CombinedOutput()
						t.Logf("%v\n%s", err, out)
					}
				case "call":
					go func() {
						var err error
						said, err = program(c.args(fake.URL(), "Write a note. "+play)...).CombinedOutput()
						done <- err
					}()
				case "called":
					if err := <-done; err != nil || !strings.Contains(string(said), "The note is there.") {
						t.Errorf("%s: %v\n%s\nwant the answer that the note is there; the model was asked %+v", c.name, err, said, fake.Asked(play))
					}
					if got, err := os.ReadFile(filepath.Join(files, "note.txt")); err != nil || string(got) != text {
						t.Errorf("the note: got %q, %v, want %q", got, err, text)
					}
				default:
					if err := json.Unmarshal(scan.Bytes(), &seen); err != nil {
						t.Errorf("the browser's answer: %v in %.300s, want one JSON object", err, asked)
					}
					continue
				}
				file := codeFile + "." + asked
				if err := errors.Join(os.WriteFile(file+".new", nil, 0o600), os.Rename(file+".new", file)); err != nil {
					t.Fatalf("answering the browser's script: %v", err)
				}
			}
			if err := driver.Wait(); err != nil {
				t.Fatalf("the browser's script: %v, want no error; the program: %s; the model was asked %+v", err, said, fake.Asked(play))
			}
			t.Logf("FIGURES %s: %d clicks to the first request, after %d s", c.title, seen.Clicks-1, seen.Seconds)
			if seen.Clicks-1 > 3 {
				t.Errorf("clicks to the first request: got %d, want at most 3", seen.Clicks-1)
			}
			if !strings.Contains(seen.Difference, "junctor") || !strings.Contains(seen.Input, strings.TrimSpace(text)) || seen.Undone != "found" {
				t.Errorf("got %+v, want the change of the file, the whole input, and the client as it was", seen)
			}
			for _, want := range []string{"agent:" + c.name, "approved by"} {
				if !strings.Contains(seen.Trail, want) {
					t.Errorf("the trail has\n%s\nwant %q in it", seen.Trail, want)
				}
			}
		})
	}
}
