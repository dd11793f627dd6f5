package detect

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/programs"

	"github.com/google/go-cmp/cmp"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]programs.Name{
		"claude": programs.Claude, "Claude Code": programs.Claude, "claude_code": programs.Claude, "CLAUDECODE": programs.Claude,
		"openai codex": programs.Codex, "OpenAI": programs.Codex,
		"google": programs.Gemini, "Gemini CLI": programs.Gemini, "pi-ai": programs.Pi, "picodingagent": programs.Pi,
		"open-code": programs.OpenCode, "opencodeagent": programs.OpenCode,
		"bash": programs.Shell, "aider": programs.Aider, "hermes": programs.Hermes, "": "", "claud": "", "zsh": "",
	} {
		if got, ok := programs.Normalise(text); got != want || ok != (want != "") {
			t.Errorf(`%q is %q; want got = %v, ok = (want != "")`, text, got, want)
		}
	}
}

func builtIn(t testing.TB, name programs.Name) *File {
	t.Helper()
	files, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	f, _, err := Pick(files, name, "")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestEveryProgramOfTheTableHasRules(t *testing.T) {
	t.Parallel()
	for _, n := range programs.All() {
		if n.Name == programs.Hermes { // secondary: it has none
			continue
		}
		if f := builtIn(t, n.Name); len(f.Rules) == 0 || f.Display == "" {
			t.Errorf(`%s: %+v; want len(f.Rules) other than 0, f.Display other than ""`, n.Name, f)
		}
	}
}

func TestPick(t *testing.T) {
	t.Parallel()
	files := []*File{
		{Framework: programs.Codex, Display: "b", Min: "1.0.0", Max: "1.9.9"},
		{Framework: programs.Codex, Display: "c", Min: "2.0.0", Max: "2.5.0"},
		{Framework: programs.Codex, Display: "a", Min: "0.1.0", Max: "0.9.0"},
	}
	for version, want := range map[string]string{
		"0.5.0": "a", "1.0.0": "b", "1.9.9-beta": "b", "2.1": "c",
		"": "c", "9.0.0": "c ?", "0.0.1": "a ?", "2.5.1": "c ?", "1.95": "b ?", "0.9.5": "a ?",
	} {
		f, remark, err := Pick(files, programs.Codex, version)
		if err != nil {
			t.Fatal(err)
		}
		got := f.Display
		if remark != "" {
			got += " ?"
		}
		if got != want {
			t.Errorf("%q: %s, want %s", version, got, want)
		}
	}
	if _, _, err := Pick(files, programs.Claude, "1"); err == nil {
		t.Error("a file for another program was picked; want an error")
	}
}

const good = `{"format":1,"framework":"codex","display":"Codex","binary":"codex","revision":3,"versions":{"min":"1.0","max":""},
"readySettleMs":10,"input":{"glyphs":["›"],"frame":"","below":3,"echo":[]},"cursors":"›","dialogsHaveFooter":false,"oneShot":false,
"rules":[{"id":"x","state":"busy","priority":1,"region":"footer","any":["esc"]}]}`

func TestFilesFaults(t *testing.T) {
	t.Parallel()
	if _, err := Read("good.json", []byte(good)); err != nil {
		t.Fatal(err)
	}
	rule := func(text string) string {
		return strings.Replace(good, `{"id":"x","state":"busy","priority":1,"region":"footer","any":["esc"]}`, text, 1)
	}
	for _, c := range []struct{ data, want string }{
		{"", "f.json"},
		{strings.Replace(good, `"revision"`, `"revisoin"`, 1), "revisoin"},
		{strings.Replace(good, `"format":1`, `"format":2`, 1), `"format" is 2`},
		{strings.Replace(good, `"framework":"codex"`, `"framework":"OpenAI"`, 1), "not a canonical name"},
		{strings.Replace(good, `"revision":3`, `"revision":0`, 1), "revision"},
		{strings.Replace(good, `"min":"1.0"`, `"min":"one"`, 1), "versions"},
		{strings.Replace(good, `"readySettleMs":10`, `"readySettleMs":-1`, 1), "readySettleMs"},
		{strings.Replace(good, `"below":3`, `"below":99`, 1), "input.below"},
		{strings.Replace(good, `"glyphs":["›"]`, `"glyphs":["›"," "]`, 1), "input.glyphs"},
		{rule(`{"id":"","state":"busy","priority":1,"region":"footer","any":["e"]}`), `number 1): "id"`},
		{rule(`{"id":"x","state":"asleep","priority":1,"region":"footer","any":["e"]}`), `rule "x" (number 1): "state" is "asleep"`},
		{rule(`{"id":"x","state":"busy:dancing","priority":1,"region":"footer","any":["e"]}`), "no such detail"},
		{rule(`{"id":"x","state":"done:well","priority":1,"region":"footer","any":["e"]}`), "no such detail"},
		{rule(`{"id":"x","state":"blocked","priority":1,"region":"footer","any":["e"]}`), "after blocked:"},
		{rule(`{"id":"x","state":"failed:A B","priority":1,"region":"footer","any":["e"]}`), "after failed:"},
		{rule(`{"id":"x","state":"busy","priority":5000,"region":"footer","any":["e"]}`), `"priority"`},
		{rule(`{"id":"x","state":"busy","priority":1,"region":"attic","any":["e"]}`), `"region" is "attic"`},
		{rule(`{"id":"x","state":"busy","priority":1,"region":"last_lines(0)","any":["e"]}`), `"region"`},
		{rule(`{"id":"x","state":"error:x","priority":1,"region":"osc:9","any":["e"]}`), "cannot come from a sequence"},
		{rule(`{"id":"x","state":"busy","priority":1,"region":"footer"}`), "would always match"},
		{rule(`{"id":"x","state":"busy","priority":1,"region":"footer","not":["e"]}`), "would always match"},
		{rule(`{"id":"x","state":"busy","priority":1,"region":"footer","any":["  "]}`), `"any" has a member that is empty`},
		{rule(`{"id":"x","state":"busy","priority":1,"region":"footer","lineRegex":["("]}`), `"lineRegex" holds (`},
		{rule(`{"id":"x","state":"busy","priority":1,"region":"footer","any":["` + strings.Repeat("e", 501) + `"]}`), "longer than 500"},
		{rule(`{"id":"x","state":"busy","priority":1,"region":"footer","any":["e"],"extract":{"url":"x"}}`), "one group"},
		{rule(`{"id":"x","state":"busy","priority":1,"region":"footer","any":["e"],"minVersion":"v1"}`), "minVersion"},
		{rule(`{"id":"x","state":"busy","priority":1,"region":"footer","any":["e"],"skipWhen":["y"]}`), `"skipWhen" names "y"`},
		{rule(`{"id":"x","state":"busy","priority":1,"region":"footer","any":["e"],"colour":"red"}`), "colour"},
		{rule(`{"id":"x","state":"busy","priority":1,"region":"footer","any":["e"]},{"id":"x","state":"idle","priority":1,"region":"title","any":["e"]}`), "used twice"},
		{rule(strings.Repeat(`{"id":"x","state":"busy","priority":1,"region":"footer","any":["e"]},`, 201) + `{}`), "more than 200 rules"},
		{strings.Repeat(" ", maxFile) + good, "256 KiB"},
	} {
		_, err := Read("f.json", []byte(c.data))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "f.json") {
			t.Errorf("want %q: %v", c.want, err)
		}
	}
}

// TestTheDocumentedFileIsRead keeps docs/frameworks.md true.
func TestTheDocumentedFileIsRead(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/frameworks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```json\n")
	text, _, _ = strings.Cut(text, "```")
	if f, err := Read("page", []byte(text)); err != nil || len(f.Rules) != 4 {
		t.Errorf("%v; want no error, len(f.Rules) = 4", err)
	}
}

func TestAFolderStandsBeforeOurs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "codex.json"), []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if f, _, err := Pick(files, programs.Codex, "1.2.3"); err != nil || f.Revision != 3 || f.Source != dir {
		t.Errorf("%+v %v; want no error, f.Revision = 3, f.Source = %v", f, err, dir)
	}
	if err := os.WriteFile(filepath.Join(dir, "broken.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "broken.json") {
		t.Errorf(`%v; want an error, err.Error() with "broken.json"`, err)
	}
	if _, err := Load(filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	}
}

func screen(text string) Snapshot { return Snapshot{Rows: strings.Split(text, "\n")} }

func TestDialogs(t *testing.T) {
	t.Parallel()
	rule := strings.Repeat("─", 60)
	box := "\n" + rule + "\n❯ \n" + rule + "\n  ? for shortcuts"
	any := &File{Cursors: ""}
	for _, c := range []struct {
		name, text string
		file       *File
		want       string // prompt|options|selected; empty: no dialog
	}{
		{"numbered", "Shall I?\n❯ 1. Yes\n  2. No", any, "Shall I?|Yes,No|0"},
		{"the second is selected", "Really?\n  1. Yes\n› 2. No", any, "Really?|Yes,No|1"},
		{
			"descriptions and blanks between", "Which?\n\n> 1. One\n     the first\n\n  2. Two\n     the second\n\n  3. Three", any,
			"Which?|One,Two,Three|0",
		},
		{"in a frame", "╭──────╮\n│ Do you trust it?      │\n│                     │\n│ ● 1. Trust     │\n│   2. Don't     │\n╰──────╯", any, "Do you trust it?|Trust,Don't|0"},
		{"without numbers, with keys", "Pick a theme\n❯ Dark\n  Light\n\nEnter to confirm · Esc to cancel", any, "Pick a theme|Dark,Light|0"},
		{"without numbers or keys", "Pick a theme\n❯ Dark\n  Light", any, ""},
		{"two cursors", "Shall I?\n❯ 1. Yes\n❯ 2. No\nEnter to confirm", any, ""},
		{"one option", "Shall I?\n❯ 1. Yes\nEnter to confirm", any, ""},
		{"no cursor", "Plan:\n  1. Write\n  2. Test\nEnter to confirm", any, ""},
		{"numbers that do not run on", "Shall I?\n❯ 1. Yes\n  7. No", any, ""},
		{"a question in prose", "Would you like to continue? If yes, press Enter to confirm.", any, ""},
		{"history above the input box", "Shall I?\n❯ 1. Yes\n  2. No\n" + box, builtIn(t, programs.Claude), ""},
		{
			"a list that is typed", "done\n" + rule + "\n❯ 1. do this\n  2. do that\n" + rule + "\n  ? for shortcuts",
			builtIn(t, programs.Claude), "",
		},
		{"an answer with the glyph of another program", "● 1. First\n  2. Second", builtIn(t, programs.Claude), ""},
		{"a list that was submitted to Codex", "› 1. do this\n  2. do that\n\n• Working", builtIn(t, programs.Codex), ""},
		{"too high", "Shall I?\n❯ 1. Yes\n  2. No" + strings.Repeat("\nx", 30), any, ""},
		{"a preview below", "Which style?\n❯ 1. Dark\n  2. Light\n\n+ one\n- two", any, "Which style?|Dark,Light|0"},
	} {
		got := ""
		if d := Look(c.file, screen(c.text)).Dialog; d != nil {
			got = fmt.Sprintf("%s|%s|%d", d.Prompt, strings.Join(d.Options, ","), d.Selected)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestReverseVideoSelects(t *testing.T) {
	t.Parallel()
	s := screen("Which one?\n\n  Alpha\n  Beta\n  Gamma\n\n↑/↓ to move, enter to select")
	s.Inverse = []bool{false, false, false, true, false, false, false}
	d := Look(&File{}, s).Dialog
	if d == nil || d.Selected != 1 || len(d.Options) != 3 {
		t.Fatalf("%+v; want d not nil, d.Selected = 1, len(d.Options) = 3", d)
	}
	s.Inverse[2] = true
	if d := Look(&File{}, s).Dialog; d != nil {
		t.Errorf("two are selected: %+v; want d = nil", d)
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	a := Fingerprint("permission", "Retry in 3 s?", []string{"Yes", "No"})
	if b := Fingerprint("permission", "Retry in 2 s?", []string{"Yes", "No"}); a != b {
		t.Errorf("digits count; got a = %v; want a = %v", a, b)
	}
	if b := Fingerprint("permission", "Retry in 3 s?", []string{"Yes"}); a == b {
		t.Errorf("labels do not count; got a = %v; want a other than %v", a, b)
	}
}

func TestRegions(t *testing.T) {
	t.Parallel()
	rule := strings.Repeat("─", 40)
	v := Look(builtIn(t, programs.Claude), Snapshot{
		Rows: strings.Split("old\n✻ Baked for 3s\n❯ next task\n● working on it\n✽ Baking… (2s)\n"+rule+"\n❯ half a\n  text\n"+rule+
			"\n  ? for shortcuts", "\n"),
		Title: "✳ Claude Code", OSC: map[int]string{9: "4;3"},
	})
	for region, want := range map[string][]string{
		"title": {"✳ Claude Code"}, "osc:9": {"4;3"}, "osc:7": nil, "footer": {"  ? for shortcuts"}, "below_last_rule": {"  ? for shortcuts"},
		"input_box": {"half a", "text"}, "above_input(9)": {"● working on it", "✽ Baking… (2s)"}, "above_input(1)": {"✽ Baking… (2s)"},
		"last_lines(1)": {"  ? for shortcuts"}, "dialog": nil,
	} {
		r, err := parseRegion(region)
		if err != nil {
			t.Fatal(err)
		}
		if r.String() != region {
			t.Errorf("%s is written %s; want r.String() = %v", region, r, region)
		}
		if diff := cmp.Diff(want, v.region(r).lines); diff != "" {
			t.Errorf("%s (-want +got):\n%s", region, diff)
		}
	}
	if !v.Holds("half a text") || v.Holds("another") || !v.Submitted("next task") || v.Submitted("half a") {
		t.Error("what is typed and what is submitted are confused")
	}
}

func TestAURLOverSeveralRows(t *testing.T) {
	t.Parallel()
	part := strings.Repeat("a", 100)
	v := Look(builtIn(t, programs.Codex), screen("Finish signing in via your browser\n\n  https://x.example/?"+part+"\n"+part+
		"\nend=1\n\nPress esc to cancel"))
	for _, got := range v.Match("") {
		if got.Matched && got.Rule.State == "authenticating" {
			if _, _, _, url := v.Question(got.Rule); url != "https://x.example/?"+part+part+"end=1" {
				t.Errorf(`the URL is %q; want url = "https://x.example/?" + part + part + "end=1"`, url)
			}
			return
		}
	}
	t.Error("nothing says that a sign-in is open")
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(good))
	for _, n := range programs.All() {
		if data, err := fs.ReadFile(programs.Rules(), string(n.Name)+".json"); err == nil {
			f.Add(data)
		}
	}
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = Read("f.json", data) })
}

func FuzzLook(f *testing.F) {
	f.Add("Shall I?\n❯ 1. Yes\n  2. No\nEnter to confirm", "✳", uint8(1), uint8(0))
	f.Add(strings.Repeat("─", 30)+"\n❯ x\n"+strings.Repeat("─", 30)+"\nfoot", "⠂ Claude", uint8(0), uint8(1))
	f.Add("> 99. a\n> 100. b\n│ ● 1. x\n\n\n", "", uint8(3), uint8(2))
	files, err := Load("")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, title string, inverse, which uint8) {
		s := screen(text)
		s.Title, s.OSC = title, map[int]string{9: title, 133: title, 7501: title}
		s.Inverse = make([]bool, int(inverse))
		if n := len(s.Inverse); n > 0 {
			s.Inverse[n-1] = true
		}
		v := Look(files[int(which)%len(files)], s)
		for _, m := range v.Match("1.2.3") {
			if len([]rune(m.Text)) > 200 {
				t.Fatalf("%d runes of evidence; want len([]rune(m.Text)) at most 200", len(m.Text))
			}
			v.Question(m.Rule)
		}
		if d := v.Dialog; d != nil && (len(d.Options) < 2 || d.Selected < 0 || d.Selected >= len(d.Options)) {
			t.Fatalf("%+v; want not (d != nil && (len(d.Options) < 2 || d.Selected < 0 || d.Selected >= len(d.Options)))", d)
		}
		v.Holds(title)
		v.Submitted(title)
	})
}
