package eliza

// Limits of one turn.
const (
	maxItems      = 32 // also of handlers, evaluators and providers
	maxSchema     = 8 << 10
	maxText       = 2 << 10 // of a description or a prompt
	maxListed     = 32      // elements of a list of a plan
	maxContexts   = 256     // of all modules
	maxName       = 100
	maxReply      = 16 << 10
	maxTrace      = 64 // lines
	maxTraceLine  = 300
	defaultWeight = 100 // priority of an item that states none
)

// maxPrepared bounds what an evaluator prepared, in the prompt.
const maxPrepared = 8 << 10
