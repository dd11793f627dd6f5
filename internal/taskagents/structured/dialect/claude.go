package dialect

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
)

// claude implements Dialect for stream-json: lines with a type, and control requests in both
// directions.
type claude struct {
	resume  string
	next    int
	opening string // id of the request that opens the conversation; "" once it is open
	cutting string // id of the last interrupt request
	failed  string // error that the program reported in this turn
	// Of this turn: the calls of tools by the ids of the questions about them, and the tools of withdrawn
	// questions by the ids of their calls.
	calls     map[string]toolCall
	withdrawn map[string]string
}

type toolCall struct{ id, tool string }

func (c *claude) control(request object) (id string, out []byte) {
	c.next++
	id = "junctor-" + strconv.Itoa(c.next)
	return id, encoded(object{"type": "control_request", "request_id": id, "request": request})
}

func (c *claude) Begin() Step {
	id, out := c.control(object{"subtype": "initialize", "hooks": nil})
	c.opening = id
	return sent(out)
}

// Say implements Dialect. The program queues texts while it works.
func (c *claude) Say(text string, working bool) (Step, bool) {
	s := sent(encoded(object{"type": "user", "message": object{"role": "user", "content": text}}))
	if working {
		s.tell(Told{Kind: Taken})
	}
	return s, true
}

func (c *claude) Interrupt([]*Question) Step {
	id, out := c.control(object{"subtype": "interrupt"})
	c.cutting = id
	return sent(out)
}

func (c *claude) Answer(q *Question, option int, why string) Step {
	if q.Options[option].Kind == "reject_once" {
		if why == "" {
			why = refusal
		}
		return c.reply(q.id, object{"behavior": "deny", "message": why})
	}
	return c.reply(q.id, object{"behavior": "allow", "updatedInput": q.raw})
}

// Fill implements Dialect. The answers are part of the tool's input, by the texts of the questions.
func (c *claude) Fill(q *Question, values map[string][]string) Step {
	if q.Type == "plan" {
		return c.reply(q.id, object{"behavior": "deny", "message": strings.Join(values[q.Form[0].ID], "\n")})
	}
	members := make(map[string]jsonx.Raw)
	_ = jsonx.Unmarshal(q.raw, &members) // it was parsed before
	answers := make(map[string]string, len(q.Form))
	for _, one := range q.Form {
		answers[one.Text] = strings.Join(values[one.ID], ", ")
	}
	members["answers"] = encoded(answers)
	return c.reply(q.id, object{"behavior": "allow", "updatedInput": jsonx.Raw(encoded(members))})
}

func (c *claude) reply(id jsonx.Raw, response object) Step {
	return sent(encoded(object{"type": "control_response", "response": object{"subtype": "success", "request_id": id, "response": response}}))
}

// Filed implements Dialect. It does nothing, because the program reads and writes files itself.
func (c *claude) Filed(*File, string, error) Step { return Step{} }

func (c *claude) HandleLine(line []byte) (Step, error) {
	var m struct {
		Type      string    `json:"type"`
		Subtype   string    `json:"subtype"`
		SessionID string    `json:"session_id"`
		RequestID jsonx.Raw `json:"request_id"`
		Request   jsonx.Raw `json:"request"`
		Response  jsonx.Raw `json:"response"`
		Message   jsonx.Raw `json:"message"`
		Parent    jsonx.Raw `json:"parent_tool_use_id"`
		Status    jsonx.Raw `json:"status"`
		Error     jsonx.Raw `json:"error"`
	}
	if err := unmarshal(line, &m); err != nil {
		return Step{}, err
	}
	ofHelper := m.Parent.Kind() == '"' // turns of helper agents are ignored
	switch m.Type {
	case "control_response":
		return c.answered(m.Response)
	case "control_request":
		return c.asked(m.RequestID, m.Request)
	case "control_cancel_request":
		id := text.ShortenBytes(string(m.RequestID), maxID)
		if call, ok := c.calls[id]; ok {
			c.withdrawn[call.id] = call.tool
		}
		return told(Told{Kind: Withdrawn, Text: id}), nil
	case "system":
		return c.system(m.Subtype, m.SessionID, m.Status), nil
	case "assistant":
		if ofHelper {
			return Step{}, nil
		}
		if word, ok := jsonx.Text(m.Error); ok {
			c.failed = text.ShortenBytes(word, maxLabel)
		}
		return assistant(m.Message)
	case "user":
		if ofHelper {
			return Step{}, nil
		}
		s := told(Told{Kind: Phase}) // a tool's result: the turn continues
		for _, tool := range c.ran(m.Message) {
			s.tell(Told{Kind: Elsewhere, Tool: tool})
		}
		return s, nil
	case "result":
		return c.result(line)
	case "stream_event", "keep_alive", "rate_limit_event", "tool_progress", "tool_use_summary", "auth_status", "prompt_suggestion":
		return Step{}, nil
	case "":
		return Step{}, errNoMessage
	}
	return told(Told{Kind: Unknown, Text: text.ShortenBytes(m.Type, maxLabel)}), nil
}

// ran returns the tools of withdrawn questions that a message has results of.
func (c *claude) ran(message jsonx.Raw) (tools []string) {
	var m struct {
		Content []struct {
			Type    string `json:"type"`
			ID      string `json:"tool_use_id"`
			IsError bool   `json:"is_error"`
		} `json:"content"`
	}
	if len(c.withdrawn) == 0 || jsonx.Unmarshal(message, &m) != nil {
		return nil
	}
	for _, part := range m.Content {
		if tool, ok := c.withdrawn[part.ID]; ok && part.Type == "tool_result" {
			delete(c.withdrawn, part.ID)
			if !part.IsError {
				tools = append(tools, tool)
			}
		}
	}
	return tools
}

func (c *claude) answered(response jsonx.Raw) (Step, error) {
	var r struct {
		Subtype   string `json:"subtype"`
		RequestID string `json:"request_id"`
		Error     string `json:"error"`
	}
	if jsonx.Unmarshal(response, &r) != nil {
		return Step{}, errNoMessage
	}
	refused := ""
	if r.Subtype != "success" {
		refused = "it answered " + text.ShortenBytes(r.Subtype+": "+r.Error, maxPrompt)
	}
	switch r.RequestID {
	case "":
		return Step{}, errNoMessage
	case c.opening:
		c.opening = ""
		if refused != "" {
			return told(Told{Kind: Refused, Text: refused}), nil
		}
		return told(Told{Kind: Opened, Token: c.resume}), nil
	case c.cutting:
		if refused != "" {
			c.cutting = ""
			return told(Told{Kind: Declined, Text: refused}), nil
		}
		return Step{}, nil
	}
	return told(Told{Kind: Unknown, Text: "an answer to nothing"}), nil
}

func (c *claude) asked(id, request jsonx.Raw) (Step, error) {
	var r struct {
		Subtype     string    `json:"subtype"`
		Tool        string    `json:"tool_name"`
		Input       jsonx.Raw `json:"input"`
		Call        string    `json:"tool_use_id"`
		Description string    `json:"description"`
		Reason      string    `json:"decision_reason"`
	}
	if jsonx.Unmarshal(request, &r) != nil || id.Kind() != '"' || len(id) > maxID {
		return Step{}, errNoMessage
	}
	if r.Subtype != "can_use_tool" {
		s := sent(encoded(object{"type": "control_response", "response": object{
			"subtype": "error", "request_id": id,
			"error": "this client does not offer that",
		}}))
		s.tell(Told{Kind: Unknown, Text: "control_request " + text.ShortenBytes(r.Subtype, maxLabel)})
		return s, nil
	}
	if r.Input.Kind() != '{' || r.Tool == "" {
		return Step{}, errNoMessage
	}
	q := &Question{
		ID: string(id), Type: "permission", Tool: text.ShortenBytes(r.Tool, maxLabel), Input: json.RawMessage(r.Input), id: id, raw: r.Input,
		Prompt:  text.ShortenBytes(strings.TrimSpace("Use "+r.Tool+": "+cmp.Or(Brief(r.Input), r.Description)), maxPrompt),
		Options: []Option{{Label: "Allow", Kind: "allow_once"}, {Label: "Deny", Kind: "reject_once"}},
	}
	if r.Call != "" && len(r.Call) <= maxID && len(c.calls) < maxCalls {
		q.Call = r.Call
		c.calls[string(id)] = toolCall{r.Call, q.Tool}
	}
	refuse := func(why string) (Step, error) {
		q.Options = q.Options[1:]
		return c.Answer(q, 0, why), nil
	}
	q.Reason = text.ShortenBytes(r.Description, maxPrompt)
	switch {
	case len(r.Input) > maxShown:
		return refuse("The input of this tool is too large to be shown to the user. Split it.")
	case r.Tool == "AskUserQuestion":
		if !q.ask(claudeForm(r.Input)) {
			return refuse("Ask one to eight different questions, each with a text and options that are short.")
		}
	case r.Tool == "ExitPlanMode":
		var in struct {
			Plan string `json:"plan"`
		}
		_ = jsonx.Unmarshal(r.Input, &in) // without a plan only the input is shown
		q.plan(in.Plan)
	}
	return told(Told{Kind: Asked, Question: q}), nil
}

// claudeForm returns the questions of AskUserQuestion. Each may also be answered with a text.
func claudeForm(input jsonx.Raw) (form []detect.Question) {
	var in struct {
		Questions []struct {
			Question string `json:"question"`
			Multi    bool   `json:"multiSelect"`
			Options  []struct {
				Label       string `json:"label"`
				Description string `json:"description"`
			} `json:"options"`
		} `json:"questions"`
	}
	if jsonx.Unmarshal(input, &in) != nil {
		return nil
	}
	for i, asked := range in.Questions {
		q := detect.Question{ID: strconv.Itoa(i + 1), Text: asked.Question, Multiple: asked.Multi, FreeText: true}
		for _, o := range asked.Options {
			q.Options = append(q.Options, detect.Choice{Label: o.Label, Description: o.Description})
		}
		form = append(form, q)
	}
	return form
}

// Brief returns a short description of a tool's input for users: its command, files, address or words,
// or "".
func Brief(input []byte) string {
	found := ""
	_ = jsonx.Members(input, func(name string, value []byte) {
		switch name {
		case "command", "file_path", "path", "notebook_path", "url", "query", "pattern":
			if s, ok := jsonx.Text(value); ok && found == "" {
				found = text.ShortenBytes(s, maxPrompt)
			}
		case "paths":
			var list []string
			if jsonx.Unmarshal(value, &list) == nil && found == "" {
				found = text.ShortenBytes(strings.Join(list, ", "), maxPrompt)
			}
		}
	})
	return found
}

func (c *claude) system(subtype, session string, status jsonx.Raw) Step {
	switch subtype {
	case "init": // before every turn
		if len(session) > maxToken {
			session = ""
		}
		return Step{Told: []Told{{Kind: Named, Token: session}, {Kind: Began}}}
	case "api_retry":
		return told(Told{Kind: Phase, Phase: detect.PhaseRetry})
	case "status":
		if word, _ := jsonx.Text(status); word == "compacting" {
			return told(Told{Kind: Phase, Phase: detect.PhaseCompacting})
		}
		return told(Told{Kind: Phase})
	case "compact_boundary":
		return told(Told{Kind: Phase})
	}
	return Step{} // others, for example about hooks and helpers, are ignored
}

func assistant(message jsonx.Raw) (s Step, err error) {
	var m struct {
		Content []struct {
			Type  string    `json:"type"`
			Text  string    `json:"text"`
			Name  string    `json:"name"`
			Input jsonx.Raw `json:"input"`
		} `json:"content"`
	}
	if jsonx.Unmarshal(message, &m) != nil {
		return Step{}, errNoMessage
	}
	s.tell(Told{Kind: Began})
	for _, part := range m.Content {
		switch part.Type {
		case "text":
			s.tell(Told{Kind: Words, Text: last(part.Text)})
		case "tool_use":
			s.tell(Told{Kind: Tool, Tool: text.ShortenBytes(part.Name, maxLabel), Text: Brief(part.Input)})
		}
	}
	return s, nil
}

func (c *claude) result(line []byte) (s Step, err error) {
	type counts struct {
		tokens
		Read   int64 `json:"cacheReadInputTokens"`
		Create int64 `json:"cacheCreationInputTokens"`
	}
	var r struct {
		Subtype   string            `json:"subtype"`
		IsError   bool              `json:"is_error"`
		Status    *int              `json:"api_error_status"`
		Result    string            `json:"result"`
		Errors    []string          `json:"errors"`
		SessionID string            `json:"session_id"`
		USD       float64           `json:"total_cost_usd"`
		Models    map[string]counts `json:"modelUsage"`
		Denials   []struct {
			Tool  string    `json:"tool_name"`
			Call  string    `json:"tool_use_id"`
			Input jsonx.Raw `json:"tool_input"`
		} `json:"permission_denials"` // of this turn
	}
	if err := unmarshal(line, &r); err != nil {
		return Step{}, err
	}
	if r.SessionID != "" && len(r.SessionID) <= maxToken {
		s.tell(Told{Kind: Named, Token: r.SessionID})
	}
	u := Usage{Usage: programs.Usage{USD: r.USD}, Total: true}
	for _, m := range r.Models {
		u.In += m.In + m.Read + m.Create
		u.Out += m.Out
	}
	if len(r.Models) > 0 {
		s.tell(Told{Kind: Spent, Usage: u})
	}
	for _, d := range r.Denials[max(0, len(r.Denials)-maxCalls):] {
		s.tell(Told{Kind: Denied, Tool: text.ShortenBytes(d.Tool, maxLabel), Call: d.Call, Input: d.Input})
	}
	end := Told{Kind: Ended, Phase: detect.PhaseDone, Text: last(r.Result)}
	switch {
	case c.cutting != "" && (r.IsError || r.Subtype != "success"):
		end.Phase = detect.PhaseInterrupted
	case r.IsError || r.Subtype != "success":
		if end.Text == "" {
			end.Text = text.ShortenBytes(strings.Join(r.Errors, "\n"), maxPrompt)
		}
		status := 0
		if r.Status != nil {
			status = *r.Status
		}
		kind := failure(status, c.failed, end.Text)
		if limit, ok := strings.CutPrefix(r.Subtype, "error_max_"); ok && limit != "" {
			kind = "limit"
		}
		end.Phase = failed(kind)
	}
	c.cutting, c.failed = "", ""
	clear(c.calls)
	clear(c.withdrawn)
	s.tell(end)
	return s, nil
}
