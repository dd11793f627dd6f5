// Package fault creates the errors of running an extension's action, each with its code,
// reason and details. Callers must not pass host paths, environment values or secrets,
// because users read these errors.
package fault

import (
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
)

const op = "command"

// InvalidArgs is the error for arguments that do not match; usage becomes the hint.
func InvalidArgs(usage, format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeInvalidInput, op, format, args...).With("invalid_args", usage)
}

// UnsupportedRunner is the error for an unknown runner; it lists the supported families.
func UnsupportedRunner(runner string, families []string) *capability.Error {
	return capability.Errorf(capability.CodeInvalidInput, op, "nothing here runs %q; what runs is %s", excerpt(runner, 100),
		strings.Join(families, ", ")).
		With("unsupported_runner", "correct the runner in the extension's commands.yaml").Detail("families", families)
}

// ToolNotFound is the error for a tool that is not installed on this machine.
func ToolNotFound(tool string) *capability.Error {
	return capability.Errorf(capability.CodeUnavailable, op, "the tool %q is not installed on this machine", excerpt(tool, 100)).
		With("tool_not_found", "install the extension again, or run its install plan again").Detail("tool", tool)
}

// PermissionDenied is the error for a missing permission; why is the reason.
func PermissionDenied(permission, why string) *capability.Error {
	return capability.Errorf(capability.CodeDenied, op, "the permission %s is missing: %s", permission, why).
		With("permission_denied", "an extension declares it in its manifest; what the deployment mode keeps, an administrator grants: junctor grants create --module ID --permission "+permission).Detail("permission", permission)
}

// SecurityViolation is the error for an attempt that security policy forbids. It does not reveal
// details.
func SecurityViolation(what string) *capability.Error {
	return capability.Errorf(capability.CodeDenied, op, "the security policy forbids it: %s", what).
		With("security_violation", "check the command and its working directory")
}

// SandboxUnavailable is the error for a required sandbox tier that this machine lacks.
func SandboxUnavailable(wanted, available string) *capability.Error {
	return capability.Errorf(capability.CodeUnavailable, op, "it needs sandbox tier %s; this machine has %s", wanted, available).
		With("sandbox_unavailable", "junctor debug sandbox status says what is missing").
		Detail("wanted", wanted).Detail("available", available)
}

// SandboxSetupFailed is the error for a sandbox that could not be set up. The cause is for
// operators.
func SandboxSetupFailed(tier string, cause error) *capability.Error {
	return capability.Wrap(capability.CodeFailed, op, "the sandbox of tier "+tier+" could not be set up, so nothing was run", cause).
		With("sandbox_setup_failed", "junctor debug sandbox status says what is missing").Detail("wanted", tier)
}

// TimedOut is the error for a program that was ended after a timeout.
func TimedOut(after time.Duration) *capability.Error {
	return capability.Errorf(capability.CodeTimeout, op, "it was ended after %g seconds", math.Round(after.Seconds()*10)/10).
		With("timeout", "raise the timeout, or ask for less")
}

// Cancelled is the error for a run that its caller or a shutdown ended.
func Cancelled() *capability.Error {
	return capability.Errorf(capability.CodeCancelled, op, "it was cancelled")
}

// ResourceLimit is the error for an exceeded limit, for example "memory" and "512 MiB".
func ResourceLimit(limit, value string) *capability.Error {
	return capability.Errorf(capability.CodeFailed, op, "it was ended at its limit of %s: %s", limit, value).
		With("resource_limit", "an operator can raise the extension's limits").Detail("limit", limit).Detail("value", value)
}

// OutputLimit is the error for a program with more output than bytes.
func OutputLimit(bytes int64) *capability.Error {
	return capability.Errorf(capability.CodeFailed, op, "it wrote more than the %d bytes it may", bytes).
		With("output_limit", "ask for less, or raise the limit of the action").Detail("value", bytes)
}

// ExecutionFailed is the error for a tool that failed. It contains the exit code and at most 500
// characters of the last line of stderr, which the caller must have redacted.
func ExecutionFailed(exit int, stderr string) *capability.Error {
	text := strings.TrimSpace(stderr)
	text = excerpt(text[strings.LastIndexByte(text, '\n')+1:], 500)
	if text != "" {
		text = ": " + text
	}
	return capability.Errorf(capability.CodeFailed, op, "the tool failed with exit code %d%s", exit, text).
		With("execution_failed", "").Detail("exit_code", exit)
}

// QueueFull is the error for a full queue of the given length; the caller may retry after a while.
func QueueFull(length int, after time.Duration) *capability.Error {
	return overloaded("queue_full", "the queue is full", after).Detail("length", length)
}

func overloaded(reason, text string, after time.Duration) *capability.Error {
	err := capability.Errorf(capability.CodeOverloaded, op, "%s", text).With(reason, "try again in "+
		max(after.Round(time.Second), time.Second).String())
	err.RetryAfter = after
	return err
}

// Text returns the text of an error for chat: message, blank line and hint. The directory home is
// replaced by ~ unless it is "".
func Text(err error, home string) string {
	e := capability.AsError(err)
	if e == nil {
		return ""
	}
	text := Clean(e.Message)
	if e.Hint != "" {
		text += "\n\nHint: " + Clean(e.Hint)
	}
	if home = strings.TrimRight(home, "/"); home != "" {
		text = tilde(text, home)
	}
	return text
}

// tilde replaces home by ~, except where it is only the beginning of a longer name: /home/al is
// not replaced in /home/alice.
func tilde(text, home string) string {
	var b strings.Builder
	for {
		i := strings.Index(text, home)
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(text[:i])
		text = text[i+len(home):]
		if text == "" || !strings.ContainsRune("._-", rune(text[0])) && !unicode.IsLetter(rune(text[0])) && !unicode.IsDigit(rune(text[0])) {
			b.WriteByte('~')
		} else {
			b.WriteString(home)
		}
	}
}

// Clean removes control characters except newline and tab, and characters that reorder text, with
// which an extension's text could deceive the reader.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, s)
}

// OneLine is like Clean and also replaces every run of white space by one space.
func OneLine(s string) string { return text.OneLine(Clean(s)) }

func excerpt(s string, most int) string { return text.ShortenRunes(OneLine(s), most) }
