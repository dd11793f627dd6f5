package scriptedmodel

import (
	"encoding/json"
	"slices"
	"strings"
)

type object = map[string]any

// role is the author of an item.
type role int

const (
	system role = iota
	user
	model
	result // of a tool
)

// item is one part of a conversation.
type item struct {
	role role
	text string
}

// tool is one that the program offers.
type tool struct {
	name       string
	free       bool // its input is text
	properties []string
	required   []string
}

// request is what every dialect's request is read into.
type request struct {
	items  []item
	tools  []tool
	names  []string // of all tools
	search bool     // tools that are not offered can be called, because there is a search for them
	stream bool
}

func (r request) text() string {
	var out strings.Builder
	for _, it := range r.items {
		out.WriteString(it.text + "\n")
	}
	return out.String()
}

// last is the last text of the user.
func (r request) last() string {
	for _, it := range slices.Backward(r.items) {
		if it.role == user && it.text != "" {
			return it.text
		}
	}
	return ""
}

// answer is what every dialect writes: words, or a call of a tool.
type answer struct {
	say  string
	tool string
	args object

	namespace string // of the tool
	free      string // its input, if that is text
}

// answer finds the tool that a step means among those that are offered; ok is false
// if it is absent.
func (r request) answer(s Step) (a answer, ok bool) {
	switch {
	case s.Write != nil:
		if t, found := r.offered("Write", "write_file", "write"); found {
			return answer{tool: t.name, args: t.fill(object{t.first("file_path", "filePath", "path"): s.Write.Path, "content": s.Write.Text})}, true
		}
		return r.run("printf '%s' "+quote(s.Write.Text)+" > "+quote(s.Write.Path), s.Leave)
	case s.Patch != nil:
		if t, found := r.offered("apply_patch"); found && t.free {
			return answer{tool: t.name, free: "*** Begin Patch\n*** Add File: " + s.Patch.Path + "\n+" + s.Patch.Text + "\n*** End Patch"}, true
		}
		return r.answer(Step{Write: s.Patch, Leave: s.Leave})
	case s.Call != nil:
		t, found := r.offered(s.Call.Names...)
		if !found && s.Call.Namespace != "" && r.search {
			return answer{tool: s.Call.Names[0], namespace: s.Call.Namespace, args: s.Call.Args}, true
		}
		return answer{tool: t.name, args: s.Call.Args}, found
	case s.Run != "":
		return r.run(s.Run, s.Leave)
	}
	return answer{say: s.Say}, true
}

func (r request) run(command string, leave bool) (answer, bool) {
	t, found := r.offered("Bash", "run_shell_command", "bash", "exec_command", "shell_command")
	if !found {
		return answer{}, false
	}
	args := object{t.first("command", "cmd"): command}
	if leave && slices.Contains(t.properties, "sandbox_permissions") {
		args["sandbox_permissions"], args["justification"] = "require_escalated", "as the script says"
	}
	return answer{tool: t.name, args: t.fill(args)}, true
}

func (r request) offered(names ...string) (tool, bool) {
	for _, name := range names {
		if i := slices.IndexFunc(r.tools, func(t tool) bool { return t.name == name }); i >= 0 {
			return r.tools[i], true
		}
	}
	return tool{}, false
}

// first is the first of the names that the tool has a property for.
func (t tool) first(names ...string) string {
	for _, name := range names {
		if slices.Contains(t.properties, name) {
			return name
		}
	}
	return names[0]
}

// fill adds the words that a tool insists on, such as a description.
func (t tool) fill(args object) object {
	for _, name := range t.required {
		if _, set := args[name]; !set {
			args[name] = "as the script says"
		}
	}
	return args
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// schema is as much of a tool's parameters as is read.
type schema struct {
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
}

func (s schema) tool(name string) tool {
	t := tool{name: name, required: s.Required}
	for p := range s.Properties {
		t.properties = append(t.properties, p)
	}
	return t
}

// content is text, or a list of parts of which those are read that are text or stand
// for a result; every dialect but Gemini's writes it so.
type content []part

type part struct {
	Type    string  `json:"type"`
	Text    string  `json:"text"`
	Content content `json:"content"` // of a result
}

// UnmarshalJSON reads both forms.
func (c *content) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*c = content{{Type: "text", Text: text}}
		return nil
	}
	var list []part
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	*c = list
	return nil
}

func (c content) text() string {
	var list []string
	for _, p := range c {
		list = append(list, p.Text)
	}
	return strings.Join(list, "\n")
}

// roleOf reads a role's name.
func roleOf(name string) role {
	switch name {
	case "user":
		return user
	case "assistant", "model":
		return model
	case "tool":
		return result
	}
	return system
}
