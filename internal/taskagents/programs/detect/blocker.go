package detect

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
)

// Blocker is a decision that the program waits for. It ends when the program goes on.
type Blocker struct {
	ID          string          `json:"id,omitempty"` // of this decision alone; "" before the session reports it
	Type        string          `json:"type"`         // permission, question, plan, trust, …
	Prompt      string          `json:"prompt,omitempty"`
	Options     []string        `json:"options,omitempty"` // the labels of Choices
	Selected    int             `json:"selected"`          // index in Options, or -1
	Fingerprint string          `json:"fingerprint"`
	Source      string          `json:"source,omitempty"` // protocol, hook or screen
	Tool        string          `json:"tool,omitempty"`
	Input       json.RawMessage `json:"input,omitempty"`  // of the tool, complete
	Cwd         string          `json:"cwd,omitempty"`    // where a command would run
	Reason      string          `json:"reason,omitempty"` // the model's own words
	Choices     []Choice        `json:"choices,omitempty"`
	Questions   []Question      `json:"questions,omitempty"` // of a form
	Asked       time.Time       `json:"asked,omitzero"`
}

// Choice is one option, as the program offers it.
type Choice struct {
	N           int    `json:"n"` // the number on the screen; otherwise its position, from 1
	Label       string `json:"label"`
	Description string `json:"description,omitempty"`
	Effect      Effect `json:"effect"`
}

// Effect is what an option grants.
type Effect string

// The effects.
const (
	Once      Effect = "once"
	InSession Effect = "session"
	Always    Effect = "always"
	Denies    Effect = "deny"
	NoEffect  Effect = "none" // for example an answer to a question
)

// Question is one question of a form.
type Question struct {
	ID       string   `json:"id"`
	Text     string   `json:"text"`
	Options  []Choice `json:"options,omitempty"`
	Multiple bool     `json:"multiple,omitempty"`
	FreeText bool     `json:"free_text,omitempty"`
	Secret   bool     `json:"secret,omitempty"` // the answer is neither shown nor stored
}

// Reply is an answer to a blocker, as a user gives it.
type Reply struct {
	Blocker string              // ID of the blocker that the user saw; "": the open one
	Text    string              // a number, a label, yes or no, or a text
	Free    bool                // Text is a text
	Values  map[string][]string // answers to the questions of a form, by their IDs
	Decline bool
}

// Answer is the meaning of a reply: an option, or values for the questions of a form.
type Answer struct {
	Option int // index in Options, or -1
	Values map[string][]string
}

// Reasons of errors about answers.
const (
	ReasonBlockerEnded = "blocker_ended"
	ReasonNoSuchOption = "no_such_option"
	ReasonIncomplete   = "answer_incomplete"
)

var (
	denies      = regexp.MustCompile(`(?i)^(no\b|deny|reject|cancel|decline|do not|don.t|keep planning|stop\b|exit\b|quit\b)`)
	lasting     = regexp.MustCompile(`(?i)don.t ask|do not ask|always|remember|future|auto[- ]?accept|auto mode|all edits|bypass|(allow|trust) all`)
	sessionLong = regexp.MustCompile(`(?i)\bsession\b`)
	allows      = regexp.MustCompile(`(?i)^(yes|allow|approve|accept|proceed|trust|grant|run)\b`)
)

// EffectOf returns the effect of an option that a program shows with a label only.
func EffectOf(kind, label string) Effect {
	switch {
	case kind == "question":
		return NoEffect
	case denies.MatchString(label):
		return Denies
	case sessionLong.MatchString(label):
		return InSession
	case lasting.MatchString(label):
		return Always
	case allows.MatchString(label):
		return Once
	}
	return NoEffect
}

// choices returns the options of a dialog on the screen.
func choices(kind string, labels []string, numbers []int) (list []Choice) {
	for i, label := range labels {
		n := i + 1
		if len(numbers) == len(labels) && numbers[i] > 0 {
			n = numbers[i]
		}
		list = append(list, Choice{N: n, Label: label, Effect: EffectOf(kind, label)})
	}
	return list
}

// find returns the index of the choice that a text names: by its number, its whole label, or,
// for yes and no, its effect. It returns -1 if the text names none of them.
func find(list []Choice, said string) int {
	said = text.Fold(strings.TrimSpace(said))
	if n, err := strconv.Atoi(strings.TrimRight(said, ".)")); err == nil {
		for i, c := range list {
			if c.N == n {
				return i
			}
		}
	}
	for i, c := range list {
		if strings.TrimRight(text.Fold(c.Label), checkMarks) == said && said != "" {
			return i
		}
	}
	switch strings.TrimRight(said, ".! ") {
	case "yes", "y", "allow", "approve":
		return only(list, Once)
	case "no", "n", "deny", "reject", "decline":
		return first(list, Denies)
	}
	return -1
}

// checkMarks follow the label of the currently active option.
const checkMarks = " ✔✓"

// only returns the index of the one choice with an effect, or -1.
func only(list []Choice, e Effect) int {
	at := first(list, e)
	for i := at + 1; at >= 0 && i < len(list); i++ {
		if list[i].Effect == e {
			return -1
		}
	}
	return at
}

// first returns the index of the first choice with an effect, or -1. It is for refusals: of two of
// them either grants nothing.
func first(list []Choice, e Effect) int {
	for i, c := range list {
		if c.Effect == e {
			return i
		}
	}
	return -1
}

// Offered returns the choices of b, also of one that was stored with labels only.
func (b *Blocker) Offered() []Choice {
	if len(b.Choices) == len(b.Options) {
		return b.Choices
	}
	return choices(b.Type, b.Options, nil)
}

// Read returns the meaning of a reply to b. A text is, in this order: a number in the list, a
// whole label, yes or no where one option allows or denies, a free text where the question takes
// one, and the beginning of exactly one label.
//
// Its errors: conflict (blocker_ended), and invalid_input (no_such_option, answer_incomplete).
func (b *Blocker) Read(r Reply) (Answer, error) {
	const op = "tasks.answer"
	if r.Blocker != "" && r.Blocker != b.ID && r.Blocker != b.Fingerprint {
		return Answer{}, Ended()
	}
	list := b.Offered()
	none := func() (Answer, error) {
		said := make([]string, len(list))
		for i, c := range list {
			said[i] = strconv.Itoa(c.N) + " " + c.Label
		}
		return Answer{}, capability.Errorf(capability.CodeInvalidInput, op, "%.80q is not one of the answers: %s", r.Text,
			strings.Join(said, " | ")).With(ReasonNoSuchOption, "answer with a number or a label of the list")
	}
	if r.Decline {
		if i := first(list, Denies); i >= 0 {
			return Answer{Option: i}, nil
		}
		return none()
	}
	if len(r.Values) > 0 {
		values, err := b.values(r.Values)
		return Answer{Option: -1, Values: values}, err
	}
	if !r.Free {
		if i := find(list, r.Text); i >= 0 {
			return b.Selects(i), nil
		}
	}
	if len(b.Questions) == 1 && strings.TrimSpace(r.Text) != "" && (b.Questions[0].FreeText || b.Questions[0].Multiple) {
		said := []string{r.Text}
		if q := b.Questions[0]; !r.Free && q.Multiple {
			said = strings.Split(r.Text, ",")
		}
		values, err := b.values(map[string][]string{b.Questions[0].ID: said})
		return Answer{Option: -1, Values: values}, err
	}
	if len(b.Questions) > 1 {
		return Answer{}, b.incomplete(b.Questions[0].ID)
	}
	if i := MatchOption(b.Options, r.Text, checkMarks); i >= 0 && !r.Free {
		return b.Selects(i), nil
	}
	return none()
}

// Selects returns the answer that selects an option. In a form of one question it is a value.
func (b *Blocker) Selects(i int) Answer {
	if len(b.Questions) == 1 && i < len(b.Questions[0].Options) {
		return Answer{Option: i, Values: map[string][]string{b.Questions[0].ID: {b.Options[i]}}}
	}
	return Answer{Option: i}
}

// values returns the labels and texts for the questions of a form.
func (b *Blocker) values(said map[string][]string) (map[string][]string, error) {
	out := make(map[string][]string, len(b.Questions))
	for _, q := range b.Questions {
		given, ok := said[q.ID]
		if !ok || len(given) == 0 || len(given) > maxValues || len(given) > 1 && !q.Multiple {
			return nil, b.incomplete(q.ID)
		}
		for _, v := range given {
			v = strings.TrimSpace(v)
			switch i := find(q.Options, v); {
			case i >= 0 && !q.Secret:
				out[q.ID] = append(out[q.ID], q.Options[i].Label)
			case v != "" && len(v) <= maxValue && (q.FreeText || len(q.Options) == 0):
				out[q.ID] = append(out[q.ID], v)
			default:
				return nil, b.incomplete(q.ID)
			}
		}
	}
	for id := range said {
		if _, ok := out[id]; !ok {
			return nil, capability.Errorf(capability.CodeInvalidInput, "tasks.answer", "there is no question %.80q", id).With(ReasonIncomplete,
				"name the questions that the task shows")
		}
	}
	return out, nil
}

func (b *Blocker) incomplete(id string) error {
	return capability.Errorf(capability.CodeInvalidInput, "tasks.answer", "the question %.80q has no answer that it takes", id).
		With(ReasonIncomplete, "answer each question with a number or a label of its list, or with a text where it takes one")
}

// Ended returns the error for an answer to a blocker that is not open any more.
func Ended() error {
	return capability.Errorf(capability.CodeConflict, "tasks.answer", "that question is not open any more").With(ReasonBlockerEnded,
		"look at the task again: it may ask something else now")
}

// ReplyFor returns the reply that selects the only option with an effect, or for Denies the first
// one. ok is false if the program offers none, or several.
func (b *Blocker) ReplyFor(e Effect) (r Reply, ok bool) {
	list := b.Offered()
	i := only(list, e)
	if e == Denies {
		i = first(list, e)
	}
	if i < 0 {
		return Reply{}, false
	}
	return Reply{Blocker: b.ID, Text: strconv.Itoa(list[i].N)}, true
}

// Effect returns the effect of an answer. An answer to a question has none; one in words to a plan denies it.
func (b *Blocker) Effect(a Answer) Effect {
	if b.Type == "plan" && a.Option < 0 {
		return Denies
	}
	if list := b.Offered(); a.Option >= 0 && a.Option < len(list) {
		return list[a.Option].Effect
	}
	return NoEffect
}
