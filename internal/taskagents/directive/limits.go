package directive

// Limits of an answer.
const (
	MaxResponse = 16_000 // characters
	MaxKeys     = 32
	maxWork     = 8 << 20 // total bytes that are searched for objects in a text
)

// Limits of a session.
const (
	MaxPosted = 100   // decisions of one session by Post
	maxSeen   = 1_000 // decisions of a session in all
)

// Limits of texts and decisions.
const (
	MaxText   = 1 << 20 // bytes of a turn's text that are read, from its end
	MaxShared = 240     // characters of a shared decision and of a key decision
	MaxStored = 2_000   // characters of a stored decision
	MaxTurn   = 20      // decisions of one turn
)

// Limits of a proof.
const (
	MaxProofFiles = 2_000
	maxProof      = 256 << 10 // bytes
)

// Limits of the calls of skills.
const (
	MaxSkillCalls  = 10     // calls of one task
	MaxSkillResult = 1_500  // characters of a result
	maxSkillInput  = 65_536 // bytes
)
