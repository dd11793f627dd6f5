package agent

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/chat/agent/eliza"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

// Record is one entry of a run's journal.
type Record struct {
	Seq  int64 // 1, 2, …
	Kind Kind
	Time time.Time
	Doc  json.RawMessage
	// Note is the note that the record answers, which is removed with it; 0: none.
	Note int64
}

// Kind is the kind of a record.
type Kind string

// The kinds of records, each with the type of its document.
const (
	kindStarted  Kind = "started"  // started
	kindTools    Kind = "tools"    // []tool, appended to those before
	kindPlanned  Kind = "planned"  // planned: what modules made of the message
	kindContext  Kind = "context"  // composed: what is added to the message
	kindAsked    Kind = "asked"    // asked: a request goes to the model
	kindAnswered Kind = "answered" // answer: the model's answer, with the calls that will be made
	kindParked   Kind = "parked"   // parked: a call waits for an approval
	kindResult   Kind = "result"   // result: the result of a call
	// kindCompacted replaces the first steps in the prompt by a summary.
	kindCompacted Kind = "compacted" // compacted
	kindGuidance  Kind = "guidance"  // guidance: a message of the person while the run is under way
	kindReplied   Kind = "replied"   // replied: the reply is stored in the conversation
	kindEnded     Kind = "ended"     // ended
	// kindEvaluated follows the end of a run: what evaluators of modules did.
	kindEvaluated Kind = "evaluated" // evaluated
)

type started struct {
	Person  string `json:"person"`
	Session string `json:"session"`
	System  string `json:"system"`
	Turns   []Turn `json:"turns"`
	Tainted bool   `json:"tainted,omitzero"`
	Key     string `json:"key,omitzero"` // of the message, see [Message]
}

// tool is a function that the model may call, as it was shown first. It keeps its bytes for the
// whole run, so that each request begins with the bytes of the one before.
type tool struct {
	Name        string    `json:"name"`
	Description string    `json:"description,omitzero"`
	Schema      jsonx.Raw `json:"schema"`
}

// planned is the result of the first stage, which modules take part in.
type planned struct {
	Route   eliza.Route     `json:"route"`
	Reply   string          `json:"reply,omitzero"`
	Tools   []string        `json:"tools,omitzero"` // names of tools to offer first
	Trace   []string        `json:"trace,omitzero"`
	Usage   modelwire.Usage `json:"usage,omitzero"`
	Foreign bool            `json:"foreign,omitzero"` // the reply is the text of a module
}

// composed is what the server adds to a message.
type composed struct {
	Marker   string    `json:"marker,omitzero"`
	Segments []segment `json:"segments,omitzero"`
	// Turns is the conversation as a context engine returned it, instead of that of started.
	Turns []Turn `json:"turns,omitzero"`
}

type asked struct {
	Step  int  `json:"step"`
	Final bool `json:"final,omitzero"` // the model must answer without calls
	// Note is the reason, as the model is given it.
	Note string `json:"note,omitzero"`
}

type answer struct {
	Form   modelwire.Form  `json:"form,omitzero"`
	Raw    jsonx.Raw       `json:"raw,omitzero"` // as the service sent it
	Blocks []block         `json:"blocks"`
	Stop   modelwire.Stop  `json:"stop"`
	Usage  modelwire.Usage `json:"usage"`
}

type block struct {
	Kind  modelwire.BlockKind `json:"kind"`
	Text  string              `json:"text,omitzero"`
	ID    string              `json:"id,omitzero"`
	Name  string              `json:"name,omitzero"`
	Input string              `json:"input,omitzero"`
}

type parked struct {
	Call       int           `json:"call"` // counts the calls of the answer from 0
	Approval   string        `json:"approval"`
	Capability capability.ID `json:"capability"`
}

type result struct {
	Call    int    `json:"call"`
	Text    string `json:"text"` // for the model
	Failed  bool   `json:"failed,omitzero"`
	Tainted bool   `json:"tainted,omitzero"`
	Done    *Done  `json:"done,omitempty"` // nil if nothing was invoked
	// Error is that of a call that was made; Decision is set if a person denied the call, or none
	// decided in time.
	Error    *capability.Error    `json:"error,omitempty"`
	Decision policy.ApprovalState `json:"decision,omitzero"`
	Page     *Page                `json:"page,omitempty"`
}

type guidance struct {
	Text    string `json:"text"`
	Key     string `json:"key,omitzero"`
	Tainted bool   `json:"tainted,omitzero"`
}

type replied struct {
	Message int64 `json:"message"`
}

type ended struct {
	State State             `json:"state"`
	Error *capability.Error `json:"error,omitempty"`
}

// conversation is what the records of a run amount to. Its methods are pure.
type conversation struct {
	started started
	planned *planned
	context *composed
	tools   []tool
	steps   []step
	summary *compacted // of the first steps
	// early is guidance that arrived before the model was asked for the first time.
	early []string
	text  string // of all answers
	done  []Done
	// taint is set once the prompt contains foreign text.
	taint   bool
	asked   int64 // number of the last request's record
	final   bool  // the last request was the final one
	note    string
	message int64 // number of the stored reply
}

// step is one answer of the model and the results of its calls.
type step struct {
	message  modelwire.Message
	stop     modelwire.Stop
	calls    []call
	guidance []string // that arrived after it
	from, to int64    // its records
}

// call is one call of an answer.
type call struct {
	modelwire.Block
	result *result
	parked *parked // the last time; nil after a result
	// asks counts how often an approval was requested.
	asks int
}

// open reports whether calls of the last step have no result.
func (c *conversation) open() bool {
	if len(c.steps) == 0 {
		return false
	}
	for _, call := range c.steps[len(c.steps)-1].calls {
		if call.result == nil {
			return true
		}
	}
	return false
}

// fresh reports whether the message has not been prepared.
func (c *conversation) fresh() bool { return c.context == nil && len(c.steps) == 0 && c.asked == 0 }

// over reports whether the last answer is the model's last word.
func (c *conversation) over() bool {
	if len(c.steps) == 0 {
		return false
	}
	last := c.steps[len(c.steps)-1]
	return len(last.guidance) == 0 && last.stop != modelwire.StopPaused && (len(last.calls) == 0 || c.final)
}

// waits returns the approvals that the run waits for.
func (c *conversation) waits() (list []string) {
	if len(c.steps) == 0 {
		return nil
	}
	for _, call := range c.steps[len(c.steps)-1].calls {
		if call.parked != nil {
			list = append(list, call.parked.Approval)
		}
	}
	return list
}

// call returns a call of the last answer.
func (c *conversation) call(i int) (*call, error) {
	if n := len(c.steps) - 1; n >= 0 && i >= 0 && i < len(c.steps[n].calls) {
		return &c.steps[n].calls[i], nil
	}
	return nil, fmt.Errorf("the last answer has no call %d", i)
}

// textOf returns the text of an answer that follows the texts before.
func textOf(before string, m modelwire.Message) string {
	text := m.Text()
	if before != "" && text != "" {
		return separator + text
	}
	return text
}

// separator divides the texts of two answers of one run.
const separator = "\n\n"

// apply adds a record.
func (c *conversation) apply(rec Record) error {
	switch rec.Kind {
	case kindStarted:
		if err := json.Unmarshal(rec.Doc, &c.started); err != nil {
			return err
		}
		c.taint = c.started.Tainted
	case kindPlanned:
		var p planned
		if err := json.Unmarshal(rec.Doc, &p); err != nil {
			return err
		}
		c.planned, c.taint = &p, c.taint || p.Foreign
	case kindContext:
		var add composed
		if err := json.Unmarshal(rec.Doc, &add); err != nil {
			return err
		}
		c.context, c.taint = &add, c.taint || add.foreign()
	case kindTools:
		var more []tool
		if err := json.Unmarshal(rec.Doc, &more); err != nil {
			return err
		}
		c.tools = append(c.tools, more...)
	case kindAsked:
		var a asked
		if err := json.Unmarshal(rec.Doc, &a); err != nil {
			return err
		}
		c.asked, c.final, c.note = rec.Seq, a.Final, a.Note
	case kindAnswered:
		var s answer
		if err := json.Unmarshal(rec.Doc, &s); err != nil {
			return err
		}
		one := step{stop: s.Stop, from: rec.Seq, to: rec.Seq, message: modelwire.Message{Role: modelwire.Assistant, Form: s.Form, Raw: s.Raw}}
		for _, b := range s.Blocks {
			one.message.Blocks = append(one.message.Blocks, modelwire.Block{Kind: b.Kind, Text: b.Text, ID: b.ID, Name: b.Name, Input: b.Input})
		}
		for _, b := range one.message.Calls() {
			one.calls = append(one.calls, call{Block: b})
		}
		c.text += textOf(c.text, one.message)
		c.steps = append(c.steps, one)
	case kindParked:
		var p parked
		if err := json.Unmarshal(rec.Doc, &p); err != nil {
			return err
		}
		one, err := c.call(p.Call)
		if err != nil {
			return err
		}
		one.parked = &p
		one.asks++
	case kindResult:
		var r result
		if err := json.Unmarshal(rec.Doc, &r); err != nil {
			return err
		}
		one, err := c.call(r.Call)
		if err != nil {
			return err
		}
		r.Page = nil // [Engine.Page] reads it from the journal
		one.result, one.parked = &r, nil
		c.steps[len(c.steps)-1].to = rec.Seq
		c.taint = c.taint || r.Tainted
		if r.Done != nil {
			c.done = append(c.done, *r.Done)
		}
	case kindGuidance:
		var g guidance
		if err := json.Unmarshal(rec.Doc, &g); err != nil {
			return err
		}
		c.taint = c.taint || g.Tainted
		if len(c.steps) == 0 {
			c.early = append(c.early, g.Text)
			return nil
		}
		last := &c.steps[len(c.steps)-1]
		last.guidance, last.to = append(last.guidance, g.Text), rec.Seq
	case kindCompacted:
		var s compacted
		if err := json.Unmarshal(rec.Doc, &s); err != nil {
			return err
		}
		if s.Steps < 1 || s.Steps > len(c.steps) {
			return fmt.Errorf("a summary of %d of %d steps", s.Steps, len(c.steps))
		}
		c.summary, c.taint = &s, c.taint || s.Foreign
	case kindReplied:
		var d replied
		if err := json.Unmarshal(rec.Doc, &d); err != nil {
			return err
		}
		c.message = d.Message
	}
	return nil
}

// turns returns the conversation before the run, with its message at the end.
func (c *conversation) turns() []Turn {
	if c.context != nil && len(c.context.Turns) > 0 {
		return c.context.Turns
	}
	return c.started.Turns
}

// question returns the message that the run answers.
func (c *conversation) question() string {
	if n := len(c.started.Turns); n > 0 {
		return c.started.Turns[n-1].Text
	}
	return ""
}

// messages returns the turns as messages. What is added to the last one stands before its text.
func (c *conversation) messages() (out []modelwire.Message) {
	turns := c.turns()
	for i, t := range turns {
		m := modelwire.Message{Role: modelwire.User}
		if t.Assistant {
			m.Role = modelwire.Assistant
		}
		if i == len(turns)-1 && c.context != nil {
			m.Blocks = c.context.blocks()
		}
		m.Blocks = append(m.Blocks, modelwire.Block{Kind: modelwire.Text, Text: t.Text})
		out = append(out, m)
	}
	return out
}

// request returns the request for the next answer. note, if not empty, is appended to the last
// message.
func (c *conversation) request(final bool, note string) modelwire.Request {
	req := modelwire.Request{System: []string{c.started.System}, Cache: true}
	for _, t := range c.tools {
		req.Tools = append(req.Tools, modelwire.Tool{Name: t.Name, Description: t.Description, Schema: t.Schema})
	}
	if final && len(c.tools) > 0 {
		req.Choice = modelwire.MustNotCall
	}
	text := func(s string) modelwire.Block { return modelwire.Block{Kind: modelwire.Text, Text: s} }
	req.Messages = c.messages()
	user := func(blocks []modelwire.Block) {
		if n := len(req.Messages) - 1; len(blocks) > 0 && n >= 0 && req.Messages[n].Role == modelwire.User {
			req.Messages[n].Blocks = append(req.Messages[n].Blocks, blocks...)
		} else if len(blocks) > 0 {
			req.Messages = append(req.Messages, modelwire.Message{Role: modelwire.User, Blocks: blocks})
		}
	}
	texts := func(list []string) (blocks []modelwire.Block) {
		for _, s := range list {
			blocks = append(blocks, text(s))
		}
		return blocks
	}
	user(texts(c.early))
	steps := c.steps
	if c.summary != nil {
		user([]modelwire.Block{c.summary.block()})
		steps = steps[c.summary.Steps:]
	}
	for _, s := range steps {
		req.Messages = append(req.Messages, s.message)
		var blocks []modelwire.Block
		for _, call := range s.calls {
			b := modelwire.Block{Kind: modelwire.Result, ID: call.ID, Name: call.Name}
			if call.result != nil {
				b.Text, b.Failed = call.result.Text, call.result.Failed
			}
			blocks = append(blocks, b)
		}
		user(append(blocks, texts(s.guidance)...))
	}
	if note != "" {
		user([]modelwire.Block{text(note)})
	}
	return req
}
