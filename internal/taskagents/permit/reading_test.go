package permit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

func TestACommandThatOnlyReadsTheFolderIsReading(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, "work")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(top, filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(top, filepath.Join(dir, "-out")); err != nil {
		t.Fatalf("a link: got %v, want no error", err)
	}
	preset := programs.Standard
	ask := func(command, cwd string) Effect {
		input, err := json.Marshal(map[string]string{"command": command, "cwd": cwd})
		if err != nil {
			t.Fatal(err)
		}
		return Judge(Request{
			Framework: programs.Codex, Preset: preset, Tool: "exec_command", Input: input, Workdir: dir, Home: "/home/user",
		}).Effect
	}
	for _, p := range []programs.Preset{programs.Readonly, programs.Standard} {
		preset = p
		if got, want := ask("touch a", dir), map[programs.Preset]Effect{programs.Readonly: Deny, programs.Standard: Ask}[p]; got != want {
			t.Errorf("touch with the preset %s: %s, want %s", p, got, want)
		}
		if got := ask("ls sub", dir); got != Allow {
			t.Errorf("ls with the preset %s: %s, want %s", p, got, Allow)
		}
	}
	for _, command := range []string{
		"ls", "ls -la sub", "ls " + dir, `/bin/bash -lc 'ls -R && cat "sub/a" 2>/dev/null | head -n 5'`, "sed -n '1,200p' a.go", "rg -n word sub",
		"grep -rn word . 2>&1", "pwd", "grep --recursive --include=a.go -- word", "rg --files --hidden", "wc --lines a", "head -n5 a -n 6",
		"cat -- -a",
	} {
		if got := ask(command, dir); got != Allow {
			t.Errorf("%s: %s, want %s", command, got, Allow)
		}
	}
	for _, command := range []string{
		"echo ran > ran.txt && ls", "ls; touch a", "ls & rm a", "cat out/secret", "cat /etc/passwd", "cat ../secret", "cat *", "cat ~/x",
		"cat $HOME/x",
		"ls $(touch a)", "ls `touch a`", "A=1 ls", "./ls", "rg --pre ./run x", "rg --pre=./run x", "rg -L word", "grep -R word", "grep -f/etc/shadow x",
		"grep --file=../list x", "sed -n '1w a' b", "sed -i s/a/b/ c", "cat <(touch a)", "ls() { touch a; }; ls", "git status", "find . -delete",
		"bash -c 'bash -c \"bash -c \\\"ls\\\"\"'", "wc --files0-from=list", "wc --fi=list", "grep --der . .", "cat -- -out", "cat -- -out/secret", "head -n 1 -- -out", "ls -LR .", "ls -H out", "stat -L a", "tail -f a", "tail -n 1 -F a",
		"grep -S word .", "wc -- ../a", "grep --dereference-recursive . .",
		"sed -n 1p -e '1e id' b", "sed -n 1p -i b", "sed -n 1p b --expression=1e", "sed -n 1p b -s -i",
		"cat > a", "tee a", "ls >> a", "", "ls '", "bash a.sh",
	} {
		if got := ask(command, dir); got == Allow {
			t.Errorf("%q: %s, want it asked about or denied", command, got)
		}
	}
	if got := ask("ls", top); got == Allow {
		t.Errorf("ls in a directory outside: %s, want it asked about", got)
	}
}
