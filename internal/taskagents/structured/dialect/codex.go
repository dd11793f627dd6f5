package dialect

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
)

// codex implements Dialect for the app server: JSON-RPC without version member, and one thread with
// turns. Threads of helpers, which have other ids, are ignored.
type codex struct {
	rpc
	cfg    Config
	thread string
	turn   string // id of the running turn, or ""
	reply  string // the last message of the agent in this turn
	failed Told   // failure of the turn that the program reported before its end
	items  []item // file changes of this turn, because questions refer to them by id

	earlier  programs.Usage // of a resumed thread, before this program was started
	measured bool           // usage of a turn was reported
}

type item struct {
	id    string
	paths []string
	diffs []diff // nil if they are too large to be shown
}

// diff is the change of one file, as the user is shown it.
type diff struct {
	Path string `json:"path"`
	Diff string `json:"diff"`
}

func (c *codex) Begin() Step {
	return sent(c.call("initialize", object{
		"clientInfo":   object{"name": "junctor", "title": "junctor", "version": c.cfg.Version},
		"capabilities": object{"experimentalApi": true},
	}, // for questions to the user
		func(_ jsonx.Raw, fail *rpcError) Step {
			if fail != nil {
				return refused(fail)
			}
			s := sent(c.notify("initialized", object{}))
			method, params := "thread/start", object{"cwd": c.cfg.Workdir}
			if c.cfg.Resume != "" {
				method, params["threadId"], params["excludeTurns"] = "thread/resume", c.cfg.Resume, true
			}
			if c.cfg.Preset.Judge(programs.ShellUse) == programs.Ask { // otherwise commands that write in the folder would run unasked
				params["approvalPolicy"] = "untrusted"
			}
			s.send(c.call(method, params, c.opened))
			return s
		}))
}

// refused reports that the conversation could not start.
func refused(fail *rpcError) Step {
	kind := Refused
	if text := fail.words(); fail.Code == codeAuthRequired || failure(0, "", text) == "auth" {
		kind = SignIn
	}
	return told(Told{Kind: kind, Text: fail.words()})
}

func (c *codex) opened(result jsonx.Raw, fail *rpcError) Step {
	if fail != nil {
		return refused(fail)
	}
	var r struct {
		Thread struct {
			ID string `json:"id"`
		} `json:"thread"`
	}
	if jsonx.Unmarshal(result, &r) != nil || r.Thread.ID == "" || len(r.Thread.ID) > maxToken {
		return told(Told{Kind: Refused, Text: "its thread has no usable id"})
	}
	c.thread = r.Thread.ID
	return told(Told{Kind: Opened, Token: c.thread})
}

func (c *codex) Say(text string, working bool) (Step, bool) {
	input := []object{{"type": "text", "text": text}}
	kind := Began
	if working {
		kind = Taken
	}
	then := func(_ jsonx.Raw, fail *rpcError) Step {
		if fail != nil {
			return told(Told{Kind: Declined, Text: fail.words()})
		}
		return told(Told{Kind: kind})
	}
	if !working {
		return sent(c.call("turn/start", object{"threadId": c.thread, "input": input}, then)), true
	}
	if c.turn == "" {
		return Step{}, false
	}
	return sent(c.call("turn/steer", object{"threadId": c.thread, "expectedTurnId": c.turn, "input": input}, then)), true
}

func (c *codex) Interrupt([]*Question) Step {
	if c.turn == "" {
		return told(Told{Kind: Declined, Text: "the turn has not begun yet"})
	}
	return sent(c.call("turn/interrupt", object{"threadId": c.thread, "turnId": c.turn}, func(_ jsonx.Raw, fail *rpcError) Step {
		if fail != nil {
			return told(Told{Kind: Declined, Text: fail.words()})
		}
		return Step{}
	}))
}

func (c *codex) Answer(q *Question, option int, _ string) Step {
	return sent(c.result(q.id, q.Options[option].answer))
}

// Fill implements Dialect.
func (c *codex) Fill(q *Question, values map[string][]string) Step {
	if q.fields != nil {
		return sent(c.result(q.id, object{"action": "accept", "content": q.content(values)}))
	}
	answers := make(object, len(q.Form))
	for _, one := range q.Form {
		answers[one.ID] = object{"answers": values[one.ID]}
	}
	return sent(c.result(q.id, object{"answers": answers}))
}

// Filed implements Dialect. It does nothing, because the program reads and writes files itself.
func (c *codex) Filed(*File, string, error) Step { return Step{} }

func (c *codex) HandleLine(line []byte) (Step, error) { return c.handleMessage(line, c.asked, c.noted) }

// codexParams holds the members that are read from the parameters of all messages.
type codexParams struct {
	ThreadID  string           `json:"threadId"`
	ItemID    string           `json:"itemId"`
	RequestID jsonx.Raw        `json:"requestId"`
	Command   string           `json:"command"`
	Cwd       string           `json:"cwd"`
	Reason    string           `json:"reason"`
	GrantRoot string           `json:"grantRoot"`
	Message   string           `json:"message"`
	Summary   string           `json:"summary"` // text of a warning about its settings
	WillRetry bool             `json:"willRetry"`
	Error     *codexError      `json:"error"`
	Available []jsonx.Raw      `json:"availableDecisions"`
	Granted   jsonx.Raw        `json:"permissions"` // that it requests
	Questions []codexQuestion  `json:"questions"`
	Turn      *codexTurn       `json:"turn"`
	Item      *codexItem       `json:"item"`
	Usage     *codexTokenUsage `json:"tokenUsage"`
}

type codexQuestion struct {
	ID       string `json:"id"`
	Question string `json:"question"`
	Secret   bool   `json:"isSecret"`
	Other    bool   `json:"isOther"`
	Options  []struct {
		Label       string `json:"label"`
		Description string `json:"description"`
	} `json:"options"`
}

type codexError struct {
	Message string    `json:"message"`
	Info    jsonx.Raw `json:"codexErrorInfo"`
	More    string    `json:"additionalDetails"`
}

type codexTurn struct {
	ID     string      `json:"id"`
	Status string      `json:"status"`
	Error  *codexError `json:"error"`
}

type codexItem struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Text    string `json:"text"`
	Command string `json:"command"`
	Cwd     string `json:"cwd"`
	Status  string `json:"status"`
	Server  string `json:"server"`
	Tool    string `json:"tool"`
	Query   string `json:"query"`
	Changes []struct {
		Path string `json:"path"`
		Diff string `json:"diff"`
		Kind struct {
			Moved string `json:"move_path"`
		} `json:"kind"`
	} `json:"changes"`
}

// paths returns the files of a change, or nil if there are too many to check.
func (i *codexItem) paths() (list []string) {
	if len(i.Changes) > maxPaths {
		return nil
	}
	for _, change := range i.Changes {
		list = append(list, change.Path)
		if change.Kind.Moved != "" {
			list = append(list, change.Kind.Moved)
		}
	}
	return list
}

type codexTokenUsage struct {
	Total tokens `json:"total"` // of the thread, also before it was resumed
	Last  tokens `json:"last"`  // of the last answer of the model
}

// spent returns the usage of the thread since the program was started.
func (c *codex) spent(u *codexTokenUsage) Step {
	total := programs.Usage{In: u.Total.In, Out: u.Total.Out}
	if c.turn == "" && !c.measured {
		c.earlier = total // repeated when the thread was resumed
		return Step{}
	}
	if !c.measured {
		c.earlier = c.earlier.Max(total.Minus(programs.Usage{In: u.Last.In, Out: u.Last.Out}))
	}
	c.measured = true
	return told(Told{Kind: Spent, Usage: Usage{total.Minus(c.earlier), true}})
}

func (c *codex) asked(id jsonx.Raw, method string, params jsonx.Raw) (Step, error) {
	var p codexParams
	if jsonx.Unmarshal(params, &p) != nil {
		return sent(c.failure(id, jsonrpc.CodeInvalidParams, "the parameters are not as they should be")), nil
	}
	q := &Question{ID: string(id), id: id, Type: "permission", Call: text.ShortenBytes(p.ItemID, maxID)}
	switch method {
	case "item/commandExecution/requestApproval":
		q.Tool, q.Input = "exec_command", encoded(object{"command": p.Command, "cwd": p.Cwd})
		q.Prompt, q.Cwd = strings.TrimSpace("Run: "+p.Command), text.ShortenBytes(p.Cwd, maxPrompt)
	case "item/fileChange/requestApproval":
		change := c.changed(p.ItemID)
		paths := change.paths
		if p.GrantRoot != "" {
			paths = append(paths, p.GrantRoot)
		}
		q.Tool, q.Input = "apply_patch", encoded(object{"paths": paths, "changes": change.diffs})
		if change.diffs == nil && len(paths) > 0 {
			s := sent(c.result(id, object{"decision": "decline"}))
			s.tell(Told{Kind: Warned, Text: "a change was refused because it is too large to be shown: " + text.ShortenBytes(q.Prompt, maxLabel)})
			return s, nil
		}
		q.Prompt = "Change " + strings.Join(paths, ", ")
	case "item/tool/requestUserInput":
		q.Tool, q.Input = "request_user_input", json.RawMessage(params)
		if !q.ask(codexForm(p.Questions)) {
			return sent(c.failure(id, jsonrpc.CodeInvalidParams, "ask one to eight different questions, with texts and options that are short")), nil
		}
		q.Options[len(q.Options)-1].answer = jsonx.Raw(`{"answers":{}}`)
		return told(Told{Kind: Asked, Question: q}), nil
	case "item/permissions/requestApproval":
		return c.wider(q, &p), nil
	case "mcpServer/elicitation/request":
		return c.elicited(q, params), nil
	default:
		return c.unsupported(id, method), nil
	}
	q.Prompt, q.Reason = text.ShortenBytes(q.Prompt, maxPrompt), text.ShortenBytes(p.Reason, maxPrompt)
	q.Options = []Option{{Label: "Allow", Kind: "allow_once", answer: jsonx.Raw(`{"decision":"accept"}`)}}
	if slices.ContainsFunc(p.Available, func(d jsonx.Raw) bool { return string(d) == `"acceptForSession"` }) {
		q.Options = append(q.Options, Option{
			Label: "Always allow in this session", Kind: "allow_always",
			answer: jsonx.Raw(`{"decision":"acceptForSession"}`),
		})
	}
	q.Options = append(q.Options,
		Option{Label: "Deny", Kind: "reject_once", answer: jsonx.Raw(`{"decision":"decline"}`)},
		Option{Label: "Stop the turn", Kind: "reject_always", answer: jsonx.Raw(`{"decision":"cancel"}`)})
	return told(Told{Kind: Asked, Question: q}), nil
}

// codexForm returns the questions of request_user_input.
func codexForm(list []codexQuestion) (form []detect.Question) {
	for _, asked := range list {
		q := detect.Question{ID: asked.ID, Text: asked.Question, Secret: asked.Secret, FreeText: asked.Other || len(asked.Options) == 0}
		for _, o := range asked.Options {
			q.Options = append(q.Options, detect.Choice{Label: o.Label, Description: o.Description})
		}
		form = append(form, q)
	}
	return form
}

// changed returns a change that was reported before.
func (c *codex) changed(id string) item {
	for _, i := range c.items {
		if i.id == id {
			i.paths = slices.Clone(i.paths)
			return i
		}
	}
	return item{}
}

// diffs returns the changes of the files, or nil if they are too large to be shown.
func (i *codexItem) diffs() []diff {
	list, size := []diff{}, 0
	for _, change := range i.Changes {
		list, size = append(list, diff{change.Path, change.Diff}), size+len(change.Path)+len(change.Diff)
	}
	if size > maxShown || len(list) > maxPaths {
		return nil
	}
	return list
}

func (c *codex) noted(method string, params jsonx.Raw) (Step, error) {
	switch method { // frequent messages without use are not parsed
	case "item/agentMessage/delta", "item/commandExecution/outputDelta", "item/fileChange/outputDelta", "item/plan/delta",
		"item/reasoning/summaryTextDelta", "item/reasoning/summaryPartAdded", "item/reasoning/textDelta", "item/mcpToolCall/progress",
		"account/rateLimits/updated", "thread/started", "thread/status/changed", "turn/diff/updated", "turn/plan/updated",
		"remoteControl/status/changed",
		"mcpServer/startupStatus/updated", "thread/settings/updated", "thread/name/updated", "hook/started", "hook/completed", "skills/changed":
		return Step{}, nil
	}
	var p codexParams
	if jsonx.Unmarshal(params, &p) != nil {
		return Step{}, errNoMessage
	}
	if p.ThreadID != "" && p.ThreadID != c.thread {
		return Step{}, nil
	}
	switch method {
	case "turn/started":
		if p.Turn == nil || p.Turn.ID == "" || len(p.Turn.ID) > maxToken {
			return Step{}, errNoMessage
		}
		c.turn, c.reply, c.failed, c.items = p.Turn.ID, "", Told{}, nil
		return told(Told{Kind: Began}), nil
	case "turn/completed":
		if p.Turn == nil {
			return Step{}, errNoMessage
		}
		return c.ended(p.Turn), nil
	case "item/started", "item/completed":
		if p.Item == nil {
			return Step{}, errNoMessage
		}
		return c.item(p.Item, method == "item/completed"), nil
	case "serverRequest/resolved":
		return told(Told{Kind: Withdrawn, Text: text.ShortenBytes(string(p.RequestID), maxID)}), nil
	case "thread/tokenUsage/updated":
		if p.Usage == nil {
			return Step{}, errNoMessage
		}
		return c.spent(p.Usage), nil
	case "error":
		if p.WillRetry {
			return told(Told{Kind: Phase, Phase: detect.PhaseRetry}), nil
		}
		c.failed = p.Error.told()
		return Step{}, nil
	case "warning", "configWarning", "deprecationNotice":
		return told(Told{Kind: Warned, Text: text.ShortenBytes(p.Message+p.Summary, maxPrompt)}), nil
	}
	return told(Told{Kind: Unknown, Text: text.ShortenBytes(method, maxLabel)}), nil
}

func (c *codex) item(i *codexItem, completed bool) Step {
	t := Told{Kind: Tool}
	switch i.Type {
	case "agentMessage":
		if !completed {
			return Step{}
		}
		c.reply = last(i.Text)
		return told(Told{Kind: Words, Text: c.reply})
	case "commandExecution":
		t.Tool, t.Text = "exec_command", text.ShortenBytes(i.Command, maxPrompt)
	case "fileChange":
		paths := i.paths()
		t.Tool, t.Text = "apply_patch", text.ShortenBytes(strings.Join(paths, ", "), maxPrompt)
		if !completed && len(i.ID) <= maxID {
			c.items = append(c.items[max(0, len(c.items)-maxItems+1):], item{i.ID, paths, i.diffs()})
		}
	case "mcpToolCall", "dynamicToolCall", "collabAgentToolCall":
		t.Tool, t.Text = text.ShortenBytes(strings.TrimPrefix(i.Server+"."+i.Tool, "."), maxLabel), ""
	case "webSearch":
		t.Tool, t.Text = "web_search", text.ShortenBytes(i.Query, maxPrompt)
	case "contextCompaction":
		t = Told{Kind: Phase, Phase: detect.PhaseCompacting}
	default: // the user's messages, reasoning, plans
		return Step{}
	}
	if completed && i.Status == "declined" {
		d := Told{Kind: Denied, Tool: t.Tool, Call: text.ShortenBytes(i.ID, maxID)}
		if d.Input = encoded(object{"command": i.Command, "cwd": i.Cwd}); i.Type == "fileChange" {
			d.Input = encoded(object{"paths": i.paths()})
		}
		return told(d)
	}
	if completed {
		t = Told{Kind: Phase}
	}
	return told(t)
}

func (c *codex) ended(t *codexTurn) Step {
	end := Told{Kind: Ended, Phase: detect.PhaseDone, Text: c.reply}
	switch t.Status {
	case "interrupted":
		end.Phase = detect.PhaseInterrupted
	case "completed":
	default:
		end.Phase, end.Text = c.failed.Phase, c.failed.Text
		if t.Error != nil || end.Phase == "" {
			f := t.Error.told()
			end.Phase, end.Text = f.Phase, f.Text
		}
	}
	c.turn, c.reply, c.failed, c.items = "", "", Told{}, nil
	return told(end)
}

// told converts an error to the end of a turn; e may be nil.
func (e *codexError) told() Told {
	if e == nil {
		return Told{Kind: Ended, Phase: failed("unknown")}
	}
	word, status := "", 0
	if s, ok := jsonx.Text(e.Info); ok {
		word = s
	} else {
		_ = jsonx.Members(e.Info, func(name string, value []byte) {
			var detail struct {
				Status int `json:"httpStatusCode"`
			}
			word = name
			_ = jsonx.Unmarshal(value, &detail)
			status = detail.Status
		})
	}
	s := text.ShortenBytes(strings.TrimSpace(e.Message+"\n"+e.More), maxPrompt)
	kind := failure(status, word, s)
	if kind == "rate_limit" && noMoney.MatchString(s) { // an account without money has the same word as a limit in time
		kind = "billing"
	}
	return Told{Kind: Ended, Phase: failed(kind), Text: s}
}
