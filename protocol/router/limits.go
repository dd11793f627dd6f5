package router

import "time"

// Defaults of [ClientConfig].
const (
	DefaultTimeout     = 60 * time.Second
	DefaultMaxResponse = 32 << 20

	// defaultPTYTimeout is how long an endpoint may run a command without timeout; ptyGrace is
	// added for the transfer.
	defaultPTYTimeout = 300 * time.Second
	ptyGrace          = 5 * time.Second
)

// idleTimeout is how long an idle connection is kept. Many servers, such as those of Node.js, close one after five
// seconds, and a request that arrives then fails without a trace of whether it was carried out.
const idleTimeout = 4 * time.Second

// Bounds of an endpoint's error, which is sent to callers and logged. Larger details are left
// out.
const (
	maxMessage = 8 << 10
	maxName    = 512
	maxDetails = 256 << 10
)

// maxRetryAfter is the longest delay in milliseconds that an endpoint may request, one day.
const maxRetryAfter = 24 * 3600 * 1000

// Limits of handler.go.
const (
	// DefaultMaxBody is the default limit of a request body in bytes.
	DefaultMaxBody = 4 << 20
	// DefaultBodyTimeout is the default time for receiving a request body.
	DefaultBodyTimeout = 30 * time.Second
)

// maxNesting bounds the recursion of the scanner. Normal documents have at most a few dozen levels.
const maxNesting = 1000

// maxFields bounds the members of one shape, so that their values fit into an array on the stack.
const maxFields = 32

// Limits bounds a manifest. A zero member means the default, a negative one no limit.
type Limits struct {
	ManifestBytes int // of one plugin.modules.list result
	Modules       int
	Items         int // of any list inside a module
	Depth         int // nesting of one module
}

// DefaultLimits returns the default limits of manifests.
func DefaultLimits() Limits {
	return Limits{ManifestBytes: 4 << 20, Modules: 256, Items: 1024, Depth: 64}
}

func (l Limits) orDefault() Limits {
	def := DefaultLimits()
	for _, p := range []struct{ v, d *int }{
		{&l.ManifestBytes, &def.ManifestBytes}, {&l.Modules, &def.Modules}, {&l.Items, &def.Items}, {&l.Depth, &def.Depth},
	} {
		if *p.v == 0 {
			*p.v = *p.d
		}
	}
	return l
}

// maxErrorBody is what is kept of the body of a response that is an error.
const maxErrorBody = 2048
