package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// auditRow holds the members of a record that the table shows.
type auditRow struct {
	Timestamp time.Time     `json:"timestamp"`
	Level     string        `json:"level"`
	Event     string        `json:"event"`
	Extension string        `json:"extension_id"`
	Action    string        `json:"action"`
	User      string        `json:"user_id"`
	Session   string        `json:"session_id"`
	Seq       uint64        `json:"seq"`
	Error     string        `json:"error"`
	Metadata  auditMetadata `json:"metadata"`
}

type auditMetadata struct {
	RunID     string        `json:"run_id"`
	Provider  string        `json:"provider"`
	Code      string        `json:"code"`
	Reason    string        `json:"reason"`
	Decision  auditDecision `json:"decision"`
	principal string
	texts     map[string]string // every member that is a text
}

type auditDecision struct {
	Effect          string
	PolicyIDs       []string `json:"policy_ids"`
	Grant, Approval string
}

// UnmarshalJSON implements [json.Unmarshaler]. The members of events other than calls are not known
// in advance.
func (m *auditMetadata) UnmarshalJSON(data []byte) error {
	type plain auditMetadata
	if err := json.Unmarshal(data, (*plain)(m)); err != nil {
		return err
	}
	var all map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	m.texts = make(map[string]string)
	for key, v := range all {
		if text, ok := v.(string); ok && text != "" {
			m.texts[key] = text
		}
		of, _ := v.(map[string]any)
		switch id, _ := of["id"].(string); key {
		case "node":
			m.texts[key] = cmp.Or(m.texts[key], id)
		case "principal":
			m.principal = id
		}
	}
	return nil
}

// call reports whether the record is about one call.
func (r auditRow) call() bool { return r.Action != "" || r.Metadata.Decision.Effect != "" }

// who returns the principal of a record.
func (r auditRow) who() string {
	if r.User == "" {
		return r.Metadata.principal
	}
	return r.User
}

// subject returns what a record is about, and the member of its metadata that names it, if one does.
func (r auditRow) subject() (text, key string) {
	if r.Action != "" {
		return toolName(r.Action), ""
	}
	first, _, _ := strings.Cut(r.Event, "_")
	for _, key := range []string{
		"file", "change", "upstream", "endpoint", "capability_id", "node", "channel", "slot", "declared", "key", "name", "granted_to",
		"grant", "token", "passkey", "tool", "task", "op", "session", "subscription", "upstreams", "module", "version",
	} {
		value := r.Metadata.texts[key]
		switch {
		case value == "":
			continue
		case key == "capability_id":
			return toolName(value), key
		case key == "name":
			return first + " " + value, key
		case slices.Contains([]string{"file", "change", "upstream", "endpoint", "node", "op", "tool", "module"}, key):
			return value, key
		}
		return strings.ReplaceAll(key, "_", " ") + " " + value, key
	}
	switch {
	case r.Extension != "":
		return r.Extension, ""
	case r.Session != "":
		return "session " + r.Session, ""
	case r.Metadata.RunID != "":
		return r.Metadata.RunID, ""
	case strings.Contains(r.Event, "_"):
		return strings.ReplaceAll(r.Event[:strings.LastIndex(r.Event, "_")], "_", " "), ""
	}
	return r.Event, ""
}

// details returns the texts of a record that is not about a call, without the one that its subject is.
func (r auditRow) details() (list []string) {
	_, subject := r.subject()
	if r.call() {
		return nil
	}
	texts := maps.Clone(r.Metadata.texts)
	for _, key := range []string{
		subject, "approval", "gateway", "surface", "view", "client", "trace_id", "args_hash", "stdout_hash", "stderr_hash", "run_id",
		"capability_id", "canonical_action", "code", "workspace", "agent", "work_dir", "files", "token", "passkey",
	} {
		delete(texts, key)
	}
	if change := texts["change"]; change != "" {
		list = append(list, change)
		delete(texts, "change")
	}
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		list = append(list, strings.ReplaceAll(key, "_", " ")+" "+texts[key])
	}
	return list
}

// auditHead is the head of a list of records, where it is as wide as they need.
func auditHead() []string {
	return []string{"SEQ", "TIME", "LEVEL", "EVENT", "WHAT", "PRINCIPAL", "PROVIDER", "INVOCATION", "WHY"}
}

func (r auditRow) cells() []string {
	what, _ := r.subject()
	return []string{
		fmt.Sprint(r.Seq), when(r.Timestamp), r.Level, r.Event, what, dash(r.who()), dash(r.Metadata.Provider), dash(r.Metadata.RunID),
	}
}

// narrowHead is the head of a list that fits a terminal. What and why are one column, which is not cut.
func narrowHead() []string { return []string{"+SEQ", "TIME", "EVENT", "PRINCIPAL", "WHAT: WHY"} }

func (r auditRow) narrow(why string) []string {
	what, _ := r.subject()
	if why != "-" {
		what += ": " + why
	}
	return []string{fmt.Sprint(r.Seq), when(r.Timestamp), strings.TrimPrefix(r.Event, "capability_"), dash(r.who()), what}
}

// toolAction matches the canonical action of a tool of an MCP server or A2A agent, and its
// module:kind:name.
var toolAction = regexp.MustCompile(`^(?:ext\.(?:mcp|a2a)\.([^.]+)\.|(?:mcp|a2a)\.([^.:]+):tool:)(.+)$`)

// toolName returns the name that people use for an action or for the id of a capability: that of
// policies, such as files/write_file.
func toolName(id string) string {
	if _, action, ok := strings.Cut(id, "#"); ok {
		id = action
		if at := strings.LastIndexByte(id, '@'); at > 0 {
			id = id[:at]
		}
	}
	if m := toolAction.FindStringSubmatch(id); m != nil {
		return m[1] + m[2] + "/" + m[3]
	}
	return id
}
