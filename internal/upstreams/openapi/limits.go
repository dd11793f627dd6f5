package openapi

// Limits of call.go.
const (
	maxAnswer = 8 << 20 // bytes of the body of an answer
	maxFailed = 4 << 10 // bytes of it that are shown if the status is an error
)

// Limits of document.go.
const (
	maxDocument   = 16 << 20 // bytes
	maxOperations = 5000
	maxName       = 48       // of a tool; longer ones end with a digest
	maxTools      = 64 << 20 // bytes of all definitions
)

// Limits of graphql.go.
const (
	maxFields   = 200 // of one selection
	maxSelected = 4   // levels of one selection
	maxLooked   = 500 // fields of one type that are looked at
	maxInputs   = 100 // input types of one tool
)

// Limits of schema.go.
const (
	maxSchema = 40 << 10 // bytes of the schema of an input; larger ones lose what components describe
	maxNested = 40
)
