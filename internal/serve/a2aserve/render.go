package a2aserve

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/junctor-run/junctor/protocol/a2awire"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

// surfaceName is the name of this surface. Tasks of other surfaces have histories in another form.
const surfaceName = "a2a"

// shown selects the parts of a task to return.
type shown struct {
	history   *int // nil: all
	artifacts bool
}

// contextOf returns the context id of a task. A task of another surface has its own id as context.
func contextOf(t *tasks.Task) string {
	if t.Context == "" || t.Surface != surfaceName {
		return t.ID
	}
	return t.Context
}

func render(t *tasks.Task, want shown) *a2awire.Task {
	out := &a2awire.Task{ID: t.ID, ContextID: contextOf(t), Status: statusOf(t), History: historyOf(t, want.history), Metadata: metadataOf(t)}
	if want.artifacts {
		out.Artifacts = artifactsOf(t)
	}
	return out
}

func metadataOf(t *tasks.Task) jsonx.Raw {
	about := map[string]string{}
	if t.Invocation != "" {
		about["junctor/invocation"] = t.Invocation
	}
	if target := targetOf(t); target != "" {
		about["junctor/capability"] = target
	}
	if len(about) == 0 {
		return nil
	}
	data, err := jsonx.Marshal(about)
	if err != nil {
		return nil
	}
	return data
}

func targetOf(t *tasks.Task) string {
	if t.Call.Target.Action == "" && t.Call.Target.Capability == "" {
		return ""
	}
	return t.Call.Target.String()
}

// historyOf returns the last *limit messages of a task, or all if limit is nil. It returns none for a
// task of another surface, and leaves out what cannot be decoded. *limit is not negative.
func historyOf(t *tasks.Task, limit *int) []a2awire.Message {
	if t.Surface != surfaceName {
		return nil
	}
	docs := t.History
	if limit != nil && len(docs) > *limit {
		docs = docs[len(docs)-*limit:]
	}
	var out []a2awire.Message
	for _, doc := range docs {
		var m a2awire.Message
		if read(doc, &m) == nil {
			out = append(out, m)
		}
	}
	return out
}

func statusOf(t *tasks.Task) a2awire.Status {
	return a2awire.Status{State: stateOf(t.State), Message: statusMessage(t), Timestamp: t.Updated.UTC().Format("2006-01-02T15:04:05.000Z")}
}

// statusMessage returns the message for a task's state (the question, the failure or the
// progress), or nil.
func statusMessage(t *tasks.Task) *a2awire.Message {
	text, about := t.Status, any(nil)
	switch {
	case t.Error != nil:
		text = t.Error.Message
		if t.Error.Hint != "" {
			text += "; " + t.Error.Hint
		}
		about = map[string]any{"error": t.Error}
	case len(t.Requests) == 1 && t.State == tasks.AuthRequired:
		about = map[string]any{"approval": t.Requests[0].Approval}
	case len(t.Requests) > 0:
		about = map[string]any{"requests": t.Requests}
	}
	if text == "" && about == nil {
		return nil
	}
	m := &a2awire.Message{
		ID: t.ID + "-" + strconv.FormatInt(t.Version, 10), TaskID: t.ID, ContextID: contextOf(t), Role: a2awire.RoleAgent,
		Parts: []a2awire.Part{a2awire.TextPart(text)},
	}
	if about != nil {
		m.Parts = append(m.Parts, a2awire.DataPart(about))
	}
	return m
}

// artifactsOf returns the result of a task as one artifact, or none.
func artifactsOf(t *tasks.Task) []a2awire.Artifact {
	if len(t.Result) == 0 {
		return nil
	}
	a := a2awire.Artifact{ID: "result", Name: targetOf(t)}
	_, kind, _ := t.Provider.Parts()
	switch {
	case len(t.Result) > maxInline:
		a.Parts = []a2awire.Part{a2awire.TextPart(fmt.Sprintf("the result has %d bytes, and an artifact holds %d at most; read it with GET /api/v1/tasks/%s", len(t.Result), maxInline, t.ID))}
	case kind == "mcp" || kind == "a2a":
		a.Parts = contentParts(t.Result)
	}
	if len(a.Parts) == 0 {
		a.Parts = valueParts(t.Result)
	}
	return []a2awire.Artifact{a}
}

// valueParts returns a value as a data part and as a text part; for a value that is not
// JSON, only a text that reports that.
func valueParts(value json.RawMessage) []a2awire.Part {
	if !jsontext.Value(value).IsValid(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)) {
		return []a2awire.Part{a2awire.TextPart("the result is not JSON")}
	}
	text := string(value)
	if jsontext.Value(value).Kind() == '"' {
		_ = json.Unmarshal(value, &text) // unchanged unless it is a string
	}
	return []a2awire.Part{{Data: jsonx.Raw(value), MediaType: "application/json"}, a2awire.TextPart(text)}
}

// contentParts returns the structured content and the content blocks of an MCP result as
// parts, or nil if a block has an unknown type.
func contentParts(result json.RawMessage) []a2awire.Part {
	var r struct {
		Content []struct {
			Type     string `json:"type"`
			Text     string `json:"text"`
			Data     string `json:"data"`
			MimeType string `json:"mimeType"`
			URI      string `json:"uri"`
			Name     string `json:"name"`
			Resource *struct {
				URI      string  `json:"uri"`
				MimeType string  `json:"mimeType"`
				Text     *string `json:"text"`
				Blob     *string `json:"blob"`
			} `json:"resource"`
		} `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
	}
	if json.Unmarshal(result, &r) != nil {
		return nil
	}
	var out []a2awire.Part
	if len(r.Structured) > 0 {
		out = append(out, a2awire.Part{Data: jsonx.Raw(r.Structured), MediaType: "application/json"})
	}
	for i := range r.Content {
		c := &r.Content[i]
		switch {
		case c.Type == "text":
			out = append(out, a2awire.TextPart(c.Text))
		case (c.Type == "image" || c.Type == "audio") && validBase64(c.Data):
			out = append(out, a2awire.Part{Raw: &c.Data, MediaType: c.MimeType})
		case c.Type == "resource_link":
			out = append(out, a2awire.Part{URL: &c.URI, MediaType: c.MimeType, Filename: c.Name})
		case c.Type == "resource" && c.Resource != nil && c.Resource.Text != nil:
			out = append(out, a2awire.Part{Text: c.Resource.Text, MediaType: c.Resource.MimeType, Filename: c.Resource.URI})
		case c.Type == "resource" && c.Resource != nil && c.Resource.Blob != nil && validBase64(*c.Resource.Blob):
			out = append(out, a2awire.Part{Raw: c.Resource.Blob, MediaType: c.Resource.MimeType, Filename: c.Resource.URI})
		default:
			return nil // for an unknown kind, the whole result unchanged
		}
	}
	return out
}

// events returns the events for a change of a task on a stream. before is nil at the
// beginning of the stream, when the whole task is sent.
func events(before, now *tasks.Task, want shown) []a2awire.Event {
	if before == nil {
		return []a2awire.Event{{Task: render(now, want)}}
	}
	var out []a2awire.Event
	if now.State.Terminal() && !before.State.Terminal() {
		for _, a := range artifactsOf(now) {
			out = append(out, a2awire.Event{ArtifactUpdate: &a2awire.ArtifactUpdate{
				TaskID: now.ID, ContextID: contextOf(now), Artifact: a,
				LastChunk: true,
			}})
		}
	}
	if now.State != before.State || now.Status != before.Status || len(now.Requests) != len(before.Requests) {
		out = append(out, a2awire.Event{StatusUpdate: &a2awire.StatusUpdate{TaskID: now.ID, ContextID: contextOf(now), Status: statusOf(now)}})
	}
	return out
}

// codeOf is [capability.CodeOf].
func codeOf(err error) capability.Code { return capability.CodeOf(err) }

// stateOf returns a task's state in A2A 1.0.
func stateOf(s tasks.State) a2awire.State {
	switch s {
	case tasks.Submitted:
		return a2awire.StateSubmitted
	case tasks.Working:
		return a2awire.StateWorking
	case tasks.InputRequired, tasks.Interrupted:
		return a2awire.StateInputRequired
	case tasks.AuthRequired:
		return a2awire.StateAuthRequired
	case tasks.Completed:
		return a2awire.StateCompleted
	case tasks.Rejected:
		return a2awire.StateRejected
	case tasks.Cancelled:
		return a2awire.StateCanceled
	}
	return a2awire.StateFailed
}

// stateFrom is the inverse of stateOf; ok is false for an unknown state.
func stateFrom(s a2awire.State) (state tasks.State, ok bool) {
	for _, state := range tasks.States() {
		if stateOf(state) == s {
			return state, true
		}
	}
	return "", false
}
