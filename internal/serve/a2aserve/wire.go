package a2aserve

import (
	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

// The documents of A2A 1.0 as they go over the wire. The SDK's types would decode
// data parts and metadata, and with them change integers above 2^53; here both stay
// the bytes that came.

type part struct {
	Text      *string   `json:"text,omitzero"`
	Raw       *string   `json:"raw,omitzero"` // base64
	URL       *string   `json:"url,omitzero"`
	Data      jsonx.Raw `json:"data,omitzero"`
	Filename  string    `json:"filename,omitzero"`
	MediaType string    `json:"mediaType,omitzero"`
	Metadata  jsonx.Raw `json:"metadata,omitzero"`
}

func textPart(text string) part {
	return part{Text: &text}
}

func dataPart(v any) part {
	data, err := jsonx.Marshal(v)
	if err != nil {
		data = []byte("{}")
	}
	return part{Data: data, MediaType: "application/json"}
}

type message struct {
	ID         string    `json:"messageId"`
	ContextID  string    `json:"contextId,omitzero"`
	TaskID     string    `json:"taskId,omitzero"`
	Role       string    `json:"role"`
	Parts      []part    `json:"parts"`
	Metadata   jsonx.Raw `json:"metadata,omitzero"`
	Extensions []string  `json:"extensions,omitzero"`
	References []string  `json:"referenceTaskIds,omitzero"`
}

type artifact struct {
	ID          string    `json:"artifactId"`
	Name        string    `json:"name,omitzero"`
	Description string    `json:"description,omitzero"`
	Parts       []part    `json:"parts"`
	Metadata    jsonx.Raw `json:"metadata,omitzero"`
}

type status struct {
	State     a2a.TaskState `json:"state"`
	Message   *message      `json:"message,omitzero"`
	Timestamp string        `json:"timestamp,omitzero"`
}

type task struct {
	ID        string     `json:"id"`
	ContextID string     `json:"contextId"`
	Status    status     `json:"status"`
	Artifacts []artifact `json:"artifacts,omitzero"`
	History   []message  `json:"history,omitzero"`
	Metadata  jsonx.Raw  `json:"metadata,omitzero"`
}

type statusUpdate struct {
	TaskID    string `json:"taskId"`
	ContextID string `json:"contextId"`
	Status    status `json:"status"`
}

type artifactUpdate struct {
	TaskID    string   `json:"taskId"`
	ContextID string   `json:"contextId"`
	Artifact  artifact `json:"artifact"`
	LastChunk bool     `json:"lastChunk"`
}

// event is one item of a stream, the body of a push and the result of SendMessage;
// exactly one member is set.
type event struct {
	Task           *task           `json:"task,omitzero"`
	StatusUpdate   *statusUpdate   `json:"statusUpdate,omitzero"`
	ArtifactUpdate *artifactUpdate `json:"artifactUpdate,omitzero"`
	// last says that nothing follows on the stream; 0.3 puts it on the wire.
	last bool
}

// sendParams are those of SendMessage and SendStreamingMessage.
type sendParams struct {
	Tenant        string      `json:"tenant"`
	Message       *message    `json:"message"`
	Configuration *sendConfig `json:"configuration"`
	Metadata      jsonx.Raw   `json:"metadata"`
}

type sendConfig struct {
	AcceptedOutputModes []string    `json:"acceptedOutputModes"`
	ReturnImmediately   bool        `json:"returnImmediately"`
	HistoryLength       *int        `json:"historyLength"`
	Push                *pushConfig `json:"taskPushNotificationConfig"`
}

type pushAuth struct {
	Scheme      string `json:"scheme"`
	Credentials string `json:"credentials,omitzero"`
}

type pushConfig struct {
	Tenant string    `json:"tenant,omitzero"`
	TaskID string    `json:"taskId"`
	ID     string    `json:"id,omitzero"`
	URL    string    `json:"url"`
	Token  string    `json:"token,omitzero"`
	Auth   *pushAuth `json:"authentication,omitzero"`
}

// taskParams name a task, and what of it is wanted.
type taskParams struct {
	Tenant        string `json:"tenant"`
	ID            string `json:"id"`
	HistoryLength *int   `json:"historyLength"`
}

// pushParams name a push configuration of a task.
type pushParams struct {
	Tenant    string `json:"tenant"`
	TaskID    string `json:"taskId"`
	ID        string `json:"id"`
	PageSize  int    `json:"pageSize"`
	PageToken string `json:"pageToken"`
}

type pushList struct {
	Configs       []pushConfig `json:"configs"`
	NextPageToken string       `json:"nextPageToken"`
}

type listParams struct {
	Tenant           string        `json:"tenant"`
	ContextID        string        `json:"contextId"`
	Status           a2a.TaskState `json:"status"`
	PageSize         *int          `json:"pageSize"`
	PageToken        string        `json:"pageToken"`
	HistoryLength    *int          `json:"historyLength"`
	After            string        `json:"statusTimestampAfter"`
	IncludeArtifacts bool          `json:"includeArtifacts"`
}

type taskList struct {
	Tasks         []task `json:"tasks"`
	TotalSize     int    `json:"totalSize"`
	PageSize      int    `json:"pageSize"`
	NextPageToken string `json:"nextPageToken"`
}

// stateOf is a task's state in A2A 1.0.
func stateOf(s tasks.State) a2a.TaskState {
	switch s {
	case tasks.Submitted:
		return a2a.TaskStateSubmitted
	case tasks.Working:
		return a2a.TaskStateWorking
	case tasks.InputRequired, tasks.Interrupted:
		return a2a.TaskStateInputRequired
	case tasks.AuthRequired:
		return a2a.TaskStateAuthRequired
	case tasks.Completed:
		return a2a.TaskStateCompleted
	case tasks.Rejected:
		return a2a.TaskStateRejected
	case tasks.Cancelled:
		return a2a.TaskStateCanceled
	}
	return a2a.TaskStateFailed
}

// stateFrom is the reverse; ok is false for what is no state.
func stateFrom(s a2a.TaskState) (state tasks.State, ok bool) {
	for _, state := range tasks.States() {
		if stateOf(state) == s {
			return state, true
		}
	}
	return "", false
}

// read decodes a document of a stranger. Text that is no UTF-8, such as half a
// surrogate pair, is taken as it is: it may be data that only passes through.
func read(data []byte, v any) error {
	err := json.Unmarshal(data, v, jsontext.AllowInvalidUTF8(true))
	if err == nil {
		return nil
	}
	if plain := jsonx.Unmarshal(data, v); plain != nil {
		return plain // in words
	}
	return err
}
