package a2awire

import (
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// The documents of A2A 0.3, and their conversion. That of the A2A SDK is not used, because
// it links a gRPC server into the program and decodes data parts.

// Part03 is the form that A2A 0.3 has for a Part.
type Part03 struct {
	Kind     string    `json:"kind"`
	Text     *string   `json:"text,omitzero"`
	Data     jsonx.Raw `json:"data,omitzero"`
	File     *File03   `json:"file,omitzero"`
	Metadata jsonx.Raw `json:"metadata,omitzero"`
}

// File03 is the form that A2A 0.3 has for a File.
type File03 struct {
	URI      *string `json:"uri,omitzero"`
	Bytes    *string `json:"bytes,omitzero"`
	Name     string  `json:"name,omitzero"`
	MimeType string  `json:"mimeType,omitzero"`
}

// Message03 is the form that A2A 0.3 has for a Message.
type Message03 struct {
	Kind       string    `json:"kind"`
	ID         string    `json:"messageId"`
	ContextID  string    `json:"contextId,omitzero"`
	TaskID     string    `json:"taskId,omitzero"`
	Role       string    `json:"role"`
	Parts      []Part03  `json:"parts"`
	Metadata   jsonx.Raw `json:"metadata,omitzero"`
	Extensions []string  `json:"extensions,omitzero"`
	References []string  `json:"referenceTaskIds,omitzero"`
}

// Artifact03 is the form that A2A 0.3 has for a Artifact.
type Artifact03 struct {
	ID          string    `json:"artifactId"`
	Name        string    `json:"name,omitzero"`
	Description string    `json:"description,omitzero"`
	Parts       []Part03  `json:"parts"`
	Metadata    jsonx.Raw `json:"metadata,omitzero"`
}

// Status03 is the form that A2A 0.3 has for a Status.
type Status03 struct {
	State     string     `json:"state"`
	Message   *Message03 `json:"message,omitzero"`
	Timestamp string     `json:"timestamp,omitzero"`
}

// Task03 is the form that A2A 0.3 has for a Task.
type Task03 struct {
	Kind      string       `json:"kind"`
	ID        string       `json:"id"`
	ContextID string       `json:"contextId"`
	Status    Status03     `json:"status"`
	Artifacts []Artifact03 `json:"artifacts,omitzero"`
	History   []Message03  `json:"history,omitzero"`
	Metadata  jsonx.Raw    `json:"metadata,omitzero"`
}

// StatusUpdate03 is the form that A2A 0.3 has for a StatusUpdate.
type StatusUpdate03 struct {
	Kind      string   `json:"kind"`
	TaskID    string   `json:"taskId"`
	ContextID string   `json:"contextId"`
	Status    Status03 `json:"status"`
	Final     bool     `json:"final"`
}

// ArtifactUpdate03 is the form that A2A 0.3 has for a ArtifactUpdate.
type ArtifactUpdate03 struct {
	Kind      string     `json:"kind"`
	TaskID    string     `json:"taskId"`
	ContextID string     `json:"contextId"`
	Append    bool       `json:"append,omitzero"`
	Artifact  Artifact03 `json:"artifact"`
	LastChunk bool       `json:"lastChunk"`
}

// SendParams03 is the form that A2A 0.3 has for a SendParams.
type SendParams03 struct {
	Message       *Message03    `json:"message"`
	Configuration *SendConfig03 `json:"configuration"`
	Metadata      jsonx.Raw     `json:"metadata"`
}

// SendConfig03 is the form that A2A 0.3 has for a SendConfig.
type SendConfig03 struct {
	AcceptedOutputModes []string      `json:"acceptedOutputModes"`
	Blocking            *bool         `json:"blocking"`
	HistoryLength       *int          `json:"historyLength"`
	Push                *PushConfig03 `json:"pushNotificationConfig"`
}

// PushAuth03 is the form that A2A 0.3 has for a PushAuth.
type PushAuth03 struct {
	Schemes     []string `json:"schemes"`
	Credentials string   `json:"credentials,omitzero"`
}

// PushConfig03 is the form that A2A 0.3 has for a PushConfig.
type PushConfig03 struct {
	ID    string      `json:"id,omitzero"`
	URL   string      `json:"url"`
	Token string      `json:"token,omitzero"`
	Auth  *PushAuth03 `json:"authentication,omitzero"`
}

// TaskPush03 is the form that A2A 0.3 has for a push configuration with the id of its task.
type TaskPush03 struct {
	TaskID string        `json:"taskId"`
	Config *PushConfig03 `json:"pushNotificationConfig"`
}

// PushParams03 name a task by id, and a configuration by pushNotificationConfigId.
type PushParams03 struct {
	ID     string `json:"id"`
	Config string `json:"pushNotificationConfigId"`
}

// state03 returns the name that A2A 0.3 has for a state.
func state03(s State) string {
	if s == StateUnspecified {
		return "unknown"
	}
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(string(s), "TASK_STATE_")), "_", "-")
}

// role03 returns the name that A2A 0.3 has for a role.
func role03(role string) string {
	if role == RoleAgent {
		return "agent"
	}
	return "user"
}

func roleFrom03(role string) string {
	switch role {
	case "user":
		return RoleUser
	case "agent":
		return RoleAgent
	}
	return role
}

// V03 returns the part in the form of A2A 0.3.
func (p *Part) V03() Part03 {
	out := Part03{Metadata: p.Metadata}
	switch {
	case p.Text != nil:
		out.Kind, out.Text = "text", p.Text
	case p.Data != nil:
		out.Kind, out.Data = "data", p.Data
		if p.Data.Kind() != '{' { // 0.3 permits only objects; the SDK wraps other values in the same way
			out.Data = append(append([]byte(`{"value":`), p.Data...), '}')
			if p.Metadata == nil {
				out.Metadata = jsonx.Raw(`{"data_part_compat":true}`)
			}
		}
	default:
		out.Kind, out.File = "file", &File03{Name: p.Filename, MimeType: p.MediaType, Bytes: p.Raw, URI: p.URL}
	}
	return out
}

// V10 returns the part in the form of A2A 1.0.
func (p *Part03) V10() Part {
	out := Part{Metadata: p.Metadata}
	switch p.Kind {
	case "text":
		out.Text = p.Text
	case "data":
		out.Data = p.Data
	case "file":
		if f := p.File; f != nil {
			out.Raw, out.URL, out.Filename, out.MediaType = f.Bytes, f.URI, f.Name, f.MimeType
		}
	}
	return out
}

func parts03(parts []Part) []Part03 {
	out := make([]Part03, len(parts))
	for i := range parts {
		out[i] = parts[i].V03()
	}
	return out
}

func parts10(parts []Part03) []Part {
	var out []Part
	for i := range parts {
		out = append(out, parts[i].V10())
	}
	return out
}

// V03 returns the message in the form of A2A 0.3.
func (m *Message) V03() *Message03 {
	if m == nil {
		return nil
	}
	return &Message03{
		Kind: "message", ID: m.ID, ContextID: m.ContextID, TaskID: m.TaskID, Role: role03(m.Role), Parts: parts03(m.Parts),
		Metadata: m.Metadata, Extensions: m.Extensions, References: m.References,
	}
}

// V10 returns the message in the form of A2A 1.0.
func (m *Message03) V10() *Message {
	if m == nil {
		return nil
	}
	out := &Message{
		ID: m.ID, ContextID: m.ContextID, TaskID: m.TaskID, Role: roleFrom03(m.Role), Metadata: m.Metadata, Extensions: m.Extensions,
		References: m.References,
	}
	out.Parts = parts10(m.Parts)
	return out
}

// V03 returns the artifact in the form of A2A 0.3.
func (a *Artifact) V03() Artifact03 {
	return Artifact03{ID: a.ID, Name: a.Name, Description: a.Description, Parts: parts03(a.Parts), Metadata: a.Metadata}
}

// V03 returns the status in the form of A2A 0.3.
func (s *Status) V03() Status03 {
	return Status03{State: state03(s.State), Message: s.Message.V03(), Timestamp: s.Timestamp}
}

// V03 returns the task in the form of A2A 0.3.
func (t *Task) V03() Task03 {
	out := Task03{Kind: "task", ID: t.ID, ContextID: t.ContextID, Status: t.Status.V03(), Metadata: t.Metadata}
	for i := range t.Artifacts {
		out.Artifacts = append(out.Artifacts, t.Artifacts[i].V03())
	}
	for i := range t.History {
		out.History = append(out.History, *t.History[i].V03())
	}
	return out
}

// V03 returns the event as A2A 0.3 sends it: the document itself, without a wrapper. It
// is nil for an empty event.
func (e *Event) V03() any {
	switch {
	case e.Task != nil:
		return e.Task.V03()
	case e.Message != nil:
		return e.Message.V03()
	case e.ArtifactUpdate != nil:
		u := e.ArtifactUpdate
		return ArtifactUpdate03{
			Kind: "artifact-update", TaskID: u.TaskID, ContextID: u.ContextID, Append: u.Append, Artifact: u.Artifact.V03(),
			LastChunk: u.LastChunk,
		}
	case e.StatusUpdate != nil:
		u := e.StatusUpdate
		return StatusUpdate03{Kind: "status-update", TaskID: u.TaskID, ContextID: u.ContextID, Status: u.Status.V03(), Final: e.Last}
	}
	return nil
}

// V10 returns the parameters in the form of A2A 1.0.
func (p *SendParams03) V10() *SendParams {
	out := &SendParams{Message: p.Message.V10(), Metadata: p.Metadata}
	if c := p.Configuration; c != nil {
		out.Configuration = &SendConfig{
			AcceptedOutputModes: c.AcceptedOutputModes, HistoryLength: c.HistoryLength, ReturnImmediately: c.Blocking != nil && !*c.Blocking,
			Push: c.Push.V10(""),
		}
	}
	return out
}

// V10 returns the configuration in the form of A2A 1.0.
func (c *PushConfig03) V10(taskID string) *PushConfig {
	if c == nil {
		return nil
	}
	out := &PushConfig{TaskID: taskID, ID: c.ID, URL: c.URL, Token: c.Token}
	if c.Auth != nil {
		out.Auth = &PushAuth{Credentials: c.Auth.Credentials}
		if len(c.Auth.Schemes) > 0 {
			out.Auth.Scheme = c.Auth.Schemes[0]
		}
	}
	return out
}

// V03 returns the configuration in the form of A2A 0.3.
func (c *PushConfig) V03() TaskPush03 {
	out := TaskPush03{TaskID: c.TaskID, Config: &PushConfig03{ID: c.ID, URL: c.URL, Token: c.Token}}
	if c.Auth != nil {
		out.Config.Auth = &PushAuth03{Schemes: []string{c.Auth.Scheme}, Credentials: c.Auth.Credentials}
	}
	return out
}

// DecodeEvent03 decodes an item of a stream, or a result, of A2A 0.3. The event is empty if
// its kind belongs to a later minor version.
func DecodeEvent03(data []byte) (*Event, error) {
	var doc struct {
		Kind string `json:"kind"`
	}
	if err := Decode(data, &doc); err != nil {
		return nil, err
	}
	switch doc.Kind {
	case "message":
		m := new(Message03)
		err := Decode(data, m)
		return &Event{Message: m.V10()}, err
	case "status-update":
		u := new(StatusUpdate03)
		err := Decode(data, u)
		return &Event{StatusUpdate: &StatusUpdate{TaskID: u.TaskID, ContextID: u.ContextID, Status: u.Status.V10()}, Last: u.Final}, err
	case "artifact-update":
		u := new(ArtifactUpdate03)
		err := Decode(data, u)
		return &Event{ArtifactUpdate: &ArtifactUpdate{
			TaskID: u.TaskID, ContextID: u.ContextID, Append: u.Append, Artifact: u.Artifact.V10(),
			LastChunk: u.LastChunk,
		}}, err
	case "task":
		t := new(Task03)
		err := Decode(data, t)
		return &Event{Task: t.V10()}, err
	}
	return new(Event), nil
}

// V10 returns the artifact in the form of A2A 1.0.
func (a *Artifact03) V10() Artifact {
	return Artifact{ID: a.ID, Name: a.Name, Description: a.Description, Parts: parts10(a.Parts), Metadata: a.Metadata}
}

// V10 returns the status in the form of A2A 1.0.
func (s *Status03) V10() Status {
	state := State("TASK_STATE_" + strings.ToUpper(strings.ReplaceAll(s.State, "-", "_")))
	return Status{State: state, Message: s.Message.V10(), Timestamp: s.Timestamp}
}

// V10 returns the task in the form of A2A 1.0.
func (t *Task03) V10() *Task {
	out := &Task{ID: t.ID, ContextID: t.ContextID, Status: t.Status.V10(), Metadata: t.Metadata}
	for i := range t.Artifacts {
		out.Artifacts = append(out.Artifacts, t.Artifacts[i].V10())
	}
	for i := range t.History {
		out.History = append(out.History, *t.History[i].V10())
	}
	return out
}
