package main

import "time"

// Limits of agent.go.
const (
	// maxRecording bounds the file of one recording.
	maxRecording = 64 << 20
	// stopTimeout bounds the request that stops the agent when the user leaves.
	stopTimeout = 5 * time.Second
)

// Limits of approvalswatch.go.
const (
	// approvalPollInterval is the time between two requests for the pending approvals if the
	// feed reports nothing. Approvals that another server of a shared store requests are not
	// in the feed.
	approvalPollInterval = 15 * time.Second
	// feedRetryDelay is the pause before the feed is read again after it ended.
	feedRetryDelay = time.Second
)

// Limits of attach.go.
const (
	renewControlInterval = 45 * time.Second // control ends after a minute without a key
	attachWriteTimeout   = 10 * time.Second
)

// maxDeciders bounds the approvals that one list reads.
const maxDeciders = 100

// maxCompact is the longest JSON document in bytes that is printed on one line.
const maxCompact = minWidth

// Limits of board.go.
const (
	maxBoardTasks     = 200
	boardReloadDelay  = 100 * time.Millisecond // between two reads while many events arrive
	boardReadTimeout  = 20 * time.Second
	boardWriteTimeout = 2 * time.Minute // of a merge
)

const maxBoardLine = 4000 // characters of a typed line

// Limits of boardview.go.
const (
	maxPreview   = 9 // lines about the selected task
	minPreviewAt = 14
)

// maxScenarioFile is the maximal number of bytes of a scenario file.
const maxScenarioFile = 64 << 20

// maxLock bounds what is read of the lock of a home, which has a process id.
const maxLock = 64

// maxLine is the maximal number of bytes of a line of chat.
const maxLine = 256 << 10

// Limits of child.go.
const (
	hookTimeout  = 58 * time.Second // programs limit their hooks to a minute
	childTimeout = 10 * time.Second
)

// maxSuggestions bounds the commands that an error suggests.
const maxSuggestions = 3

// completionTimeout bounds the request of one completion, because a user waits for it at the prompt.
const completionTimeout = 2 * time.Second

// healthTimeout limits the request of the command health.
const healthTimeout = 5 * time.Second

// maxInput is the largest input that the server accepts by default.
const maxInput = 4 << 20

// Limits of login.go.
const (
	loginMaxTimeout = time.Hour // whatever the server allows
	askInterval     = time.Second
)

// maxImportFile is the largest file that is sent to the server.
const maxImportFile = 16 << 20

// maxRouteAnswer is the largest answer of a module's route that is printed.
const maxRouteAnswer = 32 << 20

// Limits of service.go.
const (
	// serviceTimeout bounds one command of systemd.
	serviceTimeout = 30 * time.Second
	// serviceStartInterval is the pause between two looks whether the service's server answers.
	serviceStartInterval = 100 * time.Millisecond
)

// Limits of setup.go.
const (
	// verifyTimeout bounds the check of a client's entry.
	verifyTimeout = 30 * time.Second
)

// minWidth is the width in columns that each list fits.
const minWidth = 80

// Limits of taskshown.go.
const (
	maxShown     = 200     // threads whose last shown commit is stored
	maxShownFile = 1 << 20 // bytes
)

const maxTemplate = 64 << 10

const pollInterval = 500 * time.Millisecond

const loginTimeout = 5 * time.Minute

// logPollInterval is the time between two requests for further lines of a log.
const logPollInterval = time.Second

// Limits of upstreamstools.go.
const (
	// maxToolsShown is the number of tools that are printed after an upstream was added.
	maxToolsShown = 60
	// progressInterval is the time between two updates of a line at the terminal.
	progressInterval = time.Second
)

// Limits of setupstart.go.
const (
	// startTimeout bounds the start of a server in the background.
	startTimeout = 30 * time.Second
	// serverStopTimeout bounds its end; it waits for the programs of MCP servers.
	serverStopTimeout = 30 * time.Second
	// probeTimeout bounds the question whether a server runs already.
	probeTimeout = 5 * time.Second
	// maxStartFault bounds what an error shows of the server's log.
	maxStartFault = 1024
	// minColumn is the width that a column of a table keeps on a narrow terminal.
	minColumn = 6
)

// maxAttachMessage bounds one message of an attached terminal, in bytes.
const maxAttachMessage = 64 << 20

// maxChildBody bounds, in bytes, what `junctor child` reads from its input and from the server.
const maxChildBody = 1 << 20
