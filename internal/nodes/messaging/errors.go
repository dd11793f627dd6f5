package messaging

import (
	"errors"

	"github.com/junctor-run/junctor/capability"
)

// Reasons of the errors of a bus.
const (
	ReasonNoResponders  = "no_responders"
	ReasonSubjectDenied = "subject_denied"
	ReasonDisconnected  = "bus_disconnected"
	ReasonClosed        = "bus_closed"
	ReasonLost          = "messages_lost"
	ReasonTooLarge      = "payload_too_large"
	ReasonSubscriptions = "too_many_subscriptions"
	ReasonRefused       = "session_refused"
	ReasonRevision      = "revision_mismatch"
)

// Is reports whether err is a bus error of that reason.
func Is(err error, reason string) bool {
	e, ok := errors.AsType[*capability.Error](err)
	return ok && e.Reason == reason
}

// ErrNoResponders is returned if the subject of a request has no subscriber.
func ErrNoResponders(subject string) error {
	return capability.Errorf(capability.CodeUnavailable, "bus.request", "no subscriber answers on %s", subject).With(ReasonNoResponders, "")
}

// ErrDenied is returned if a session may not use a subject; verb is publish or subscribe.
func ErrDenied(verb, subject string) error {
	return capability.Errorf(capability.CodeDenied, "bus."+verb, "this session may not %s to %s", verb, subject).
		With(ReasonSubjectDenied, "sessions may use their own subjects only")
}

// ErrDisconnected means that the session is broken right now.
func ErrDisconnected(op string) error {
	return capability.Errorf(capability.CodeUnavailable, "bus."+op, "there is no connection to the message bus").
		With(ReasonDisconnected, "it is tried again; nothing was sent")
}

// ErrBroken means that the session broke while a request waited for its answer.
func ErrBroken(subject string) error {
	return capability.Errorf(capability.CodeFailed, "bus.request", "the connection to the message bus broke before an answer came on %s",
		subject).
		With(ReasonDisconnected, "it may have been carried out")
}

// ErrClosed means that the session, subscription or broker has been closed.
func ErrClosed(op string) error {
	return capability.Errorf(capability.CodeUnavailable, "bus."+op, "the session with the message bus is closed").With(ReasonClosed, "")
}

// ErrLost means that a subscription dropped n messages because they were not read in time.
func ErrLost(pattern string, n int) error {
	return capability.Errorf(capability.CodeOverloaded, "bus.next", "%d messages on %s were dropped because they were not read in time", n,
		pattern).
		With(ReasonLost, "").Detail("lost", n)
}

// ErrRefused means that the bus did not admit a session.
func ErrRefused(cause error) error {
	return capability.Wrap(capability.CodeUnauthenticated, "bus.connect", "the message bus does not accept this credential", cause).
		With(ReasonRefused, "ask for a new node token, or check that the node's key was not revoked")
}

// ErrSubscriptions means that a session has reached its limit of subscriptions.
func ErrSubscriptions(limit int) error {
	return capability.Errorf(capability.CodeOverloaded, "bus.subscribe", "a session may have at most %d subscriptions",
		limit).With(ReasonSubscriptions, "")
}

// ErrKeyAbsent means that a bucket has no such key.
func ErrKeyAbsent(key string) error {
	return capability.Errorf(capability.CodeNotFound, "bus.bucket", "there is no entry %s", key)
}

// ErrRevision means that an entry has another revision than the writer expected.
func ErrRevision(key string) error {
	return capability.Errorf(capability.CodeConflict, "bus.bucket", "the entry %s was changed by another writer", key).
		With(ReasonRevision, "read it again and decide again")
}
