package dialect

// The bounds of one conversation.
const (
	MaxOptions = 32      // options of a question; one with more is refused
	maxID      = 256     // bytes of a request's id
	maxToken   = 512     // bytes of a conversation's id
	maxLabel   = 200     // bytes of an option's label, or of a tool's name
	maxPrompt  = 2_000   // bytes of a question
	maxReply   = 1 << 20 // bytes of a turn's result, from its end
	maxItems   = 16      // stored file changes
	maxPaths   = 1_000   // files of one change
	maxWaits   = 64      // requests without an answer
	maxCalls   = 1_000   // calls of a turn that were asked about, whose results are watched
	maxForm    = 8       // questions of a form; one with more is refused
	maxShown   = 1 << 20 // bytes of a tool's input; one that is larger cannot be shown whole and is refused
)
