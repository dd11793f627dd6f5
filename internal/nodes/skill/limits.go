package skill

import "time"

// AskTimeout limits how long a question waits for the owner; after it consent is denied.
const AskTimeout = 120 * time.Second

// Limits of skill.go.
const (
	// lockTimeout limits how long an install waits for another to end.
	lockTimeout = 10 * time.Second
	// MaxSkills limits the installed skills, maxLayers the payloads of one skill.
	MaxSkills = 256
	maxLayers = 16
)

// maxFile limits one file, in bytes: the payloads of all layers and the code fetched by reference.
const maxFile = 64 << 20

// maxAsked bounds the arguments, in bytes, of a call that the owner is asked about.
const maxAsked = 64 << 10

// maxCommits is the number of times that a change of the functions is tried beside others.
const maxCommits = 10
