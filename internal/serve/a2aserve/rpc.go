package a2aserve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"strings"

	"github.com/junctor-run/junctor/protocol/a2awire"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
)

// request is one JSON-RPC call.
type request struct {
	Version string    `json:"jsonrpc"`
	ID      jsonx.Raw `json:"id"`
	Method  string    `json:"method"`
	Params  jsonx.Raw `json:"params"`
}

// reply is a JSON-RPC answer; exactly one of the last two is set.
type reply struct {
	Version string    `json:"jsonrpc"`
	ID      jsonx.Raw `json:"id"`
	Result  any       `json:"result,omitzero"`
	Error   any       `json:"error,omitzero"`
}

// method handles one method; it returns either a value or a stream.
type method func(ctx context.Context, s *Surface, c *caller, params jsonx.Raw) (value any, stream iter.Seq[a2awire.Event], err error)

// one returns the method of an operation that returns a value.
func one[P any, V any](f func(*Surface, context.Context, *caller, *P) (V, error)) method {
	return func(ctx context.Context, s *Surface, c *caller, params jsonx.Raw) (any, iter.Seq[a2awire.Event], error) {
		p, err := decode[P](params)
		if err != nil {
			return nil, nil, err
		}
		v, err := f(s, ctx, c, p)
		return v, nil, err
	}
}

// many returns the method of an operation that returns a stream.
func many[P any](f func(*Surface, context.Context, *caller, *P) (iter.Seq[a2awire.Event], error)) method {
	return func(ctx context.Context, s *Surface, c *caller, params jsonx.Raw) (any, iter.Seq[a2awire.Event], error) {
		p, err := decode[P](params)
		if err != nil {
			return nil, nil, err
		}
		seq, err := f(s, ctx, c, p)
		return nil, seq, err
	}
}

// decode decodes parameters. Unknown members are ignored.
func decode[P any](params jsonx.Raw) (*P, error) {
	p := new(P)
	if len(params) == 0 || params.Kind() != '{' {
		return nil, refuse(a2a.ErrInvalidParams, "params must be an object")
	}
	if err := read(params, p); err != nil {
		return nil, refuse(a2a.ErrInvalidParams, "params: "+err.Error())
	}
	return p, nil
}

// empty is the type of parameters of methods without any.
type empty struct{}

// methodOf returns the method of a name in v0.3 (legacy) or v1.0.
func methodOf(legacy bool, name string) (method, bool) {
	if legacy {
		return method03(name)
	}
	switch name {
	case "SendMessage":
		return one(func(s *Surface, ctx context.Context, c *caller, p *a2awire.SendParams) (a2awire.Event, error) {
			t, err := s.sendAndWait(ctx, c, p)
			return a2awire.Event{Task: t}, err
		}), true
	case "SendStreamingMessage":
		return many((*Surface).sendAndStream), true
	case "GetTask":
		return one((*Surface).get), true
	case "ListTasks":
		return one((*Surface).list), true
	case "CancelTask":
		return one((*Surface).cancel), true
	case "SubscribeToTask":
		return many((*Surface).subscribe), true
	case "CreateTaskPushNotificationConfig":
		return one((*Surface).createPush), true
	case "GetTaskPushNotificationConfig":
		return one((*Surface).getPush), true
	case "ListTaskPushNotificationConfigs":
		return one((*Surface).listPush), true
	case "DeleteTaskPushNotificationConfig":
		return one(func(s *Surface, ctx context.Context, c *caller, p *a2awire.PushParams) (empty, error) {
			return empty{}, s.deletePush(ctx, c, p)
		}), true
	case "GetExtendedAgentCard":
		return one(func(s *Surface, _ context.Context, c *caller, _ *empty) (any, error) { return s.extendedCard(c) }), true
	}
	return nil, false
}

func method03(name string) (method, bool) {
	task := func(f func(*Surface, context.Context, *caller, *a2awire.TaskParams) (*a2awire.Task, error)) method {
		return one(func(s *Surface, ctx context.Context, c *caller, p *a2awire.TaskParams) (any, error) {
			t, err := f(s, ctx, c, p)
			if err != nil {
				return nil, err
			}
			return t.V03(), nil
		})
	}
	switch name {
	case "message/send":
		return one(func(s *Surface, ctx context.Context, c *caller, p *a2awire.SendParams03) (any, error) {
			t, err := s.sendAndWait(ctx, c, p.V10())
			if err != nil {
				return nil, err
			}
			return t.V03(), nil
		}), true
	case "message/stream":
		return many(func(s *Surface, ctx context.Context, c *caller, p *a2awire.SendParams03) (iter.Seq[a2awire.Event], error) {
			return s.sendAndStream(ctx, c, p.V10())
		}), true
	case "tasks/get":
		return task((*Surface).get), true
	case "tasks/cancel":
		return task((*Surface).cancel), true
	case "tasks/resubscribe":
		return many((*Surface).subscribe), true
	case "tasks/pushNotificationConfig/set":
		return one(func(s *Surface, ctx context.Context, c *caller, p *a2awire.TaskPush03) (any, error) {
			if p.Config == nil {
				return nil, refuse(a2a.ErrInvalidParams, "pushNotificationConfig is required")
			}
			out, err := s.createPush(ctx, c, p.Config.V10(p.TaskID))
			if err != nil {
				return nil, err
			}
			return out.V03(), nil
		}), true
	case "tasks/pushNotificationConfig/get":
		return one(getPush03), true
	case "tasks/pushNotificationConfig/list":
		return one(func(s *Surface, ctx context.Context, c *caller, p *a2awire.PushParams03) (any, error) {
			list, err := s.listPush(ctx, c, &a2awire.PushParams{TaskID: p.ID})
			if err != nil {
				return nil, err
			}
			out := []a2awire.TaskPush03{}
			for i := range list.Configs {
				out = append(out, list.Configs[i].V03())
			}
			return out, nil
		}), true
	case "tasks/pushNotificationConfig/delete":
		return one(func(s *Surface, ctx context.Context, c *caller, p *a2awire.PushParams03) (jsonx.Raw, error) {
			return jsonx.Raw("null"), s.deletePush(ctx, c, &a2awire.PushParams{TaskID: p.ID, ID: p.Config})
		}), true
	case "agent/getAuthenticatedExtendedCard":
		return one(func(s *Surface, _ context.Context, c *caller, _ *empty) (any, error) { return s.extendedCard(c) }), true
	}
	return nil, false
}

// getPush03 accepts a missing configuration id if there is only one configuration.
func getPush03(s *Surface, ctx context.Context, c *caller,
	p *a2awire.PushParams03,
) (any, error) {
	if p.Config == "" {
		list, err := s.listPush(ctx, c, &a2awire.PushParams{TaskID: p.ID})
		if err != nil {
			return nil, err
		}
		if len(list.Configs) == 0 {
			return nil, refuse(a2a.ErrTaskNotFound, "the task has no push configuration")
		}
		return list.Configs[0].V03(), nil
	}
	out, err := s.getPush(ctx, c, &a2awire.PushParams{TaskID: p.ID, ID: p.Config})
	if err != nil {
		return nil, err
	}
	return out.V03(), nil
}

// parse decodes a JSON-RPC request.
func parse(body []byte) (*request, *fault) {
	r := new(request)
	if trimmed := bytes.TrimSpace(body); len(trimmed) > 0 && trimmed[0] == '[' {
		return r, refuse(a2a.ErrInvalidRequest, "batches are not taken")
	}
	if err := read(body, r); err != nil {
		var syntax *jsonx.SyntaxError
		if errors.As(err, &syntax) {
			return new(request), refuse(a2a.ErrParseError, err.Error())
		}
		r.ID = idOf(body)
		return r, refuse(a2a.ErrInvalidRequest, err.Error())
	}
	switch r.ID.Kind() {
	case '"', '0', 'n', 0:
	default:
		r.ID = nil
		return r, refuse(a2a.ErrInvalidRequest, "id must be a string, a number or null")
	}
	switch {
	case r.Version != "2.0":
		return r, refuse(a2a.ErrInvalidRequest, `jsonrpc must be "2.0"`)
	case r.Method == "":
		return r, refuse(a2a.ErrInvalidRequest, "method is required")
	}
	return r, nil
}

// idOf returns the id of a malformed request, if it is readable.
func idOf(body []byte) jsonx.Raw {
	var r struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(body, &r) != nil || len(r.ID) == 0 || r.ID[0] == '{' || r.ID[0] == '[' {
		return nil
	}
	return jsonx.Raw(r.ID)
}

// serveRPC serves JSON-RPC at /a2a.
func (s *Surface) serveRPC(w http.ResponseWriter, r *http.Request) {
	who, err := s.cfg.Door.Principal(r)
	if err != nil {
		httpapi.WriteError(w, err)
		return
	}
	s.cfg.Tasks.Seen(who)
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		httpapi.WriteJSON(w, http.StatusMethodNotAllowed, refuse(a2a.ErrInvalidRequest, "JSON-RPC is a POST").rest())
		return
	}
	body, err := httpapi.ReadBody(w, r, s.cfg.MaxBody)
	if err != nil {
		if capability.CodeOf(err) == capability.CodeTooLarge {
			httpapi.WriteError(w, err)
			return
		}
		s.answer(w, nil, nil, err)
		return
	}
	req, f := parse(body)
	if f != nil {
		s.answer(w, req.ID, nil, f)
		return
	}
	version, f := versionOf(r.Header, r.URL.Query(), version03)
	if f != nil {
		s.answer(w, req.ID, nil, f)
		return
	}
	c := &caller{who: who, legacy: version == version03}
	run, ok := methodOf(c.legacy, req.Method)
	if !ok {
		s.answer(w, req.ID, nil, unknownMethod(req.Method, c.legacy))
		return
	}
	if len(req.Params) == 0 { // each method reports the parameters that it requires
		req.Params = jsonx.Raw("{}")
	}
	value, stream, err := run(r.Context(), s, c, req.Params)
	if err != nil || stream == nil {
		s.answer(w, req.ID, value, err)
		return
	}
	s.stream(w, r, stream, func(e *a2awire.Event) any {
		if c.legacy {
			return reply{Version: "2.0", ID: idOr(req.ID), Result: e.V03()}
		}
		return reply{Version: "2.0", ID: idOr(req.ID), Result: e}
	})
}

func unsupportedVersion(v string) *fault {
	if len(v) > 32 {
		v = v[:32]
	}
	f := refuse(a2a.ErrVersionNotSupported, "A2A "+strings.ToValidUTF8(v, "?")+" is not spoken here; use 1.0 or 0.3")
	f.meta = map[string]string{"supported": version10 + ", " + version03}
	return f
}

func unknownMethod(name string, legacy bool) *fault {
	spoken, other := version10, version03
	if legacy {
		spoken, other = other, spoken
	}
	text := "there is no such method in A2A " + spoken
	if _, ok := methodOf(!legacy, name); ok {
		text += "; it is one of " + other + ", which the header A2A-Version asks for"
	}
	return refuse(a2a.ErrMethodNotFound, text)
}

// idOr returns the id, or null if it is missing.
func idOr(id jsonx.Raw) jsonx.Raw {
	if len(id) == 0 {
		return jsonx.Raw("null")
	}
	return id
}

// answer writes a JSON-RPC response, always with HTTP status 200.
func (s *Surface) answer(w http.ResponseWriter, id jsonx.Raw, value any, err error) {
	out := reply{Version: "2.0", ID: idOr(id), Result: value}
	if err != nil {
		out.Result, out.Error = nil, s.fault(err).jsonrpc()
	}
	httpapi.WriteJSON(w, http.StatusOK, out)
}

// fault is like faultOf, and logs internal errors.
func (s *Surface) fault(err error) *fault {
	f := faultOf(err)
	if f.code == jsonrpc.CodeInternal {
		s.cfg.Logger.Error("request failed", "surface", surfaceName, "err", err, "cause", errors.Unwrap(err))
	}
	return f
}

// read decodes a client's document. Its error describes the mistake.
func read(data []byte, v any) error {
	err := a2awire.Decode(data, v)
	if err == nil {
		return nil
	}
	if plain := jsonx.Unmarshal(data, v); plain != nil {
		return plain
	}
	return err
}
