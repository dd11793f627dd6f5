package a2a

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// The documents of A2A 1.0, with data as the bytes that came.

type part struct {
	Text      *string   `json:"text,omitzero"`
	Raw       *string   `json:"raw,omitzero"`
	URL       *string   `json:"url,omitzero"`
	Data      jsonx.Raw `json:"data,omitzero"`
	Filename  string    `json:"filename,omitzero"`
	MediaType string    `json:"mediaType,omitzero"`

	goesOn bool // it was appended to the part before
}

type message struct {
	ID        string            `json:"messageId"`
	ContextID string            `json:"contextId,omitzero"`
	TaskID    string            `json:"taskId,omitzero"`
	Role      string            `json:"role"`
	Parts     []part            `json:"parts"`
	Metadata  map[string]string `json:"metadata,omitzero"`
}

type incoming struct {
	Parts []part `json:"parts"`
}

type artifact struct {
	ID    string `json:"artifactId"`
	Parts []part `json:"parts"`
}

type status struct {
	State     string    `json:"state"`
	Message   *incoming `json:"message"`
	Timestamp string    `json:"timestamp"`
}

type task struct {
	ID        string     `json:"id"`
	ContextID string     `json:"contextId"`
	Status    status     `json:"status"`
	Artifacts []artifact `json:"artifacts"`
}

// event is an item of a stream, and the result of SendMessage.
type event struct {
	Task         *task           `json:"task"`
	Message      *incoming       `json:"message"`
	StatusUpdate *statusUpdate   `json:"statusUpdate"`
	Artifact     *artifactUpdate `json:"artifactUpdate"`
}

type statusUpdate struct {
	TaskID    string `json:"taskId"`
	ContextID string `json:"contextId"`
	Status    status `json:"status"`
}

type artifactUpdate struct {
	TaskID   string   `json:"taskId"`
	Append   bool     `json:"append"`
	Artifact artifact `json:"artifact"`
}

// The states that matter, in the words of 1.0.
const (
	stateCompleted     = "TASK_STATE_COMPLETED"
	stateFailed        = "TASK_STATE_FAILED"
	stateCanceled      = "TASK_STATE_CANCELED"
	stateRejected      = "TASK_STATE_REJECTED"
	stateInputRequired = "TASK_STATE_INPUT_REQUIRED"
	stateAuthRequired  = "TASK_STATE_AUTH_REQUIRED"
)

// fault is an error of either binding.
type fault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// decodeReply is what an answer of JSON-RPC holds.
func decodeReply(data []byte) (jsonx.Raw, error) {
	var r struct {
		Result jsonx.Raw `json:"result"`
		Error  *fault    `json:"error"`
	}
	if err := decode(data, &r); err != nil {
		return nil, broken("the agent's answer is not JSON-RPC", err)
	}
	if r.Error != nil {
		return nil, refusal(r.Error)
	}
	return r.Result, nil
}

// decodePlain is an item of HTTP+JSON, which may be an error in the middle of a stream.
func decodePlain(data []byte) (jsonx.Raw, error) {
	var r struct {
		Error *fault `json:"error"`
	}
	if err := decode(data, &r); err != nil {
		return nil, broken("the agent's answer is not A2A", err)
	}
	if r.Error != nil {
		return nil, refusal(r.Error)
	}
	return data, nil
}

// decode reads what a stranger wrote: half a surrogate, which some languages cut texts
// into, spoils one character and not the answer.
func decode(data []byte, v any) error {
	return json.Unmarshal(data, v, jsontext.AllowInvalidUTF8(true))
}

func broken(text string, err error) error {
	return capability.Wrap(capability.CodeFailed, "upstream", text, err).With(reasonUpstream, "")
}

func refusal(f *fault) error {
	return capability.Errorf(capability.CodeFailed, "upstream", "the agent refuses (%d): %s", f.Code, cut(f.Message)).With(reasonUpstream, "")
}

// decodeEvent reads an item of a stream.
func decodeEvent(protocol string, raw jsonx.Raw) (*event, error) {
	if protocol == version03 {
		return decode03(raw)
	}
	e := new(event)
	if err := decode(raw, e); err != nil {
		return nil, broken("the agent's answer is not A2A", err)
	}
	return e, nil
}

// decodeTask reads an answer that is a task.
func decodeTask(protocol string, raw jsonx.Raw) (*event, error) {
	if protocol == version03 {
		return decode03(raw)
	}
	t := new(task)
	if err := decode(raw, t); err != nil {
		return nil, broken("the agent's answer is no task", err)
	}
	return &event{Task: t}, nil
}

// The documents of 0.3, as far as they differ.

type part03 struct {
	Kind string    `json:"kind"`
	Text *string   `json:"text,omitzero"`
	Data jsonx.Raw `json:"data,omitzero"`
	File *file03   `json:"file,omitzero"`
}

type file03 struct {
	URI      *string `json:"uri,omitzero"`
	Bytes    *string `json:"bytes,omitzero"`
	Name     string  `json:"name,omitzero"`
	MimeType string  `json:"mimeType,omitzero"`
}

type message03 struct {
	Kind      string            `json:"kind"`
	ID        string            `json:"messageId"`
	ContextID string            `json:"contextId,omitzero"`
	TaskID    string            `json:"taskId,omitzero"`
	Role      string            `json:"role"`
	Parts     []part03          `json:"parts"`
	Metadata  map[string]string `json:"metadata,omitzero"`
}

type artifact03 struct {
	ID    string   `json:"artifactId"`
	Parts []part03 `json:"parts"`
}

type status03 struct {
	State   string `json:"state"`
	Message *struct {
		Parts []part03 `json:"parts"`
	} `json:"message"`
	Timestamp string `json:"timestamp"`
}

// document03 is a task, a message or an update; kind says which.
type document03 struct {
	Kind      string       `json:"kind"`
	ID        string       `json:"id"`
	TaskID    string       `json:"taskId"`
	ContextID string       `json:"contextId"`
	Status    status03     `json:"status"`
	Artifacts []artifact03 `json:"artifacts"`
	Artifact  artifact03   `json:"artifact"`
	Append    bool         `json:"append"`
	Parts     []part03     `json:"parts"`
}

// decode03 reads an item of 0.3 in the words of 1.0.
func decode03(raw jsonx.Raw) (*event, error) {
	var d document03
	if err := decode(raw, &d); err != nil {
		return nil, broken("the agent's answer is not A2A", err)
	}
	switch d.Kind {
	case "message":
		return &event{Message: &incoming{parts10(d.Parts)}}, nil
	case "status-update":
		return &event{StatusUpdate: &statusUpdate{TaskID: d.TaskID, ContextID: d.ContextID, Status: d.Status.now()}}, nil
	case "artifact-update":
		return &event{Artifact: &artifactUpdate{TaskID: d.TaskID, Append: d.Append, Artifact: artifact{d.Artifact.ID, parts10(d.Artifact.Parts)}}}, nil
	case "task":
		t := &task{ID: d.ID, ContextID: d.ContextID, Status: d.Status.now()}
		for _, one := range d.Artifacts {
			t.Artifacts = append(t.Artifacts, artifact{one.ID, parts10(one.Parts)})
		}
		return &event{Task: t}, nil
	}
	return &event{}, nil // of a later minor version; nothing follows from it
}

func (s *status03) now() status {
	out := status{State: "TASK_STATE_" + strings.ToUpper(strings.ReplaceAll(s.State, "-", "_")), Timestamp: s.Timestamp}
	if s.Message != nil {
		out.Message = &incoming{parts10(s.Message.Parts)}
	}
	return out
}

func parts10(list []part03) []part {
	out := make([]part, 0, len(list))
	for _, p := range list {
		one := part{Text: p.Text, Data: p.Data}
		if p.File != nil {
			one = part{Raw: p.File.Bytes, URL: p.File.URI, Filename: p.File.Name, MediaType: p.File.MimeType}
		}
		out = append(out, one)
	}
	return out
}

// older is a message in the form of 0.3.
func (m *message) older() message03 {
	out := message03{Kind: "message", ID: m.ID, ContextID: m.ContextID, TaskID: m.TaskID, Role: "user", Metadata: m.Metadata}
	for _, p := range m.Parts {
		one := part03{Kind: "text", Text: p.Text}
		switch {
		case len(p.Data) > 0:
			one = part03{Kind: "data", Data: p.Data}
		case p.Raw != nil || p.URL != nil:
			one = part03{Kind: "file", File: &file03{URI: p.URL, Bytes: p.Raw, Name: p.Filename, MimeType: p.MediaType}}
		}
		out.Parts = append(out.Parts, one)
	}
	return out
}

func readAll(r io.Reader, limit int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	switch {
	case err != nil:
		return nil, cutOff("the agent's answer broke off", err)
	case len(data) > limit:
		return nil, tooMuch(limit)
	}
	return data, nil
}

// cutOff is an answer that ended early: bytes went out, so nothing is sent again.
func cutOff(text string, err error) error {
	return capability.Wrap(capability.CodeFailed, "upstream", text, err).With(reasonConnection, "")
}

func tooMuch(limit int) error {
	return capability.Errorf(capability.CodeFailed, "upstream", "the agent answers with more than %d bytes", limit).With("output_limit", "")
}

const maxEvent = 8 << 20

// events are the data of server-sent events, all together at most MaxAnswer.
func events(r io.Reader) iter.Seq2[jsonx.Raw, error] {
	return func(yield func(jsonx.Raw, error) bool) {
		counted := &io.LimitedReader{R: r, N: MaxAnswer + 1}
		lines := bufio.NewScanner(counted)
		lines.Buffer(nil, maxEvent)
		var data []byte
		for lines.Scan() {
			line := lines.Bytes()
			if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				data = append(append(data, bytes.TrimPrefix(rest, []byte(" "))...), '\n')
				continue
			}
			if len(line) == 0 && len(data) > 0 {
				if !yield(data, nil) {
					return
				}
				data = nil
			}
		}
		switch {
		case counted.N <= 0:
			yield(nil, tooMuch(MaxAnswer))
		case errors.Is(lines.Err(), bufio.ErrTooLong):
			yield(nil, tooMuch(maxEvent))
		case lines.Err() != nil:
			yield(nil, cutOff("the agent's stream broke off", lines.Err()))
		case len(data) > 0:
			yield(data, nil)
		}
	}
}
