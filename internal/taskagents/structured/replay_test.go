package structured_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/permit"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/structured"
)

const (
	task  = "Create the file hello.txt with a greeting."
	reply = "DECISION: wrote hello.txt because the task asked for it.\nDone: created hello.txt with one line."
)

// recorded are the conversations that real programs had.
var recorded = []struct {
	file    string
	name    programs.Name
	tool    string
	token   string
	in, out int64
	usd     bool
	allow   string // the option that was chosen
	deny    string
	denied  string // what is said instead of what was said when it was allowed
	instead string
}{
	{
		file: "claude-stream-json", name: programs.Claude, tool: "Write", token: "21a21f42-a262-42ae-ae06-c2d93a0badbd", in: 30, out: 60,
		usd:   true,
		allow: "Allow", deny: "Deny",
	},
	{
		file: "codex-app-server", name: programs.Codex, tool: "exec_command", token: "01a1f9ad-59ac-7f61-85d6-deb005882aa4", in: 20, out: 10,
		allow: "Allow", deny: "Deny", denied: `"decision": "accept"`, instead: `"decision": "decline"`,
	},
	{
		file: "gemini-acp", name: programs.Gemini, tool: "write_file", token: "06170091-c10f-43ae-b1a9-9967dcef5f7f", in: 20, out: 10,
		allow: "Allow", deny: "Reject", denied: `"optionId": "proceed_once"`, instead: `"optionId": "cancel"`,
	},
	{
		file: "opencode-acp", name: programs.OpenCode, tool: "edit", token: "ses_e06527e3fffelMSwzIOIPfwq8d",
		allow: "Allow once", deny: "Reject", denied: `"optionId": "once"`, instead: `"optionId": "reject"`,
	},
}

func TestARecordedConversationIsHadAgain(t *testing.T) {
	for _, c := range recorded {
		t.Run(c.file, func(t *testing.T) {
			var list []line
			var asked structured.Ask
			dir := t.TempDir()
			list = recording(t, c.file, dir)
			r := start(t, c.name, replay(t, &list, nil), func(s *structured.Spec) {
				s.Dir, s.Task = dir, task
				s.Judge = func(_ context.Context, a structured.Ask) permit.Decision {
					if !strings.Contains(a.Prompt, "read ") && !strings.Contains(a.Prompt, "edit ") { // the program's own question
						asked = a
					}
					return permit.Decision{Effect: permit.Allow}
				}
			})
			e := r.until(sessions.TaskComplete, 1)
			if e.Text != reply || e.Source != "structured" {
				t.Errorf(`the turn ended with %q, by %s; want e.Text = %v, e.Source = "structured"`, e.Text, e.Source, reply)
			}
			if asked.Tool != c.tool || !json.Valid(asked.Input) || !strings.Contains(string(asked.Input), "hello.txt") {
				t.Errorf(`it asked for %s with %s; want asked.Tool = %v, json.Valid(asked.Input), string(asked.Input) with "hello.txt"`,
					asked.Tool, asked.Input, c.tool)
			}
			if i := r.Info(); i.ResumeToken != c.token || i.Status != detect.Ready || i.Phase != detect.PhaseDone || i.Pid != 4711 {
				t.Errorf("it is %+v; want i.ResumeToken = %v, i.Status = detect.Ready, i.Phase = detect.PhaseDone, i.Pid = 4711",
					i, c.token)
			}
			u := r.Info().Usage
			if u == nil {
				u = &programs.Usage{}
			}
			if u.In != c.in || u.Out != c.out || (u.USD > 0) != c.usd {
				t.Errorf("it has used %+v; want u.In = %v, u.Out = %v, (u.USD > 0) = %v", u, c.in, c.out, c.usd)
			}
			if n := r.Counts(); n.Garbage != 0 || n.Unknown != 0 || n.Lines == 0 {
				t.Errorf("of its messages %+v; want n.Garbage = 0, n.Unknown = 0, n.Lines other than 0", n)
			}
			if lines := strings.Join(r.Lines(100), "\n"); !strings.Contains(lines, "> "+task) || !strings.Contains(lines, reply) {
				t.Errorf("the console shows\n%s\nwant lines with \"> \" + task, lines with %v", lines, reply)
			}
			if c.name == programs.OpenCode { // it had us write the file
				if data, err := os.ReadFile(filepath.Join(dir, "hello.txt")); err != nil || string(data) != "hello from the scripted model\n" {
					t.Errorf(`the file holds %q, %v; want no error, string(data) = "hello from the scripted model\n"`, data, err)
				}
			}
			r.Stop(false)
			<-r.Done()
			if i := r.Info(); i.Status != detect.Stopped || i.EndedAt.IsZero() {
				t.Errorf("after its end it is %+v; want i.Status = detect.Stopped, not i.EndedAt.IsZero()", i)
			}
			r.invariants()
		})
	}
}

func TestAPermissionIsAnsweredByWhoeverLooksOn(t *testing.T) {
	for _, c := range recorded {
		for _, label := range []string{c.allow, c.deny} {
			t.Run(c.file+"/"+label, func(t *testing.T) {
				dir := t.TempDir()
				list := recording(t, c.file, dir)
				change := func(want string) string {
					if label == c.allow || !strings.Contains(want, `"behavior"`) && (c.denied == "" || !strings.Contains(want, c.denied)) {
						return want
					}
					if c.name == programs.Claude {
						var m map[string]any
						_ = json.Unmarshal([]byte(want), &m)
						inner := m["response"].(map[string]any)
						inner["response"] = map[string]any{
							"behavior": "deny",
							"message":  "The user does not want this. Go on without it, or say what you need it for.",
						}
						out, _ := json.Marshal(m)
						return string(out)
					}
					return strings.Replace(want, c.denied, c.instead, 1)
				}
				r := start(t, c.name, replay(t, &list, change), func(s *structured.Spec) {
					s.Dir, s.Task = dir, task
					s.Judge = func(context.Context, structured.Ask) permit.Decision { return permit.Decision{Effect: permit.Ask} }
				})
				b := r.until(sessions.BlockedNow, 1).To.Blocker
				if b.Type != "permission" || len(b.Options) < 2 || b.Fingerprint == "" {
					t.Errorf(`it is blocked by %+v; want b.Type = "permission", len(b.Options) at least 2, b.Fingerprint other than ""`,
						b)
				}
				if _, err := r.Send(context.Background(), "more", false); err == nil || reason(err) != "agent_blocked" {
					t.Errorf(`a text meanwhile: %v; want an error, reason(err) = "agent_blocked"`, err)
				}
				if err := r.Choose(context.Background(), "another", label); reason(err) != "no_dialog" {
					t.Errorf(`another dialog was answered: %v; want reason(err) = "no_dialog"`, err)
				}
				if err := r.Choose(context.Background(), b.Fingerprint, "nothing like it"); reason(err) != "no_such_option" {
					t.Errorf(`an option that is not there was chosen: %v; want reason(err) = "no_such_option"`, err)
				}
				if err := r.Choose(context.Background(), b.Fingerprint, label); err != nil {
					t.Fatal(err)
				}
				r.until(sessions.TaskComplete, 1)
				words := strings.Join(r.words(), " ")
				if !strings.HasPrefix(words, "starting ready busy") || !strings.Contains(words, "blocked:permission busy") ||
					!strings.HasSuffix(words, "busy done") {
					t.Errorf(`it went through %s; want words beginning with "starting ready busy", words with `+
						`"blocked:permission busy", words ending with "busy done"`, words)
				}
				r.invariants()
			})
		}
	}
}

// What a preset says is what the program is told, by the same judge that hooks have.
func TestPresetsJudgeWhatAProgramAsks(t *testing.T) {
	for _, c := range recorded {
		for preset, want := range map[programs.Preset]permit.Effect{
			programs.Readonly: permit.Deny, programs.Autonomous: permit.Allow,
			programs.Standard: permit.Ask,
		} {
			t.Run(c.file+"/"+string(preset), func(t *testing.T) {
				dir, err := filepath.EvalSymlinks(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				list := recording(t, c.file, dir)
				said := make(chan permit.Decision, 8)
				start(t, c.name, replay(t, &list, func(string) string { return "" }), func(s *structured.Spec) {
					s.Dir, s.Task = dir, task
					s.Judge = func(_ context.Context, a structured.Ask) permit.Decision {
						d := permit.Judge(permit.Request{
							Framework: c.name, Preset: preset, Tool: a.Tool, Input: a.Input, Workdir: dir,
							Home: "/home/somebody",
						})
						said <- d
						return d
					}
				})

				if d := <-said; d.Effect != want {
					t.Errorf("it was judged %+v; want d.Effect = %v", d, want)
				}
			})
		}
	}
}
