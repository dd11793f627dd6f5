package directive_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/junctor-run/junctor/internal/taskagents/directive"
)

type jsonRaw = json.RawMessage

func FuzzTake(f *testing.F) {
	f.Add("● DECISION: a\n  b\n```\nDECISION: c\n~~~\n> DECISION: d\n", 0, "task")
	f.Add("● DECISION: wrote hello.txt because the\n  task asked for it.", 44, "DECISION: x")
	f.Fuzz(func(t *testing.T, body string, columns int, ours string) {
		var l directive.Ledger
		text := directive.Text{Body: body, Columns: max(columns, 0) % 500}
		list := l.Take(text, ours)
		if len(list) > directive.MaxTurn {
			t.Fatalf("%d decisions; want len(list) at most directive.MaxTurn", len(list))
		}
		for _, d := range list {
			if d.Text == "" || !utf8.ValidString(d.Text) || strings.ContainsAny(d.Text, "\n\t\x1b") || !strings.HasPrefix(d.Text, d.Shared) ||
				utf8.RuneCountInString(d.Text) > directive.MaxStored || utf8.RuneCountInString(d.Shared) > directive.MaxShared {
				t.Fatalf(`%+v; want d.Text other than "", utf8.ValidString(d.Text), d.Text without any of "\n\t\x1b", d.Text `+
					"beginning with %v, utf8.RuneCountInString(d.Text) at most directive.MaxStored, "+
					"utf8.RuneCountInString(d.Shared) at most directive.MaxShared", d, d.Shared)
			}
		}
		// What has been told is not told again, and what the task says never.
		for _, d := range l.Take(text, ours) {
			for _, earlier := range list {
				if d.Text == earlier.Text {
					t.Fatalf("%q twice; want d.Text other than %v", d.Text, earlier.Text)
				}
			}
		}
		var other directive.Ledger
		if text.Columns == 0 && !strings.ContainsAny(body, "\x00\x7f") && utf8.ValidString(body) {
			if echoes := other.Take(text, "DECISION: "+strings.Join(texts(list), " DECISION: ")); len(list) == 1 && len(echoes) > 0 &&
				len(list[0].Text) < directive.MaxStored {
				for _, e := range echoes {
					if e.Text == list[0].Text {
						t.Fatalf("%q is an echo; want e.Text other than list[0].Text", e.Text)
					}
				}
			}
		}
	})
}

func FuzzReadAnswer(f *testing.F) {
	for _, s := range []string{
		`{"action":"respond","response":"x"}`, `{{{"a":{"action":"ignore"}`, `{"action":"ignore"} {"`,
		strings.Repeat(`{"a":`, 50),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, ok := directive.ReadAnswer(s)
		if !ok {
			return
		}
		if a.Reasoning == "" || a.Action == "respond" && a.Response == "" && len(a.Keys) == 0 ||
			utf8.RuneCountInString(a.KeyDecision) > directive.MaxShared {
			t.Fatalf(`%+v; want a.Reasoning other than "", not (a.Action == "respond" && a.Response == "" && len(a.Keys) == 0), `+
				"utf8.RuneCountInString(a.KeyDecision) at most directive.MaxShared", a)
		}
		// An answer that is written again behind the text is the last one.
		again, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if b, ok := directive.ReadAnswer("} \"\n" + string(again)); !ok || b.Action != a.Action {
			t.Fatalf("%s: %+v; want ok = true, b.Action = %v", again, b, a.Action)
		}
	})
}

func FuzzReadSkillAndProof(f *testing.F) {
	f.Add("USE_SKILL a {\"b\":1}\nAPP_CREATE_DONE {\"appName\":\"x\",\"files\":[],\"tests\":{\"passed\":1,\"failed\":0},\"lint\":\"ok\",\"typecheck\":\"ok\",\"more\":1}", 0)
	f.Add("● PLUGIN_CREATE_DONE {\"pluginName\":\n  \"x\"}", 30)
	f.Fuzz(func(t *testing.T, body string, columns int) {
		text := directive.Text{Body: body, Columns: max(columns, 0) % 500}
		if c, ok := directive.ReadSkill(text); ok && (c.Slug == "" || c.Input != nil && (!json.Valid(c.Input) || c.Words != "")) {
			t.Fatalf(`%+v; want not (ok && (c.Slug == "" || c.Input != nil && (!json.Valid(c.Input) || c.Words != "")))`, c)
		}
		if p, ok, err := directive.ReadProof(text); ok && (err != nil || strings.TrimSpace(p.Name) == "" || p.Files == nil || p.Passed < 0 ||
			p.Kind != "app" && p.Kind != "plugin") {
			t.Fatalf("%+v %v", p, err)
		}
	})
}
