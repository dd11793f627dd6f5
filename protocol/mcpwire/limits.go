package mcpwire

// maxID bounds ids and progress tokens in bytes, because they are returned and used as map keys.
const maxID = 512

// Limits of param.go.
const (
	maxParams    = 64
	maxParamPath = 16
)
