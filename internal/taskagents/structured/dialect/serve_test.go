package dialect_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/structured/dialect"
)

func newServed(t testing.TB) dialect.Dialect {
	t.Helper()
	d, err := dialect.New(dialect.Config{Framework: programs.OpenCode, Protocol: programs.Serve, Workdir: "/w"})
	if err != nil {
		t.Fatalf("making the dialect: %v", err)
	}
	d.Begin()
	return d
}

// openedServed is a conversation with OpenCode's server that has begun.
func openedServed(t *testing.T) dialect.Dialect {
	t.Helper()
	d := newServed(t)
	handleLine(t, d, `{"id":1,"result":[]}`)
	if s := handleLine(t, d, `{"id":2,"result":{"id":"ses_1"}}`); len(s.Told) != 1 || s.Told[0].Kind != dialect.Opened || s.Told[0].Token != "ses_1" {
		t.Fatalf("the opening is %+v, want it opened with the token ses_1", s)
	}
	return d
}

// event handles an event of the session.
func event(t *testing.T, d dialect.Dialect, kind, properties string) dialect.Step {
	t.Helper()
	return handleLine(t, d, fmt.Sprintf(`{"method":"event","params":{"type":%q,"properties":{"sessionID":"ses_1",%s}}}`, kind, properties))
}

func TestAServerWithoutQuestionsIsRefused(t *testing.T) {
	s := handleLine(t, newServed(t), `{"id":1,"result":true}`) // a page
	if len(s.Out) != 0 || len(s.Told) != 1 || s.Told[0].Kind != dialect.Refused {
		t.Errorf("the opening is %+v, want it refused", s)
	}
}

func TestAPermissionOfAServerShowsTheWholeInput(t *testing.T) {
	d := openedServed(t)
	d.Say("go", false)
	event(t, d, "message.part.updated", `"part":{"type":"tool","tool":"bash","callID":"c1","state":{"status":"running",`+
		`"input":{"command":"ls; rm x","workdir":"/w/sub","description":"look"}}}`)
	asked := `"id":"per_1","permission":"bash","patterns":["ls"],"metadata":{"command":"ls; rm x"},"always":["ls *"],"tool":{"callID":"c1"}`
	s := event(t, d, "permission.asked", asked)
	if len(s.Told) != 1 || s.Told[0].Kind != dialect.Asked {
		t.Fatalf("it is %+v, want a question", s)
	}
	q := s.Told[0].Question
	if want := `{"command":"ls; rm x","description":"look","workdir":"/w/sub"}`; string(q.Input) != want || q.Cwd != "/w/sub" || q.Prompt != "ls; rm x" ||
		q.Reason != "look" || q.Tool != "bash" {
		t.Errorf("the question is %+v with %s, want the command, its folder and %s", q, q.Input, want)
	}
	if got := strings.Join(q.Labels(), "|"); got != "Allow once|Allow always|Reject" || !strings.Contains(q.Options[1].About, "ls *") {
		t.Errorf("options = %s, the second about %q, want three, the second about ls *", got, q.Options[1].About)
	}
	for option, want := range []string{`"reply":"once"`, `"reply":"always"`, `"message":"no","reply":"reject"`} {
		out := string(d.Answer(q, option, "no").Out[0])
		if !strings.Contains(out, want) || !strings.Contains(out, `"method":"POST /permission/per_1/reply"`) {
			t.Errorf("option %d is sent as %s, want %s", option, out, want)
		}
	}
	if out := string(d.Answer(q, 2, "").Out[0]); !strings.Contains(out, "does not want this") {
		t.Errorf("a refusal without a reason is sent as %s, want one, because the turn ends without", out)
	}
	s = event(t, d, "permission.asked", strings.Replace(asked, "rm x", strings.Repeat("x", 2<<20), 1))
	if len(s.Told) != 0 || len(s.Out) != 1 || !strings.Contains(string(s.Out[0]), `"reply":"reject"`) {
		t.Errorf("an input of 2 MiB: told %d events and sent %d messages, want a refusal", len(s.Told), len(s.Out))
	}
	q = event(t, d, "permission.asked", `"id":"per_2","permission":"edit","metadata":{"filepath":"a, b","files":[{"filePath":"/w/a"},{"filePath":"/etc/b"}]}`).Told[0].Question
	if !strings.Contains(string(q.Input), `"paths":["/w/a","/etc/b"]`) || len(q.Options) != 2 {
		t.Errorf("a patch of two files is asked about as %s with %d options, want both paths and no option for the session", q.Input, len(q.Options))
	}
	if _, err := d.HandleLine([]byte(`{"method":"event","params":{"type":"permission.asked","properties":{"id":"../x","permission":"bash"}}}`)); err == nil {
		t.Error("an id with a path was accepted, want an error")
	}
}

func TestQuestionsOfAServerAreAnsweredInTheirOrder(t *testing.T) {
	d := openedServed(t)
	d.Say("go", false)
	one := `{"question":"Which?","options":[{"label":"Red"},{"label":"Blue"}]}`
	q := event(t, d, "question.asked", `"id":"que_1","questions":[`+one+`]`).Told[0].Question
	if got := strings.Join(q.Labels(), "|"); got != "Red|Blue|Do not answer" || !q.Form[0].FreeText {
		t.Errorf("the question has %s and %+v, want its labels and free text", got, q.Form)
	}
	if out := string(d.Answer(q, 1, "").Out[0]); !strings.Contains(out, `"method":"POST /question/que_1/reply","params":{"answers":[["Blue"]]}`) {
		t.Errorf("the second option is sent as %s, want Blue", out)
	}
	if out := string(d.Answer(q, 2, "").Out[0]); !strings.Contains(out, "/question/que_1/reject") {
		t.Errorf("no answer is sent as %s, want a rejection", out)
	}
	q = event(t, d, "question.asked", `"id":"que_2","questions":[`+one+`,{"question":"What?","multiple":true,"custom":false,"options":[{"label":"x"}]}]`).Told[0].Question
	if len(q.Form) != 2 || q.Form[1].FreeText || !q.Form[1].Multiple {
		t.Errorf("the form is %+v, want two questions, the second multiple and without free text", q.Form)
	}
	if out := string(d.Fill(q, map[string][]string{"2": {"x"}, "1": {"free", "Red"}}).Out[0]); !strings.Contains(out, `"answers":[["free","Red"],["x"]]`) {
		t.Errorf("the form is sent as %s, want the answers in order", out)
	}
	s := event(t, d, "question.asked", `"id":"que_3","questions":[]`)
	if len(s.Out) != 1 || !strings.Contains(string(s.Out[0]), "que_3/reject") {
		t.Errorf("an empty form is %+v, want it rejected", s)
	}
}

func TestATurnOfAServerEndsWhenItIsIdle(t *testing.T) {
	const busy, idle = `"status":{"type":"busy"}`, `"status":{"type":"idle"}`
	for name, c := range map[string]struct {
		events      [][2]string
		cut         bool
		phase, text string
	}{
		"done": {events: [][2]string{
			{"session.status", idle}, // of the turn before
			{"session.status", busy},
			{"message.updated", `"info":{"id":"m1","role":"assistant"}`},
			{"message.part.updated", `"part":{"id":"p0","messageID":"m1","type":"reasoning","text":""}`},
			{"message.part.delta", `"partID":"p0","field":"text","delta":"hm"`},
			{"message.part.updated", `"part":{"id":"p1","messageID":"m1","type":"text","text":""}`},
			{"message.part.delta", `"partID":"p1","field":"text","delta":"All "`},
			{"message.part.delta", `"partID":"p1","field":"text","delta":"done."`},
			{"message.part.updated", `"part":{"id":"p1","messageID":"m1","type":"text","text":"All done."}`},
		}, phase: "done", text: "All done."},
		"failed": {events: [][2]string{
			{"session.status", busy}, {"session.error", `"error":{"name":"APIError","data":{"message":"bad key","statusCode":401}}`},
		}, phase: "failed:auth", text: "bad key"},
		"aborted":     {events: [][2]string{{"session.status", busy}, {"session.error", `"error":{"name":"MessageAbortedError"}`}}, phase: "interrupted"},
		"interrupted": {events: [][2]string{{"session.status", busy}}, cut: true, phase: "interrupted"},
	} {
		d := openedServed(t)
		d.Say("go", false)
		for _, e := range c.events {
			for _, one := range event(t, d, e[0], e[1]).Told {
				if one.Kind == dialect.Ended {
					t.Fatalf("%s: it has ended at %v, want it to go on", name, e)
				}
			}
		}
		if c.cut {
			d.Interrupt(nil)
		}
		s := event(t, d, "session.status", idle)
		if len(s.Told) != 1 || s.Told[0].Kind != dialect.Ended || s.Told[0].Phase != c.phase || s.Told[0].Text != c.text {
			t.Errorf("%s: it ends with %+v, want %s with %q", name, s, c.phase, c.text)
		}
		if s := event(t, d, "session.status", idle); len(s.Told) != 0 {
			t.Errorf("%s: a second end is reported as %+v, want none", name, s)
		}
	}
}

// TestAPlanOfAServerIsADecisionOfTheUser: the agent plan asks nothing at the end of its turn, so that the turn goes on with the answer.
func TestAPlanOfAServerIsADecisionOfTheUser(t *testing.T) {
	turn := func(d dialect.Dialect, agent, words string) dialect.Told {
		event(t, d, "session.status", `"status":{"type":"busy"}`)
		event(t, d, "message.updated", `"info":{"id":"`+agent+words+`","role":"assistant","agent":"`+agent+`"}`)
		event(t, d, "message.part.updated", `"part":{"id":"p`+words+`","messageID":"`+agent+words+`","type":"text","text":"`+words+`"}`)
		s := event(t, d, "session.status", `"status":{"type":"idle"}`)
		if len(s.Told) != 1 {
			t.Fatalf("the end of a turn of %s is %+v, want one event", agent, s)
		}
		return s.Told[0]
	}
	d := openedServed(t)
	d.Say("go", false)
	asked := turn(d, "plan", "First")
	q := asked.Question
	if asked.Kind != dialect.Asked || q.Type != "plan" || string(q.Input) != `{"plan":"First"}` ||
		strings.Join(q.Labels(), "|") != "Approve the plan|Keep planning" || !q.Form[0].FreeText {
		t.Fatalf("the end of a turn of the agent plan is %+v, want a plan with two options and a text", asked)
	}
	for name, c := range map[string]struct {
		step dialect.Step
		want string
	}{
		"denied":   {d.Answer(q, 1, ""), `"parts":[{"text":"The user does not approve the plan.`},
		"in words": {d.Fill(q, map[string][]string{"change": {"Second, please."}}), `"parts":[{"text":"Second, please."`},
	} {
		if out := string(c.step.Out[0]); len(c.step.Out) != 1 || !strings.Contains(out, c.want) || strings.Contains(out, "build") {
			t.Errorf("%s: sent %s, want %s without another agent", name, out, c.want)
		}
	}
	q = turn(d, "plan", "Second").Question
	if s := d.Interrupt([]*dialect.Question{q}); len(s.Out) != 0 || len(s.Told) != 1 || s.Told[0].Phase != "interrupted" {
		t.Errorf("an interrupt beside a plan: %+v, want the end of the turn and no message", s)
	}
	if out := string(d.Answer(q, 0, "").Out[0]); !strings.Contains(out, `"agent":"build"`) || !strings.Contains(out, "approved") {
		t.Errorf("an approval is sent as %s, want a text for the agent build", out)
	}
	if told := turn(d, "build", "Done"); told.Kind != dialect.Ended || told.Phase != "done" || told.Text != "Done" {
		t.Errorf("the end of a turn of the agent build is %+v, want it done", told)
	}
	if s, ok := d.Say("more", false); !ok || !strings.Contains(string(s.Out[0]), `"agent":"build"`) {
		t.Errorf("the next text is sent as %q, want it for the agent build", s.Out)
	}
}

// TestAServerThatBeginsLateIsInterruptedThen: an interrupt that came before the turn began applies to it.
func TestAServerThatBeginsLateIsInterruptedThen(t *testing.T) {
	d := openedServed(t)
	d.Say("go", false)
	d.Interrupt(nil)
	if s := event(t, d, "session.status", `"status":{"type":"busy"}`); len(s.Out) != 1 || !strings.Contains(string(s.Out[0]), "/session/ses_1/abort") {
		t.Errorf("the begin of the turn is answered by %+v, want an interrupt", s)
	}
}

func TestARequestThatAServerAnsweredItselfHasEnded(t *testing.T) {
	ask := func(d dialect.Dialect, id string) *dialect.Question {
		return event(t, d, "permission.asked", `"id":"`+id+`","permission":"bash","metadata":{"command":"ls"},"always":["ls"]`).Told[0].Question
	}
	d := openedServed(t)
	d.Say("go", false)
	ask(d, "per_1")
	s := event(t, d, "permission.replied", `"requestID":"per_1","reply":"once"`)
	if len(s.Told) != 2 || s.Told[0].Kind != dialect.Withdrawn || s.Told[1].Kind != dialect.Elsewhere {
		t.Errorf("a request that was granted elsewhere is %+v, want it withdrawn and reported", s)
	}
	q := ask(d, "per_2")
	ask(d, "per_3")
	d.Answer(q, 1, "")
	if s := event(t, d, "permission.replied", `"requestID":"per_2","reply":"always"`); len(s.Told) != 0 {
		t.Errorf("our own answer is %+v, want nothing", s)
	}
	if s := event(t, d, "permission.replied", `"requestID":"per_3","reply":"always"`); len(s.Told) != 1 || s.Told[0].Kind != dialect.Withdrawn {
		t.Errorf("a request that our answer covers is %+v, want it withdrawn", s)
	}
	q = ask(d, "per_4")
	out := string(d.Answer(q, 0, "").Out[0])
	id := strings.TrimSuffix(strings.SplitAfter(out, `"id":`)[1], `,"method":"POST /permission/per_4/reply","params":{"reply":"once"}}`)
	s = handleLine(t, d, `{"id":`+id+`,"error":{"code":500,"message":"broken"}}`)
	if len(s.Out) != 1 || !strings.Contains(string(s.Out[0]), "/abort") || len(s.Told) != 1 || s.Told[0].Kind != dialect.Warned {
		t.Errorf("an answer that was not accepted is followed by %+v, want the end of the turn and a warning", s)
	}
}

func FuzzOpenCodeServer(f *testing.F) {
	var lines []string
	for _, e := range []string{
		`"session.status","properties":{"sessionID":"ses_1","status":{"type":"busy"}}`,
		`"permission.asked","properties":{"id":"per_1","permission":"edit","patterns":["a"],"metadata":{"filepath":"/w/a"},"always":["*"]}`,
		`"question.asked","properties":{"id":"que_1","questions":[{"question":"Which?","options":[{"label":"Red"}]}]}`,
		`"message.updated","properties":{"sessionID":"ses_1","info":{"id":"m1","role":"assistant","agent":"plan"}}`,
		`"message.part.updated","properties":{"sessionID":"ses_1","part":{"id":"p1","messageID":"m1","type":"text","text":"x"}}`,
		`"message.part.updated","properties":{"part":{"type":"tool","tool":"bash","callID":"c","state":{"status":"running","input":{}}}}`,
		`"session.error","properties":{"sessionID":"ses_1","error":{"name":"APIError","data":{"message":"x","statusCode":429}}}`,
	} {
		lines = append(lines, `{"method":"event","params":{"type":`+e+`}}`)
	}
	converse(f, dialect.Config{Framework: programs.OpenCode, Protocol: programs.Serve},
		[]byte("{\"id\":1,\"result\":[]}\n{\"id\":2,\"result\":{\"id\":\"ses_1\"}}\n"+strings.Join(lines, "\n")+"\n"))
}
