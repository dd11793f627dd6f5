package cmp

import "time"

// The bounds of a call's arguments.
const (
	MaxDepth     = 64   // of any JSON value
	MaxArguments = 1024 // positional and by name, each
)

// maxNodes bounds the lists of nodes and labels in a request for balancing.
const maxNodes = 256

// Limits of errors.go.
const (
	// MaxMessage bounds the text of an error on the wire, in bytes.
	MaxMessage = 4 << 10
	// maxRetryDelay is the longest delay that a node may request.
	maxRetryDelay = 24 * time.Hour
)

// The bounds of names, in bytes, and of labels in number.
const (
	MaxName     = 128 // node ids, labels, skill names, aliases
	MaxFunction = 200
	MaxLabels   = 64
)

// MaxAsset bounds an asset, in bytes.
const MaxAsset = 64 << 20

// Limits bounds the transferred skills, in bytes unless stated otherwise. Zero permits nothing.
type Limits struct {
	Modules      int `json:"max_runtime_modules"`
	ModuleSource int `json:"max_runtime_module_source_bytes"`
	TotalSource  int `json:"max_total_runtime_source_bytes"`
	Payload      int `json:"max_payload_bytes"`
}

// DefaultLimits returns the default limits of payloads.
func DefaultLimits() Limits { return Limits{8, 200_000, 800_000, 1 << 20} }
