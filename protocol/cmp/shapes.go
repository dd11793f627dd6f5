package cmp

import (
	"encoding/json"
	"slices"
	"time"
)

// Time returns a time in the form of the protocol: ISO 8601, UTC, microseconds.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000-07:00") }

// Function is one entry of the list of a node's functions.
type Function struct {
	Name           string   `json:"name"`
	Tags           []string `json:"tags"` // sorted
	Description    string   `json:"description"`
	Version        string   `json:"version"`
	TimeoutSeconds *float64 `json:"timeout_seconds"`
	Priority       int      `json:"priority"`       // 1 to 10
	ExecutionMode  string   `json:"execution_mode"` // informational
	IsAsync        bool     `json:"is_async"`
	IsGenerator    bool     `json:"is_generator"` // the function can stream

	Stream        bool            `json:"stream"` // the same
	InputSchema   json.RawMessage `json:"input_schema,omitzero"`
	OutputSchema  json.RawMessage `json:"output_schema,omitzero"`
	Effect        string          `json:"effect,omitzero"`
	Owner         string          `json:"owner,omitzero"` // node, host, skill:<name>, orphan:<name>
	Alias         string          `json:"alias,omitzero"`
	MediaType     string          `json:"media_type,omitzero"`
	MaxConcurrent int             `json:"max_concurrent"` // 0: the node's limit only
	Active        int             `json:"active"`
	Stats         *Stats          `json:"stats,omitzero"`
}

// Stats holds figures of one function since its registration. The average is a moving one, in
// seconds.
type Stats struct {
	Total        int64   `json:"total"`
	Successful   int64   `json:"successful"`
	Failed       int64   `json:"failed"`
	AverageTime  float64 `json:"average_execution_time"`
	LastExecuted string  `json:"last_execution_time,omitzero"`
}

// CodeBinding identifies an export of a module of transferred code.
type CodeBinding struct {
	ModuleID string `json:"module_id"`
	Export   string `json:"export"`
}

// The ways in which a capability is bound.
const (
	BoundToAction = "device_action"
	BoundToCode   = "code_transfer"
)

// The states of an installed skill.
const (
	StateActive   = "active"
	StateDegraded = "degraded"
	StateDisabled = "disabled"
)

// CapabilityRecord is one capability of an installed skill.
type CapabilityRecord struct {
	FunctionName string          `json:"function_name"`
	ActionName   *string         `json:"action_name"` // null if bound to code
	BindingMode  string          `json:"binding_mode"`
	CodeBinding  *CodeBinding    `json:"code_binding"`
	Stream       bool            `json:"stream"`
	MediaType    string          `json:"media_type"`
	Metadata     json.RawMessage `json:"metadata"`
	// Registered is true if this installation registered the function and owns it.
	Registered bool       `json:"registered"`
	Conflict   bool       `json:"conflict,omitzero"`
	Error      *WireError `json:"error,omitzero"`
}

// Consent is the decision of the device's owner about an installed skill.
type Consent struct {
	Required  bool   `json:"required"`
	GrantedAt string `json:"granted_at,omitzero"`
	By        string `json:"by,omitzero"`
	Digest    string `json:"digest,omitzero"`
}

// Record is one installed skill.
type Record struct {
	Source       string                      `json:"source"`
	InstalledAt  string                      `json:"installed_at"`
	Capabilities map[string]CapabilityRecord `json:"capabilities"`
	Metadata     RecordMetadata              `json:"metadata"`

	SkillName    string  `json:"skill_name,omitzero"`
	SkillVersion string  `json:"skill_version,omitzero"`
	SHA256       string  `json:"sha256,omitzero"` // of the newest payload
	State        string  `json:"state,omitzero"`
	Consent      Consent `json:"consent"`
	UpdatedAt    string  `json:"updated_at,omitzero"`
	Revision     int     `json:"revision"`
}

// Clone returns a copy that shares no memory with r.
func (r Record) Clone() Record {
	r.Metadata.RuntimeModules = slices.Clone(r.Metadata.RuntimeModules)
	of := r.Capabilities
	r.Capabilities = make(map[string]CapabilityRecord, len(of))
	for alias, c := range of {
		c.Metadata = slices.Clone(c.Metadata)
		if c.ActionName != nil {
			name := *c.ActionName
			c.ActionName = &name
		}
		if c.CodeBinding != nil {
			b := *c.CodeBinding
			c.CodeBinding = &b
		}
		if c.Error != nil {
			e := *c.Error
			c.Error = &e
		}
		r.Capabilities[alias] = c
	}
	return r
}

// RecordMetadata holds the sorted ids of the loaded modules or, if none was loaded, of the payload's
// modules.
type RecordMetadata struct {
	RuntimeModules []string `json:"runtime_modules"`
}

// Flags of a host; the first four are the original's.
type Flags struct {
	AutoRefreshRegistration bool `json:"auto_refresh_registration"`
	PreferTransferredCode   bool `json:"prefer_transferred_code"`
	AllowTransferredCode    bool `json:"allow_transferred_code"`
	AutoConsent             bool `json:"auto_consent"`
	ConsentInteractive      bool `json:"consent_interactive"`
}

// Sandbox is the result of the last scan of the folder of actions.
type Sandbox struct {
	Attempted         bool    `json:"attempted"`
	Path              *string `json:"path"`
	Loaded            bool    `json:"loaded"`
	ActionsRegistered int     `json:"actions_registered"`
	Error             *string `json:"error"`
	ErrorType         *string `json:"error_type"`
	AttemptedAt       *string `json:"attempted_at"`
	ErrorCode         string  `json:"error_code,omitzero"`
}

// Action describes a device action for other programs.
type Action struct {
	Description string          `json:"description"`
	Metadata    json.RawMessage `json:"metadata"`
}

// Language states whether code in a language is supported, and if not, the reason.
type Language struct {
	Available bool   `json:"available"`
	Reason    string `json:"reason,omitzero"`
}

// Status is the status of a host.
type Status struct {
	NodeID              *string `json:"node_id"`
	Flags               Flags   `json:"flags"`
	ActionCount         int     `json:"action_count"`
	InstalledSkillCount int     `json:"installed_skill_count"`
	Sandbox             Sandbox `json:"sandbox"`
	SandboxModuleCount  int     `json:"sandbox_module_count"`

	Actions         *map[string]Action `json:"actions,omitzero"`          // only if asked for
	InstalledSkills *map[string]Record `json:"installed_skills,omitzero"` // only if asked for

	Languages       map[string]Language `json:"languages"`
	Limits          Limits              `json:"limits"`
	OS              string              `json:"os"`
	Arch            string              `json:"arch"`
	Version         string              `json:"version"`
	ProtocolVersion int                 `json:"protocol_version"`
	Isolation       string              `json:"isolation,omitzero"`
	DegradedSkills  []string            `json:"degraded_skills"`
	Epoch           int64               `json:"epoch"`
}

// Warning is a deviation of an installation from its request, or a side effect.
type Warning struct {
	Code         string `json:"code"`
	Alias        string `json:"alias,omitzero"`
	FunctionName string `json:"function_name,omitzero"`
	Message      string `json:"message"`
}

// Installed is the result of device.install_remote_skill.
type Installed struct {
	InstalledSkill       string            `json:"installed_skill"`
	InstalledSkills      map[string]Record `json:"installed_skills"`
	CapabilityHostStatus Status            `json:"capability_host_status"`
	NodeID               string            `json:"node_id,omitzero"`
	NodeFunctions        []string          `json:"node_functions"` // sorted
	Warnings             []Warning         `json:"warnings,omitempty"`
	Changed              bool              `json:"changed"`
	DryRun               bool              `json:"dry_run,omitzero"`
}

// Uninstalled is the result of device.uninstall_remote_skill.
type Uninstalled struct {
	SkillName            string            `json:"skill_name"`
	Uninstalled          bool              `json:"uninstalled"`
	InstalledSkills      map[string]Record `json:"installed_skills"`
	CapabilityHostStatus Status            `json:"capability_host_status"`
	NodeID               string            `json:"node_id,omitzero"`
	NodeFunctions        []string          `json:"node_functions"` // sorted
	Warnings             []Warning         `json:"warnings,omitempty"`
}

// Functions is the result of device.list_node_functions.
type Functions struct {
	NodeID               string     `json:"node_id,omitzero"`
	CapabilityHostStatus Status     `json:"capability_host_status"`
	FunctionCount        int        `json:"function_count"`
	Functions            []Function `json:"functions"` // sorted by name
}
