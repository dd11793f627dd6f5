package row

import (
	"encoding/json"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Keys of metadata that the registry reads or writes. Those it owns cannot be changed
// by an update.
const (
	ControlState = "controlState"  // of a thread: Paused, Halted or nothing; owned
	ReplacedBy   = "replacedBy"    // of a session: the session that replaced it; owned
	ToldEnd      = "swarmComplete" // of a thread: the end that was reported
	Gateway      = "gateway"       // of a session: the gateway whose process runs it; owned
	StartOver    = "startOver"     // of a session that resumes another one: its task if resuming fails
	ResumeToken  = "resumeToken"   // of a session: the CLI's own session id
	Refusals     = "refusals"      // of a session: its refused tool calls

	// Of a thread. Only the package that owns each key sets it.
	Supervision = "supervisionLevel" // the coordinator's level
	Brief       = "swarmContext"     // the plan that all parts share
)

// Keys of a thread's metadata about the conversation in which it was created: the session of the
// caller, and a list of earlier messages that the caller passed.
const (
	OriginSession  = "originSessionId"
	OriginMessages = "originMessages"
)

// Values of [ControlState].
const (
	Paused = "paused"
	Halted = "stopped"
)

// Held reports whether a thread is paused, stopped or archived, so that no parts are started.
func (t Thread) Held() bool {
	return Meta(t.Metadata, ControlState) != "" || t.Status == ThreadArchived
}

// Meta returns the text at a key of an object, or "" if it is missing.
func Meta(object json.RawMessage, key string) string {
	var members map[string]json.RawMessage
	if jsonx.Unmarshal(object, &members) != nil {
		return ""
	}
	s, _ := jsonx.Text(members[key])
	return s
}

// WithMeta returns a copy of object with a text at a key, or without that member if value is "".
func WithMeta(object json.RawMessage, key, value string) json.RawMessage {
	var members map[string]json.RawMessage
	if jsonx.Unmarshal(object, &members) != nil || members == nil {
		members = make(map[string]json.RawMessage)
	}
	delete(members, key)
	if value != "" {
		members[key] = jsonx.AppendString(nil, value)
	}
	out, err := jsonx.Marshal(members)
	if err != nil { // every member was read from JSON
		return object
	}
	return out
}

// WithMember returns a copy of object with one member set. An empty object is {}.
func WithMember(object json.RawMessage, key string, value any) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if err := jsonx.Unmarshal(object, &members); len(object) > 0 && err != nil {
		return nil, err
	}
	raw, err := jsonx.Marshal(value)
	if err != nil {
		return nil, err
	}
	members[key] = raw
	return jsonx.Marshal(members)
}
