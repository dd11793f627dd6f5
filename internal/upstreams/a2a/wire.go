package a2a

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/a2awire"
)

// fault is an error of either binding.
type fault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// decodeReply is what an answer of JSON-RPC holds.
func decodeReply(data []byte) (jsonx.Raw, error) {
	var r struct {
		Result jsonx.Raw `json:"result"`
		Error  *fault    `json:"error"`
	}
	if err := a2awire.Decode(data, &r); err != nil {
		return nil, broken("the agent's answer is not JSON-RPC", err)
	}
	if r.Error != nil {
		return nil, refusal(r.Error)
	}
	return r.Result, nil
}

// decodePlain is an item of HTTP+JSON, which may be an error in the middle of a stream.
func decodePlain(data []byte) (jsonx.Raw, error) {
	var r struct {
		Error *fault `json:"error"`
	}
	if err := a2awire.Decode(data, &r); err != nil {
		return nil, broken("the agent's answer is not A2A", err)
	}
	if r.Error != nil {
		return nil, refusal(r.Error)
	}
	return data, nil
}

func broken(text string, err error) error {
	return capability.Wrap(capability.CodeFailed, "upstream", text, err).With(reasonUpstream, "")
}

func refusal(f *fault) error {
	return capability.Errorf(capability.CodeFailed, "upstream", "the agent refuses (%d): %s", f.Code, cut(f.Message)).With(reasonUpstream, "")
}

// decodeEvent decodes an item of a stream.
func decodeEvent(protocol string, raw jsonx.Raw) (*a2awire.Event, error) {
	e := new(a2awire.Event)
	var err error
	if protocol == version03 {
		e, err = a2awire.DecodeEvent03(raw)
	} else {
		err = a2awire.Decode(raw, e)
	}
	if err != nil {
		return nil, broken("the agent's answer is not A2A", err)
	}
	return e, nil
}

// decodeTask decodes an answer that is a task.
func decodeTask(protocol string, raw jsonx.Raw) (*a2awire.Event, error) {
	if protocol == version03 {
		return decodeEvent(protocol, raw)
	}
	t := new(a2awire.Task)
	if err := a2awire.Decode(raw, t); err != nil {
		return nil, broken("the agent's answer is not a task", err)
	}
	return &a2awire.Event{Task: t}, nil
}

func readAll(r io.Reader, limit int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	switch {
	case err != nil:
		return nil, cutOff("the agent's answer broke off", err)
	case len(data) > limit:
		return nil, tooMuch(limit)
	}
	return data, nil
}

// cutOff is an answer that ended early: bytes went out, so nothing is sent again.
func cutOff(text string, err error) error {
	return capability.Wrap(capability.CodeFailed, "upstream", text, err).With(reasonConnection, "")
}

func tooMuch(limit int) error {
	return capability.Errorf(capability.CodeFailed, "upstream", "the agent answers with more than %d bytes", limit).With("output_limit", "")
}

// events are the data of server-sent events, all together at most MaxAnswer.
func events(r io.Reader) iter.Seq2[jsonx.Raw, error] {
	return func(yield func(jsonx.Raw, error) bool) {
		counted := &io.LimitedReader{R: r, N: MaxAnswer + 1}
		lines := bufio.NewScanner(counted)
		lines.Buffer(nil, maxEvent)
		var data []byte
		for lines.Scan() {
			line := lines.Bytes()
			if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				data = append(append(data, bytes.TrimPrefix(rest, []byte(" "))...), '\n')
				continue
			}
			if len(line) == 0 && len(data) > 0 {
				if !yield(data, nil) {
					return
				}
				data = nil
			}
		}
		switch {
		case counted.N <= 0:
			yield(nil, tooMuch(MaxAnswer))
		case errors.Is(lines.Err(), bufio.ErrTooLong):
			yield(nil, tooMuch(maxEvent))
		case lines.Err() != nil:
			yield(nil, cutOff("the agent's stream broke off", lines.Err()))
		case len(data) > 0:
			yield(data, nil)
		}
	}
}
