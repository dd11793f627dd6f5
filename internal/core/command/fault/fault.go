// Package fault makes the errors of running an extension's action, each with its code,
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

// InvalidArgs states what is wrong with the arguments; usage becomes the hint.
func InvalidArgs(usage, format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeInvalidInput, op, format, args...).With("invalid_args", usage)
}

// UnsupportedRunner names the runner and the families there are.
func UnsupportedRunner(runner string, families []string) *capability.Error {
	return capability.Errorf(capability.CodeInvalidInput, op, "nothing here runs %q; what runs is %s", excerpt(runner, 100),
		strings.Join(families, ", ")).
		With("unsupported_runner", "correct the runner in the extension's commands.yaml").Detail("families", families)
}

// ToolNotFound names the tool that is not on this machine.
func ToolNotFound(tool string) *capability.Error {
	return capability.Errorf(capability.CodeUnavailable, op, "the tool %q is not installed on this machine", excerpt(tool, 100)).
		With("tool_not_found", "install the extension again, or run its install plan again").Detail("tool", tool)
}

// PermissionDenied names the permission and why it is not there.
func PermissionDenied(permission, why string) *capability.Error {
	return capability.Errorf(capability.CodeDenied, op, "the permission %s is missing: %s", permission, why).
		With("permission_denied", "an extension declares it in its manifest; what the deployment mode keeps, an administrator grants: junctor grants create --module ID --permission "+permission).Detail("permission", permission)
}

// SecurityViolation reports that policy forbids it, and nothing of the inside.
func SecurityViolation(what string) *capability.Error {
	return capability.Errorf(capability.CodeDenied, op, "the security policy forbids it: %s", what).
		With("security_violation", "check the command and its working directory")
}

// SandboxUnavailable names the tier that is wanted and the one there is.
func SandboxUnavailable(wanted, available string) *capability.Error {
	return capability.Errorf(capability.CodeUnavailable, op, "it needs sandbox tier %s; this machine has %s", wanted, available).
		With("sandbox_unavailable", "junctor sandbox status says what is missing").
		Detail("wanted", wanted).Detail("available", available)
}

// SandboxSetupFailed reports that the sandbox could not be built; the cause is for
// operators.
func SandboxSetupFailed(tier string, cause error) *capability.Error {
	return capability.Wrap(capability.CodeFailed, op, "the sandbox of tier "+tier+" could not be set up, so nothing was run", cause).
		With("sandbox_setup_failed", "junctor sandbox status says what is missing").Detail("wanted", tier)
}

// TimedOut says after how long it was ended.
func TimedOut(after time.Duration) *capability.Error {
	return capability.Errorf(capability.CodeTimeout, op, "it was ended after %g seconds", math.Round(after.Seconds()*10)/10).
		With("timeout", "raise the timeout, or ask for less")
}

// Cancelled reports that the one who asked, or a shutdown, ended it.
func Cancelled() *capability.Error {
	return capability.Errorf(capability.CodeCancelled, op, "it was cancelled")
}

// ResourceLimit names the limit and its value: "memory", "512 MiB".
func ResourceLimit(limit, value string) *capability.Error {
	return capability.Errorf(capability.CodeFailed, op, "it was ended at its limit of %s: %s", limit, value).
		With("resource_limit", "an operator can raise the extension's limits").Detail("limit", limit).Detail("value", value)
}

// OutputLimit names the bytes of output that were exceeded.
func OutputLimit(bytes int64) *capability.Error {
	return capability.Errorf(capability.CodeFailed, op, "it wrote more than the %d bytes it may", bytes).
		With("output_limit", "ask for less, or raise the limit of the action").Detail("value", bytes)
}

// ExecutionFailed names the exit code and the last line of what the tool said,
// which the caller has redacted; at most 500 characters of it are shown.
func ExecutionFailed(exit int, stderr string) *capability.Error {
	text := strings.TrimSpace(stderr)
	text = excerpt(text[strings.LastIndexByte(text, '\n')+1:], 500)
	if text != "" {
		text = ": " + text
	}
	return capability.Errorf(capability.CodeFailed, op, "the tool failed with exit code %d%s", exit, text).
		With("execution_failed", "").Detail("exit_code", exit)
}

// QueueFull reports that as many wait as may.
func QueueFull(length int, after time.Duration) *capability.Error {
	return overloaded("queue_full", "the queue is full", after).Detail("length", length)
}

func overloaded(reason, text string, after time.Duration) *capability.Error {
	err := capability.Errorf(capability.CodeOverloaded, op, "%s", text).With(reason, "try again in "+
		max(after.Round(time.Second), time.Second).String())
	err.RetryAfter = after
	return err
}

// Text is the error as chat shows it: message, blank line, hint. home is the
// directory that is shown as ~; "" leaves texts as they are.
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

// tilde replaces home where it is a whole beginning of a path: /home/al is not
// the beginning of /home/alice.
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

// Clean drops control characters and those that reorder text, which would let an
// extension's texts forge what the reader sees.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || bidi(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, s)
}

func bidi(r rune) bool {
	return 0x202A <= r && r <= 0x202E || 0x2066 <= r && r <= 0x2069 || r == 0x200E || r == 0x200F
}

// OneLine is Clean with every run of white space made one space.
func OneLine(s string) string { return text.OneLine(Clean(s)) }

func excerpt(s string, most int) string { return text.ShortenRunes(OneLine(s), most) }
