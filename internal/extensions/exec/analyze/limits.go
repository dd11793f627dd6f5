package analyze

import "time"

// Limits of the model's input and answer, and of the analysed content.
const (
	maxContent   = 48 << 10 // bytes: the head and the tail of the content
	contentTail  = 8 << 10
	maxUsage     = 32 << 10
	maxTask      = 4 << 10
	maxAnswer    = 64 << 10
	MaxInput     = 4 << 20 // bytes of content; longer content is too_large
	modelTimeout = time.Minute
)

// Limits of extract.go.
const (
	maxLine = 200 // characters of a line that is shown
	maxKeys = 30
)

// Limits of schema.go.
const (
	maxSchema        = 256 << 10
	maxCandidates    = 64 // positions at which JSON may begin
	maxFaults        = 10
	maxSchemaOutline = 60 // lines
)
