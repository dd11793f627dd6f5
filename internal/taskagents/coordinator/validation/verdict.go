package validation

import (
	"encoding/json"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

// Outcome is what comes of a validation.
type Outcome string

// The outcomes.
const (
	Pass     Outcome = "pass"
	Revise   Outcome = "revise"   // the agent goes on with a follow-up
	Escalate Outcome = "escalate" // the user is asked; the session stays
)

// Verdict is what a model says of a task.
type Verdict struct {
	Verdict   Outcome  `json:"verdict"`
	Summary   string   `json:"summary"`
	FollowUp  string   `json:"followUpPrompt"`
	Checklist []string `json:"checklist"`
}

// Bounds of a verdict.
const (
	maxSummary  = 2000 // characters
	maxFollowUp = 8000
	maxListed   = 20
	maxVerdict  = 256 << 10 // bytes read of an answer
	maxVerdicts = 200       // objects tried
)

// ReadVerdict finds the last verdict in a model's answer. Other text, and a revision
// that does not say what to do, is an escalation. A checklist may be of texts or of
// objects.
func ReadVerdict(answer string) Verdict {
	if len(answer) > maxVerdict {
		answer = answer[len(answer)-maxVerdict:]
	}
	end := strings.LastIndexByte(answer, '}')
	if end < 0 {
		return unread()
	}
	begin := end
	for range maxVerdicts {
		if begin = strings.LastIndexByte(answer[:begin], '{'); begin < 0 {
			break
		}
		if v, ok := verdict([]byte(answer[begin : end+1])); ok {
			return v
		}
	}
	return unread()
}

func unread() Verdict {
	return Verdict{Verdict: Escalate, Summary: "The validator's answer could not be read."}
}

func verdict(raw []byte) (v Verdict, ok bool) {
	var said struct {
		Verdict   string            `json:"verdict"`
		Summary   string            `json:"summary"`
		FollowUp  string            `json:"followUpPrompt"`
		Checklist []json.RawMessage `json:"checklist"`
	}
	if jsonx.Unmarshal(raw, &said) != nil {
		return v, false
	}
	v.Summary, v.FollowUp = text.CutRunes(strings.TrimSpace(said.Summary), maxSummary),
		text.CutRunes(strings.TrimSpace(said.FollowUp), maxFollowUp)
	for _, item := range said.Checklist[:min(len(said.Checklist), maxListed)] {
		s, isText := jsonx.Text(item)
		if !isText {
			s = string(item)
		}
		v.Checklist = append(v.Checklist, text.CutRunes(s, maxCriterion))
	}
	switch strings.ToLower(strings.TrimSpace(said.Verdict)) {
	case "pass", "approved":
		v.Verdict = Pass
	case "revise":
		v.Verdict = Revise
		if v.FollowUp == "" {
			v.Verdict = Escalate
		}
	case "escalate":
		v.Verdict = Escalate
	default:
		return v, false
	}
	return v, true
}

// CustomResult is what a validator of the task's own says.
type CustomResult struct {
	Pass   bool
	Prompt string // for the agent, where it failed
}

// ReadCustom reads the result of a call. Whatever is not clearly a pass is a failure
// with a prompt that states why.
func ReadCustom(raw json.RawMessage, err error) CustomResult {
	var said struct {
		Verdict   string `json:"verdict"`
		Retryable string `json:"retryablePromptForChild"`
		FollowUp  string `json:"followUpPrompt"`
	}
	switch {
	case err != nil:
		return CustomResult{Prompt: text.CutRunes("The work could not be verified: "+err.Error()+
			" Check that it is complete, and say again that it is done.", maxFollowUp)}
	case len(raw) > maxVerdict || jsonx.Unmarshal(raw, &said) != nil || said.Verdict != "pass" && said.Verdict != "fail":
		return CustomResult{Prompt: "The work could not be verified: the verifier's answer has no verdict. Check that it is complete, and say again that it is done."}
	case said.Verdict == "pass":
		return CustomResult{Pass: true}
	}
	for _, p := range []string{said.Retryable, said.FollowUp} {
		if p = text.CutRunes(strings.TrimSpace(p), maxFollowUp); p != "" {
			return CustomResult{Prompt: p}
		}
	}
	return CustomResult{Prompt: "The verification failed and does not say why. Check the work against the task, correct it, and say again that it is done."}
}
