package dialect

import (
	"errors"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
)

// rpc implements JSON-RPC with requests in both directions. Codex omits the version member.
type rpc struct {
	version bool
	next    int64
	// waits holds the handlers of requests without answer, by id.
	waits map[int64]func(result jsonx.Raw, fail *rpcError) Step
}

type rpcError struct {
	Code    int64     `json:"code"`
	Message string    `json:"message"`
	Data    jsonx.Raw `json:"data"`
}

// words returns the message of an error, with the reason that some programs put into its data.
func (e *rpcError) words() string {
	var data struct {
		Details string `json:"details"`
		Message string `json:"message"`
	}
	_ = jsonx.Unmarshal(e.Data, &data)
	s := strings.TrimSpace(e.Message)
	for _, more := range []string{data.Details, data.Message} {
		if more != "" && !strings.Contains(s, more) {
			s += ": " + more
		}
	}
	return text.ShortenBytes(s, maxPrompt)
}

var errNoMessage = errors.New("the line is not a message of the protocol")

func (r *rpc) wrap(m object) []byte {
	if r.version {
		m["jsonrpc"] = "2.0"
	}
	return encoded(m)
}

func (r *rpc) call(method string, params any, then func(jsonx.Raw, *rpcError) Step) []byte {
	r.next++
	if r.waits == nil {
		r.waits = make(map[int64]func(jsonx.Raw, *rpcError) Step)
	}
	r.waits[r.next] = then
	delete(r.waits, r.next-maxWaits) // the oldest request beyond the bound is dropped
	return r.wrap(object{"id": r.next, "method": method, "params": params})
}

func (r *rpc) notify(method string, params any) []byte {
	return r.wrap(object{"method": method, "params": params})
}

func (r *rpc) result(id jsonx.Raw, result any) []byte {
	return r.wrap(object{"id": id, "result": result})
}

func (r *rpc) failure(id jsonx.Raw, code int, text string) []byte {
	return r.wrap(object{"id": id, "error": object{"code": code, "message": text}})
}

// unsupported answers an unknown request with an error.
func (r *rpc) unsupported(id jsonx.Raw, method string) Step {
	s := sent(r.failure(id, jsonrpc.CodeMethodNotFound, "this client does not offer "+text.ShortenBytes(method, maxLabel)))
	s.tell(Told{Kind: Unknown, Text: text.ShortenBytes(method, maxLabel)})
	return s
}

// handleMessage passes a request to asked, a notification to noted, and an answer to the handler
// of its request.
func (r *rpc) handleMessage(line []byte, asked func(id jsonx.Raw, method string, params jsonx.Raw) (Step, error),
	noted func(method string, params jsonx.Raw) (Step, error),
) (Step, error) {
	var m struct {
		ID     jsonx.Raw `json:"id"`
		Method string    `json:"method"`
		Params jsonx.Raw `json:"params"`
		Result jsonx.Raw `json:"result"`
		Error  *rpcError `json:"error"`
	}
	if err := unmarshal(line, &m); err != nil {
		return Step{}, err
	}
	if len(m.ID) > maxID || len(m.ID) > 0 && m.ID.Kind() != '"' && m.ID.Kind() != '0' {
		return Step{}, errNoMessage
	}
	switch {
	case m.Method != "" && len(m.ID) > 0:
		return asked(m.ID, m.Method, m.Params)
	case m.Method != "":
		return noted(m.Method, m.Params)
	case len(m.ID) == 0 || m.Error == nil && m.Result == nil:
		return Step{}, errNoMessage
	}
	var id int64
	if jsonx.Unmarshal(m.ID, &id) != nil || r.waits[id] == nil {
		return told(Told{Kind: Unknown, Text: "an answer to nothing"}), nil
	}
	then := r.waits[id]
	delete(r.waits, id)
	return then(m.Result, m.Error), nil
}

// unmarshal decodes an untrusted line. It tolerates invalid UTF-8, as in a text that was cut within
// a character.
func unmarshal(line []byte, v any) error {
	err := jsonx.Unmarshal(line, v)
	if err == nil {
		return nil
	}
	mended, mendErr := jsonx.Mended(line)
	if mendErr != nil {
		return err
	}
	return jsonx.Unmarshal(mended, v)
}
