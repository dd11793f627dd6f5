package permit_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/permit"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

// place is a machine with a folder for the agent, one more that is allowed, a home and
// links that lead out.
func place(t testing.TB) (permit.Request, string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"task/src", "common", "home/.ssh", "home/.codex", "own/state", "task-too"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"task/out": "../home", "task/in": "src", "task/nowhere": "../home/new", "task/loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
	}
	return permit.Request{
		Framework: programs.Claude, Preset: programs.Autonomous, Workdir: base + "/task", Roots: []string{base + "/common"},
		Home: base + "/home", Own: base + "/own",
	}, base
}

func judge(r permit.Request, tool string, input map[string]any) permit.Decision {
	r.Tool = tool
	r.Input, _ = json.Marshal(input)
	return permit.Judge(r)
}

func TestPresets(t *testing.T) {
	r, _ := place(t)
	write, run, read := map[string]any{"file_path": "a.txt"}, map[string]any{"command": "go test ./..."}, map[string]any{"file_path": "a.txt"}
	for preset, want := range map[programs.Preset][4]permit.Effect{
		programs.Readonly:   {permit.Allow, permit.Deny, permit.Deny, permit.Deny},
		programs.Standard:   {permit.Allow, permit.Ask, permit.Ask, permit.Allow},
		programs.Permissive: {permit.Allow, permit.Allow, permit.Ask, permit.Allow},
		programs.Autonomous: {permit.Allow, permit.Allow, permit.Allow, permit.Allow},
		"made up":           {permit.Deny, permit.Deny, permit.Deny, permit.Deny},
	} {
		r.Preset = preset
		got := [4]permit.Effect{
			judge(r, "Read", read).Effect, judge(r, "Write", write).Effect, judge(r, "Bash", run).Effect,
			judge(r, "WebFetch", nil).Effect,
		}
		if got != want {
			t.Errorf("%s: %v, want %v", preset, got, want)
		}
	}
	r.Preset = programs.Readonly
	if d := judge(r, "Write", write); d.Rule != "preset" || !strings.Contains(d.Reason, "writing files") || d.Category != programs.FileWrite {
		t.Errorf(`%+v; want d.Rule = "preset", d.Reason with "writing files", d.Category = programs.FileWrite`, d)
	}
}

// TestACommandIsOneWhateverItsToolIsCalled holds that a tool which runs commands is judged as the shell, if the
// table of the program lacks it too.
func TestACommandIsOneWhateverItsToolIsCalled(t *testing.T) {
	r, _ := place(t)
	push, test := map[string]any{"command": "git push"}, map[string]any{"command": "go test ./..."}
	for tool, want := range map[string][3]permit.Effect{ // of a push and a test at permissive, and of a push at autonomous
		"Bash": {permit.Deny, permit.Ask, permit.Deny}, "Monitor": {permit.Deny, permit.Ask, permit.Deny},
		"PowerShell": {permit.Deny, permit.Ask, permit.Deny}, "NewShell": {permit.Deny, permit.Ask, permit.Deny},
		"Task": {permit.Allow, permit.Allow, permit.Allow}, "mcp__tasks__add": {permit.Allow, permit.Allow, permit.Allow},
	} {
		r.Preset = programs.Permissive
		got := [3]permit.Effect{judge(r, tool, push).Effect, judge(r, tool, test).Effect}
		r.Preset = programs.Autonomous
		got[2] = judge(r, tool, push).Effect
		if got != want {
			t.Errorf("%s: got %v, want %v", tool, got, want)
		}
	}
	r.Preset = programs.Permissive
	for _, member := range []string{"script", "code"} {
		if d := judge(r, "NewShell", map[string]any{member: "x"}); d.Effect != permit.Ask {
			t.Errorf("a %s of a tool that is not known: got %+v, want a question", member, d)
		}
	}
	if d := judge(r, "mcpshell", push); d.Effect != permit.Deny {
		t.Errorf("a push of a tool named mcpshell: got %+v, want a refusal", d)
	}
	if d := judge(r, "Bash", map[string]any{}); d.Effect != permit.Ask || d.Rule != "unreadable" {
		t.Errorf("a command that is not shown: got %+v, want a question", d)
	}
}

func TestFiles(t *testing.T) {
	r, base := place(t)
	for path, want := range map[string]permit.Effect{
		"a.txt": permit.Allow, "new/folder/a.txt": permit.Allow, "src/../a.txt": permit.Allow, "in/a.txt": permit.Allow,
		base + "/task/a.txt": permit.Allow, base + "/common/x": permit.Allow, ".": permit.Allow,
		"../a.txt": permit.Deny, "out/a.txt": permit.Deny, "nowhere": permit.Deny, "nowhere/x": permit.Deny, "in/../../home/a": permit.Deny,
		base + "/task-too/a": permit.Deny, base + "/own/state/db": permit.Deny,
		"/etc/passwd": permit.Deny, "~/.ssh/id": permit.Deny, "/proc/self/environ": permit.Deny, "/proc/self/root/etc/passwd": permit.Deny,
		"/proc/self/cwd/x": permit.Deny, "/dev/fd/0": permit.Deny,
		"~/.bashrc": permit.Deny, "~/.claude/settings.json": permit.Deny, "../clone/.git/hooks/pre-commit": permit.Deny, "loop": permit.Deny,
		"missing/../../../etc/x": permit.Deny, base: permit.Deny, "/": permit.Deny,
	} {
		for _, tool := range []string{"Write", "Read"} {
			if d := judge(r, tool, map[string]any{"file_path": path}); d.Effect != want {
				t.Errorf("%s %s: %+v, want %s", tool, path, d, want)
			}
		}
	}
	r.Framework = programs.Codex
	patch := "*** Begin Patch\n*** Update File: src/a.go\n@@\n-a\n+b\n*** Add File: ../b.go\n+c\n*** End Patch"
	if d := judge(r, "apply_patch", map[string]any{"input": patch}); d.Effect != permit.Deny || d.Rule != "path" {
		t.Errorf(`%+v; want d.Effect = permit.Deny, d.Rule = "path"`, d)
	}
	if d := judge(r, "apply_patch", map[string]any{"input": strings.ReplaceAll(patch, "../", "")}); d.Effect != permit.Allow {
		t.Errorf("%+v; want d.Effect = permit.Allow", d)
	}
	r.Framework, r.Tool = programs.Claude, "Write"
	for _, input := range []string{"", "[]", `{"file_path":3}`, `{"paths":"x"}`, `{"target":"x"}`} {
		r.Input = json.RawMessage(input)
		if d := permit.Judge(r); d.Effect != permit.Ask || d.Rule != "unreadable" {
			t.Errorf(`%s: %+v; want d.Effect = permit.Ask, d.Rule = "unreadable"`, input, d)
		}
	}
}

func TestCommands(t *testing.T) {
	r, base := place(t)
	for command, want := range map[string]permit.Effect{
		"go build ./...":                             permit.Allow,
		"git commit -am 'stop pushing'":              permit.Allow,
		"echo push; git status":                      permit.Allow,
		"rm -rf build && mkdir -p build/x":           permit.Allow,
		"cat /etc/os-release > os.txt":               permit.Allow,
		"ls ..":                                      permit.Allow,
		"make 2>&1 | tee build.log 2>/dev/null":      permit.Allow,
		"cp /usr/share/dict/words .":                 permit.Deny, // which of its words is written to is not looked into
		"curl https://example.com/a/b":               permit.Allow,
		"gh pr view 3":                               permit.Allow,
		"cat <<EOF > a.txt\nsudo\nEOF":               permit.Allow,
		"git stash push":                             permit.Allow,
		"git commit -m push":                         permit.Allow,
		"(cd .. && ls); rm -rf build":                permit.Allow,
		"x=$(cd .. && pwd); touch a":                 permit.Allow,
		"cd src && touch a && cd .. && touch b":      permit.Allow,
		"cd .. && ls":                                permit.Allow,
		"cd .. && touch x":                           permit.Deny,
		"cd .. && echo x > y":                        permit.Deny,
		"cd && rm -rf x":                             permit.Deny,
		"cd ~ && cat .ssh/id_ed25519":                permit.Deny,
		"cd /; cat etc/shadow":                       permit.Deny,
		"(cd .. && touch x)":                         permit.Deny,
		"cd src; bash -c 'cd ../..; touch x'":        permit.Deny,
		"cat /proc/self/environ":                     permit.Deny,
		"echo x > /proc/self/cwd/../x":               permit.Deny,
		"git -c alias.x=push x":                      permit.Deny,
		"git send-pack origin main":                  permit.Deny,
		"git subtree push --prefix a origin b":       permit.Deny,
		"git -C":                                     permit.Allow,
		"git push":                                   permit.Deny,
		"cd src && git -C . push origin main":        permit.Deny,
		"bash -c 'git push'":                         permit.Deny,
		"bash -lc \"sh -c 'git push'\"":              permit.Deny,
		"eval git push":                              permit.Deny,
		"env A=b git push":                           permit.Deny,
		"timeout 5 git push":                         permit.Deny,
		"x=$(git push)":                              permit.Deny,
		"if true; then git push; fi":                 permit.Deny,
		"find . -name x | xargs sudo rm":             permit.Deny,
		"s\\udo ls":                                  permit.Deny,
		"'su'do ls":                                  permit.Deny,
		"/usr/bin/sudo ls":                           permit.Deny,
		"echo x > ../a.txt":                          permit.Deny,
		"echo x >> ~/.bashrc":                        permit.Deny,
		"echo x > \"$HOME/a\"":                       permit.Deny,
		"rm -rf ~":                                   permit.Deny,
		"rm -rf ..":                                  permit.Deny,
		"rm -rf /":                                   permit.Deny,
		"cp a.txt " + base + "/home/a.txt":           permit.Deny,
		"dd if=a of=" + base + "/home/x":             permit.Deny,
		"cat ~/.ssh/id_ed25519":                      permit.Deny,
		"cat $HOME/.codex/auth.json":                 permit.Deny,
		"cat < " + base + "/own/state/junctor.db":    permit.Deny,
		"cat out/.ssh/id":                            permit.Deny,
		"cat /proc/1/environ":                        permit.Deny,
		"gh pr create --fill":                        permit.Deny,
		"echo 'unfinished":                           permit.Deny,
		strings.Repeat("true; ", 20_000):             permit.Deny,
		"sh -c 'sh -c \"sh -c \\\"sh -c true\\\"\"'": permit.Allow,
	} {
		if d := judge(r, "Bash", map[string]any{"command": command}); d.Effect != want {
			t.Errorf("%.80s: %+v, want %s", command, d, want)
		}
	}
	r.Framework = programs.Codex
	if d := judge(r, "shell_command", map[string]any{"command": []string{"bash", "-lc", "git push"}}); d.Effect != permit.Deny ||
		d.Rule != "command" {
		t.Errorf(`%+v; want d.Effect = permit.Deny, d.Rule = "command"`, d)
	}
	if d := judge(r, "exec_command", map[string]any{"command": 3}); d.Effect != permit.Ask {
		t.Errorf("%+v; want d.Effect = permit.Ask", d)
	}
}

// FuzzJudge: whatever a program sends, it is judged, and nothing that writes to a path
// outside is allowed because of how the path is spelt.
func FuzzJudge(f *testing.F) {
	r, base := place(f)
	r.Home = base + "/home"
	for _, s := range []string{"a.txt", "../x", "out/../x", "git push", "cat <<E\n$(sudo)\nE", "~/.ssh"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		judge(r, "Bash", map[string]any{"command": text})
		if d := judge(r, "Write", map[string]any{"file_path": text}); d.Effect == permit.Allow {
			full := text
			if !filepath.IsAbs(full) {
				full = r.Workdir + "/" + text
			}
			if at := filepath.Clean(full); !strings.HasPrefix(at+"/", base+"/") {
				t.Errorf(`%q is %s; want at + "/" beginning with base + "/"`, text, at)
			}
		}
	})
}

func TestTheFolderOfACommandCounts(t *testing.T) {
	r, base := place(t)
	for _, tt := range []struct {
		name   string
		preset programs.Preset
		tool   string
		input  map[string]any
		want   permit.Effect
	}{
		{"elsewhere", programs.Autonomous, "Bash", map[string]any{"command": "rm a/b", "workdir": base + "/home"}, permit.Deny},
		{"elsewhere, as Gemini names it", programs.Autonomous, "run_shell_command", map[string]any{"command": "rm a", "dir_path": "../home"}, permit.Deny},
		{"elsewhere, read only", programs.Standard, "run_shell_command", map[string]any{"command": "cat x", "dir_path": base + "/home"}, permit.Deny},
		{"by a link", programs.Autonomous, "Bash", map[string]any{"command": "ls", "cwd": "out"}, permit.Deny},
		{"with credentials", programs.Autonomous, "Bash", map[string]any{"command": "cat id", "cwd": base + "/home/.ssh"}, permit.Deny},
		{"from a folder inside, up and out", programs.Autonomous, "Bash", map[string]any{"command": "rm ../../x", "cwd": "src"}, permit.Deny},
		{"from a folder inside, up", programs.Autonomous, "Bash", map[string]any{"command": "rm ../x", "cwd": "src"}, permit.Allow},
		{"a folder inside", programs.Autonomous, "Bash", map[string]any{"command": "rm x", "directory": "src"}, permit.Allow},
		{"a further folder", programs.Standard, "Bash", map[string]any{"command": "cat x", "cwd": base + "/common"}, permit.Allow},
		{"two folders", programs.Autonomous, "Bash", map[string]any{"command": "ls", "cwd": "src", "workdir": base + "/home"}, permit.Ask},
		{"not a text", programs.Autonomous, "Bash", map[string]any{"command": "ls", "cwd": 7}, permit.Ask},
		{"none", programs.Autonomous, "Bash", map[string]any{"command": "ls", "cwd": nil}, permit.Allow},
	} {
		r.Preset, r.Framework = tt.preset, programs.Claude
		if tt.tool == "run_shell_command" {
			r.Framework = programs.Gemini
		}
		if d := judge(r, tt.tool, tt.input); d.Effect != tt.want {
			t.Errorf("%s: got %s (%s), want %s", tt.name, d.Effect, d.Reason, tt.want)
		}
	}
}

func TestAWriteToProjectSettingsIsAsked(t *testing.T) {
	t.Parallel()
	r, base := place(t)
	if err := os.MkdirAll(base+"/task/.claude", 0o700); err != nil {
		t.Fatalf("preparing the folder: got %v, want no error", err)
	}
	if err := os.Symlink(".claude", base+"/task/plain"); err != nil {
		t.Fatalf("preparing the folder: got %v, want no error", err)
	}
	for _, tt := range []struct {
		path   string
		preset programs.Preset
		want   permit.Effect
	}{
		{".claude/settings.json", programs.Permissive, permit.Ask},
		{base + "/task/.mcp.json", programs.Permissive, permit.Ask},
		{"src/.pi/extensions/a.ts", programs.Permissive, permit.Ask},
		{"src/../OpenCode.JSON", programs.Permissive, permit.Ask},
		{"plain/settings.json", programs.Permissive, permit.Ask},
		{".gemini/settings.json", programs.Standard, permit.Ask},
		{".gemini/settings.json", programs.Autonomous, permit.Allow},
		{".gemini/styleguide.md", programs.Permissive, permit.Allow},
		{"src/claude.go", programs.Permissive, permit.Allow},
		{"src/my.claude/a", programs.Permissive, permit.Allow},
	} {
		r.Preset = tt.preset
		if got := judge(r, "Write", map[string]any{"file_path": tt.path}); got.Effect != tt.want {
			t.Errorf("Judge(write of %s at %s) = %+v, want %s", tt.path, tt.preset, got, tt.want)
		}
		if got := judge(r, "Read", map[string]any{"file_path": tt.path}); got.Effect != permit.Allow {
			t.Errorf("Judge(read of %s at %s) = %+v, want %s", tt.path, tt.preset, got, permit.Allow)
		}
	}
}
