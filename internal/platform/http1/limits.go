package http1

import "time"

// Limits of http1.go.
const (
	// maxBody is the maximum request body, which is written before the response is read. With
	// more, a server that responds without reading could block both sides.
	maxBody = 32 << 10
	// reuseTimeout is how long an idle connection may be used again. Many servers, such as those of Node.js and
	// uvicorn, close one after five seconds, and a request that arrives then fails without a trace of whether it
	// was carried out.
	reuseTimeout = 4 * time.Second

	maxInterim = 5 // responses of status 1xx before the final one
	maxIdle    = 256
)
