package routerserve

// Limits of own.go.
const (
	// maxOwnActions is the number of actions of one such module, because readers bound the items of
	// a list: more are in further modules, whose ids end in ownPart and a number.
	maxOwnActions = 1000
	maxOwnText    = 16 << 10 // bytes of a result's text
)
