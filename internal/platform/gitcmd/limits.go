package gitcmd

// Limits of harden.go.
const (
	// maxOverrides bounds the number of a repository's keys that are overridden one by one.
	maxOverrides = 500
	// maxAncestors bounds the number of directories from Dir up to the root that git trusts.
	maxAncestors = 64
)

// Limits of inspect.go.
const (
	maxConfigBytes     = 256 << 10
	maxAlternatesBytes = 64 << 10
	maxAlternatesDepth = 5 // same bound as in git
	maxIndexBytes      = 64 << 20
	maxNestedDepth     = 4 // repositories inside each other
)

// Limits of room.go.
const (
	maxGitFileBytes = 8 << 10 // of .git and commondir, which hold one path
	maxAlternates   = 64
	maxMemory       = 2 << 30
	maxFileBytes    = 8 << 30
)
