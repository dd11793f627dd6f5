package backup

// Bounds of an archive. They apply to [Make] too, so that every backup can be restored.
const (
	maxFiles    = 200_000
	maxBytes    = 64 << 30
	maxManifest = 64 << 20
	maxName     = 1024
	maxDepth    = 64
)
