package policy

import "time"

// Limits of approval.go.
const (
	operatorApprovalTTL = 24 * time.Hour   // an operator approval stays open
	clientApprovalTTL   = 2 * time.Minute  // the caller answers soon or has disconnected
	onceTTL             = 15 * time.Minute // an approved once may be used
	timedGrantTTL       = time.Hour
	maxOpenApprovals    = 32 // of one principal
	// expireInterval is how often Run ends the approvals that are overdue.
	expireInterval = 5 * time.Second
)

// maxOpenBlockers is the maximum number of open approvals of one kind that the programs of one principal
// wait for. The number of sessions, each of which waits for one, is usually smaller.
const maxOpenBlockers = 256

// MaxLimit is the largest limit of calls.
const MaxLimit = 1_000_000

// decidedPollInterval is how often a waiting caller reads an approval that another server of the
// same store may have decided.
const decidedPollInterval = 5 * time.Second

// maxRecentApprovals is the number of approvals in each state that are searched for a call.
const maxRecentApprovals = 1000

const maxPersonName = 40 // bytes of a name before its identity

const maxVerdicts = 100_000

// Limits of shown.go.
const (
	maxShown      = 1024 // values that an approver is shown
	maxShownDepth = 6    // of objects and arrays whose members are shown one by one
	maxShownList  = 16   // elements of an array that are shown one by one
	maxShownName  = 256  // bytes
	maxShownValue = 200  // bytes, fewer if there are many values
	minShownValue = 48
	maxShownBytes = 4096 // of all values, unless that leaves less than minShownValue for each
)

// Limits of token.go.
const (
	maxLabels     = 64 // of a token
	maxLabelBytes = 256
	// maxActionsNamed is the number of actions that an error names.
	maxActionsNamed = 20
)
