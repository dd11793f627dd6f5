package validation

import (
	"encoding/json"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

// Outcome is the result of a validation.
type Outcome string

// The outcomes.
const (
	Pass     Outcome = "pass"
	Revise   Outcome = "revise"   // the agent continues with a follow-up
	Escalate Outcome = "escalate" // the user is asked; the session stays
)

// Verdict is a model's judgement of a task.
type Verdict struct {
	Verdict   Outcome  `json:"verdict"`
	Summary   string   `json:"summary"`
	FollowUp  string   `json:"followUpPrompt"`
	Checklist []string `json:"checklist"`
}

// ReadVerdict parses the last verdict in a model's answer. An answer without verdict, or a
// revision without follow-up, is an escalation. A checklist may contain texts or objects.
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

// verdict parses one JSON object, with its texts cut. ok is false if it is not a verdict.
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

// CustomResult is the judgement of a task's own validator.
type CustomResult struct {
	Pass   bool
	Prompt string // follow-up for the agent if Pass is false
}

// ReadCustom converts the result or error of a call of a validator. Anything but the verdict
// pass is a failure, whose prompt states why.
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
