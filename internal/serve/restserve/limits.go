package restserve

// maxApprovals is the number of approvals on one page.
const maxApprovals = 500

// Limits of audit.go.
const (
	// MaxRecords is the largest page of a query; before selects the next page.
	MaxRecords = 10_000
	// MaxUsage is the largest number of groups in an answer.
	MaxUsage = 1000
)

// maxPage is the largest number of items on one page of a catalog.
const maxPage = 10_000

// Limits of policy.go.
const (
	// maxPolicyBytes bounds the text of one policy file in a request.
	maxPolicyBytes = 1 << 20
	// maxTools is the largest page of GET /api/v1/tools.
	maxTools = 1000
)
