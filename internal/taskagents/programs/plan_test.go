package programs_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/overlay"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/secret"
)

// value is what a plan's environment says of a variable.
func value(p programs.Plan, name string) (string, bool) {
	for _, e := range p.Env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

func TestEnvironments(t *testing.T) {
	t.Parallel()
	ours := secret.NewToken('a')
	for name, tt := range map[string]struct {
		change func(*programs.Spawn)
		want   map[string]string // "-": not there
	}{
		"only what is on the list": {nil, map[string]string{
			"PATH": "/usr/bin", "LANG": "C.UTF-8", "EDITOR": "-",
			"AWS_SECRET_ACCESS_KEY": "-", "HOME": "/home/user", "TERM": "xterm-256color", "COLORTERM": "truecolor",
		}},
		"its own names": {nil, map[string]string{
			"PARALLAX_SESSION_ID": "pty-1700000000000-0a1b2c3d",
			"ELIZA_HOOK_PORT":     "2138", "ELIZA_HOOK_TOKEN": token,
		}},
		"our key is not the task's": {func(s *programs.Spawn) { s.Credentials = nil }, map[string]string{"ANTHROPIC_API_KEY": "-"}},
		"another vendor's key":      {nil, map[string]string{"OPENAI_API_KEY": "-", "ANTHROPIC_API_KEY": "sk-ant-api03-0123456789"}},
		"GITHUB_TOKEN without a repository": {
			func(s *programs.Spawn) { s.Custom = map[string]string{"GITHUB_TOKEN": "x"} },
			map[string]string{"GITHUB_TOKEN": "-"},
		},
		"GITHUB_TOKEN with one": {func(s *programs.Spawn) { s.Repo = true }, map[string]string{"GITHUB_TOKEN": "gh"}},
		"a subscription's token as a key": {
			func(s *programs.Spawn) { s.Credentials = map[string]string{"ANTHROPIC_API_KEY": "sk-ant-oat01-x"} },
			map[string]string{"ANTHROPIC_API_KEY": "-", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-x"},
		},
		"a subscription's token as a key of the caller's": {
			func(s *programs.Spawn) {
				s.Credentials, s.Custom = nil, map[string]string{"ANTHROPIC_API_KEY": "sk-ant-oat01-x", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-y"}
			},
			map[string]string{"ANTHROPIC_API_KEY": "-", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-y"},
		},
		"what nobody gets": {
			func(s *programs.Spawn) {
				s.Custom = map[string]string{
					"MY_PRIVATE_KEY": "x", "AWS_REGION": "x", "DISCORD_X": "x", "telegram_bot": "x", "JUNCTOR_TOKEN": "x",
					"HARMLESS": ours, "MINE": "y", "A=B": "z",
				}
				s.Parent["TZ"] = ours
			},
			map[string]string{
				"MY_PRIVATE_KEY": "-", "AWS_REGION": "-", "DISCORD_X": "-", "telegram_bot": "-", "JUNCTOR_TOKEN": "-",
				"HARMLESS": "-", "TZ": "-", "MINE": "y", "A": "-",
			},
		},
		"what is ours wins": {
			func(s *programs.Spawn) {
				s.Custom = map[string]string{"ELIZA_HOOK_TOKEN": "x", "HOME": "/root", "PARALLAX_SESSION_ID": "x", "TERM_PROGRAM": "x", "PATH": "/mine"}
			},
			map[string]string{
				"ELIZA_HOOK_TOKEN": token, "HOME": "/home/user", "PARALLAX_SESSION_ID": "pty-1700000000000-0a1b2c3d",
				"TERM_PROGRAM": "ghostty", "PATH": "/usr/bin",
			},
		},
		"what has programs do something else": {
			func(s *programs.Spawn) {
				s.Parent["NODE_OPTIONS"] = "--ours"
				s.Custom = map[string]string{
					"LD_PRELOAD": "x", "ld_library_path": "x", "DYLD_INSERT_LIBRARIES": "x", "NODE_OPTIONS": "--require=x", "BASH_ENV": "x", "ENV": "x",
					"SHELL":           "x",
					"GIT_SSH_COMMAND": "x", "GIT_CONFIG_COUNT": "1", "GIT_DIR": "x", "GIT_AUTHOR_NAME": "me", "PYTHONSTARTUP": "x",
					"ELIZA_HOOK_PORT": "1", "GITLAB_TOKEN": "kept",
				}
			},
			map[string]string{
				"LD_PRELOAD": "-", "ld_library_path": "-", "DYLD_INSERT_LIBRARIES": "-", "NODE_OPTIONS": "--ours", "BASH_ENV": "-", "ENV": "-",
				"SHELL":           "/bin/bash",
				"GIT_SSH_COMMAND": "-", "GIT_CONFIG_COUNT": "-", "GIT_DIR": "-", "GIT_AUTHOR_NAME": "me", "PYTHONSTARTUP": "-",
				"ELIZA_HOOK_PORT": "2138", "GITLAB_TOKEN": "kept",
			},
		},
		"a NUL": {func(s *programs.Spawn) { s.Custom = map[string]string{"MINE": "a\x00b"} }, map[string]string{"MINE": "-"}},
		"the user's own address": {
			func(s *programs.Spawn) { s.Parent["ANTHROPIC_BASE_URL"] = "http://y" },
			map[string]string{"ANTHROPIC_BASE_URL": "http://y"},
		},
		"a model's address": {
			func(s *programs.Spawn) { s.BaseURL = "http://x" },
			map[string]string{"ANTHROPIC_BASE_URL": "http://x", "ANTHROPIC_MODEL": "some/model"},
		},
		"root in a sandbox": {func(s *programs.Spawn) { s.UID, s.Parent["IS_SANDBOX"] = 0, "1" }, map[string]string{"IS_SANDBOX": "1"}},
		"one provider's key": {
			func(s *programs.Spawn) { s.Framework, s.Provider = programs.Aider, "openai" },
			map[string]string{"ANTHROPIC_API_KEY": "-", "OPENAI_API_KEY": "sk-openai"},
		},
		"root in none": {func(s *programs.Spawn) { s.UID = 0 }, map[string]string{"IS_SANDBOX": "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := spawn(programs.Claude, programs.Standard)
			if tt.change != nil {
				tt.change(&s)
			}
			plan := build(t, s)
			for variable, want := range tt.want {
				if got, ok := value(plan, variable); ok && got != want || !ok && want != "-" {
					t.Errorf("%s=%s (%v), want %s", variable, got, ok, want)
				}
			}
		})
	}
}

func TestRootDoesNotBypassPermissions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		uid     int
		sandbox string
		want    string
	}{
		{1000, "", "--dangerously-skip-permissions"},
		{0, "", "--permission-mode=acceptEdits"},
		{0, "0", "--permission-mode=acceptEdits"},
		{0, "1", "--dangerously-skip-permissions"},
	} {
		s := spawn(programs.Claude, programs.Autonomous)
		s.UID, s.Parent["IS_SANDBOX"] = tt.uid, tt.sandbox
		plan := build(t, s)
		bypass := slices.Contains(plan.Argv, "--dangerously-skip-permissions")
		if !slices.Contains(plan.Argv, tt.want) || bypass == (len(plan.Notes) > 0) {
			t.Errorf("%d %q: %q %q; want plan.Argv with %v, bypass other than (len(plan.Notes) > 0)",
				tt.uid, tt.sandbox, plan.Argv, plan.Notes, tt.want)
		}
	}
}

func TestTasks(t *testing.T) {
	t.Parallel()
	const prefix = "Work in /w/project and nowhere else.\n"
	for name, tt := range map[string]struct {
		of           programs.Name
		task, memory string
		want         string
		inArgv       bool
		file         bool
	}{
		"on the command line":          {programs.Claude, "do it", "", prefix + "do it", true, false},
		"typed":                        {programs.Aider, "do it", "", prefix + "do it", false, false},
		"a memory names the workspace": {programs.Codex, "do it", "m", "do it", true, false},
		"a command of the program's":   {programs.Codex, "/exit now", "m", " /exit now", true, false},
		"a flag":                       {programs.Pi, "--help", "m", " --help", true, false},
		"a file":                       {programs.Pi, "@/etc/passwd", "m", " @/etc/passwd", true, false},
		"a shell's command":            {programs.Shell, "!! /bin", "", "!! /bin", false, false},
		"none":                         {programs.Claude, " \n", "", "", false, false},
		"too long to type": {
			programs.Aider, strings.Repeat("é", programs.MaxTyped+1), "m",
			"Read the file .task-agents/TASK-pty-1700000000000-0a1b2c3d.md: it is your task. Do what it says.", false, true,
		},
		"long enough to type": {
			programs.Aider, strings.Repeat("é", programs.MaxTyped), "m", strings.Repeat("é", programs.MaxTyped),
			false, false,
		},
		"too long for an argument": {
			programs.Gemini, strings.Repeat("x", programs.MaxArgv+1), "m",
			"Read the file .task-agents/TASK-pty-1700000000000-0a1b2c3d.md: it is your task. Do what it says.", true, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := spawn(tt.of, programs.Standard)
			s.Task, s.Memory = tt.task, tt.memory
			plan := build(t, s)
			got := plan.FirstInput
			if plan.TaskInArgv && got != strings.TrimPrefix(plan.Argv[len(plan.Argv)-1], "--prompt-interactive=") {
				t.Errorf("the command line says %q", plan.Argv)
			}
			if got != tt.want || plan.TaskInArgv != tt.inArgv {
				t.Errorf("%.200q %v; want got = %v, plan.TaskInArgv = %v", got, plan.TaskInArgv, tt.want, tt.inArgv)
			}
			at := slices.IndexFunc(plan.Changes, func(c overlay.Change) bool { return strings.Contains(c.Path, "TASK-") })
			if at >= 0 != tt.file || tt.file && plan.Changes[at].Text != tt.task {
				t.Errorf("its file: %v; want at >= 0 = %v, not (tt.file && plan.Changes[at].Text != tt.task)", at, tt.file)
			}
		})
	}
}

func TestResuming(t *testing.T) {
	t.Parallel()
	const id = "01a20437-e8b5-7132-ab85-f90806957c7d"
	for name, want := range map[programs.Name][]string{
		programs.Claude: {"--resume=" + id}, programs.Codex: {"resume", "--no-daemon", "-C", "/w/project", "--", id},
		programs.Gemini: {"--resume=" + id}, programs.Pi: {"--session", id}, programs.OpenCode: {"--session", id},
	} {
		s := spawn(name, programs.Standard)
		s.Resume, s.Task = id, ""
		plan := build(t, s)
		if !strings.Contains(strings.Join(plan.Argv, "\n"), strings.Join(want, "\n")) || plan.ResumeToken != id ||
			slices.Contains(plan.Argv, "--session-id="+s.UUID) {
			t.Errorf(`%s: %q; want strings.Join(plan.Argv, "\n") with strings.Join(want, "\n"), plan.ResumeToken = %v, `+
				`plan.Argv without "--session-id=" + s.UUID`, name, plan.Argv, id)
		}
	}
}

func TestWhatCannotBeStarted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*programs.Spawn)
		reason string
	}{
		"an unknown program":      {func(s *programs.Spawn) { s.Framework = "vim" }, "adapter_framework"},
		"hermes":                  {func(s *programs.Spawn) { s.Framework = programs.Hermes }, "adapter_framework"},
		"an unknown preset":       {func(s *programs.Spawn) { s.Preset = "yolo" }, "adapter_preset"},
		"opencode without model":  {func(s *programs.Spawn) { s.Framework, s.Model = programs.OpenCode, "" }, "OPENCODE_NO_PROVIDER"},
		"a relative workspace":    {func(s *programs.Spawn) { s.Workdir = "w" }, "adapter_invalid"},
		"a server without a port": {func(s *programs.Spawn) { s.Server = "http://localhost" }, "adapter_invalid"},
		"a session of dots":       {func(s *programs.Spawn) { s.Session = "../x" }, "adapter_invalid"},
		"an id that is a flag":    {func(s *programs.Spawn) { s.Resume = "--last" }, "adapter_invalid"},
		"an id that is too long":  {func(s *programs.Spawn) { s.Resume = strings.Repeat("a", 513) }, "adapter_invalid"},
		"a model that is a flag":  {func(s *programs.Spawn) { s.Model = "--yolo" }, "adapter_invalid"},
		"a NUL in the task":       {func(s *programs.Spawn) { s.Task = "a\x00" }, "adapter_invalid"},
		"a task without end":      {func(s *programs.Spawn) { s.Task = strings.Repeat("x", programs.MaxTask+1) }, "adapter_invalid"},
		"no UUID":                 {func(s *programs.Spawn) { s.UUID = "" }, "adapter_invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := spawn(programs.Claude, programs.Standard)
			tt.change(&s)
			_, err := programs.Build(s)
			if e := capability.AsError(err); e == nil || e.Code != capability.CodeInvalidInput || e.Reason != tt.reason {
				t.Errorf("%v; want e not nil, e.Code = capability.CodeInvalidInput, e.Reason = %v", err, tt.reason)
			}
		})
	}
}

// TestPlansLeaveNothingBehind carries out every plan in a repository and a home that hold
// files of their users, and undoes it.
func TestPlansLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	for _, name := range allNames() {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			top, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			s := spawn(name, programs.Permissive)
			s.Workdir, s.StateDir, s.KeepDir, s.Home = top+"/work", top+"/state", top+"/keep", top+"/home"
			s.BaseURL, s.Task = "http://127.0.0.1:9", strings.Repeat("long ", programs.MaxArgv/4)
			s.Skills = "# Skills"
			for _, dir := range []string{s.Workdir, s.StateDir, s.KeepDir, s.Home} {
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for path, text := range map[string]string{
				s.Home + "/.claude.json": `{"numStartups": 1}`, s.Workdir + "/CLAUDE.md": "the project's",
				s.Workdir + "/AGENTS.md": "the project's", s.KeepDir + "/earlier": "x",
			} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if out, err := exec.Command("git", "-C", s.Workdir, "init", "-q").CombinedOutput(); err != nil {
				t.Fatalf("%s", out)
			}
			before := tree(t, top)
			plan := build(t, s)
			if err := overlay.Apply(t.Context(), top+"/journal", s.Session, plan.Changes); err != nil {
				t.Fatal(err)
			}
			if out, _ := exec.Command("git", "-C", s.Workdir, "status", "--porcelain", "--ignored=no").Output(); strings.Contains(string(out),
				"task-agents") {
				t.Errorf(`git sees %s; want string(out) without "task-agents"`, out)
			}
			if err := overlay.Undo(t.Context(), top+"/journal"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, tree(t, top)); diff != "" {
				t.Errorf("diff (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSkillsAreBesideTheWork: two programs may work in one folder, and each finds its own.
func TestSkillsAreBesideTheWork(t *testing.T) {
	t.Parallel()
	for _, n := range programs.All() {
		if n.Name == programs.Hermes {
			continue
		}
		s := spawn(n.Name, programs.Permissive)
		s.BaseURL, s.Skills = "http://127.0.0.1:9", "# Skills"
		plan := build(t, s)
		path, told := s.Workdir+"/.task-agents/SKILLS-"+s.Session+".md", false
		for _, c := range plan.Changes {
			if c.Path == path && c.Kind == overlay.Private && c.Text == "# Skills" {
				path = ""
			}
			told = told || strings.Contains(c.Text, "SKILLS-"+s.Session+".md") && strings.Contains(c.Text, "USE_SKILL <slug>")
		}
		has := slices.Contains(plan.Env, "ELIZA_SKILLS_MANIFEST="+s.Workdir+"/.task-agents/SKILLS-"+s.Session+".md")
		if want := n.Name != programs.Shell; (path == "") != want || has != want || told != want {
			t.Errorf(`%s: written %v, named %v, told %v; want (path == "") = %v, has = %v, told = %v`,
				n.Name, path == "", has, told, want, want, want)
		}
	}
}

func tree(t *testing.T, top string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := fs.WalkDir(os.DirFS(top), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			data, rerr := os.ReadFile(filepath.Join(top, path))
			all[path], err = string(data), rerr
		} else {
			all[path] = d.Type().String()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestAShellTellsHowCommandsEnd runs a real one with our file.
func TestAShellTellsHowCommandsEnd(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash here")
	}
	s := spawn(programs.Shell, programs.Autonomous)
	s.Binary, s.StateDir, s.Workdir, s.Home = bash, t.TempDir(), t.TempDir(), t.TempDir()
	plan := build(t, s)
	if err := overlay.Apply(t.Context(), s.Home+"/journal", s.Session, plan.Changes); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), plan.Argv[0], plan.Argv[1:]...)
	var out bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = plan.Env, s.Workdir, strings.NewReader("true\n(exit 7)\nexit 0\n"), &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	var marks []string
	for _, part := range strings.Split(out.String(), "\x1b]133;")[1:] {
		mark, _, _ := strings.Cut(part, "\a")
		marks = append(marks, mark)
	}
	if got := strings.Join(marks, " "); got != "A B C D;0 A B C D;7 A B C" {
		t.Errorf("%s\n%q\nwant got = \"A B C D;0 A B C D;7 A B C\"", got, out.String())
	}
}

func TestPresets(t *testing.T) {
	t.Parallel()
	// One letter for each category in the order of the table: auto, ask, blocked.
	want := map[programs.Preset]string{
		programs.Readonly: "abbbbak", programs.Standard: "akkakak", programs.Permissive: "aakaaak",
		programs.Autonomous: "aaaaaak", "unknown": "bbbbbbb",
	}
	for p, letters := range want {
		var got string
		for _, c := range []programs.Category{
			programs.FileRead, programs.FileWrite, programs.ShellUse, programs.Web, programs.Agent,
			programs.Planning, programs.UserInteraction,
		} {
			got += map[programs.Verdict]string{programs.Auto: "a", programs.Ask: "k", programs.Blocked: "b"}[p.Judge(c)]
		}
		if got != letters {
			t.Errorf("%s: %s, want %s", p, got, letters)
		}
	}
	for _, tt := range []struct {
		of   programs.Name
		tool string
		want programs.Category
	}{
		{programs.Claude, "Bash", programs.ShellUse},
		{programs.Claude, "MultiEdit", programs.FileWrite},
		{programs.Claude, "mcp__x__read", programs.Agent},
		{programs.Claude, "TaskCreate", programs.Planning},
		{programs.Gemini, "replace", programs.FileWrite},
		{programs.Codex, "Bash", programs.ShellUse},
		{programs.Codex, "apply_patch", programs.FileWrite},
		{programs.Shell, "anything", programs.Agent},
	} {
		if got := programs.CategoryOf(tt.of, tt.tool); got != tt.want {
			t.Errorf("%s %s: %s; want got = %v", tt.of, tt.tool, got, tt.want)
		}
	}
}

func TestPresetsInTheProgramsOwnWords(t *testing.T) {
	t.Parallel()
	for _, name := range allNames() {
		for _, p := range presets() {
			a, err := programs.ApprovalOf(name, p)
			if err != nil || a.Summary == "" || name != programs.Shell && len(a.CLIFlags)+len(a.WorkspaceFiles)+len(a.EnvVars) == 0 {
				t.Errorf(`%s %s: %+v %v; want no error, a.Summary other than "", not (name != programs.Shell && `+
					"len(a.CLIFlags)+len(a.WorkspaceFiles)+len(a.EnvVars) == 0)", name, p, a, err)
			}
		}
		if files := programs.Of(name).Files; name != programs.Shell && (len(files) == 0 || files[0].Type != "memory") {
			t.Errorf(`%s: %+v; want not (name != programs.Shell && (len(files) == 0 || files[0].Type != "memory"))`, name, files)
		}
	}
	if codex := programs.Of(programs.Codex); codex.Powerful == "" || codex.Fast == "" || codex.Powerful == codex.Fast {
		t.Errorf("models of Codex = %q, %q; want two different names", codex.Powerful, codex.Fast)
	}
	if _, err := programs.ApprovalOf(programs.Claude, "none"); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
	}
}

// TestOpenCodeServes starts its server in structured mode from the version that was tried, with the
// password in its environment only.
func TestOpenCodeServes(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]programs.Protocol{
		"1.18.33": programs.Serve, "2.0.0": programs.Serve, "1.17.9": "", "0.20.1": "", "": "", "unknown": "",
	} {
		s := spawn(programs.OpenCode, programs.Standard)
		s.Version, s.Password, s.Structured = version, "a-new-password", true
		p := build(t, s)
		password, set := value(p, "OPENCODE_SERVER_PASSWORD")
		if p.Protocol != want || set != (want == programs.Serve) || set && password != s.Password || programs.ServerPassword(p.Env) != password {
			t.Errorf("version %q: protocol %q with the password %q, want %q", version, p.Protocol, password, want)
		}
		mode := "acp"
		if want == programs.Serve {
			mode = "serve"
		}
		if p.Structured[1] != mode || strings.Contains(strings.Join(p.Structured, " "), s.Password) {
			t.Errorf("version %q: the command is %q, want %s without the password", version, p.Structured, mode)
		}
		plugin := false
		for _, c := range p.Changes {
			plugin = plugin || strings.Contains(c.Text, "delete process.env")
			if strings.Contains(c.Text, s.Password) {
				t.Errorf("version %q: %s holds the password, want it in the environment only", version, c.Path)
			}
		}
		config, _ := value(p, "OPENCODE_CONFIG_CONTENT")
		if strings.Contains(config, s.Password) || plugin != set || strings.Contains(config, "quiet.js") != set {
			t.Errorf("version %q: plugin is %v and the settings are %s, want the plugin with the password", version, plugin, config)
		}
	}
	s := spawn(programs.OpenCode, programs.Standard)
	s.Version, s.Structured = "1.18.33", true
	if p := build(t, s); p.Protocol == programs.Serve {
		t.Error("without a password its server is started, want ACP")
	}
}

// TestProjectSettingsOfAClonedRepositoryAreNotUsed: programs would run commands from them before the first question.
func TestProjectSettingsOfAClonedRepositoryAreNotUsed(t *testing.T) {
	t.Parallel()
	const refused = "project_settings"
	for _, tt := range []struct {
		program programs.Name
		file    string
		cloned  bool
		preset  programs.Preset
		want    string // part of the plan, or refused
		holds   bool
	}{
		{programs.Claude, ".claude/settings.json", true, programs.Standard, "--setting-sources=user", true},
		{programs.Claude, ".claude/settings.local.json", true, programs.Readonly, "--setting-sources=user", true},
		{programs.Claude, ".claude/skills/a", true, programs.Permissive, "--setting-sources=user", true},
		{programs.Claude, ".mcp.json", true, programs.Standard, "--setting-sources=user", true},
		{programs.Claude, "README.md", true, programs.Standard, "--setting-sources=user", true}, // a folder below may have some
		{programs.Claude, "README.md", false, programs.Standard, "--setting-sources=user", false},
		{programs.Claude, ".claude/settings.json", false, programs.Standard, "--setting-sources=user", false},
		{programs.Claude, ".claude/settings.json", true, programs.Autonomous, "--setting-sources=user", false},
		{programs.Codex, ".codex/config.toml", true, programs.Permissive, `trust_level = "untrusted"`, true},
		{programs.Codex, ".codex/config.toml", false, programs.Permissive, `trust_level = "untrusted"`, false},
		{programs.OpenCode, "opencode.json", true, programs.Standard, "OPENCODE_DISABLE_PROJECT_CONFIG=1", true},
		{programs.OpenCode, ".opencode/plugin/a.js", true, programs.Standard, "OPENCODE_DISABLE_PROJECT_CONFIG=1", true},
		{programs.OpenCode, ".opencode/plugin/a.js", true, programs.Autonomous, "OPENCODE_DISABLE_PROJECT_CONFIG=1", false},
		{programs.Pi, ".pi/extensions/a.ts", true, programs.Readonly, refused, true},
		{programs.Pi, ".pi/settings.json", true, programs.Readonly, refused, true},
		{programs.Pi, "README.md", true, programs.Readonly, "--no-extensions", true},
		{programs.Pi, "README.md", false, programs.Readonly, "--no-extensions", false},
		{programs.Gemini, ".gemini/settings.json", true, programs.Readonly, refused, true},
		{programs.Gemini, ".gemini/settings.json", false, programs.Readonly, refused, false},
		{programs.Gemini, ".gemini/settings.json", true, programs.Autonomous, refused, false},
		{programs.Gemini, ".env", true, programs.Standard, `"ignoreLocalEnv":true`, true},
		{programs.Gemini, "../.gemini/.env", true, programs.Standard, refused, true}, // the session works in a folder of the clone
		{programs.Aider, "../.aider.conf.yml", true, programs.Standard, refused, true},
		{programs.Gemini, "../../.gemini/.env", true, programs.Standard, refused, false},
		{programs.Qwen, ".env", true, programs.Standard, refused, true},
		{programs.Aider, ".aider.conf.yml", true, programs.Standard, refused, true},
		{programs.Aider, "README.md", true, programs.Standard, refused, false},
	} {
		t.Run(fmt.Sprintf("%s %s cloned=%t %s", tt.program, tt.file, tt.cloned, tt.preset), func(t *testing.T) {
			t.Parallel()
			s := spawn(tt.program, tt.preset)
			root := filepath.Join(t.TempDir(), "clone")
			s.Workdir = filepath.Join(root, "part")
			if tt.cloned {
				s.Clone = root
			}
			if err := os.MkdirAll(s.Workdir, 0o700); err != nil {
				t.Fatalf("preparing the folder: got %v, want no error", err)
			}
			if err := os.MkdirAll(filepath.Dir(filepath.Join(s.Workdir, tt.file)), 0o700); err != nil {
				t.Fatalf("preparing the folder: got %v, want no error", err)
			}
			if err := os.WriteFile(filepath.Join(s.Workdir, tt.file), []byte("{}"), 0o600); err != nil {
				t.Fatalf("preparing the folder: got %v, want no error", err)
			}
			plan, err := programs.Build(s)
			got := strings.Join(slices.Concat(plan.Argv, plan.Structured, plan.Env), "\n")
			for _, c := range plan.Changes {
				got += c.Text
			}
			if failed := capability.AsError(err); failed != nil {
				got = failed.Reason
			}
			if strings.Contains(got, tt.want) != tt.holds {
				t.Errorf("the plan is %s %v, want that it has %s: %t", got, err, tt.want, tt.holds)
			}
			instructed := tt.cloned && tt.preset != programs.Autonomous && (tt.program == programs.Claude || tt.program == programs.OpenCode)
			if strings.Contains(got, "of the repository by itself: read it") != instructed {
				t.Errorf("the plan is %s, want that the agent is asked to read the repository's instructions: %t", got, instructed)
			}
		})
	}
}
