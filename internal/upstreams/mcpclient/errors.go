package mcpclient

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
)

// The reasons of the errors of this package.
const (
	reasonConnection   = "connection_failed"
	reasonUpstream     = "upstream_error"
	reasonParams       = "upstream_invalid_params"
	reasonVersion      = "unsupported_version"
	reasonIdle         = "idle_timeout"
	reasonUpstreamBusy = "upstream_overloaded"
)

// ReasonCredentials is the reason of the error for a server that does not accept our credentials.
const ReasonCredentials = "unauthenticated"

// ReasonProgramMissing is the reason of the error for a program that is not on this machine.
const ReasonProgramMissing = "program_missing"

const op = "mcp.call"

// errClosing ends the exchanges that are in flight when the client closes. Like after any
// other loss, the caller cannot know whether its request was processed.
var errClosing = errors.New("the connection was closed")

// errEnded and errGarbage are the failures of a process that the client started.
var (
	errEnded   = errors.New("the process ended")
	errGarbage = errors.New("lines in a row were no messages")
)

// errClosed returns the error of a request after Close, which was not sent.
func (c *Client) errClosed() *capability.Error {
	return capability.Errorf(capability.CodeUnavailable, op, "the connection to %s was closed", c.cfg.Name).With(reasonConnection, "")
}

// ended returns the error of a context that ended.
func (c *Client) ended(ctx context.Context) *capability.Error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return capability.Wrap(capability.CodeTimeout, op, "the deadline passed before "+c.cfg.Name+" answered", context.Cause(ctx))
	}
	return capability.Wrap(capability.CodeCancelled, op, "the request to "+c.cfg.Name+" was cancelled", context.Cause(ctx))
}

// unreachable returns the error of a failed attempt to connect.
func (c *Client) unreachable(err error) error {
	if e, ok := errors.AsType[*capability.Error](err); ok {
		if e.Code == capability.CodeFailed || e.Code == capability.CodeInvalidInput {
			e.Code = capability.CodeUnavailable // no request was sent
		}
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return capability.Wrap(capability.CodeUnavailable, "mcp.connect",
			fmt.Sprintf("%s did not answer within %s", c.cfg.Name, c.cfg.ConnectTimeout), err).With(reasonConnection, "")
	}
	text, hint := c.whyUnreachable(err)
	reason := reasonConnection
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		reason = ReasonProgramMissing
	}
	return capability.Wrap(capability.CodeUnavailable, "mcp.connect", text, err).With(reason, hint)
}

// whyUnreachable returns the cause of a failed connection and a hint, for people who do
// not have the code.
func (c *Client) whyUnreachable(err error) (text, hint string) {
	name := c.cfg.Name
	var unknown *net.DNSError
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return c.whyMissing(err)
	case errors.Is(err, fs.ErrPermission):
		return "the program of " + name + " may not be run", "make it executable for the user that the server runs as"
	case errors.Is(err, errEnded):
		return "the program of " + name + " ended without having spoken MCP",
			"run the command in a terminal: an MCP server waits for input and prints nothing else"
	case errors.Is(err, errGarbage):
		return "the program of " + name + " prints something else than MCP",
			"run the command in a terminal: an MCP server waits for input and prints nothing else"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens at the address of " + name, "check the URL, and that its server runs"
	case errors.As(err, &unknown):
		return "the host of " + name + " cannot be found", "check the URL and the network"
	}
	return "no connection to " + name + " could be made", "check the URL or the command, and that its server runs"
}

// whyMissing explains that the program, or what it needs to start, does not exist.
func (c *Client) whyMissing(cause error) (text, hint string) {
	if len(c.cfg.Command) == 0 {
		return "a file that the connection to " + c.cfg.Name + " needs does not exist", ""
	}
	if at, ok := errors.AsType[*fs.PathError](cause); ok && at.Op == "chdir" {
		return "the folder that " + c.cfg.Name + " works in does not exist", "create it, or add the server with another --dir"
	}
	program := cut(filepath.Base(c.cfg.Command[0]), 256) // callers do not see folders of this machine
	path := c.cfg.Command[0]
	if filepath.Base(path) != path && !filepath.IsAbs(path) {
		path = filepath.Join(c.cfg.Dir, path)
	}
	if _, err := exec.LookPath(path); err == nil {
		return fmt.Sprintf("%s of %s cannot start, because the interpreter or loader that it names is not there", program, c.cfg.Name),
			"install what its first line names; a confined program sees only the system, and what --ro and --rw name"
	}
	return fmt.Sprintf("the program %s of %s is not on this machine", program, c.cfg.Name),
		"install it where the PATH of the server leads, or give its absolute path"
}

// broken returns the error of a call whose connection failed: failed if the request was
// sent, else unavailable.
func (c *Client) broken(err error, sent bool) error {
	if e, ok := errors.AsType[*capability.Error](err); ok {
		return e
	}
	if !sent {
		return c.unreachable(err)
	}
	return capability.Wrap(capability.CodeFailed, op, "the connection to "+c.cfg.Name+" was lost before it answered", err).
		With(reasonConnection, "the call may have been carried out; look before you repeat it")
}

// failure returns the error of an answer without a result.
func (c *Client) failure(a answer, sent bool) error {
	switch {
	case a.err != nil:
		return c.broken(a.err, sent)
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden, a.status == http.StatusProxyAuthRequired:
		return capability.Errorf(capability.CodeUnavailable, op, "%s does not accept our credentials (HTTP %d)", c.cfg.Name, a.status).
			With(ReasonCredentials, "an operator must renew the credentials of this upstream")
	case a.status == http.StatusTooManyRequests:
		e := capability.Errorf(capability.CodeOverloaded, op, "%s takes no more requests for now", c.cfg.Name).With(reasonUpstreamBusy,
			"try again later")
		e.RetryAfter = a.wait
		return e
	case a.fault != nil:
		return c.answered(a.fault)
	case a.status == http.StatusServiceUnavailable:
		e := capability.Errorf(capability.CodeUnavailable, op, "%s is not available (HTTP 503)", c.cfg.Name).With(reasonConnection,
			"try again later")
		e.RetryAfter = a.wait
		return e
	}
	return capability.Errorf(capability.CodeFailed, op, "%s answered HTTP %d", c.cfg.Name, a.status).With(reasonUpstream,
		"check that its URL is that of an MCP server").Detail("status", a.status)
}

// answered returns the error for a JSON-RPC error of the server.
func (c *Client) answered(f *fault) error {
	text := cut(f.message, 512)
	if text == "" {
		text = "an error without a message"
	}
	code, reason := capability.CodeFailed, reasonUpstream
	if f.code == jsonrpc.CodeInvalidParams {
		code, reason = capability.CodeInvalidInput, reasonParams
	}
	e := capability.Errorf(code, op, "%s answered: %s", c.cfg.Name, text).With(reason, "").Detail("code", f.code)
	if len(f.data) > 0 && len(f.data) <= 16<<10 { // it may name what the caller has to declare or open
		e = e.Detail("data", f.data)
	}
	return e
}

// nonsense returns the error for an answer that violates the protocol.
func (c *Client) nonsense(format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeFailed, op, "%s %s", c.cfg.Name, fmt.Sprintf(format, args...)).With(reasonUpstream, "")
}

func (c *Client) tooLarge(limit int) *capability.Error {
	return capability.Errorf(capability.CodeTooLarge, op, "%s answered with more than %d MiB", c.cfg.Name, limit>>20)
}

// noCredentials returns the error for credentials that could not be obtained: err itself
// if it is a *capability.Error, because it is the most precise.
func (c *Client) noCredentials(err error) error {
	if e, ok := errors.AsType[*capability.Error](err); ok {
		return e
	}
	return capability.Wrap(capability.CodeUnavailable, op, "the credentials for "+c.cfg.Name+" could not be had", err).With(ReasonCredentials,
		"")
}

func (c *Client) askedTooMuch(limit int) error {
	return capability.Errorf(capability.CodeTooLarge, op, "a request to %s may have %d MiB at most", c.cfg.Name, limit>>20)
}
