// Package dialect implements the protocols of agents' programs that offer one instead of a screen:
// Claude Code's stream-json, Codex's app server, OpenCode's HTTP API, and ACP, which Gemini CLI, Qwen Code and older
// versions of OpenCode use.
//
// A [Dialect] is the client's side of one conversation, without pipes, clocks or goroutines: each
// received line yields events and messages to send. So recorded conversations can be tests, and
// fuzzers can replace the program. Its memory is limited by the bounds below.
package dialect

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
)

// Dialect is the client's side of one conversation. It is not safe for concurrent use. The caller
// must send the messages of returned steps in order.
type Dialect interface {
	// Begin opens a new conversation, or resumes one.
	Begin() Step
	// HandleLine handles one line. An error means that it is not a message of this protocol, and
	// that the state has not changed.
	HandleLine(line []byte) (Step, error)
	// Say sends a text to the program. ok is false if the program works on a turn and the
	// protocol does not allow a text then.
	Say(text string, working bool) (s Step, ok bool)
	// Answer answers a question with the option at an index. why is a reason for the agent, which
	// is sent with a refusal if the protocol allows it.
	Answer(q *Question, option int, why string) Step
	// Fill answers the questions of a form, by their ids.
	Fill(q *Question, values map[string][]string) Step
	// Interrupt requests the end of the turn. Its open questions are withdrawn.
	Interrupt(open []*Question) Step
	// Filed answers a request for a file with its text or an error.
	Filed(f *File, text string, err error) Step
}

// Step is the result of a received line or of a call: messages to send and events.
type Step struct {
	Out  [][]byte // messages, without line ends
	Told []Told
}

func (s *Step) tell(t Told)     { s.Told = append(s.Told, t) }
func (s *Step) send(out []byte) { s.Out = append(s.Out, out) }
func told(t Told) Step          { return Step{Told: []Told{t}} }
func sent(out []byte) Step      { return Step{Out: [][]byte{out}} }

// Kind is the kind of an event.
type Kind int

// The kinds, with the members of [Told] that they set.
const (
	Opened    Kind = iota // Token: the conversation can start
	Named                 // Token
	Refused               // Text: it cannot start
	SignIn                // Text: a user has to sign in first
	Began                 // a turn started, also one of the program's own
	Taken                 // a text was accepted during a turn
	Words                 // Text of the agent; More: it is part of a message
	Tool                  // Tool, Text: a tool call
	Phase                 // Phase of the turn
	Asked                 // Question
	Withdrawn             // Text: the ID of a question that was withdrawn
	Elsewhere             // Tool: it ran after its question was withdrawn, so something else has answered
	Ended                 // Phase, Text: the turn has ended
	Declined              // Text: the last request was refused
	Denied                // Tool, Input, Call: a tool call that did not run because it was refused
	Spent                 // Usage
	Wanted                // File
	Warned                // Text: a warning for the user
	Unknown               // Text: the name of an unknown message
)

// Told is one event.
type Told struct {
	Kind     Kind
	Text     string
	Tool     string
	Phase    string // as in [detect.Status]
	Token    string
	Call     string // id of a tool call, as in [Question]
	Input    []byte // of a tool call
	More     bool
	Question *Question
	File     *File
	Usage    Usage
}

// Question is a question or request whose answer the program waits for.
type Question struct {
	ID      string          // of this conversation, while it is open
	Type    string          // permission, question or plan
	Tool    string          // name in the program's presets and hooks
	Input   json.RawMessage // of the tool, with the known files and commands
	Prompt  string
	Cwd     string // of a command, or ""
	Reason  string // words of the model, or ""
	Call    string // id of the tool call, or ""
	Options []Option
	Form    []detect.Question // of a question to the user
	// Refusable permissions may be refused by a preset, and not allowed by one.
	Refusable bool

	raw    jsonx.Raw // the tool's input as received
	id     jsonx.Raw // of the request
	fields map[string]field
}

// Option is one possible answer.
type Option struct {
	Label string
	About string // description, or ""
	Kind  string // allow_once, allow_always, reject_once, reject_always; "" for an answer

	answer jsonx.Raw
}

// Find returns the index of the first option with one of the kinds, or -1.
func (q *Question) Find(kinds ...string) int {
	for _, kind := range kinds {
		for i, o := range q.Options {
			if o.Kind == kind {
				return i
			}
		}
	}
	return -1
}

// Labels returns the labels of the options.
func (q *Question) Labels() []string {
	list := make([]string, len(q.Options))
	for i, o := range q.Options {
		list[i] = o.Label
	}
	return list
}

// ask makes q a form of questions to the user. It returns false if the form is empty, has
// too many questions, or one that cannot be shown whole. A form of one question that is not multiple choice can also be
// answered by one of its options.
func (q *Question) ask(form []detect.Question) bool {
	if len(form) == 0 || len(form) > maxForm {
		return false
	}
	texts := make([]string, len(form))
	for i, one := range form {
		if one.ID == "" || len(one.ID) > maxID || one.Text == "" || len(one.Text) > maxPrompt || len(one.Options) > MaxOptions ||
			len(one.Options) == 0 && !one.FreeText || slices.Contains(texts, one.Text) {
			return false
		}
		for n := range one.Options {
			if len(one.Options[n].Label) > maxLabel || len(one.Options[n].Description) > maxPrompt {
				return false
			}
			one.Options[n].N, one.Options[n].Effect = n+1, detect.NoEffect
		}
		texts[i] = one.Text
	}
	q.Type, q.Form, q.Prompt, q.Options = "question", form, strings.Join(texts, "\n"), nil
	if len(form) == 1 && !form[0].Multiple {
		for _, o := range form[0].Options {
			q.Options = append(q.Options, Option{Label: o.Label, About: o.Description})
		}
	}
	q.Options = append(q.Options, Option{Label: "Do not answer", Kind: "reject_once"})
	return true
}

// plan makes q the question whether a plan is approved. The whole of it is in Input. An answer in words is what
// the plan should change.
func (q *Question) plan(words string) {
	q.Type, q.Prompt = "plan", text.ShortenBytes(strings.TrimSpace("May it carry out this plan?\n"+words), maxPrompt)
	q.Options = []Option{{Label: "Approve the plan", Kind: "allow_once"}, {Label: "Keep planning", Kind: "reject_once"}}
	q.Form = []detect.Question{{ID: "change", Text: "What should the plan change?", FreeText: true}}
}

// Choices returns the options of the question with their numbers and effects.
func (q *Question) Choices() []detect.Choice {
	list := make([]detect.Choice, len(q.Options))
	for i, o := range q.Options {
		list[i] = detect.Choice{N: i + 1, Label: o.Label, Description: o.About, Effect: detect.NoEffect}
		switch o.Kind {
		case "allow_once":
			list[i].Effect = detect.Once
		case "allow_always":
			list[i].Effect = detect.InSession
		case "reject_once", "reject_always":
			list[i].Effect = detect.Denies
		}
	}
	return list
}

// File is a request of the program to read or write a file.
type File struct {
	Write       bool
	Tool        string // name of the tool in presets
	Path        string // absolute, as received
	Text        string // to be written
	Line, Limit int    // first line and number of lines to read; 0: all

	id jsonx.Raw
}

// Usage is the usage of a conversation.
type Usage struct {
	programs.Usage
	Total bool // of the conversation since the program was started; otherwise an increment
}

// tokens is a number of tokens as programs report it.
type tokens struct {
	In  int64 `json:"inputTokens"`
	Out int64 `json:"outputTokens"`
}

// Config configures a conversation.
type Config struct {
	Framework programs.Name
	Workdir   string // absolute
	Resume    string // the program's id of a conversation to resume; "": a new one
	Version   string // version of junctor, for the program's log
	Preset    programs.Preset
	Protocol  programs.Protocol // "": the usual one of the program
}

// New returns the client's side of a conversation with a program. It fails with invalid_input,
// reason no_structured_mode, if the program has no protocol.
func New(c Config) (Dialect, error) {
	switch cmp.Or(c.Protocol, programs.Of(c.Framework).Protocol) {
	case programs.StreamJSON:
		return &claude{resume: c.Resume, calls: make(map[string]toolCall), withdrawn: make(map[string]string)}, nil
	case programs.AppServer:
		return &codex{cfg: c}, nil
	case programs.ACP:
		return &acp{cfg: c, rpc: rpc{version: true}}, nil
	case programs.Serve:
		return &serve{cfg: c}, nil
	}
	return nil, capability.Errorf(capability.CodeInvalidInput, "task.spawn", "%s has no structured mode", c.Framework).
		With("no_structured_mode", "start it in a terminal")
}

// last returns the end of a text, at most maxReply bytes.
func last(s string) string {
	if len(s) <= maxReply {
		return s
	}
	return strings.ToValidUTF8(s[len(s)-maxReply:], "")
}

func failed(kind string) string { return "failed:" + kind }

var noMoney = regexp.MustCompile(`(?i)credit balance|billing|payment required|insufficient[ _]quota`)

var words = []struct {
	kind string
	said *regexp.Regexp
}{
	{"billing", noMoney},
	{"auth", regexp.MustCompile(`(?i)not logged in|invalid (api|x-api)[ -]key|/login|unauthori[sz]ed|authentication|authenticate`)},
	{"rate_limit", regexp.MustCompile(`(?i)rate[ _-]?limit|usage limit|quota|too many requests`)},
	{"network", regexp.MustCompile(`(?i)connection (error|refused|reset)|ECONN|ENOTFOUND|network error|unable to connect`)},
}

// failure returns the kind of a failure: by the HTTP status if it is known, otherwise by the
// program's word, otherwise by the text. The default is "unknown".
func failure(status int, word, s string) string {
	switch {
	case status == 402 || status == 403 && noMoney.MatchString(text.ShortenBytes(s, maxPrompt)):
		return "billing"
	case status == 401 || status == 403:
		return "auth"
	case status == 429:
		return "rate_limit"
	case status >= 500:
		return "server"
	}
	switch word {
	case "authentication_failed", "unauthorized", "oauth_org_not_allowed":
		return "auth"
	case "billing_error", "sessionBudgetExceeded":
		return "billing"
	case "rate_limit", "usageLimitExceeded", "rateLimitExceeded":
		return "rate_limit"
	case "server_error", "overloaded", "serverOverloaded", "internalServerError":
		return "server"
	case "contextWindowExceeded":
		return "context"
	case "httpConnectionFailed", "responseStreamConnectionFailed", "responseStreamDisconnected":
		return "network"
	}
	for _, w := range words {
		if w.said.MatchString(text.ShortenBytes(s, maxPrompt)) {
			return w.kind
		}
	}
	return "unknown"
}

// encoded returns v as JSON. It cannot fail, because v consists of plain values and of jsonx.Raw
// values that were received as valid JSON.
func encoded(v any) []byte {
	data, _ := jsonx.Marshal(v)
	return data
}

type object = map[string]any
