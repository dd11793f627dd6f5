package command

// Limits of one message that is a command.
const (
	MaxMessage = 64 << 10 // bytes
	MaxTokens  = 512
	MaxToken   = 32 << 10 // bytes
)

// maxTyped is the maximum length of a declared name in bytes. A name that was made longer,
// because several extensions declare it, may have maxName bytes and is a command only if it
// is registered.
const (
	maxTyped     = 32
	maxName      = 300
	maxExtension = 128
)

// maxNear is the maximum number of suggestions, maxSlips the maximum edit distance of one.
const (
	maxNear  = 3
	maxSlips = 2
)

// Bounds of a table's declarations.
const (
	maxActions = 256 // of a command
	maxParams  = 64  // args, and flags, of an action
	maxPattern = 1024
)

// Limits of templates and of the arguments made from them.
const (
	MaxArgvWord      = 128<<10 - 1 // bytes of one word, the limit of Linux
	MaxArgv          = 1 << 20     // bytes of all words with their terminators
	maxTemplateItems = 256         // of a template
)

const maxToolName = 64

// maxWord is the length of a word up to which similar words are looked for.
const maxWord = 64
