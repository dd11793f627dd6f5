package githubforge

// Limits of githubforge.go.
const (
	// maxAnswer limits one answer; a hundred issues of maximal size have half of it.
	maxAnswer = 16 << 20
	maxLogs   = 8 // of failed jobs in one answer
)

// Limits of issues.go.
const (
	defaultIssues = 30
	maxPages      = 5 // pages of a list, which also contains pull requests
)
