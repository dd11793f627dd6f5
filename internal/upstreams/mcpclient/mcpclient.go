// Package mcpclient is the client side of a connection to an MCP server of any protocol
// revision, over any transport: a process on stdin and stdout, streamable HTTP, or the
// HTTP+SSE of 2024-11-05. It detects the revision, initializes the session where the
// revision requires it, and sends calls.
//
//   - Parameters and results pass unchanged; only the members of the envelope are
//     decoded. Numbers beyond 2^53, unknown members and the order of keys survive.
//   - Progress, log messages and requests of the server reach only the call that they
//     belong to. Over HTTP the stream decides, elsewhere they are delivered only if
//     exactly one call is in flight.
//   - A call is sent again only if the server reports that it did not accept it, because
//     of an unknown session or an unsupported revision.
//   - Everything the server sends is bounded in size, count and time, so that a hostile
//     or silent server affects its own calls only.
//
// The package does not reconnect. The owner of the connection, which Config.Down
// notifies of a loss, decides when to connect again. Only a session that an HTTP server
// forgot is renewed here.
package mcpclient

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// The limits on what a server may cost.
const (
	connectTimeout = 10 * time.Second
	probeTimeout   = 2 * time.Second // of stdio: silence means legacy
	idleTimeout    = 60 * time.Second
	noteTimeout    = 2 * time.Second // a notification, or an answer to the server
	listTimeout    = 30 * time.Second
	maxAnswer      = 32 << 20
	maxLine        = 16 << 20
	maxRefusal     = 1 << 20 // the body of an HTTP error
	maxListPages   = 200
	maxListItems   = 5000
	maxListBytes   = 16 << 20
	maxRounds      = 8  // of questions in one call
	maxQuestions   = 16 // of one round, and open at a time on one connection
	maxNotices     = 64 // that wait for a slow caller
	maxNotice      = 256 << 10
	maxQuestion    = 1 << 20
	maxStderr      = 64 << 10
	maxGarbage     = 10 // lines in a row that are not messages
	maxWatched     = 1000
)

// Config describes one server and the callbacks of its owner. The callbacks are
// called from goroutines of the client and must not block or call Close.
type Config struct {
	Name string // the operator's name of the server: in errors and logs

	Command []string // stdio: the program and its arguments
	Dir     string   // its working directory
	Env     []string // its whole environment, KEY=VALUE; nothing is inherited

	URL string // HTTP; exactly one of Command and URL
	SSE bool   // URL uses the HTTP+SSE of 2024-11-05
	// HTTP is required with URL. It decides where may be dialled and whether a redirect
	// is followed, and must have no Timeout: streams stay open.
	HTTP *http.Client
	// Header returns credentials; it is asked for each request. nil: none.
	Header func(ctx context.Context) (http.Header, error)

	Roots    []string // absolute directories that roots/list is answered with
	Sampling bool     // whether sampling/createMessage may be passed on to who calls

	// Changed is called when a list changed, and that all four may have after a gap in the
	// server's notices or a new session.
	Changed func(List)
	// Updated receives resources that changed, of those subscribed to.
	Updated func(uri string)
	// Down is called when the connection was lost, or the process ended, by itself. All
	// calls of it have failed or will at once; Connect starts again.
	Down   func(err error)
	Logger *slog.Logger // nil: silent
}

// List names one of the lists of definitions.
type List string

// The lists, by the method that reads them.
const (
	Tools     List = "tools"
	Prompts   List = "prompts"
	Resources List = "resources"
	Templates List = "resources/templates"
)

// Lists returns all of them.
func Lists() []List { return []List{Tools, Prompts, Resources, Templates} }

func (l List) member() string {
	if l == Templates {
		return "resourceTemplates"
	}
	return string(l)
}

// Server is what the server said of itself. The texts are cut: names and the release at
// 256 bytes, the instructions at 8 KiB; they are a stranger's.
type Server struct {
	Version                            string // the revision spoken
	Name, Title, Release, Instructions string
	Capabilities                       json.RawMessage // an object, at most 64 KiB
}

// Modern reports whether the server uses a revision without sessions.
func (s Server) Modern() bool { return s.Version >= mcpwire.Version20260728 }

// Has reports whether the server declared a feature: "tools", "completions",
// "resources.subscribe", "tools.listChanged".
func (s Server) Has(feature string) bool {
	at := []byte(s.Capabilities)
	for name := range strings.SplitSeq(feature, ".") {
		at = member(at, name)
	}
	return len(at) > 0 && (at[0] == '{' || at[0] == 't')
}

// Page states how a list was read.
type Page struct {
	// Truncated names the bound that ended it early: "pages" (200), "items" (5,000),
	// "bytes" (16 MiB), "time" (30 s) or "cursor" (one came twice). What came before is
	// sound. "" is the whole list.
	Truncated string
	TTL       time.Duration // how long it holds, the shortest of its pages; 0: not said
}

// Request is one call.
type Request struct {
	Method  string          // "tools/call", "prompts/get", "resources/read", "completion/complete", …
	Params  json.RawMessage // an object as it goes out, without _meta; nil: {}
	Meta    json.RawMessage // an object whose members go into _meta; nil: none. The protocol's own are left out.
	Name    string          // for the header Mcp-Name: the tool, prompt or URI
	Headers http.Header     // Mcp-Param-* of this call, values in plain text; may be nil
	Idle    time.Duration   // the longest wait without progress; 0: 60 s. Time at questions does not count.
	// Progress receives progress, in order and increasing, and log lines of the server
	// (capability.StageLog); never after Call has returned. nil: none is asked for.
	Progress func(capability.Chunk)
	// Ask answers questions of the server while the call runs, Relay with the next
	// call; Relay counts where a server asks by ending the call.
	Ask   capability.Asker
	Relay *capability.Relay
}
