package mcpregistry

import "time"

// Limits of entry.go.
const (
	maxTextRunes = 500
	maxForms     = 16
	maxInputs    = 64
)

const maxPackage = 512 << 20 // bytes of a package whose hash is computed

// Limits of mcpregistry.go.
const (
	requestTimeout = 20 * time.Second
	searchTimeout  = 45 * time.Second
	statusTTL      = time.Hour
	maxPage        = 4 << 20 // bytes of one answer
	maxPages       = 3       // of one word
	maxWords       = 4
	maxShown       = 50
	maxName        = 200
	maxVersion     = 128
	maxStates      = 256 // entries whose status is remembered
)

const maxValue = 4 << 10
