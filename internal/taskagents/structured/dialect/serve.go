package dialect

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
)

// serve implements Dialect for the HTTP API of OpenCode. The method of a call is an HTTP method and a
// path; its parameters are the body of the request, its result the body of the response, and the code
// of its error the status. An event of the server is a notification with the method "event".
type serve struct {
	rpc
	cfg     Config
	session string
	working bool // a text was sent, and its turn has not ended
	busy    bool // the program has begun that turn
	cutting bool // the end of that turn was requested
	trouble *Told

	message string // id of the model's message in this turn
	agent   string // of OpenCode, which wrote that message
	builds  bool   // a plan was approved
	part    string // id of its text in reply
	reply   strings.Builder
	counted string               // id of the last part with a usage
	calls   map[string]servedUse // running tool calls, by id
	open    map[string]string    // names of tools of open requests, by id
	always  bool                 // a request was granted for the session, which answers others too
}

type servedUse struct {
	tool  string
	input jsonx.Raw
}

// served matches the ids of the API, which become parts of paths.
var served = regexp.MustCompile(`^[A-Za-z0-9_-]{1,200}$`)

// Begin implements Dialect. Versions without questions answer GET /question with a page.
func (a *serve) Begin() Step {
	return sent(a.call("GET /question", nil, func(result jsonx.Raw, fail *rpcError) Step {
		if fail != nil || result.Kind() != '[' {
			return told(Told{Kind: Refused, Text: "this version of its server has no questions"})
		}
		switch {
		case a.cfg.Resume == "":
			return sent(a.call("POST /session", object{}, a.opened))
		case !served.MatchString(a.cfg.Resume):
			return told(Told{Kind: Refused, Text: "it cannot take up an earlier conversation"})
		}
		return sent(a.call("GET /session/"+a.cfg.Resume, nil, a.opened))
	}))
}

func (a *serve) opened(result jsonx.Raw, fail *rpcError) Step {
	if fail != nil {
		return refused(fail)
	}
	var r struct {
		ID string `json:"id"`
	}
	if jsonx.Unmarshal(result, &r) != nil || !served.MatchString(r.ID) || a.cfg.Resume != "" && r.ID != a.cfg.Resume {
		return told(Told{Kind: Refused, Text: "its session has no usable id"})
	}
	a.session = r.ID
	return told(Told{Kind: Opened, Token: r.ID})
}

func (a *serve) Say(text string, working bool) (Step, bool) {
	if working || a.working {
		return Step{}, false
	}
	return a.prompt(text), true
}

// prompt starts a turn, by the agent that the settings choose until a plan of it is approved.
func (a *serve) prompt(text string) Step {
	a.working, a.busy, a.cutting, a.trouble = true, false, false, nil
	a.message, a.agent = "", ""
	a.begin("")
	body := object{"parts": []object{{"type": "text", "text": text}}}
	if a.builds {
		body["agent"] = "build"
	}
	s := sent(a.call("POST /session/"+a.session+"/prompt_async", body,
		func(_ jsonx.Raw, fail *rpcError) Step {
			if fail == nil || !a.working {
				return Step{}
			}
			a.trouble = &Told{Text: fail.words(), Phase: failed(failure(int(fail.Code), "", fail.words()))}
			return a.ended()
		}))
	s.tell(Told{Kind: Began})
	return s
}

func (a *serve) begin(part string) {
	a.part = part
	a.reply.Reset()
}

// Interrupt implements Dialect. A turn that has not begun is interrupted when it begins.
func (a *serve) Interrupt(open []*Question) Step {
	if len(open) > 0 && open[0].Type == "plan" { // the program does not work
		return told(Told{Kind: Ended, Phase: detect.PhaseInterrupted})
	}
	a.cutting = true
	for _, q := range open {
		delete(a.open, q.ID)
	}
	return a.abort()
}

func (a *serve) abort() Step {
	return sent(a.call("POST /session/"+a.session+"/abort", object{}, func(_ jsonx.Raw, fail *rpcError) Step {
		if fail != nil {
			return told(Told{Kind: Declined, Text: fail.words()})
		}
		return Step{}
	}))
}

// refusal is what the agent receives if the user gives no reason. Without one, the program ends the
// turn.
const refusal = "The user does not want this. Go on without it, or say what you need it for."

// What the agent receives about its plan.
const (
	planApproved = "The user has approved the plan. Carry it out."
	planRefused  = "The user does not approve the plan. Go on planning, and ask what to change if you do not know it."
)

func (a *serve) Answer(q *Question, option int, why string) Step {
	o := q.Options[option]
	switch {
	case q.Type == "plan" && o.Kind == "allow_once":
		a.builds = true
		return a.prompt(planApproved)
	case q.Type == "plan":
		return a.prompt(planRefused)
	case q.Form != nil && o.Kind == "":
		return a.Fill(q, map[string][]string{q.Form[0].ID: {o.Label}})
	case q.Form != nil:
		return a.respond(q.ID, "/question/"+q.ID+"/reject", object{})
	}
	body := object{"reply": o.answer}
	if o.Kind == "reject_once" {
		if why == "" {
			why = refusal
		}
		body["message"] = why
	}
	a.always = a.always || o.Kind == "allow_always"
	return a.respond(q.ID, "/permission/"+q.ID+"/reply", body)
}

// Fill implements Dialect. The answers are in the order of the questions.
func (a *serve) Fill(q *Question, values map[string][]string) Step {
	if q.Type == "plan" {
		return a.prompt(strings.Join(values[q.Form[0].ID], "\n"))
	}
	answers := make([][]string, len(q.Form))
	for i, one := range q.Form {
		answers[i] = append([]string{}, values[one.ID]...)
	}
	return a.respond(q.ID, "/question/"+q.ID+"/reply", object{"answers": answers})
}

// respond sends an answer. If the server does not accept it, the turn is interrupted, because the
// program may wait for it for ever.
func (a *serve) respond(id, path string, body object) Step {
	delete(a.open, id)
	return sent(a.call("POST "+path, body, func(_ jsonx.Raw, fail *rpcError) Step {
		if fail == nil || fail.Code == http.StatusNotFound { // it has ended meanwhile
			return Step{}
		}
		s := a.Interrupt(nil)
		s.tell(Told{Kind: Warned, Text: "an answer was not accepted, so the turn is ended: " + fail.words()})
		return s
	}))
}

// Filed implements Dialect. The program reads and writes files itself.
func (a *serve) Filed(*File, string, error) Step { return Step{} }

func (a *serve) HandleLine(line []byte) (Step, error) {
	return a.handleMessage(line, func(id jsonx.Raw, method string, _ jsonx.Raw) (Step, error) {
		return a.unsupported(id, method), nil
	}, a.noted)
}

func (a *serve) noted(method string, params jsonx.Raw) (Step, error) {
	var e struct {
		Type string    `json:"type"`
		Of   jsonx.Raw `json:"properties"`
	}
	if method != "event" || jsonx.Unmarshal(params, &e) != nil || e.Type == "" {
		return Step{}, errNoMessage
	}
	if a.session == "" {
		return Step{}, nil
	}
	handle := map[string]func(jsonx.Raw) (Step, error){
		"permission.asked": a.permission, "question.asked": a.question, "permission.replied": a.replied,
		"question.replied": a.replied, "question.rejected": a.replied, "session.status": a.status, "session.error": a.failed,
		"message.updated": a.messaged, "message.part.updated": a.updated, "message.part.delta": a.delta,
	}[e.Type]
	if handle == nil {
		return Step{}, nil // many events describe the server, and more come with each version
	}
	return handle(e.Of)
}

// servedAsk is a request that waits for an answer. It may be of a session that the agent started for
// another agent.
type servedAsk struct {
	ID         string    `json:"id"`
	Permission string    `json:"permission"`
	Patterns   []string  `json:"patterns"`
	Always     []string  `json:"always"`
	Metadata   jsonx.Raw `json:"metadata"`
	Call       struct {
		ID string `json:"callID"`
	} `json:"tool"`
	Questions []struct {
		Question string `json:"question"`
		Multiple bool   `json:"multiple"`
		Custom   *bool  `json:"custom"`
		Options  []struct {
			Label       string `json:"label"`
			Description string `json:"description"`
		} `json:"options"`
	} `json:"questions"`
}

// ask returns the request in an event, as a question without options.
func (a *serve) ask(of jsonx.Raw) (p servedAsk, q *Question, err error) {
	if jsonx.Unmarshal(of, &p) != nil || !served.MatchString(p.ID) {
		return p, nil, errNoMessage
	}
	if a.open == nil {
		a.open = make(map[string]string)
	}
	if len(a.open) >= maxWaits {
		clear(a.open) // the session has refused them
	}
	return p, &Question{ID: p.ID}, nil
}

func (a *serve) permission(of jsonx.Raw) (Step, error) {
	p, q, err := a.ask(of)
	if err != nil || p.Permission == "" {
		return Step{}, errNoMessage
	}
	q.Type, q.Tool = "permission", text.ShortenBytes(p.Permission, maxLabel)
	q.Options = []Option{
		{Label: "Allow once", Kind: "allow_once", answer: jsonx.Raw(`"once"`)},
		{Label: "Allow always", Kind: "allow_always", answer: jsonx.Raw(`"always"`)},
		{Label: "Reject", Kind: "reject_once", answer: jsonx.Raw(`"reject"`)},
	}
	q.Options[1].About = text.ShortenBytes("in this session: "+strings.Join(p.Always, ", "), maxPrompt)
	if len(p.Always) == 0 {
		q.Options = slices.Delete(q.Options, 1, 2)
	}
	a.describe(p, q)
	if len(q.Input) > maxShown {
		return a.Answer(q, len(q.Options)-1, "The input of this tool is too large to be shown to the user. Split it."), nil
	}
	a.open[q.ID] = q.Tool
	return told(Told{Kind: Asked, Question: q}), nil
}

// describe sets what a permission is for: the input of the tool with what the program adds to it.
func (a *serve) describe(p servedAsk, q *Question) {
	members := make(map[string]jsonx.Raw)
	if input := a.calls[p.Call.ID].input; input.Kind() == '{' {
		_ = jsonx.Unmarshal(input, &members) // it was received as an object
	}
	if p.Metadata.Kind() == '{' {
		more := make(map[string]jsonx.Raw)
		_ = jsonx.Unmarshal(p.Metadata, &more) // as above
		maps.Copy(members, more)
	}
	if len(members) == 0 {
		members["patterns"] = encoded(p.Patterns)
	}
	str := func(name string) string {
		s, _ := jsonx.Text(members[name])
		return s
	}
	q.Prompt = p.Permission + " " + strings.Join(p.Patterns, ", ")
	switch p.Permission {
	case "bash":
		q.Prompt, q.Reason, q.Cwd = str("command"), text.ShortenBytes(str("description"), maxPrompt), a.cfg.Workdir
		if dir := str("workdir"); dir != "" {
			q.Cwd = text.ShortenBytes(dir, maxPrompt)
		}
	case "edit":
		var files []struct {
			Path string `json:"filePath"`
		}
		_ = jsonx.Unmarshal(members["files"], &files) // of a patch of several files
		paths := []string{str("filepath")}
		if len(files) > 0 {
			paths = nil
			for _, f := range files {
				paths = append(paths, f.Path)
			}
		}
		if !slices.Contains(paths, "") && len(paths) <= maxPaths {
			members["paths"] = encoded(paths) // a name that package permit reads
		}
		q.Prompt = "edit " + strings.Join(paths, ", ")
	}
	q.Prompt = text.ShortenBytes(strings.TrimSpace(q.Prompt), maxPrompt)
	q.Input = encoded(members)
}

func (a *serve) question(of jsonx.Raw) (Step, error) {
	p, q, err := a.ask(of)
	if err != nil {
		return Step{}, err
	}
	q.Tool, q.Input = "question", []byte(of)
	form := make([]detect.Question, 0, len(p.Questions))
	for i, asked := range p.Questions {
		one := detect.Question{
			ID: strconv.Itoa(i + 1), Text: asked.Question, Multiple: asked.Multiple, FreeText: asked.Custom == nil || *asked.Custom,
		}
		for _, o := range asked.Options {
			one.Options = append(one.Options, detect.Choice{Label: o.Label, Description: o.Description})
		}
		form = append(form, one)
	}
	if len(of) > maxShown || !q.ask(form) {
		s := a.respond(q.ID, "/question/"+q.ID+"/reject", object{})
		s.tell(Told{Kind: Warned, Text: "a question that cannot be shown whole was refused"})
		return s, nil
	}
	a.open[q.ID] = q.Tool
	return told(Told{Kind: Asked, Question: q}), nil
}

// replied ends a request that was answered without us. Rejecting one request of a session, and
// granting one for the session, also answers others.
func (a *serve) replied(of jsonx.Raw) (s Step, err error) {
	var p struct {
		ID      string    `json:"requestID"`
		Reply   string    `json:"reply"`
		Answers jsonx.Raw `json:"answers"`
	}
	if jsonx.Unmarshal(of, &p) != nil {
		return s, errNoMessage
	}
	tool, ok := a.open[p.ID]
	if !ok {
		return s, nil
	}
	delete(a.open, p.ID)
	s.tell(Told{Kind: Withdrawn, Text: p.ID})
	if p.Reply == "once" || p.Reply == "always" && !a.always || len(p.Answers) > 0 {
		s.tell(Told{Kind: Elsewhere, Tool: tool})
	}
	return s, nil
}

func (a *serve) status(of jsonx.Raw) (Step, error) {
	var p struct {
		Session string `json:"sessionID"`
		Status  struct {
			Type string `json:"type"`
		} `json:"status"`
	}
	if jsonx.Unmarshal(of, &p) != nil {
		return Step{}, errNoMessage
	}
	switch {
	case p.Session != a.session:
		return Step{}, nil
	case p.Status.Type == "idle":
		if !a.working || !a.busy && !a.cutting { // that of an earlier turn
			return Step{}, nil
		}
		return a.ended(), nil
	}
	began := !a.busy
	a.busy = true
	if began && a.cutting {
		return a.abort(), nil
	}
	if began {
		a.trouble = nil
	}
	if p.Status.Type == "retry" {
		return told(Told{Kind: Phase, Phase: detect.PhaseRetry}), nil
	}
	return Step{}, nil
}

// failed notes why the turn will end.
func (a *serve) failed(of jsonx.Raw) (Step, error) {
	var p struct {
		Session string `json:"sessionID"`
		Error   struct {
			Name string `json:"name"`
			Data struct {
				Message string `json:"message"`
				Status  int    `json:"statusCode"`
			} `json:"data"`
		} `json:"error"`
	}
	if jsonx.Unmarshal(of, &p) != nil {
		return Step{}, errNoMessage
	}
	switch {
	case p.Session != a.session || a.trouble != nil:
	case p.Error.Name == "MessageAbortedError":
		a.cutting = true
	default:
		why, kind := text.ShortenBytes(p.Error.Data.Message, maxPrompt), ""
		switch p.Error.Name {
		case "ProviderAuthError":
			kind = "authentication_failed"
		case "ContextOverflowError":
			kind = "contextWindowExceeded"
		}
		if why == "" {
			why = "the program ended the turn: " + text.ShortenBytes(p.Error.Name, maxLabel)
		}
		a.trouble = &Told{Text: why, Phase: failed(failure(p.Error.Data.Status, kind, why))}
		if p.Error.Name == "MessageOutputLengthError" {
			a.trouble.Phase = failed("limit")
		}
	}
	return Step{}, nil
}

func (a *serve) ended() Step {
	end := Told{Kind: Ended, Phase: detect.PhaseDone, Text: last(strings.TrimSpace(a.reply.String()))}
	switch {
	case a.cutting:
		end.Phase = detect.PhaseInterrupted
	case a.trouble != nil:
		end.Phase, end.Text = a.trouble.Phase, a.trouble.Text
	}
	a.working, a.busy, a.trouble = false, false, nil // cutting stays: a turn that begins late is cut too
	a.begin("")
	clear(a.calls)
	clear(a.open)
	if a.agent == "plan" && end.Phase == detect.PhaseDone && end.Text != "" { // it does not ask whether its plan is approved
		q := &Question{ID: "plan", Tool: "plan", Input: encoded(object{"plan": end.Text})}
		q.plan(end.Text)
		return told(Told{Kind: Asked, Question: q})
	}
	return told(end)
}

func (a *serve) messaged(of jsonx.Raw) (Step, error) {
	var p struct {
		Session string `json:"sessionID"`
		Info    struct {
			ID    string `json:"id"`
			Role  string `json:"role"`
			Agent string `json:"agent"`
		} `json:"info"`
	}
	if jsonx.Unmarshal(of, &p) != nil {
		return Step{}, errNoMessage
	}
	if p.Session == a.session && p.Info.Role == "assistant" && served.MatchString(p.Info.ID) {
		a.message, a.agent = p.Info.ID, text.ShortenBytes(p.Info.Agent, maxLabel)
	}
	return Step{}, nil
}

func (a *serve) updated(of jsonx.Raw) (Step, error) {
	var p struct {
		Session string `json:"sessionID"`
		Part    struct {
			ID      string  `json:"id"`
			Message string  `json:"messageID"`
			Type    string  `json:"type"`
			Text    string  `json:"text"`
			Tool    string  `json:"tool"`
			Call    string  `json:"callID"`
			USD     float64 `json:"cost"`
			State   struct {
				Status string    `json:"status"`
				Input  jsonx.Raw `json:"input"`
			} `json:"state"`
			Tokens struct {
				In        int64 `json:"input"`
				Out       int64 `json:"output"`
				Reasoning int64 `json:"reasoning"`
				Cache     struct {
					Read  int64 `json:"read"`
					Write int64 `json:"write"`
				} `json:"cache"`
			} `json:"tokens"`
		} `json:"part"`
	}
	if jsonx.Unmarshal(of, &p) != nil {
		return Step{}, errNoMessage
	}
	ours, t := p.Session == a.session && p.Part.Message == a.message && a.message != "", p.Part.Tokens
	switch p.Part.Type {
	case "step-finish":
		if p.Part.ID == a.counted {
			return Step{}, nil
		}
		a.counted = text.ShortenBytes(p.Part.ID, maxID)
		return told(Told{Kind: Spent, Usage: Usage{Usage: programs.Usage{
			In: t.In + t.Cache.Read + t.Cache.Write, Out: t.Out + t.Reasoning, USD: p.Part.USD,
		}}}), nil
	case "text":
		if ours && p.Part.ID != a.part {
			a.begin(text.ShortenBytes(p.Part.ID, maxID))
			return a.said(p.Part.Text), nil
		}
	case "tool":
		return a.used(p.Part.Call, p.Part.Tool, p.Part.State.Status, p.Part.State.Input, ours), nil
	}
	return Step{}, nil
}

// delta adds to the text of the model's message. Parts of another type have other ids.
func (a *serve) delta(of jsonx.Raw) (Step, error) {
	var p struct {
		Part  string `json:"partID"`
		Field string `json:"field"`
		Delta string `json:"delta"`
	}
	if jsonx.Unmarshal(of, &p) != nil {
		return Step{}, errNoMessage
	}
	if p.Part == "" || p.Part != a.part || p.Field != "text" {
		return Step{}, nil
	}
	return a.said(p.Delta), nil
}

func (a *serve) said(words string) Step {
	if words == "" {
		return Step{}
	}
	if a.reply.Len()+len(words) > 2*maxReply {
		kept := last(a.reply.String())
		a.reply.Reset()
		a.reply.WriteString(kept)
	}
	a.reply.WriteString(last(words))
	return told(Told{Kind: Words, Text: last(words), More: true})
}

// used keeps the input of a running tool call for its permission request, and reports the call once.
func (a *serve) used(call, tool, status string, input jsonx.Raw, ours bool) Step {
	_, known := a.calls[call]
	switch status {
	case "running":
		if known || call == "" || len(call) > maxID {
			return Step{}
		}
		if a.calls == nil || len(a.calls) >= maxItems {
			a.calls = make(map[string]servedUse)
		}
		a.calls[call] = servedUse{tool: text.ShortenBytes(tool, maxLabel), input: slices.Clone(input)}
		if !ours {
			return Step{}
		}
		a.begin("")
		return told(Told{Kind: Tool, Tool: a.calls[call].tool, Text: about(input)})
	case "completed", "error":
		delete(a.calls, call)
		if ours {
			return told(Told{Kind: Phase})
		}
	}
	return Step{}
}

// about returns the command or file in the input of a tool.
func about(input jsonx.Raw) string {
	var in struct {
		Command string `json:"command"`
		File    string `json:"filePath"`
	}
	if input.Kind() != '{' || jsonx.Unmarshal(input, &in) != nil {
		return ""
	}
	return text.ShortenBytes(strings.TrimSpace(in.Command+" "+in.File), maxPrompt)
}
