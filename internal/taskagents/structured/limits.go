package structured

import "time"

// maxFile is the maximal number of bytes of a file that is read or written for a program.
const maxFile = 4 << 20

// The bounds of a session, beside those of package sessions.
const (
	maxLine          = 8 << 20          // bytes of a message
	maxGarbage       = 50               // lines in a row that are not messages
	maxAnswer        = 1 << 20          // bytes of a response of a program's server
	maxHeader        = 16 << 10         // bytes of its headers, and of lines before its address
	maxUnsent        = 8 << 20          // bytes that wait for a program that reads nothing
	maxOpen          = 32               // questions and files that wait at once
	maxDenied        = 1_000            // refused tool calls of a turn
	maxStderr        = 64 << 10         // stored bytes of its standard error
	handshakeTimeout = time.Minute      // for the conversation to start
	acceptTimeout    = 30 * time.Second // for the program to accept a text
	answerTimeout    = 30 * time.Second // for a program's server to answer a request
	silenceTimeout   = time.Minute      // without an event or heartbeat of that server
	interruptTimeout = 10 * time.Second // for an interrupted turn to end
	judgeTimeout     = time.Minute      // for a decision about a permission; then the user is asked
	stopGrace        = 5 * time.Second
	wedgedTimeout    = 5 * time.Minute // without a message while it works
	quietTimeout     = time.Minute
	lookInterval     = 5 * time.Second
)

// The bounds of the stored text of a conversation.
const (
	maxLines     = 1_000
	maxShown     = 100_000 // bytes
	maxShownLine = 4_096   // bytes; a longer line is split
	shownLines   = 20      // lines in the report of a failure
)
