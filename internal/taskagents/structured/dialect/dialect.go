// Package dialect knows what agents' programs speak that offer a protocol instead of a
// screen: Claude Code's stream-json, Codex's app server, and ACP, which Gemini CLI,
// Qwen Code and OpenCode share.
//
// A [Dialect] is one side of one conversation, without pipes, clocks or goroutines: a
// line goes in, and what happened and what is to be answered comes out. So a recorded
// conversation is a test, and a fuzzer is a program that we talk to. Nothing that it
// keeps grows with what the other side says, but within the bounds below.
package dialect

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

// The bounds of one conversation.
const (
	MaxOptions = 32      // of a question; one with more is refused
	maxID      = 256     // bytes of a request's id
	maxToken   = 512     // bytes of a conversation's name
	maxLabel   = 200     // bytes of an option's label, or of a tool's name
	maxPrompt  = 2_000   // bytes of a question
	maxReply   = 1 << 20 // bytes of what a turn ends with: the last of them
	maxItems   = 16      // file changes whose files are remembered
	maxPaths   = 1_000   // files of one change
	maxWaits   = 64      // requests of ours without an answer
)

// Dialect is our side of one conversation. It is for one goroutine at a time. What its
// methods return is to be sent in order.
type Dialect interface {
	// Begin opens the conversation, or takes one up again.
	Begin() Step
	// HandleLine handles one line. An error means that it is not a message of this protocol: then
	// nothing has changed.
	HandleLine(line []byte) (Step, error)
	// Say gives the program a text. While it works on a turn, ok is false where the
	// protocol has no way to do that.
	Say(text string, working bool) (s Step, ok bool)
	// Answer answers a question with one of its options, by its index. why is for the
	// agent, where a refusal can carry one.
	Answer(q *Question, option int, why string) Step
	// Interrupt asks for the end of the turn. The open questions are withdrawn.
	Interrupt(open []*Question) Step
	// Filed answers a program that wanted a file: with its text, or why not.
	Filed(f *File, text string, err error) Step
}

// Step is what a line, or something that we do, leads to.
type Step struct {
	Out  [][]byte // messages, without line ends
	Told []Told
}

func (s *Step) tell(t Told)     { s.Told = append(s.Told, t) }
func (s *Step) send(out []byte) { s.Out = append(s.Out, out) }
func told(t Told) Step          { return Step{Told: []Told{t}} }
func sent(out []byte) Step      { return Step{Out: [][]byte{out}} }

// Kind states what was told.
type Kind int

// The kinds, with the members of [Told] that are theirs.
const (
	Opened    Kind = iota // Token: the conversation can begin
	Named                 // Token
	Refused               // Text: it cannot begin
	SignIn                // Text: a user has to sign in first
	Began                 // a turn did, ours or one of the program's own
	Taken                 // what was said while it works was
	Words                 // Text: of the agent; More: a part of a message
	Tool                  // Tool, Text: it is used
	Phase                 // Phase: how the turn goes on
	Asked                 // Question
	Withdrawn             // Text: the ID of a question that was withdrawn
	Ended                 // Phase, Text: the turn has
	Declined              // Text: what we asked for last was not done
	Spent                 // Usage
	Wanted                // File
	Warned                // Text: for who looks on
	Unknown               // Text: a message that we do not know, by its name
)

// Told is one thing that happened.
type Told struct {
	Kind     Kind
	Text     string
	Tool     string
	Phase    string // as in [detect.Status]
	Token    string
	More     bool
	Question *Question
	File     *File
	Usage    Usage
}

// Question is something that the program waits for.
type Question struct {
	ID      string          // of this conversation, while it is open
	Type    string          // permission, or question
	Tool    string          // as the program's presets and hooks call it
	Input   json.RawMessage // of the tool, with the files and commands that are known
	Prompt  string
	Options []Option

	about string    // the one question of a tool that asks some
	raw   jsonx.Raw // the tool's input as it came
	id    jsonx.Raw // of the request
}

// Option is one way to answer.
type Option struct {
	Label string
	Kind  string // allow_once, allow_always, reject_once, reject_always; "" for an answer

	answer jsonx.Raw
}

// Find returns the first option of a kind; -1 if it is missing.
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

// Labels are the labels of the options.
func (q *Question) Labels() []string {
	list := make([]string, len(q.Options))
	for i, o := range q.Options {
		list[i] = o.Label
	}
	return list
}

// File is one that the program wants to be read or written for it.
type File struct {
	Write       bool
	Tool        string // what presets call that
	Path        string // absolute, as it said
	Text        string // to be written
	Line, Limit int    // of what is read: from which line, how many; 0: all

	id jsonx.Raw
}

// Usage is what a conversation has cost.
type Usage struct {
	In, Out int64   // tokens
	USD     float64 // 0 where the program does not tell
	Total   bool    // of the conversation; else it is more of it
}

// Config is what a conversation needs.
type Config struct {
	Framework programs.Name
	Workdir   string // absolute
	Resume    string // the program's name of an earlier conversation; "": a new one
	Version   string // of ours, for the program's log
}

// New returns our side of a conversation with a program. invalid_input, reason
// no_structured_mode, for one that has no protocol.
func New(c Config) (Dialect, error) {
	switch programs.Of(c.Framework).Protocol {
	case programs.StreamJSON:
		return &claude{resume: c.Resume}, nil
	case programs.AppServer:
		return &codex{cfg: c}, nil
	case programs.ACP:
		return &acp{cfg: c, rpc: rpc{version: true}}, nil
	}
	return nil, capability.Errorf(capability.CodeInvalidInput, "task.spawn", "%s has no structured mode", c.Framework).
		With("no_structured_mode", "start it in a terminal")
}

// last is the end of a text, within the bound of a reply.
func last(s string) string {
	if len(s) <= maxReply {
		return s
	}
	return strings.ToValidUTF8(s[len(s)-maxReply:], "")
}

func failed(kind string) string { return "failed:" + kind }

var words = []struct {
	kind string
	said *regexp.Regexp
}{
	{"billing", regexp.MustCompile(`(?i)credit balance|billing|payment required|insufficient[ _]quota`)},
	{"auth", regexp.MustCompile(`(?i)not logged in|invalid (api|x-api)[ -]key|/login|unauthori[sz]ed|authentication|authenticate`)},
	{"rate_limit", regexp.MustCompile(`(?i)rate[ _-]?limit|usage limit|quota|too many requests`)},
	{"network", regexp.MustCompile(`(?i)connection (error|refused|reset)|ECONN|ENOTFOUND|network error|unable to connect`)},
}

// failure is the kind of a failure: by the status of HTTP where it is known, by the
// program's own word, then by its text. "unknown" is one too.
func failure(status int, word, s string) string {
	switch {
	case status == 401 || status == 403:
		return "auth"
	case status == 402:
		return "billing"
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

// encoded is v as a message; v is made here, so it cannot fail but by what a stranger
// put into a Raw, which was valid when it came.
func encoded(v any) []byte {
	data, _ := jsonx.Marshal(v)
	return data
}

type object = map[string]any
