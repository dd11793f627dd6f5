package diff

import "time"

// Limits of one rendering.
const (
	MaxText       = 1 << 20 // bytes of each of the two texts
	maxRows       = 20_000  // of a page; further rows are only counted
	maxLine       = 4096    // bytes of a line that a page shows
	around        = 3       // unchanged lines shown on either side of a change
	diffTimeout   = 5 * time.Second
	handleTimeout = 30 * time.Second
)

// maxCost bounds the edits searched for in one section of the texts; a section with
// more counts as replaced as a whole. Time grows with maxCost², memory with the number
// of lines.
const maxCost = 2048
