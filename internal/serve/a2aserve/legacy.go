package a2aserve

import (
	"encoding/base64"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// A2A 0.3 as it goes over the wire. The SDK's own translation is not used: it brings
// a gRPC server into the program, and it decodes what should stay bytes. Everything
// inside speaks 1.0; these types are only at the edge.

type part03 struct {
	Kind     string    `json:"kind"`
	Text     *string   `json:"text,omitzero"`
	Data     jsonx.Raw `json:"data,omitzero"`
	File     *file03   `json:"file,omitzero"`
	Metadata jsonx.Raw `json:"metadata,omitzero"`
}

type file03 struct {
	Name     string  `json:"name,omitzero"`
	MimeType string  `json:"mimeType,omitzero"`
	Bytes    *string `json:"bytes,omitzero"`
	URI      *string `json:"uri,omitzero"`
}

type message03 struct {
	Kind       string    `json:"kind"`
	ID         string    `json:"messageId"`
	ContextID  string    `json:"contextId,omitzero"`
	TaskID     string    `json:"taskId,omitzero"`
	Role       string    `json:"role"`
	Parts      []part03  `json:"parts"`
	Metadata   jsonx.Raw `json:"metadata,omitzero"`
	Extensions []string  `json:"extensions,omitzero"`
	References []string  `json:"referenceTaskIds,omitzero"`
}

type artifact03 struct {
	ID          string    `json:"artifactId"`
	Name        string    `json:"name,omitzero"`
	Description string    `json:"description,omitzero"`
	Parts       []part03  `json:"parts"`
	Metadata    jsonx.Raw `json:"metadata,omitzero"`
}

type status03 struct {
	State     string     `json:"state"`
	Message   *message03 `json:"message,omitzero"`
	Timestamp string     `json:"timestamp,omitzero"`
}

type task03 struct {
	Kind      string       `json:"kind"`
	ID        string       `json:"id"`
	ContextID string       `json:"contextId"`
	Status    status03     `json:"status"`
	Artifacts []artifact03 `json:"artifacts,omitzero"`
	History   []message03  `json:"history,omitzero"`
	Metadata  jsonx.Raw    `json:"metadata,omitzero"`
}

type statusUpdate03 struct {
	Kind      string   `json:"kind"`
	TaskID    string   `json:"taskId"`
	ContextID string   `json:"contextId"`
	Status    status03 `json:"status"`
	Final     bool     `json:"final"`
}

type artifactUpdate03 struct {
	Kind      string     `json:"kind"`
	TaskID    string     `json:"taskId"`
	ContextID string     `json:"contextId"`
	Artifact  artifact03 `json:"artifact"`
	LastChunk bool       `json:"lastChunk"`
}

type sendParams03 struct {
	Message       *message03    `json:"message"`
	Configuration *sendConfig03 `json:"configuration"`
	Metadata      jsonx.Raw     `json:"metadata"`
}

type sendConfig03 struct {
	AcceptedOutputModes []string      `json:"acceptedOutputModes"`
	Blocking            *bool         `json:"blocking"`
	HistoryLength       *int          `json:"historyLength"`
	Push                *pushConfig03 `json:"pushNotificationConfig"`
}

type pushAuth03 struct {
	Schemes     []string `json:"schemes"`
	Credentials string   `json:"credentials,omitzero"`
}

type pushConfig03 struct {
	ID    string      `json:"id,omitzero"`
	URL   string      `json:"url"`
	Token string      `json:"token,omitzero"`
	Auth  *pushAuth03 `json:"authentication,omitzero"`
}

type taskPush03 struct {
	TaskID string        `json:"taskId"`
	Config *pushConfig03 `json:"pushNotificationConfig"`
}

// pushParams03 name a task by id, and a configuration by pushNotificationConfigId.
type pushParams03 struct {
	ID     string `json:"id"`
	Config string `json:"pushNotificationConfigId"`
}

func state03(s a2a.TaskState) string {
	if s == a2a.TaskStateUnspecified {
		return "unknown"
	}
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(string(s), "TASK_STATE_")), "_", "-")
}

func role03(role string) string {
	if role == string(a2a.MessageRoleAgent) {
		return "agent"
	}
	return "user"
}

func roleFrom03(role string) string {
	switch role {
	case "user":
		return string(a2a.MessageRoleUser)
	case "agent":
		return string(a2a.MessageRoleAgent)
	}
	return role
}

func (p *part) to03() part03 {
	out := part03{Metadata: p.Metadata}
	switch {
	case p.Text != nil:
		out.Kind, out.Text = "text", p.Text
	case p.Data != nil:
		out.Kind, out.Data = "data", p.Data
		if p.Data.Kind() != '{' { // 0.3 has objects only; so does the SDK say it
			out.Data = append(append([]byte(`{"value":`), p.Data...), '}')
			if p.Metadata == nil {
				out.Metadata = jsonx.Raw(`{"data_part_compat":true}`)
			}
		}
	default:
		out.Kind, out.File = "file", &file03{Name: p.Filename, MimeType: p.MediaType, Bytes: p.Raw, URI: p.URL}
	}
	return out
}

func (p *part03) from03() part {
	out := part{Metadata: p.Metadata}
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

func parts03(parts []part) []part03 {
	out := make([]part03, len(parts))
	for i := range parts {
		out[i] = parts[i].to03()
	}
	return out
}

func (m *message) to03() *message03 {
	if m == nil {
		return nil
	}
	return &message03{
		Kind: "message", ID: m.ID, ContextID: m.ContextID, TaskID: m.TaskID, Role: role03(m.Role), Parts: parts03(m.Parts),
		Metadata: m.Metadata, Extensions: m.Extensions, References: m.References,
	}
}

func (m *message03) from03() *message {
	if m == nil {
		return nil
	}
	out := &message{
		ID: m.ID, ContextID: m.ContextID, TaskID: m.TaskID, Role: roleFrom03(m.Role), Metadata: m.Metadata, Extensions: m.Extensions, References: m.References,
	}
	for i := range m.Parts {
		out.Parts = append(out.Parts, m.Parts[i].from03())
	}
	return out
}

func (a *artifact) to03() artifact03 {
	return artifact03{ID: a.ID, Name: a.Name, Description: a.Description, Parts: parts03(a.Parts), Metadata: a.Metadata}
}

func (s *status) to03() status03 {
	return status03{State: state03(s.State), Message: s.Message.to03(), Timestamp: s.Timestamp}
}

func (t *task) to03() task03 {
	out := task03{Kind: "task", ID: t.ID, ContextID: t.ContextID, Status: t.Status.to03(), Metadata: t.Metadata}
	for i := range t.Artifacts {
		out.Artifacts = append(out.Artifacts, t.Artifacts[i].to03())
	}
	for i := range t.History {
		out.History = append(out.History, *t.History[i].to03())
	}
	return out
}

// to03 is the event as 0.3 writes it, without a wrapper.
func (e *event) to03() any {
	switch {
	case e.Task != nil:
		return e.Task.to03()
	case e.ArtifactUpdate != nil:
		u := e.ArtifactUpdate
		return artifactUpdate03{Kind: "artifact-update", TaskID: u.TaskID, ContextID: u.ContextID, Artifact: u.Artifact.to03(), LastChunk: u.LastChunk}
	}
	u := e.StatusUpdate
	return statusUpdate03{Kind: "status-update", TaskID: u.TaskID, ContextID: u.ContextID, Status: u.Status.to03(), Final: e.last}
}

func (p *sendParams03) from03() *sendParams {
	out := &sendParams{Message: p.Message.from03(), Metadata: p.Metadata}
	if c := p.Configuration; c != nil {
		out.Configuration = &sendConfig{
			AcceptedOutputModes: c.AcceptedOutputModes, HistoryLength: c.HistoryLength, ReturnImmediately: c.Blocking != nil && !*c.Blocking, Push: c.Push.from03(""),
		}
	}
	return out
}

func (c *pushConfig03) from03(taskID string) *pushConfig {
	if c == nil {
		return nil
	}
	out := &pushConfig{TaskID: taskID, ID: c.ID, URL: c.URL, Token: c.Token}
	if c.Auth != nil {
		out.Auth = &pushAuth{Credentials: c.Auth.Credentials}
		if len(c.Auth.Schemes) > 0 {
			out.Auth.Scheme = c.Auth.Schemes[0]
		}
	}
	return out
}

func (c *pushConfig) to03() taskPush03 {
	out := taskPush03{TaskID: c.TaskID, Config: &pushConfig03{ID: c.ID, URL: c.URL, Token: c.Token}}
	if c.Auth != nil {
		out.Config.Auth = &pushAuth03{Schemes: []string{c.Auth.Scheme}, Credentials: c.Auth.Credentials}
	}
	return out
}

// validBase64 reports whether s is the content of a file part.
func validBase64(s string) bool {
	_, err := base64.StdEncoding.DecodeString(s)
	return err == nil
}
