package decide

// Bounds of a prompt, in characters; together below MaxPrompt.
const (
	MaxPrompt = 48_000
	maxTask   = 8_000
	maxBrief  = 4_000
	maxTurn   = 3_000
	maxItem   = 300
	maxPeers  = 8
)

// maxRead is the number of characters at the end of a text that the rules read.
const maxRead = 64 << 10
