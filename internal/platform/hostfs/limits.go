package hostfs

// Limits of tree.go.
const (
	// MaxDepth is the maximum depth of nested folders in a folder that a confined program may write.
	// The cost of a walk through an os.Root is the square of the depth, so that every walk
	// through such a folder has to stop there.
	MaxDepth = 128
	// maxLevels limits the folders that are open at once while a tree is removed.
	maxLevels = 64
)
