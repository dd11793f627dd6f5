package workspace

import "time"

const maxSourceAlternates = 16

// Limits of commit.go.
const (
	maxMessage = 64 << 10
	maxCommits = 2000 // in one push
)

// Bounds of a listing.
const (
	maxFiles   = 200
	maxDepth   = 5
	maxWalked  = 2000
	maxText    = 16 << 10 // bytes of each answer of git
	gitTimeout = 30 * time.Second
)

const maxTitle = 256 // characters

// Timeouts of commands.
const (
	queryTimeout = 10 * time.Second // for the default branch
	workTimeout  = 2 * time.Minute
	pushTimeout  = 10 * time.Minute
	cloneTimeout = 30 * time.Minute
)

const maxFile = 256 << 10 // bytes of one record

const maxMarked = 8 << 20 // bytes of a file that is searched for markers

const maxFindings = 20

const maxParents = 66 // of a merge that is searched; as many as the widest that is known

// Limits of scratch.go.
const (
	maxScratchSuffix = 1000
	maxSessionID     = 128 // bytes of a session's id
)

// Bounds of a setup and of copied files.
const (
	maxSetupFile   = 16 << 10
	maxSetupList   = 32
	maxSetupOutput = 8 << 10
	maxMinutes     = 60
	setupTimeout   = 10 * time.Minute

	maxCopied     = 1000
	maxCopiedFile = 10 << 20
	maxCopiedAll  = 64 << 20
)

const maxListed = 1000

const maxSubmodules = 64 // in one repository

const maxLabel = 200 // bytes

// maxBody bounds the text of a pull request.
const maxBody = 60 << 10

// maxNames bounds its labels, and its reviewers.
const maxNames = 50

// maxBranchName bounds the name of a branch.
const maxBranchName = 200

// maxScanned is the number of files or commits that one search for credentials has.
const maxScanned = 500

// Characters of the parts of the names of branches and kept folders.
const (
	maxExecutionSlug = 40
	maxRoleSlug      = 30
	maxBranchSlug    = 30
	maxKeptSlug      = 60
)
