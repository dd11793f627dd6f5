package extension

// Limits of one file.
const (
	maxCommands = 100
	maxActions  = 100 // of a command
	maxArgs     = 64  // arguments, or flags, of an action
	maxText     = 4096
	maxSummary  = 256
	maxItems    = 256
)

// Limits of contributions.go.
const (
	maxArgName     = 128
	maxDiagnostics = 100
)

// Limits of extension.go.
const (
	maxUsage = 256 << 10
	maxIcon  = 256 << 10
	maxTool  = 200 << 20
)

// MaxManifest is the largest size of manifest.json in bytes.
const MaxManifest = 100 << 10

// maxScript is the largest size of a script in bytes. An entrypoint has the limit of a tool.
const maxScript = 8 << 20

// Limits of one execution. 0 is the operator's default; the operator's maximum always applies.
type Limits struct {
	TimeoutSec     int   `json:"timeout_sec,omitempty"`
	MaxOutputBytes int64 `json:"max_output_bytes,omitempty"`
	MemoryMB       int   `json:"memory_mb,omitempty"`
	CPUSeconds     int   `json:"cpu_seconds,omitempty"`
	MaxProcesses   int   `json:"max_processes,omitempty"`
	DiskMB         int   `json:"disk_mb,omitempty"`
}
