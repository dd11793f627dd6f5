package permit

// Limits of a command that is analysed; a longer or deeper one is refused.
const (
	maxCommand = 64 << 10
	maxNested  = 4 // nested commands, as in sh -c
)

// maxReading limits the nesting of a command that may count as reading.
const maxReading = 2
