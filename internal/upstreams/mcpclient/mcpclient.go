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
// The package does not reconnect. The owner of the connection, which Config.Down notifies of a
// loss, decides when to connect again. Only a session that an HTTP server forgot is renewed here.
package mcpclient

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// Config describes one server and the callbacks of its owner. The callbacks are
// called from goroutines of the client and must not block or call Close.
type Config struct {
	Name string // the operator's name of the server: in errors and logs

	Command []string // stdio: the program and its arguments
	Dir     string   // its working directory
	Env     []string // its whole environment, KEY=VALUE; nothing is inherited

	// Start starts Command with the three streams, which the client closes afterwards. If nil,
	// the client starts it itself, in Dir with Env and without confinement.
	Start func(stdin, stdout, stderr *os.File) (Process, error)

	// ConnectTimeout bounds one attempt to connect; 0 means 10 s.
	ConnectTimeout time.Duration

	// Errors receives the error output of a process besides Stderr, and Unreadable each line of its
	// output that is not a message; the slice is only valid during the call. Both may be nil.
	Errors     io.Writer
	Unreadable func(line []byte)

	URL string // HTTP; exactly one of Command and URL
	SSE bool   // URL uses the HTTP+SSE of 2024-11-05
	// HTTP is required with URL. It restricts the dialled addresses and redirects, and
	// must have no Timeout, because streams stay open.
	HTTP *http.Client
	// Header returns the credentials and is called for each request; it may be nil.
	Header func(ctx context.Context) (http.Header, error)

	Roots    []string // absolute directories in the response to roots/list
	Sampling bool     // whether sampling/createMessage is forwarded to callers

	// Changed is called when a list changed, and for all four lists after a gap in the
	// server's notifications or with a new session.
	Changed func(List)
	// Updated is called for each change of a resource that is subscribed to.
	Updated func(uri string)
	// Down is called when the connection was lost or the process ended without Close. Its
	// calls fail; Connect connects again.
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

// Server is what the server reported about itself. The texts are untrusted and cut: names
// and the release to 256 bytes, the instructions to 8 KiB.
type Server struct {
	Version                            string // the negotiated revision
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

// Page describes how a list was read.
type Page struct {
	// Truncated names the limit that ended it early: "pages" (200), "items" (5,000), "bytes" (16
	// MiB), "time" (30 s) or "cursor" (a repeated one). "" means that the list is complete.
	Truncated string
	TTL       time.Duration // the shortest TTL of its pages; 0 if the server sends none
}

// Request is one call.
type Request struct {
	Method  string          // "tools/call", "prompts/get", "resources/read", "completion/complete", …
	Params  json.RawMessage // an object as it goes out, without _meta; nil: {}
	Meta    json.RawMessage // an object whose members go into _meta; nil: none. The protocol's own are left out.
	Name    string          // for the header Mcp-Name: the tool, prompt or URI
	Headers http.Header     // Mcp-Param-* of this call, values in plain text; may be nil
	Idle    time.Duration   // the longest wait without progress; 0: 60 s. Time at questions does not count.
	// Progress receives increasing progress, and log lines of the server
	// (capability.StageLog), until Call returns. If nil, progress is not requested.
	Progress func(capability.Chunk)
	// Ask answers questions of the server while the call runs, Relay with the next call.
	// If both are set and the server asks by ending the call, Relay is used.
	Ask   capability.Asker
	Relay *capability.Relay
	// Task makes a task of the call at a legacy server, because the tool requires it, and waits for
	// the result.
	Task bool
}
