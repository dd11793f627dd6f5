package preflight

const (
	maxAnswer = 64 << 10 // bytes of a program's answer
	maxCopy   = 16 << 20 // bytes of a file of the user's home that a program gets a copy of
)
