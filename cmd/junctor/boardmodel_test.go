package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// request is one that a board sent.
type request struct {
	method, path string
	body         map[string]any
}

// boardOn is a board in front of a server that answers with documents by path.
type boardOn struct {
	*board
	t    *testing.T
	sent []request
}

func newBoard(t *testing.T, answers map[string]string) *boardOn {
	t.Helper()
	o := &boardOn{t: t}
	o.board = &board{app: &app{}, ctx: t.Context(), do: func(_ context.Context, method, path string, body, out any) error {
		sent, _ := body.(map[string]any)
		o.sent = append(o.sent, request{method, path, sent})
		path, _, _ = strings.Cut(path, "?")
		answer, ok := answers[path]
		if !ok {
			return capability.Errorf(capability.CodeNotFound, "", "nothing is at %s", path).With("", "look elsewhere")
		}
		return json.Unmarshal([]byte(answer), out)
	}}
	o.handle(tea.WindowSizeMsg{Width: 80, Height: 24})
	o.handle(o.load())
	return o
}

// handle gives the board a message, and those that follow from it.
func (o *boardOn) handle(msg tea.Msg) {
	o.t.Helper()
	_, cmd := o.Update(msg)
	if cmd == nil {
		return
	}
	switch next := cmd().(type) {
	case loadedMsg, pageMsg, doneMsg:
		o.handle(next)
	case tea.BatchMsg:
		o.t.Fatalf("the board answers %T with a batch, want one message", msg)
	}
}

func (o *boardOn) keys(keys ...string) {
	o.t.Helper()
	for _, k := range keys {
		press := tea.KeyPressMsg{Text: k, Code: []rune(k)[0]}
		switch k {
		case "enter":
			press = tea.KeyPressMsg{Code: tea.KeyEnter}
		case "esc":
			press = tea.KeyPressMsg{Code: tea.KeyEscape}
		case "space":
			press = tea.KeyPressMsg{Code: tea.KeySpace, Text: " "}
		}
		o.handle(press)
	}
}

// posts returns the requests that change something.
func (o *boardOn) posts() []request {
	return slices.DeleteFunc(slices.Clone(o.sent), func(r request) bool { return r.method != http.MethodPost })
}

func (o *boardOn) shows() string { return ansi.Strip(o.View().Content) }

// asks returns the answers of a server whose only task waits for an approval.
func asks(t *testing.T, c policy.Approval, input string) map[string]string {
	t.Helper()
	c.ID, c.State = "apr_1", policy.ApprovalPending
	approval, err := json.Marshal(map[string]any{"approval": c, "input": json.RawMessage(input)})
	if err != nil {
		t.Fatalf("encode the approval: got %v, want no error", err)
	}
	task := `{"id":"tsk_1","kind":"thread","thread":"thr_1","state":"input_required","status":"blocked","requests":[{"key":"k",
		"params":{"message":"May it run?","_meta":{"blocker":{"id":"apr_1"}}}}]}`
	return map[string]string{
		"/api/v1/tasks": `{"tasks":[` + task + `]}`, "/api/v1/tasks/tsk_1": `{"task":` + task + `}`,
		threadsPath: `[{"id":"thr_1","title":"The title"}]`, "/api/v1/approvals/apr_1": string(approval),
	}
}

func threeChoices() policy.Shown {
	return policy.Shown{Choices: []policy.ShownChoice{
		{N: 1, Label: "Yes", Effect: "once"}, {N: 2, Label: "Always", Effect: "always"}, {N: 3, Label: "No", Effect: "deny"},
	}}
}

func TestAnAnswerOnTheBoardThatAllowsNeedsTheWholeQuestionOnTheScreen(t *testing.T) {
	t.Parallel()
	shown := threeChoices()
	for i := range 60 {
		shown.Members = append(shown.Members, policy.ShownValue{Name: fmt.Sprint("line", i), Value: strings.Repeat("x", 100)})
	}
	b := newBoard(t, asks(t, policy.Approval{Kind: policy.KindTerminal, Shown: shown}, `{}`))
	b.keys("1")
	if got := b.posts(); len(got) > 0 {
		t.Fatalf("a digit on the list sent %+v, want nothing", got)
	}
	b.keys("enter")
	for _, keys := range [][]string{{"1"}, {"G", "1"}, {"i"}, {"g", "space", "1"}} {
		b.keys(keys...)
		if got := b.posts(); len(got) > 0 || !strings.Contains(b.shows(), "seen whole") || b.prompt != nil {
			t.Fatalf("the keys %q before all was shown sent %+v and show\n%s\nwant nothing sent, and why", keys, got, b.shows())
		}
	}
	// A pasted text does not count as keys.
	b.handle(tea.PasteMsg{Content: "3\r1"})
	b.keys("g")
	for range 20 {
		b.keys("space")
	}
	b.handle(tea.WindowSizeMsg{Width: 60, Height: 20}) // all was shown before
	b.keys("2")
	want := request{http.MethodPost, "/api/v1/approvals/apr_1", map[string]any{"answer": "2"}}
	if got := b.posts(); len(got) != 1 || fmt.Sprint(got[0]) != fmt.Sprint(want) {
		t.Errorf("the key 2 after all was shown sent %+v, want %+v", got, want)
	}
	// Another size begins again, and a refusal needs nothing.
	b = newBoard(t, asks(t, policy.Approval{Kind: policy.KindTerminal, Shown: shown}, `{}`))
	b.keys("enter", "space", "space")
	b.handle(tea.WindowSizeMsg{Width: 70, Height: 24})
	for range 4 {
		b.keys("j")
	}
	b.keys("G", "1")
	if got := b.posts(); len(got) > 0 {
		t.Errorf("after the size changed the key 1 sent %+v, want nothing", got)
	}
	b.keys("3")
	if got := b.posts(); len(got) != 1 || got[0].body["answer"] != "3" {
		t.Errorf("the key of the refusal sent %+v, want it", got)
	}
}

func TestQuestionsOnTheBoard(t *testing.T) {
	t.Parallel()
	cut := threeChoices()
	cut.Members = []policy.ShownValue{{Name: "command", Value: "\"x\"", Bytes: 100000, SHA256: strings.Repeat("0", 64)}}
	question := policy.Shown{Questions: []policy.ShownQuestion{{ID: "1", Text: "Which?", FreeText: true}}}
	secret := policy.Shown{Questions: []policy.ShownQuestion{{ID: "1", Text: "Token?", FreeText: true, Secret: true}}}
	hostile := policy.Approval{Kind: "call", Binding: policy.Binding{Principal: "\x1b[31mx\u202e"}}
	form := policy.Shown{Questions: []policy.ShownQuestion{{ID: "1", Text: "Which?"}, {ID: "2", Text: "And?"}}}
	for name, c := range map[string]struct {
		approval policy.Approval
		input    string
		keys     []string
		want     string // body
		shows    string
	}{
		"a call is approved once":             {policy.Approval{Kind: "call"}, `{}`, []string{"1"}, `{"decision":"once"}`, ""},
		"a call is denied":                    {policy.Approval{Kind: "call"}, `{}`, []string{"2"}, `{"decision":"deny"}`, ""},
		"a call has two answers":              {policy.Approval{Kind: "call"}, `{}`, []string{"3", "i", "a"}, "", ""},
		"no is always possible":               {policy.Approval{Kind: policy.KindTerminal, Shown: cut}, `null`, []string{"n"}, `{"decision":"deny"}`, ""},
		"what is cut without input":           {policy.Approval{Kind: policy.KindTerminal, Shown: cut}, `null`, []string{"1", "i"}, "", "too long for the board"},
		"what is cut with its input":          {policy.Approval{Kind: policy.KindTerminal, Shown: cut}, `"abc"`, []string{"1"}, `{"answer":"1"}`, ""},
		"a typed number":                      {policy.Approval{Kind: policy.KindTerminal, Shown: threeChoices()}, `{}`, []string{"i", "2", "enter"}, `{"answer":"2"}`, ""},
		"a text":                              {policy.Approval{Kind: policy.KindQuestion, Shown: question}, `{}`, []string{"i", "ü", "b", "enter"}, `{"text":"üb"}`, ""},
		"a text that is left":                 {policy.Approval{Kind: policy.KindQuestion, Shown: question}, `{}`, []string{"i", "a", "esc"}, "", ""},
		"a secret is not shown":               {policy.Approval{Kind: policy.KindQuestion, Shown: secret}, `{}`, []string{"i", "a", "b"}, "", "Answer: ••_"},
		"a form is answered by a command":     {policy.Approval{Kind: policy.KindQuestion, Shown: form}, `{}`, []string{"1", "i"}, "", "junctor approvals approve"},
		"an empty text is not an answer":      {policy.Approval{Kind: policy.KindQuestion, Shown: question}, `{}`, []string{"i", "enter"}, "", ""},
		"the principal's name is shown plain": {hostile, `{}`, nil, "", `\x1b[31mx\u202e`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBoard(t, asks(t, c.approval, c.input))
			b.handle(tea.WindowSizeMsg{Width: 300, Height: 40})
			b.keys("enter")
			b.keys(c.keys...)
			got := ""
			for _, r := range b.posts() {
				data, err := json.Marshal(r.body)
				if err != nil {
					t.Fatalf("encode what was sent: got %v, want no error", err)
				}
				got += string(data)
			}
			if got != c.want || !strings.Contains(b.shows(), c.shows) {
				t.Errorf("the keys %q sent %s, want %s; the board shows\n%s\nwant %q", c.keys, got, c.want, b.shows(), c.shows)
			}
		})
	}
}

func TestQuestionsOfTasksWithoutAnApproval(t *testing.T) {
	t.Parallel()
	for properties, want := range map[string]string{
		`{"text":{"type":"string","enum":["resume","cancel"]}}`: `{"answer":{"action":"accept","content":{"text":"cancel"}},"key":"k"}`,
		`{"approved":{"type":"boolean"}}`:                       `{"answer":{"action":"accept","content":{"approved":false}},"key":"k"}`,
		`{"a":{"type":"string"},"b":{"type":"string"}}`:         ``,
		`{"a":{"type":"object"}}`:                               ``,
	} {
		task := `{"id":"tsk_1","kind":"thread","thread":"thr_1","state":"input_required","requests":[{"key":"k","params":{"message":"Is it to go on?",
			"requestedSchema":{"properties":` + properties + `}}}]}`
		b := newBoard(t, map[string]string{
			"/api/v1/tasks": `{"tasks":[` + task + `]}`, "/api/v1/tasks/tsk_1": `{"task":` + task + `}`, "/api/v1/tasks/tsk_1/answer": `{}`,
		})
		b.keys("enter", "2")
		got := ""
		for _, r := range b.posts() {
			data, err := json.Marshal(r.body)
			if err != nil {
				t.Fatalf("encode what was sent: got %v, want no error", err)
			}
			got += string(data)
		}
		if got != want {
			t.Errorf("with %s the key 2 sent %s, want %s", properties, got, want)
		}
	}
}

func TestAPageThatArrivesLateDoesNotReplaceAnother(t *testing.T) {
	t.Parallel()
	b := newBoard(t, asks(t, policy.Approval{Kind: "call"}, `{}`))
	_, late := b.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
	b.keys("d") // fails: the server has no work of it
	if !strings.Contains(b.shows(), "! nothing is at") {
		t.Errorf("the board shows\n%s\nwant the error", b.shows())
	}
	b.handle(late())
	if b.page != nil {
		t.Errorf("the board shows the page %+v that arrived late, want the list", b.page)
	}
}

// manyTasks returns tasks in all states.
func manyTasks(n int) []boardTask {
	states := []string{"working", "input_required", "completed", "failed", "submitted", "cancelled"}
	list := make([]boardTask, n)
	for i := range list {
		t := taskRow{ID: fmt.Sprintf("tsk_%032d", i), Kind: "thread", Thread: fmt.Sprint("thr_", i), State: states[i%len(states)]}
		t.Status = "It is at work.\nAnd this is the second line.\x1b[31m"
		t.Updated = time.Date(2026, 1, 2, 3, 4, i, 0, time.UTC)
		list[i] = boardTask{taskRow: t, Title: fmt.Sprintf("Task %d 漢字 \x1b[2J with a long title, %s", i, strings.Repeat("words ", 30))}
	}
	return list
}

func TestTheBoardFitsEveryScreen(t *testing.T) {
	t.Parallel()
	b := newBoard(t, map[string]string{"/api/v1/tasks": `{"tasks":[]}`})
	b.handle(loadedMsg{tasks: manyTasks(200)})
	for _, width := range []int{1, 2, 3, 10, 21, 80, 200} {
		for _, height := range []int{1, 2, 3, 5, 13, 14, 24, 60} {
			b.handle(tea.WindowSizeMsg{Width: width, Height: height})
			for _, key := range []string{"G", "k", "b", "g", "j", "f"} {
				b.keys(key)
				content := b.View().Content
				lines := strings.Split(content, "\n")
				if len(lines) > height || strings.Contains(ansi.Strip(content), "\x1b") || strings.Contains(content, "\x1b[2J") {
					t.Fatalf("at %d×%d the board is %q, want at most %d lines without codes of a task", width, height, content, height)
				}
				for _, line := range lines {
					if got := ansi.StringWidth(line); got > width {
						t.Fatalf("at %d×%d the line %q has %d columns, want at most %d", width, height, line, got, width)
					}
				}
				if at := b.at(); at < b.top || at >= b.top+b.rows() {
					t.Fatalf("at %d×%d row %d is selected, and rows from %d on are shown, want it on the screen", width, height, at, b.top)
				}
			}
		}
	}
}

func TestTheSelectedTaskStaysSelectedWhenOthersChange(t *testing.T) {
	t.Parallel()
	b := newBoard(t, map[string]string{"/api/v1/tasks": `{"tasks":[]}`})
	b.handle(loadedMsg{tasks: manyTasks(20)})
	b.keys("j", "j")
	chosen := b.selected
	list := manyTasks(20)
	slices.Reverse(list)
	list[0].State, list[0].Updated = "input_required", time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	b.handle(loadedMsg{tasks: list})
	if b.selected != chosen || b.tasks[0].ID != list[0].ID {
		t.Errorf("%s is selected and %s first, want %s selected and %s first", b.selected, b.tasks[0].ID, chosen, list[0].ID)
	}
	b.handle(loadedMsg{err: capability.Errorf(capability.CodeUnavailable, "", "the server cannot be reached")})
	if len(b.tasks) != 20 || !strings.Contains(b.shows(), "not connected: ") {
		t.Errorf("without a server the board shows\n%s\nwant the tasks and that it is not connected", b.shows())
	}
}

// BenchmarkBoard200 measures a change among 200 tasks until the screen is drawn.
func BenchmarkBoard200(b *testing.B) {
	m := &board{app: &app{}, ctx: b.Context()}
	m.Update(tea.WindowSizeMsg{Width: 200, Height: 60})
	list := manyTasks(200)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		next := slices.Clone(list)
		next[i%len(next)].State = "input_required"
		m.Update(loadedMsg{tasks: next})
		m.Update(tea.KeyPressMsg{Text: "j", Code: 'j'})
		if len(m.View().Content) == 0 {
			b.Fatal("the board is empty, want rows")
		}
	}
}
