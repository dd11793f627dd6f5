package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
)

// taskAnswer is what a user gives to tasks answer.
type taskAnswer struct {
	said    string   // a number, a label, yes or no, a text, or a JSON object; "" if absent
	text    string   // a text, also where it looks like something else
	values  []string // QUESTION=VALUE, of a form
	key     string
	decline bool
}

func (a *app) tasksAnswerCommand() *cobra.Command {
	var in taskAnswer
	c := &cobra.Command{
		Use: "answer ID [yes|no|N|LABEL|TEXT|JSON]", Short: "Answer what a task or session asks, or decline", Args: cobra.RangeArgs(1, 2),
		Example: `  junctor tasks answer tsk_… 3
  junctor tasks answer tsk_… yes
  junctor tasks answer tsk_… --answer 1=Apples --answer 2=Red --answer 2=Blue
  junctor tasks answer pty-… --text "42"
  junctor tasks answer tsk_… '{"decision":"once"}'
  junctor tasks answer tsk_… --decline`,
		RunE: func(cmd *cobra.Command, args []string) error {
			given := 0
			if len(args) == 2 {
				in.said = args[1]
				given++
			}
			for _, is := range []bool{in.text != "", len(in.values) > 0, in.decline} {
				if is {
					given++
				}
			}
			if given > 1 {
				return capability.Errorf(capability.CodeInvalidInput, "", "give one of an answer, --text, --answer and --decline")
			}
			if strings.HasPrefix(args[0], "pty-") {
				return a.answerSession(cmd.Context(), args[0], in)
			}
			return a.answerTask(cmd.Context(), args[0], in)
		},
	}
	f := c.Flags()
	f.StringVar(&in.key, "key", "", "`KEY` key of the question, where there are several")
	f.StringVar(&in.text, "text", "", "`TEXT` answer with this text, also if it is a number or a label")
	f.StringArrayVar(&in.values, "answer", nil, "`QUESTION=VALUE` answer to a question of a form (repeatable)")
	f.BoolVar(&in.decline, "decline", false, "decline instead of answering")
	return c
}

// form returns the values of --answer by question.
func (in taskAnswer) form() (map[string][]string, error) {
	out := make(map[string][]string)
	for _, pair := range in.values {
		question, value, ok := strings.Cut(pair, "=")
		if !ok || question == "" {
			return nil, capability.Errorf(capability.CodeInvalidInput, "", "%.80q is not QUESTION=VALUE", pair)
		}
		out[question] = append(out[question], value)
	}
	return out, nil
}

// answerSession answers the open question of a session. The answer names the question, so that it
// does not reach a later one.
func (a *app) answerSession(ctx context.Context, id string, in taskAnswer) error {
	var open struct {
		Blocker *struct{ ID string }
	}
	err := a.call(ctx, http.MethodGet, sessionPath(id, ""), nil, func(raw json.RawMessage) error { return json.Unmarshal(raw, &open) })
	if err != nil {
		return err
	}
	if open.Blocker == nil {
		return capability.Errorf(capability.CodeConflict, "", "the session asks nothing").With("blocker_ended", "junctor tasks show "+id)
	}
	values, err := in.form()
	if err != nil {
		return err
	}
	body := map[string]any{"blocker": open.Blocker.ID, "answer": in.said, "text": in.text, "answers": values, "decline": in.decline}
	if in.key != "" {
		body["blocker"] = in.key
	}
	return a.call(ctx, http.MethodPost, sessionPath(id, "/answer"), body, func(json.RawMessage) error {
		a.printf("%s is answered\n", plainText(id))
		return nil
	})
}

// answerTask answers a question of a task.
func (a *app) answerTask(ctx context.Context, id string, in taskAnswer) error {
	answer := map[string]any{"action": "accept"}
	isJSON := strings.HasPrefix(strings.TrimSpace(in.said), "{") && json.Valid([]byte(in.said))
	switch {
	case in.decline:
		answer["action"] = "decline"
	case isJSON:
		answer["content"] = json.RawMessage(in.said)
	case in.said != "" || in.text != "" || len(in.values) > 0:
		content, key, err := a.content(ctx, id, in)
		if err != nil {
			return err
		}
		in.key = key
		if content == nil {
			answer["action"] = "decline"
		} else {
			answer["content"] = content
		}
	}
	body := map[string]any{"answer": answer}
	setText(body, "key", in.key)
	return a.call(ctx, http.MethodPost, taskPath(id, "/answer"), body, a.printMoved)
}

// content returns the content that an answer means for the question of a task, nil for a refusal,
// and the key of the question.
func (a *app) content(ctx context.Context, id string, in taskAnswer) (content map[string]any, key string, err error) {
	var out struct{ Task taskRow }
	err = a.call(ctx, http.MethodGet, taskPath(id, ""), nil, func(raw json.RawMessage) error { return json.Unmarshal(raw, &out) })
	if err != nil {
		return nil, "", err
	}
	list := out.Task.Requests
	at := 0
	for i, r := range list {
		if r.Key == in.key {
			at = i
		}
	}
	switch {
	case len(list) == 0:
		return nil, "", capability.Errorf(capability.CodeConflict, "", "the task asks nothing: it is %s", out.Task.State).With("not_asked", "")
	case in.key == "" && len(list) > 1, in.key != "" && list[at].Key != in.key:
		return nil, "", capability.Errorf(capability.CodeInvalidInput, "", "the task asks %d questions", len(list)).
			With("", "name one with --key, as junctor tasks show "+id+" shows it")
	}
	r := list[at]
	said := in.said
	if in.text != "" {
		said = in.text
	}
	values, err := in.form()
	switch {
	case err != nil:
		return nil, "", err
	case len(values) > 0:
		content = make(map[string]any, len(values))
		for question, list := range values {
			content[question] = list
			if len(list) == 1 && r.Params.RequestedSchema.Properties[question].Type != "array" {
				content[question] = list[0]
			}
		}
		return content, r.Key, nil
	case r.Approval != "":
		switch word := strings.ToLower(said); word {
		case "no", "deny":
			return nil, r.Key, nil
		case "yes":
			return map[string]any{"decision": "once"}, r.Key, nil
		default:
			return map[string]any{"decision": word}, r.Key, nil
		}
	case out.Task.Kind == "thread":
		content = map[string]any{"text": said}
		if in.text != "" {
			content["free"] = true
		}
		return content, r.Key, nil
	}
	if len(r.Params.RequestedSchema.Properties) != 1 {
		return nil, "", capability.Errorf(capability.CodeInvalidInput, "", "the question has several members").
			With("", "use --answer NAME=VALUE, or a JSON object")
	}
	for name, p := range r.Params.RequestedSchema.Properties {
		content = map[string]any{name: said}
		if p.Type == "boolean" {
			content[name] = said == "yes" || said == "true"
		}
	}
	return content, r.Key, nil
}
