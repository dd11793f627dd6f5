package dialect_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/structured/dialect"
)

// seeds are the lines of a recorded conversation that the program wrote.
func seeds(f *testing.F, file string) (all []byte) {
	data, err := os.ReadFile("../testdata/" + file + ".ndjson")
	if err != nil {
		f.Fatal(err)
	}
	for l := range strings.Lines(string(data)) {
		var one struct {
			Dir string          `json:"dir"`
			Msg json.RawMessage `json:"msg"`
		}
		if err := json.Unmarshal([]byte(l), &one); err != nil {
			f.Fatal(err)
		}
		if one.Dir == "from_cli" {
			all = append(append(all, bytes.ReplaceAll(one.Msg, []byte("init1"), []byte("junctor-1"))...), '\n')
		}
	}
	return all
}

// converse has whole conversations with a program that says anything: what goes out is
// JSON on one line, what is told keeps to its bounds, and a question can be answered.
func converse(f *testing.F, c dialect.Config, whole []byte) {
	c.Workdir, c.Version = "/w", "1"
	f.Add(whole)
	f.Add(bytes.ToUpper(whole))
	f.Add([]byte("{}\n[]\nnull\n{\"id\":1,\"result\":null}\n{\"id\":{},\"method\":\"x\"}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := dialect.New(c)
		if err != nil {
			t.Fatal(err)
		}
		var check func(s dialect.Step)
		check = func(s dialect.Step) {
			for _, out := range s.Out {
				if !json.Valid(out) || bytes.ContainsRune(out, '\n') {
					t.Fatalf(`it sends %q; want json.Valid(out), not bytes.ContainsRune(out, '\n')`, out)
				}
			}
			for _, one := range s.Told {
				if len(one.Text) > 1<<20 || len(one.Token) > 512 || len(one.Tool) > 300 {
					t.Fatalf("it tells %.300v; want len(one.Text) at most 1 << 20, len(one.Token) at most 512, len(one.Tool) at most 300",
						one)
				}
				if one.Kind == dialect.Asked {
					q := one.Question
					if len(q.Options) == 0 || len(q.Options) > dialect.MaxOptions+1 || !json.Valid(q.Input) && q.Type == "permission" {
						t.Fatalf("it asks %+v; want len(q.Options) other than 0, len(q.Options) at most dialect.MaxOptions + 1, "+
							`not (!json.Valid(q.Input) && q.Type == "permission")`, q)
					}
					for i := range q.Options {
						check(d.Answer(q, i, "why"))
					}
				}
				if one.Kind == dialect.Wanted {
					check(d.Filed(one.File, "text", nil))
				}
			}
		}
		check(d.Begin())
		for i, line := range bytes.Split(data, []byte("\n")) {
			s, err := d.HandleLine(line)
			if err != nil && len(s.Out)+len(s.Told) > 0 {
				t.Fatalf("an error with %+v; want not (err != nil && len(s.Out)+len(s.Told) > 0)", s)
			}
			check(s)
			if i%5 == 4 {
				s, _ := d.Say("text", i%2 == 0)
				check(s)
				check(d.Interrupt(nil))
			}
		}
	})
}

func FuzzClaude(f *testing.F) {
	converse(f, dialect.Config{Framework: programs.Claude}, seeds(f, "claude-stream-json"))
}

func FuzzCodex(f *testing.F) {
	converse(f, dialect.Config{Framework: programs.Codex}, seeds(f, "codex-app-server"))
}

func FuzzGemini(f *testing.F) {
	converse(f, dialect.Config{Framework: programs.Gemini}, seeds(f, "gemini-acp"))
}

func FuzzOpenCode(f *testing.F) {
	converse(f, dialect.Config{Framework: programs.OpenCode}, seeds(f, "opencode-acp"))
}
