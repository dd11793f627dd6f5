package command_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/core/command"
)

func TestNearNamesComeBestFirst(t *testing.T) {
	t.Parallel()
	names := []string{"postman", "postmen", "post", "hello", "help", "x"}
	for typed, want := range map[string][]string{
		"postmn": {"postman", "postmen", "post"}, "psotman": {"postman", "postmen"}, "po": {"post", "postman", "postmen"},
		"HELP": {"help", "hello"},
		"y":    {}, "unlike": {}, strings.Repeat("a", 100): {},
	} {
		if d := cmp.Diff(want, command.Nearest(typed, names)); d != "" {
			t.Errorf(`%s: %s; want d = ""`, typed, d)
		}
	}
}

func TestStrictTextHasNoOpenQuotes(t *testing.T) {
	t.Parallel()
	if _, err := command.LexStrict("it's"); err == nil {
		t.Error("an open quote passes; want an error")
	}
	if got, err := command.LexStrict("a 'b c'"); err != nil || len(got) != 2 {
		t.Errorf(`command.LexStrict("a 'b c'") = %v, err = %v, want err == nil && len(got) == 2`, got, err)
	}
}

func FuzzLex(f *testing.F) {
	for _, s := range []string{`a "b c" d`, `a\ b`, `it's`, `""`, `a"b c"d 'e'`, "a\tb\r\nc", `\`, `"\q\"\\"`, "é\u00a0 \\é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tokens, mode, err := command.Lex(text)
		if err != nil {
			return
		}
		quoted := make([]string, len(tokens))
		end := 0
		for i, tok := range tokens {
			if tok.Start < end || tok.End <= tok.Start || tok.End > len(text) || strings.Trim(text[end:tok.Start], " \t\r\n") != "" {
				t.Fatalf("token %d of %q lies at %d:%d; want tok.Start at least %v, tok.End more than %v, tok.End at most %v, "+
					`strings.Trim(text[end:tok.Start], " \t\r\n") = ""`, i, text, tok.Start, tok.End, end, tok.Start, len(text))
			}
			end = tok.End
			quoted[i] = command.Quote(tok.Text)
			if mode == "fallback" && tok.Text != text[tok.Start:tok.End] {
				t.Fatalf(`%q is not as typed; want not (mode == "fallback" && tok.Text != text[tok.Start:tok.End])`, tok.Text)
			}
		}
		if strings.Trim(text[end:], " \t\r\n") != "" {
			t.Fatalf(`%q: the end is lost; want strings.Trim(text[end:], " \t\r\n") = ""`, text)
		}
		joined := strings.Join(quoted, " ")
		if len(joined) > command.MaxMessage {
			return
		}
		again, mode, err := command.Lex(joined)
		if err != nil || mode != "words" || len(again) != len(tokens) {
			t.Fatalf(`%q became %q: %v; want no error, mode = "words", len(again) = %v`, text, joined, err, len(tokens))
		}
		for i := range again {
			if again[i].Text != tokens[i].Text {
				t.Fatalf("%q became %q; want again[i].Text = tokens[i].Text", tokens[i].Text, again[i].Text)
			}
		}
	})
}
