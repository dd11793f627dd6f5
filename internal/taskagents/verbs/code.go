package verbs

import (
	"strings"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"

	"github.com/junctor-run/junctor/capability"
)

// Code is the stable error code of a verb.
type Code string

// The codes that verbs return. They are those of the API that agents of elizaOS use.
const (
	Forbidden                   Code = "FORBIDDEN"
	ServiceUnavailable          Code = "SERVICE_UNAVAILABLE"
	WorkspaceServiceUnavailable Code = "WORKSPACE_SERVICE_UNAVAILABLE"
	InvalidCredentials          Code = "INVALID_CREDENTIALS"
	AgentNotInstalled           Code = "AGENT_NOT_INSTALLED"
	TooManyAgents               Code = "TOO_MANY_AGENTS"
	WorkdirOutsideAllowed       Code = "WORKDIR_OUTSIDE_ALLOWED"
	OpenCodeNoProvider          Code = "OPENCODE_NO_PROVIDER"
	NoSession                   Code = "NO_SESSION"
	SessionNotFound             Code = "SESSION_NOT_FOUND"
	NoInput                     Code = "NO_INPUT"
	AgentBlocked                Code = "AGENT_BLOCKED"
	InvalidOperation            Code = "INVALID_OPERATION"
	ThreadNotFound              Code = "THREAD_NOT_FOUND"
	NoShareTarget               Code = "NO_SHARE_TARGET"
	MissingRepo                 Code = "MISSING_REPO"
	InvalidRepoDomain           Code = "INVALID_REPO_DOMAIN"
	MissingParent               Code = "MISSING_PARENT"
	NoWorkspace                 Code = "NO_WORKSPACE"
	WorkspaceNotFound           Code = "WORKSPACE_NOT_FOUND"
	FinalizeFailed              Code = "FINALIZE_FAILED"
	MissingTitle                Code = "MISSING_TITLE"
	MissingIssueNumber          Code = "MISSING_ISSUE_NUMBER"
	MissingParams               Code = "MISSING_PARAMS"
	UnknownOperation            Code = "UNKNOWN_OPERATION"
)

// general returns the capability.Code that corresponds to c.
func (c Code) general() capability.Code {
	switch c {
	case Forbidden, WorkdirOutsideAllowed:
		return capability.CodeDenied
	case ServiceUnavailable, WorkspaceServiceUnavailable, AgentNotInstalled, OpenCodeNoProvider:
		return capability.CodeUnavailable
	case NoSession, SessionNotFound, ThreadNotFound, NoShareTarget, NoWorkspace, WorkspaceNotFound:
		return capability.CodeNotFound
	case AgentBlocked:
		return capability.CodeConflict
	case FinalizeFailed, InvalidCredentials:
		return capability.CodeFailed
	}
	return capability.CodeInvalidInput
}

// Errorf returns an error with code c; its reason is c in lower case.
func (c Code) Errorf(format string, args ...any) *capability.Error {
	return capability.Errorf(c.general(), "tasks", format, args...).With(strings.ToLower(string(c)), "")
}

// CodeOf converts an error to a Code: by a fixed mapping, otherwise its reason, or if it has
// none its code, in upper case.
func CodeOf(err error) Code {
	e := capability.AsError(err)
	switch e.Reason {
	case programs.ReasonUnknownAgent:
		return AgentNotInstalled
	case sessions.ReasonEnded:
		return SessionNotFound
	case forge.ReasonInvalidRepo:
		return InvalidRepoDomain
	case "":
		switch e.Code {
		case capability.CodeUnavailable:
			return ServiceUnavailable
		case capability.CodeDenied:
			return Forbidden
		}
		return Code(strings.ToUpper(string(e.Code)))
	}
	return Code(strings.ToUpper(e.Reason))
}

// Fail returns the result of a failed verb, and an error whose details hold the verb's code
// and data for callers that handle only errors.
func Fail(err error, data any) (Result, error) {
	e := *capability.AsError(err)
	r := Result{Text: e.Message, Error: CodeOf(err), Data: data}
	if e.Hint != "" {
		r.Text += ". " + strings.ToUpper(e.Hint[:1]) + e.Hint[1:]
	}
	details := map[string]any{"error": r.Error}
	for key, value := range e.Details {
		details[key] = value
	}
	if data != nil {
		details["data"] = data
	}
	e.Details = details
	return r, &e
}
