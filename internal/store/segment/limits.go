package segment

// maxUnsynced bounds the bytes stored for writing again. Beyond it Append flushes.
const maxUnsynced = 8 << 20

// Defaults of MirrorConfig.
const (
	defaultMirrorBytes = 10 << 20 // of one file, before it is rotated
	defaultMirrorFiles = 10
)
