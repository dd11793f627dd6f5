package dialect

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
)

// acp implements Dialect for the Agent Client Protocol, version 1.
type acp struct {
	rpc
	cfg     Config
	session string
	loading bool   // updates belong to the conversation that is being loaded
	working bool   // a prompt has no answer yet
	message string // id of the message in reply; "" if the program sends none
	reply   strings.Builder
}

const codeAuthRequired = jsonrpc.CodeServer

// Begin implements Dialect. It does not offer to read or write files, because programs can do so
// themselves. OpenCode requests it nevertheless (measured).
func (a *acp) Begin() Step {
	return sent(a.call("initialize", object{
		"protocolVersion":    1,
		"clientCapabilities": object{"fs": object{"readTextFile": false, "writeTextFile": false}},
		"clientInfo":         object{"name": "junctor", "version": a.cfg.Version},
	}, a.initialized))
}

func (a *acp) initialized(result jsonx.Raw, fail *rpcError) Step {
	var r struct {
		Version int64 `json:"protocolVersion"`
		Can     struct {
			Load     bool `json:"loadSession"`
			Sessions struct {
				Resume jsonx.Raw `json:"resume"`
			} `json:"sessionCapabilities"`
		} `json:"agentCapabilities"`
	}
	if fail != nil {
		return refused(fail)
	}
	if jsonx.Unmarshal(result, &r) != nil || r.Version != 1 {
		return told(Told{Kind: Refused, Text: "it speaks another version of the protocol"})
	}
	params := object{"cwd": a.cfg.Workdir, "mcpServers": []any{}}
	method := "session/new"
	if a.cfg.Resume != "" {
		params["sessionId"] = a.cfg.Resume
		switch {
		case r.Can.Sessions.Resume.Kind() == '{':
			method = "session/resume"
		case r.Can.Load:
			method, a.loading = "session/load", true
		default:
			return told(Told{Kind: Refused, Text: "it cannot take up an earlier conversation"})
		}
	}
	return sent(a.call(method, params, a.opened))
}

func (a *acp) opened(result jsonx.Raw, fail *rpcError) Step {
	a.loading = false
	if fail != nil {
		return refused(fail)
	}
	var r struct {
		ID string `json:"sessionId"`
	}
	if result.Kind() == '{' && jsonx.Unmarshal(result, &r) != nil {
		return told(Told{Kind: Refused, Text: "its answer is not as it should be"})
	}
	if a.session = a.cfg.Resume; a.session == "" {
		a.session = r.ID
	}
	if a.session == "" || len(a.session) > maxToken {
		return told(Told{Kind: Refused, Text: "its session has no usable id"})
	}
	return told(Told{Kind: Opened, Token: a.session})
}

// Say implements Dialect. It starts a turn; the only answer is the end of the turn.
func (a *acp) Say(text string, working bool) (Step, bool) {
	if working || a.working {
		return Step{}, false
	}
	a.working = true
	a.begin("")
	s := sent(a.call("session/prompt", object{"sessionId": a.session, "prompt": []object{{"type": "text", "text": text}}}, a.ended))
	s.tell(Told{Kind: Began})
	return s, true
}

// begin starts a new message of the agent.
func (a *acp) begin(id string) {
	a.message = id
	a.reply.Reset()
}

func (a *acp) Interrupt(open []*Question) Step {
	s := sent(a.notify("session/cancel", object{"sessionId": a.session}))
	for _, q := range open { // the protocol requires an answer to each
		s.send(a.result(q.id, object{"outcome": object{"outcome": "cancelled"}}))
	}
	return s
}

func (a *acp) Answer(q *Question, option int, _ string) Step {
	return sent(a.result(q.id, object{"outcome": object{"outcome": "selected", "optionId": q.Options[option].answer}}))
}

// Fill implements Dialect. The protocol has no forms.
func (a *acp) Fill(q *Question, _ map[string][]string) Step {
	return a.Answer(q, q.Find("reject_once", "reject_always"), "")
}

func (a *acp) Filed(f *File, text string, err error) Step {
	switch {
	case err != nil:
		return sent(a.failure(f.id, jsonrpc.CodeInternal, err.Error()))
	case f.Write:
		return sent(a.result(f.id, nil))
	}
	return sent(a.result(f.id, object{"content": text}))
}

func (a *acp) HandleLine(line []byte) (Step, error) { return a.handleMessage(line, a.asked, a.noted) }

func (a *acp) asked(id jsonx.Raw, method string, params jsonx.Raw) (Step, error) {
	invalid := func() (Step, error) {
		return sent(a.failure(id, jsonrpc.CodeInvalidParams, "the parameters are not as they should be")), nil
	}
	switch method {
	case "session/request_permission":
		q, ok := a.question(id, params)
		if !ok {
			return invalid()
		}
		return told(Told{Kind: Asked, Question: q}), nil
	case "fs/write_text_file", "fs/read_text_file":
		var p struct {
			Session string `json:"sessionId"`
			Path    string `json:"path"`
			Content string `json:"content"`
			Line    *int   `json:"line"`
			Limit   *int   `json:"limit"`
		}
		if jsonx.Unmarshal(params, &p) != nil || a.session == "" || p.Session != a.session || p.Path == "" {
			return invalid()
		}
		f := &File{Tool: a.tool("read"), Path: p.Path, id: id}
		if method == "fs/write_text_file" {
			f.Write, f.Tool, f.Text = true, a.tool("edit"), p.Content
		}
		if p.Line != nil {
			f.Line = max(*p.Line, 0)
		}
		if p.Limit != nil {
			f.Limit = max(*p.Limit, 0)
		}
		return told(Told{Kind: Wanted, File: f}), nil
	}
	return a.unsupported(id, method), nil
}

// acpCall is a tool call.
type acpCall struct {
	Title     string    `json:"title"`
	Kind      string    `json:"kind"`
	Status    string    `json:"status"`
	Input     jsonx.Raw `json:"rawInput"`
	Locations []struct {
		Path string `json:"path"`
	} `json:"locations"`
	Content []struct {
		Type    string    `json:"type"`
		Path    string    `json:"path"`
		Content jsonx.Raw `json:"content"`
	} `json:"content"`
}

func (a *acp) question(id, params jsonx.Raw) (*Question, bool) {
	var p struct {
		Session string  `json:"sessionId"`
		Call    acpCall `json:"toolCall"`
		Options []struct {
			ID   jsonx.Raw `json:"optionId"`
			Name string    `json:"name"`
			Kind string    `json:"kind"`
		} `json:"options"`
	}
	if jsonx.Unmarshal(params, &p) != nil || a.session == "" || p.Session != a.session || len(p.Options) == 0 || len(p.Options) > MaxOptions {
		return nil, false
	}
	q := &Question{
		ID: string(id), id: id, Type: "permission", Tool: a.tool(p.Call.Kind), Input: p.Call.known(),
		Prompt: text.ShortenBytes(p.Call.Title, maxPrompt),
	}
	if a.cfg.Framework == programs.Gemini && p.Call.Kind == "execute" && p.Call.Input == nil {
		if dir, ok := p.Call.shellDir(a.cfg.Workdir); ok {
			q.Input, q.Cwd = encoded(object{"command": p.Call.Title, "cwd": dir}), text.ShortenBytes(dir, maxPrompt)
		} else { // no preset judges it, and the user sees all of it
			q.Input = encoded(object{"title": p.Call.Title, "text": p.Call.text()})
		}
	}
	for _, o := range p.Options {
		if o.ID.Kind() != '"' || len(o.ID) > maxID {
			return nil, false
		}
		if !slices.Contains([]string{"allow_once", "allow_always", "reject_once", "reject_always"}, o.Kind) {
			o.Kind = ""
		}
		q.Options = append(q.Options, Option{Label: text.ShortenBytes(o.Name, maxLabel), Kind: o.Kind, answer: o.ID})
	}
	return q, true
}

// shellDir returns the folder of a command of Gemini CLI. Its requests have no input: the title is the whole command,
// and a text begins with the folder in brackets. ok is false for a folder that the text does not name clearly,
// because the names of folders may have brackets, too.
func (c *acpCall) shellDir(workdir string) (dir string, ok bool) {
	if c.Title == "" || len(c.Content) != 1 {
		return "", false
	}
	where := c.text()
	if strings.HasPrefix(where, "[current working directory "+workdir+"]") {
		return workdir, true
	}
	rest, found := strings.CutPrefix(where, "[in ")
	dir, more, closed := strings.Cut(rest, "]")
	return dir, found && closed && dir != "" && !strings.Contains(more, "]")
}

// text returns the texts of the call's content.
func (c *acpCall) text() string {
	var texts []string
	for _, part := range c.Content {
		var block struct {
			Text string `json:"text"`
		}
		if jsonx.Unmarshal(part.Content, &block) == nil && block.Text != "" { // others have a diff
			texts = append(texts, block.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// known returns a tool's input with the files that the call names.
func (c *acpCall) known() []byte {
	members := make(map[string]jsonx.Raw)
	if c.Input.Kind() == '{' {
		_ = jsonx.Unmarshal(c.Input, &members) // an input that is not an object has no members
	}
	var paths []string
	for _, l := range c.Locations {
		paths = append(paths, l.Path)
	}
	for _, part := range c.Content {
		if part.Type == "diff" {
			paths = append(paths, part.Path)
		}
	}
	paths = slices.DeleteFunc(paths, func(p string) bool { return p == "" })
	if len(paths) == 0 {
		return encoded(members)
	}
	for _, name := range []string{"paths", "file_paths"} { // names that package permit reads
		if members[name] == nil && len(paths) <= maxPaths {
			members[name] = encoded(paths)
			return encoded(members)
		}
	}
	return []byte("{}") // the files are unknown
}

// tool returns the presets' name for a kind of tools, because a request only has the kind.
func (a *acp) tool(kind string) string {
	if name := programs.Of(a.cfg.Framework).Kinds[kind]; name != "" {
		return name
	}
	return "other"
}

func (a *acp) noted(method string, params jsonx.Raw) (Step, error) {
	if method != "session/update" {
		return told(Told{Kind: Unknown, Text: text.ShortenBytes(method, maxLabel)}), nil
	}
	var p struct {
		Session string `json:"sessionId"`
		Update  struct {
			Type    string    `json:"sessionUpdate"`
			Message string    `json:"messageId"`
			Content jsonx.Raw `json:"content"`
			Cost    struct {
				Amount   float64 `json:"amount"`
				Currency string  `json:"currency"`
			} `json:"cost"`
		} `json:"update"`
	}
	if jsonx.Unmarshal(params, &p) != nil {
		return Step{}, errNoMessage
	}
	if a.loading || a.session == "" || p.Session != a.session {
		return Step{}, nil
	}
	switch p.Update.Type {
	case "agent_message_chunk":
		var part struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if jsonx.Unmarshal(p.Update.Content, &part) != nil {
			return Step{}, errNoMessage
		}
		if part.Type != "text" {
			return Step{}, nil
		}
		return a.said(text.ShortenBytes(p.Update.Message, maxID), part.Text), nil
	case "tool_call", "tool_call_update":
		var u struct {
			Update acpCall `json:"update"`
		}
		if jsonx.Unmarshal(params, &u) != nil {
			return Step{}, errNoMessage
		}
		return a.used(p.Update.Type == "tool_call", u.Update), nil
	case "usage_update":
		if p.Update.Cost.Currency == "USD" {
			return told(Told{Kind: Spent, Usage: Usage{programs.Usage{USD: p.Update.Cost.Amount}, true}}), nil
		}
		return Step{}, nil
	case "user_message_chunk", "agent_thought_chunk", "plan", "available_commands_update", "current_mode_update", "config_option_update",
		"session_info_update":
		return Step{}, nil
	}
	return told(Told{Kind: Unknown, Text: "session/update " + text.ShortenBytes(p.Update.Type, maxLabel)}), nil
}

// said adds a part of a message. The last message of a turn is its result; a message ends when
// another one or a tool call starts.
func (a *acp) said(message, text string) Step {
	if message != a.message {
		a.begin(message)
	}
	if a.reply.Len()+len(text) > 2*maxReply {
		kept := last(a.reply.String())
		a.reply.Reset()
		a.reply.WriteString(kept)
	}
	a.reply.WriteString(last(text))
	return told(Told{Kind: Words, Text: last(text), More: true})
}

func (a *acp) used(begins bool, c acpCall) Step {
	if begins {
		a.begin("")
	}
	switch c.Status {
	case "completed", "failed":
		return told(Told{Kind: Phase})
	case "pending": // a permission request may follow
		return Step{}
	}
	if !begins && c.Status != "in_progress" {
		return Step{}
	}
	name := a.tool(c.Kind)
	if name == "other" {
		name = text.ShortenBytes(c.Title, maxLabel)
	}
	return told(Told{Kind: Tool, Tool: name, Text: text.ShortenBytes(c.Title, maxPrompt)})
}

func (a *acp) ended(result jsonx.Raw, fail *rpcError) (s Step) {
	a.working = false
	end := Told{Kind: Ended, Phase: detect.PhaseDone, Text: last(strings.TrimSpace(a.reply.String()))}
	a.begin("")
	if fail != nil {
		end.Text = fail.words()
		end.Phase = failed(failure(int(fail.Code), "", end.Text))
		if fail.Code == codeAuthRequired {
			end.Phase = failed("auth")
		}
		s.tell(end)
		return s
	}
	type counts struct {
		In    int64 `json:"input_tokens"`
		Out   int64 `json:"output_tokens"`
		ACPIn int64 `json:"inputTokens"`
		ACPO  int64 `json:"outputTokens"`
	}
	var r struct {
		Stop  string `json:"stopReason"`
		Usage counts `json:"usage"`
		Meta  struct {
			Quota struct {
				Tokens counts `json:"token_count"`
			} `json:"quota"`
		} `json:"_meta"`
	}
	if jsonx.Unmarshal(result, &r) != nil {
		end.Phase, end.Text = failed("protocol"), "the end of the turn cannot be read"
		s.tell(end)
		return s
	}
	u := programs.Usage{In: r.Usage.ACPIn + r.Meta.Quota.Tokens.In, Out: r.Usage.ACPO + r.Meta.Quota.Tokens.Out}
	if u != (programs.Usage{}) {
		s.tell(Told{Kind: Spent, Usage: Usage{Usage: u}})
	}
	switch r.Stop {
	case "end_turn":
	case "cancelled":
		end.Phase = detect.PhaseInterrupted
	case "max_tokens", "max_turn_requests":
		end.Phase = failed("limit")
	case "refusal":
		end.Phase = failed("refused")
	default:
		end.Phase = failed("unknown")
	}
	if end.Phase != detect.PhaseDone && end.Phase != detect.PhaseInterrupted && end.Text == "" {
		end.Text = "the program ended the turn: " + text.ShortenBytes(r.Stop, maxLabel)
	}
	s.tell(end)
	return s
}
