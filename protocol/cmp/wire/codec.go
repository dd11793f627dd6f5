package wire

import (
	"bytes"
	"math"
	"regexp"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// message is implemented by all messages. check checks their bounds.
type message[T any] interface {
	*T
	check() error
}

// Decode decodes a message and checks its bounds. Errors: bad_encoding and payload_too_large.
func Decode[T any, M message[T]](data []byte) (*T, error) {
	if len(data) > MaxInline {
		return nil, cmp.Errorf(cmp.ReasonTooLarge, "the message has %d bytes; the limit is %d", len(data), MaxInline)
	}
	data = bytes.TrimSpace(data)
	if len(data) == 0 || data[0] != '{' {
		return nil, wrong("a message must be an object")
	}
	if err := cmp.CheckJSON(data); err != nil {
		return nil, err
	}
	m := M(new(T))
	if err := jsonx.Unmarshal(data, m); err != nil {
		return nil, wrong("the message: %w", err)
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

// Encode encodes a message and checks that [Decode] accepts it. A message that is too large is
// payload_too_large; its content must be sent as an asset.
func Encode[T any, M message[T]](m M) ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	data, err := jsonx.Marshal(m)
	if err != nil {
		return nil, wrong("the message: %w", err)
	}
	if len(data) > MaxInline {
		return nil, cmp.Errorf(cmp.ReasonTooLarge, "the message has %d bytes; the limit is %d", len(data), MaxInline)
	}
	return data, nil
}

func wrong(format string, args ...any) error { return cmp.Errorf(cmp.ReasonEncoding, format, args...) }

// texts checks the length of free texts.
func texts(of ...string) error {
	for _, s := range of {
		if len(s) > maxText {
			return wrong("a text of the message has %d bytes; the limit is %d", len(s), maxText)
		}
	}
	return nil
}

func (j *Join) check() error {
	if j.Proto != Proto {
		return wrong("the protocol version %d is not spoken here; it is %d", j.Proto, Proto)
	}
	if err := cmp.CheckNode(j.NodeID); err != nil {
		return err
	}
	if j.Instance == "" || len(j.Instance) > cmp.MaxName {
		return wrong("the instance must be 1 to %d bytes", cmp.MaxName)
	}
	if err := texts(j.Software.Name, j.Software.Version, j.OS, j.Arch, j.Location); err != nil {
		return err
	}
	if j.MaxConcurrent < 0 {
		return wrong("max_concurrent must not be negative")
	}
	if len(j.HostStatus) > 0 && j.HostStatus[0] != '{' {
		return wrong("host_status must be an object")
	}
	return offered(&j.Labels, j.Functions)
}

// offered checks the labels and functions of a node and normalizes the labels.
func offered(labels *[]string, functions []cmp.Function) (err error) {
	if *labels, err = cmp.Labels(*labels); err != nil {
		return err
	}
	if len(functions) > MaxFunctions {
		return cmp.Errorf(cmp.ReasonTooLarge, "the node has %d functions; the limit is %d", len(functions), MaxFunctions)
	}
	seen := make(map[string]bool, len(functions))
	for i := range functions {
		f := &functions[i]
		switch err := cmp.CheckFunction(f.Name); {
		case err != nil:
			return err
		case seen[f.Name]:
			return wrong("the function %s is there twice", f.Name)
		case len(f.Tags) > MaxFunctions || f.MaxConcurrent < 0 || len(f.Description) > 4*maxText:
			return wrong("the function %s has more than %d tags, a negative max_concurrent, or a description of more than %d bytes", f.Name,
				MaxFunctions, 4*maxText)
		case len(f.InputSchema) > 0 && f.InputSchema[0] != '{' || len(f.OutputSchema) > 0 && f.OutputSchema[0] != '{':
			return wrong("a schema of the function %s is no object", f.Name)
		}
		seen[f.Name] = true
		if err := texts(append(slices.Clone(f.Tags), f.Version, f.ExecutionMode, f.Effect, f.Owner, f.Alias, f.MediaType)...); err != nil {
			return err
		}
	}
	return nil
}

func (r *JoinReply) check() error {
	switch {
	case r.OK == (r.Error != nil):
		return wrong("an answer to a join is either ok or an error")
	case r.OK && (r.Epoch <= 0 || r.HeartbeatMS <= 0 || r.TimeoutMS < r.HeartbeatMS || r.MaxInline <= 0 || r.Window < 0):
		return wrong("an answer to a join needs an epoch, heartbeat_ms up to timeout_ms, and max_inline")
	case len(r.RejectedLabels) > cmp.MaxLabels:
		return wrong("more than %d labels are rejected", cmp.MaxLabels)
	}
	return texts(append(slices.Clone(r.RejectedLabels), r.ServerTime, r.Gateway)...)
}

func (u *Update) check() error { return offered(&u.Labels, u.Functions) }

func (a *Ack) check() error {
	if a.OK == (a.Error != nil) {
		return wrong("an answer is either ok or an error")
	}
	return nil
}

func (b *Beat) check() error {
	for _, v := range []float64{b.CPU, b.Memory, b.GPU} {
		if v < 0 || v > 100 || math.IsNaN(v) {
			return wrong("cpu, mem and gpu must be 0 to 100")
		}
	}
	if b.Active < 0 || b.Queued < 0 {
		return wrong("active and queued must not be negative")
	}
	return nil
}

func (l *Leave) check() error { return texts(l.Reason) }

var traceGrammar = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

func (c *Call) check() error {
	if err := CheckCallID(c.CallID); err != nil {
		return err
	}
	if c.Function == "" || len(c.Function) > cmp.MaxFunction {
		return wrong("the name of the function must be 1 to %d bytes", cmp.MaxFunction)
	}
	if len(c.Args) > cmp.MaxArguments || len(c.Kwargs) > cmp.MaxArguments {
		return wrong("there are more than %d arguments", cmp.MaxArguments)
	}
	if c.Arguments != nil {
		_, ok, err := cmp.ReadAsset(c.Arguments)
		if err != nil {
			return err
		}
		if !ok || len(c.Args) > 0 || len(c.Kwargs) > 0 {
			return wrong("arguments must be {\"$asset\": …}, without args and kwargs")
		}
	}
	switch {
	case c.DeadlineMS < 0 || c.DeadlineMS > maxDeadline:
		return wrong("deadline_ms must be 0 to %d", maxDeadline)
	case c.Window < 0 || c.Window > MaxWindow:
		return wrong("window must be 0 to %d", MaxWindow)
	case len(c.IdempotencyKey) > cmp.MaxName:
		return wrong("idempotency_key has more than %d bytes", cmp.MaxName)
	case c.Trace.Parent != "" && !traceGrammar.MatchString(c.Trace.Parent):
		return wrong("traceparent has not the form of W3C trace context")
	}
	return texts(c.Caller.Kind, c.Caller.ID, c.Caller.Display)
}

func (f *Frame) check() error {
	if err := CheckCallID(f.CallID); err != nil {
		return err
	}
	if err := texts(f.Message); err != nil {
		return err
	}
	if f.Chunks < 0 || f.Bytes < 0 || f.ExecMS < 0 {
		return wrong("chunks, bytes and exec_ms must not be negative")
	}
	switch f.Type {
	case FrameAck, FrameDone:
	case FrameProgress:
		if f.Fraction != nil && (*f.Fraction < 0 || *f.Fraction > 1 || math.IsNaN(*f.Fraction)) {
			return wrong("fraction must be 0 to 1")
		}
	case FrameChunk, FrameResult:
		if f.Value == nil {
			return wrong("a %s must have a value", f.Type)
		}
		if f.Type == FrameChunk && len(f.Value) > MaxChunk {
			return cmp.Errorf(cmp.ReasonTooLarge, "the chunk has %d bytes; the limit is %d", len(f.Value), MaxChunk)
		}
	case FrameError:
		if f.Error == nil {
			return wrong("an error must say which")
		}
		if len(f.Error.Message) > cmp.MaxMessage {
			return wrong("the text of an error has %d bytes; the limit is %d", len(f.Error.Message), cmp.MaxMessage)
		}
	default:
		return wrong("%.40q is no type of a reply", f.Type)
	}
	return nil
}

func (c *Control) check() error {
	switch c.Type {
	case ControlCancel, ControlCredit:
		if err := CheckCallID(c.CallID); err != nil {
			return err
		}
		if c.Type == ControlCredit && (c.Bytes <= 0 || c.Bytes > MaxWindow) {
			return wrong("a credit must be 1 to %d bytes", MaxWindow)
		}
	case ControlDrain, ControlRejoin, ControlUpdate, ControlBeat, ControlSuperseded, ControlShutdown:
	default:
		return wrong("%.40q is no type of a control message", c.Type)
	}
	return texts(c.Reason)
}

// Sequence checks the order of the frames of one call and detects missing ones.
type Sequence struct {
	next uint64
	over bool
}

// Take accepts the next frame. A missing frame is connection_failed with code failed, because the bus
// may drop messages. fresh is false for a repeated frame and for one after the last.
func (s *Sequence) Take(f *Frame) (fresh bool, err error) {
	if s.over || f.Seq < s.next {
		return false, nil
	}
	if f.Seq > s.next {
		s.over = true
		e := cmp.Errorf(cmp.ReasonConnection, "part of the answer was lost: %d frames are missing", f.Seq-s.next)
		e.Code = capability.CodeFailed
		return false, e
	}
	s.next++
	s.over = f.Last()
	return true, nil
}
