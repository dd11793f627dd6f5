package a2a

import (
	"context"
	"net/http"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// ask puts the agent's question to the caller.
func (w *work) ask(ctx context.Context) (string, error) {
	question := cut(w.status)
	if question == "" {
		question = "The agent needs an answer to go on."
	}
	if w.r.Ask == nil {
		return "", capability.Errorf(capability.CodeFailed, "upstream", "the agent asks a question, and this caller cannot answer questions: %s",
			question).With(capability.ReasonInputRequired, "say it in the message, or call where questions can be answered")
	}
	params, err := jsonx.Marshal(map[string]any{"message": question, "requestedSchema": map[string]any{
		"type": "object", "required": []string{"answer"}, "properties": map[string]any{"answer": map[string]any{
			"type":  "string",
			"title": "Answer",
		}},
	}})
	if err != nil {
		return "", broken("the agent's question cannot be passed on", err)
	}
	if w.idle != nil { // it is not the agent who is silent now
		w.idle.Stop()
	}
	raw, err := w.r.Ask(ctx, capability.Question{Method: "elicitation/create", Params: params})
	if w.idle != nil {
		w.idle.Reset(w.r.Idle)
	}
	if err != nil {
		return "", err
	}
	var a struct {
		Action  string `json:"action"`
		Content struct {
			Answer string `json:"answer"`
		} `json:"content"`
	}
	if jsonx.Unmarshal(raw, &a) != nil || a.Action != "accept" {
		return "", capability.Errorf(capability.CodeFailed, "upstream", "the agent's question was not answered: %s", question).With("declined",
			"")
	}
	return a.Content.Answer, nil
}

// cancel ends the agent's task when the caller has given it up. Only the agent waits for it,
// [Agent.Close].
func (w *work) cancel() {
	id := w.task.ID
	if id == "" || w.task.Status.State.Terminal() {
		return
	}
	a := w.link.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	a.after.Go(func() {
		ctx, stop := context.WithTimeout(context.Background(), cancelTimeout)
		defer stop()
		cancel := verb{rpc: "CancelTask", legacy: "tasks/cancel", method: http.MethodPost, path: ":cancel", task: true}
		for _, err := range w.link.named(ctx, cancel, id) {
			if err != nil {
				return // it has ended, or is out of reach; nothing follows from either
			}
		}
	})
}
