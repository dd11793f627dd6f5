package a2a

import (
	"encoding/json"
	"strings"

	"github.com/junctor-run/junctor/protocol/a2awire"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

// result is the end as MCP has it.
func (w *work) result() (json.RawMessage, error) {
	var parts []a2awire.Part
	for i := range w.task.Artifacts {
		parts = append(parts, w.task.Artifacts[i].Parts...)
	}
	made := len(parts) > 0
	if w.said != nil {
		parts = w.said.Parts
	} else if m := w.task.Status.Message; m != nil && len(parts) == 0 {
		parts = m.Parts
	}
	meta := map[string]any{}
	if w.task.ID != "" {
		meta["a2a/taskId"] = w.task.ID
	}
	if w.task.ContextID != "" {
		meta["a2a/contextId"] = w.task.ContextID
	}
	content := contentOf(parts)
	out := map[string]any{"_meta": meta}
	if data := onlyObject(parts); data != nil {
		out["structuredContent"] = data
	}
	if w.said == nil && w.task.Status.State != a2awire.StateCompleted {
		out["isError"] = true
		if text := cut(w.status); made || text == "" { // else it is the content already
			if text == "" {
				text = "the agent's task ended as " + strings.ToLower(strings.TrimPrefix(string(w.task.Status.State), "TASK_STATE_"))
			}
			content = append([]any{map[string]any{"type": "text", "text": text}}, content...)
		}
	}
	out["content"] = content
	value, err := jsonx.Marshal(out)
	if err != nil {
		return nil, broken("the agent's answer cannot be passed on", err)
	}
	return value, nil
}

// cut bounds what a stranger says in an error or a notice.
func cut(s string) string { return text.ShortenBytes(s, 1024) }

// onlyObject is the data of the only data part, where that is an object.
func onlyObject(parts []a2awire.Part) (data jsonx.Raw) {
	for i := range parts {
		if d := parts[i].Data; len(d) > 0 {
			if data != nil || d.Kind() != '{' {
				return nil
			}
			data = d
		}
	}
	return data
}

// contentOf are parts as content blocks of MCP. Words that were appended to words are
// one block with them: agents send what they write piece by piece.
func contentOf(parts []a2awire.Part) []any {
	out := []any{}
	for i := 0; i < len(parts); i++ {
		p := &parts[i]
		kind, _, _ := strings.Cut(p.MediaType, "/")
		switch {
		case p.Text != nil:
			var words strings.Builder
			words.WriteString(*p.Text)
			for i+1 < len(parts) && parts[i+1].Continues && parts[i+1].Text != nil {
				i++
				words.WriteString(*parts[i].Text)
			}
			out = append(out, map[string]any{"type": "text", "text": words.String()})
		case len(p.Data) > 0:
			out = append(out, map[string]any{"type": "text", "text": string(p.Data)})
		case p.Raw != nil && (kind == "image" || kind == "audio"):
			out = append(out, map[string]any{"type": kind, "data": *p.Raw, "mimeType": p.MediaType})
		case p.Raw != nil:
			resource := map[string]any{"uri": "a2a:" + p.Filename, "blob": *p.Raw}
			if p.MediaType != "" {
				resource["mimeType"] = p.MediaType
			}
			out = append(out, map[string]any{"type": "resource", "resource": resource})
		case p.URL != nil:
			name := p.Filename
			if name == "" {
				name = *p.URL
			}
			block := map[string]any{"type": "resource_link", "uri": *p.URL, "name": name}
			if p.MediaType != "" {
				block["mimeType"] = p.MediaType
			}
			out = append(out, block)
		}
	}
	return out
}
