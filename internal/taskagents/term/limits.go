package term

// maxParams is the number of parameters of a sequence that are read; others are ignored. It is the
// number of bits in parser.colon.
const maxParams = 32

// Limits of term.go.
const (
	// MaxSize is the maximal number of columns and rows; larger values are reduced to it.
	MaxSize = 1000
	// MaxScrollback is the maximal number of scrollback lines; the latest are kept.
	MaxScrollback = 2000
	// MaxSequence is the maximal number of bytes of an operating system command; longer ones are
	// ignored, because a part of one could be misinterpreted.
	MaxSequence = 4096
	// MaxTitle is the maximal number of bytes of the window title.
	MaxTitle = 512
	// MaxMarks is the maximal number of bytes of a cell after its first character.
	MaxMarks = 48

	maxMode = 4096 // higher private modes are ignored, because none are defined
)
