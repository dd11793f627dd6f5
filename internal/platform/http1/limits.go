package http1

// Limits of http1.go.
const (
	// maxBody is the maximum request body, which is written before the response is read. With
	// more, a server that responds without reading could block both sides.
	maxBody    = 32 << 10
	maxInterim = 5 // responses of status 1xx before the final one
	maxIdle    = 256
)
