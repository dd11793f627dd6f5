// Package a2awire declares the documents of A2A 1.0 and A2A 0.3 and converts between the two.
// Data parts and metadata keep the bytes that were received, because the types of the A2A SDK
// would decode them and change integers above 2^53.
package a2awire

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// State is a task's state in A2A 1.0.
type State string

// The states of A2A 1.0.
const (
	StateUnspecified   State = ""
	StateSubmitted     State = "TASK_STATE_SUBMITTED"
	StateWorking       State = "TASK_STATE_WORKING"
	StateInputRequired State = "TASK_STATE_INPUT_REQUIRED"
	StateAuthRequired  State = "TASK_STATE_AUTH_REQUIRED"
	StateCompleted     State = "TASK_STATE_COMPLETED"
	StateRejected      State = "TASK_STATE_REJECTED"
	StateCanceled      State = "TASK_STATE_CANCELED"
	StateFailed        State = "TASK_STATE_FAILED"
)

// Terminal reports whether a task in this state can no longer change.
func (s State) Terminal() bool {
	switch s {
	case StateCompleted, StateFailed, StateCanceled, StateRejected:
		return true
	}
	return false
}

// The roles of A2A 1.0.
const (
	RoleUser  = "ROLE_USER"
	RoleAgent = "ROLE_AGENT"
)

// Part is a piece of content; exactly one of Text, Raw, URL and Data is set.
type Part struct {
	Text      *string   `json:"text,omitzero"`
	Raw       *string   `json:"raw,omitzero"` // base64
	URL       *string   `json:"url,omitzero"`
	Data      jsonx.Raw `json:"data,omitzero"`
	Filename  string    `json:"filename,omitzero"`
	MediaType string    `json:"mediaType,omitzero"`
	Metadata  jsonx.Raw `json:"metadata,omitzero"`

	// Continues is set by a receiver if the part was appended to the one before.
	Continues bool `json:"-"`
}

// TextPart returns a part that holds text.
func TextPart(text string) Part {
	return Part{Text: &text}
}

// DataPart returns a part that holds v as JSON, or an empty object if v cannot be encoded.
func DataPart(v any) Part {
	data, err := jsonx.Marshal(v)
	if err != nil {
		data = []byte("{}")
	}
	return Part{Data: data, MediaType: "application/json"}
}

// Message is one message of a conversation. An agent decides about ContextID and TaskID.
type Message struct {
	ID         string    `json:"messageId"`
	ContextID  string    `json:"contextId,omitzero"`
	TaskID     string    `json:"taskId,omitzero"`
	Role       string    `json:"role"`
	Parts      []Part    `json:"parts"`
	Metadata   jsonx.Raw `json:"metadata,omitzero"`
	Extensions []string  `json:"extensions,omitzero"`
	References []string  `json:"referenceTaskIds,omitzero"`
}

// Text returns the text parts of the message, one line feed between two.
func (m *Message) Text() string {
	var all []string
	for i := range m.Parts {
		if t := m.Parts[i].Text; t != nil {
			all = append(all, *t)
		}
	}
	return strings.Join(all, "\n")
}

// Artifact is one result of a task.
type Artifact struct {
	ID          string    `json:"artifactId"`
	Name        string    `json:"name,omitzero"`
	Description string    `json:"description,omitzero"`
	Parts       []Part    `json:"parts"`
	Metadata    jsonx.Raw `json:"metadata,omitzero"`
}

// Status is the state of a task since Timestamp (RFC 3339), with the message that
// explains it.
type Status struct {
	State     State    `json:"state"`
	Message   *Message `json:"message,omitzero"`
	Timestamp string   `json:"timestamp,omitzero"`
}

// Task is a task with its results.
type Task struct {
	ID        string     `json:"id"`
	ContextID string     `json:"contextId"`
	Status    Status     `json:"status"`
	Artifacts []Artifact `json:"artifacts,omitzero"`
	History   []Message  `json:"history,omitzero"`
	Metadata  jsonx.Raw  `json:"metadata,omitzero"`
}

// StatusUpdate announces a change of a task's status.
type StatusUpdate struct {
	TaskID    string `json:"taskId"`
	ContextID string `json:"contextId"`
	Status    Status `json:"status"`
}

// ArtifactUpdate announces an artifact, or further parts of one if Append is set.
type ArtifactUpdate struct {
	TaskID    string   `json:"taskId"`
	ContextID string   `json:"contextId"`
	Append    bool     `json:"append,omitzero"`
	Artifact  Artifact `json:"artifact"`
	LastChunk bool     `json:"lastChunk"`
}

// Event is one item of a stream, the body of a push and the result of SendMessage;
// exactly one of its documents is set.
type Event struct {
	Task           *Task           `json:"task,omitzero"`
	Message        *Message        `json:"message,omitzero"`
	StatusUpdate   *StatusUpdate   `json:"statusUpdate,omitzero"`
	ArtifactUpdate *ArtifactUpdate `json:"artifactUpdate,omitzero"`
	// Last is set if no further event follows on the stream; only A2A 0.3 sends it.
	Last bool `json:"-"`
}

// SendParams are the parameters of SendMessage and SendStreamingMessage.
type SendParams struct {
	Tenant        string      `json:"tenant"`
	Message       *Message    `json:"message"`
	Configuration *SendConfig `json:"configuration"`
	Metadata      jsonx.Raw   `json:"metadata"`
}

// SendConfig configures the response to a message.
type SendConfig struct {
	AcceptedOutputModes []string    `json:"acceptedOutputModes"`
	ReturnImmediately   bool        `json:"returnImmediately"`
	HistoryLength       *int        `json:"historyLength"`
	Push                *PushConfig `json:"taskPushNotificationConfig"`
}

// PushAuth is how the receiver of push notifications authenticates their sender.
type PushAuth struct {
	Scheme      string `json:"scheme"`
	Credentials string `json:"credentials,omitzero"`
}

// PushConfig names the receiver of a task's push notifications.
type PushConfig struct {
	Tenant string    `json:"tenant,omitzero"`
	TaskID string    `json:"taskId"`
	ID     string    `json:"id,omitzero"`
	URL    string    `json:"url"`
	Token  string    `json:"token,omitzero"`
	Auth   *PushAuth `json:"authentication,omitzero"`
}

// TaskParams name a task and the length of the history to return.
type TaskParams struct {
	Tenant        string `json:"tenant"`
	ID            string `json:"id"`
	HistoryLength *int   `json:"historyLength"`
}

// PushParams name a push configuration of a task, or a page of them.
type PushParams struct {
	Tenant    string `json:"tenant"`
	TaskID    string `json:"taskId"`
	ID        string `json:"id"`
	PageSize  int    `json:"pageSize"`
	PageToken string `json:"pageToken"`
}

// PushList is a page of push configurations.
type PushList struct {
	Configs       []PushConfig `json:"configs"`
	NextPageToken string       `json:"nextPageToken"`
}

// ListParams filter the list of tasks.
type ListParams struct {
	Tenant           string `json:"tenant"`
	ContextID        string `json:"contextId"`
	Status           State  `json:"status"`
	PageSize         *int   `json:"pageSize"`
	PageToken        string `json:"pageToken"`
	HistoryLength    *int   `json:"historyLength"`
	After            string `json:"statusTimestampAfter"`
	IncludeArtifacts bool   `json:"includeArtifacts"`
}

// TaskList is a page of tasks.
type TaskList struct {
	Tasks         []Task `json:"tasks"`
	TotalSize     int    `json:"totalSize"`
	PageSize      int    `json:"pageSize"`
	NextPageToken string `json:"nextPageToken"`
}

// Decode decodes a received document into v. It accepts text that is not valid UTF-8,
// such as half a surrogate pair, because some agents cut texts into such halves.
func Decode(data []byte, v any) error {
	return json.Unmarshal(data, v, jsontext.AllowInvalidUTF8(true))
}
