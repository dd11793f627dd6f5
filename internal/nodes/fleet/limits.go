package fleet

// Limits of one node.
const (
	MaxNodes     = 1 << 20
	MaxLabels    = 64
	MaxLabel     = 128
	MaxFunctions = 4096
)

// maxRecord is the largest record before compression: twice a message of a node.
const maxRecord = 1 << 20

// maxTries is the number of nodes to which a call may be sent: the first, and two more if
// the call provably did not start.
const maxTries = 3
