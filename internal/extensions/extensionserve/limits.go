package extensionserve

// maxScenarios is the largest body of an evaluation in bytes.
const maxScenarios = 16 << 20

// maxLogs and maxOffset limit the records of one page and their offset.
const (
	maxLogs   = 1000
	maxOffset = 100_000
)
