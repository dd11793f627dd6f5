package a2aserve

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/protocol/a2awire"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// handler handles one path of the HTTP+JSON binding.
type handler func(ctx context.Context, s *Surface, c *caller, r *http.Request, body jsonx.Raw) (value any, stream iter.Seq[a2awire.Event],
	err error)

// paths returns the handlers of the HTTP+JSON binding of A2A v1.0. Its paths have no /v1
// prefix and contain colons, so the last segment is split here.
func (s *Surface) paths() map[string]handler {
	rpc := func(name string, also func(*http.Request) map[string]any) handler {
		run, _ := methodOf(false, name)
		return func(ctx context.Context, s *Surface, c *caller, r *http.Request, body jsonx.Raw) (any, iter.Seq[a2awire.Event], error) {
			if also != nil {
				params := mustMarshal(also(r))
				if len(body) > 0 {
					var err error
					if params, err = joined(body, params); err != nil {
						return nil, nil, err
					}
				}
				body = jsonx.Raw(params)
			}
			return run(ctx, s, c, body)
		}
	}
	query := func(r *http.Request, into map[string]any, names ...string) map[string]any {
		for name, values := range r.URL.Query() {
			for _, want := range names {
				if name == want && values[0] != "" {
					into[name] = typed(name, values[0])
				}
			}
		}
		return into
	}
	tasksAction := func(ctx context.Context, s *Surface, c *caller, r *http.Request, _ jsonx.Raw) (any, iter.Seq[a2awire.Event], error) {
		id, action, _ := strings.Cut(r.PathValue("id"), ":")
		name := map[string]string{"cancel": "CancelTask", "subscribe": "SubscribeToTask"}[action]
		run, ok := methodOf(false, name)
		if !ok {
			return nil, nil, refuse(a2a.ErrMethodNotFound, "a task has the actions :cancel and :subscribe")
		}
		return run(ctx, s, c, jsonx.Raw(mustMarshal(map[string]string{"id": id})))
	}
	return map[string]handler{
		"POST /a2a/message:send":     rpc("SendMessage", nil),
		"POST /a2a/message:stream":   rpc("SendStreamingMessage", nil),
		"GET /a2a/extendedAgentCard": rpc("GetExtendedAgentCard", func(*http.Request) map[string]any { return map[string]any{} }),
		"GET /a2a/tasks": rpc("ListTasks", func(r *http.Request) map[string]any {
			return query(r, map[string]any{}, "contextId", "status", "pageSize", "pageToken", "historyLength", "statusTimestampAfter",
				"includeArtifacts", "tenant")
		}),
		"GET /a2a/tasks/{id}": func(ctx context.Context, s *Surface, c *caller, r *http.Request, body jsonx.Raw) (any, iter.Seq[a2awire.Event],
			error,
		) {
			if strings.HasSuffix(r.PathValue("id"), ":subscribe") {
				return tasksAction(ctx, s, c, r, body)
			}
			return rpc("GetTask", func(r *http.Request) map[string]any {
				return query(r, map[string]any{"id": r.PathValue("id")}, "historyLength", "tenant")
			})(ctx, s, c, r, nil)
		},
		"POST /a2a/tasks/{id}": tasksAction,
		"POST /a2a/tasks/{id}/pushNotificationConfigs": rpc("CreateTaskPushNotificationConfig", func(r *http.Request) map[string]any {
			return map[string]any{"taskId": r.PathValue("id")}
		}),
		"GET /a2a/tasks/{id}/pushNotificationConfigs": rpc("ListTaskPushNotificationConfigs", func(r *http.Request) map[string]any {
			return map[string]any{"taskId": r.PathValue("id")}
		}),
		"GET /a2a/tasks/{id}/pushNotificationConfigs/{config}": rpc("GetTaskPushNotificationConfig", func(r *http.Request) map[string]any {
			return map[string]any{"taskId": r.PathValue("id"), "id": r.PathValue("config")}
		}),
		"DELETE /a2a/tasks/{id}/pushNotificationConfigs/{config}": rpc("DeleteTaskPushNotificationConfig", func(r *http.Request) map[string]any {
			return map[string]any{"taskId": r.PathValue("id"), "id": r.PathValue("config")}
		}),
	}
}

// typed converts a query parameter to its type in the document. A malformed value remains a
// string, which the decoder rejects by name.
func typed(name, value string) any {
	switch name {
	case "pageSize", "historyLength":
		if n, err := strconv.Atoi(value); err == nil {
			return n
		}
	case "includeArtifacts":
		if b, err := strconv.ParseBool(value); err == nil {
			return b
		}
	case "statusTimestampAfter":
		if s, err := url.QueryUnescape(value); err == nil && strings.Contains(value, "%") {
			return s
		}
		return strings.ReplaceAll(value, " ", "+") // an unescaped plus is decoded as a space
	}
	return value
}

// joined returns the body with the members of the path, which take precedence.
func joined(body, path []byte) ([]byte, error) {
	var in, over map[string]jsonx.Raw
	if err := read(body, &in); err != nil {
		return nil, refuse(a2a.ErrInvalidParams, err.Error())
	}
	if err := read(path, &over); err != nil || in == nil {
		return nil, refuse(a2a.ErrInvalidParams, "the body must be an object")
	}
	for k, v := range over {
		in[k] = v
	}
	return jsonx.Marshal(in)
}

// serveREST serves the paths below /a2a.
func (s *Surface) serveREST(w http.ResponseWriter, r *http.Request, run handler) {
	who, err := s.cfg.Door.Principal(r)
	if err != nil {
		httpapi.WriteError(w, err)
		return
	}
	s.cfg.Tasks.Seen(who)
	version, f := versionOf(r.Header, r.URL.Query(), version10) // 0.3 has other paths
	if f == nil && version != version10 {
		f = unsupportedVersion(version)
		f.message = "this path is A2A 1.0's; 0.3 is spoken as JSON-RPC at /a2a"
	}
	if f != nil {
		writeFault(w, f)
		return
	}
	var body []byte
	if r.Method == http.MethodPost { // clients send "null" with the others
		body, err = httpapi.ReadBody(w, r, s.cfg.MaxBody)
	}
	if err != nil {
		f := faultOf(err)
		if capability.CodeOf(err) == capability.CodeTooLarge {
			f.http = http.StatusRequestEntityTooLarge
		}
		writeFault(w, f)
		return
	}
	if len(body) > 0 && !jsonx.Valid(body) {
		writeFault(w, refuse(a2a.ErrParseError, "the body is not JSON"))
		return
	}
	value, stream, err := run(r.Context(), s, &caller{who: who}, r, body)
	switch {
	case err != nil:
		writeFault(w, s.fault(err))
	case stream != nil:
		s.stream(w, r, stream, func(e *a2awire.Event) any { return e })
	default:
		httpapi.WriteJSON(w, http.StatusOK, value)
	}
}

func writeFault(w http.ResponseWriter, f *fault) { httpapi.WriteJSON(w, f.http, f.rest()) }

// stream writes the events of seq, each wrapped, and a comment at each Beat. It ends with
// seq, when the client disconnects, or with the drain.
func (s *Surface) stream(w http.ResponseWriter, r *http.Request, seq iter.Seq[a2awire.Event], wrap func(*a2awire.Event) any) {
	r.Header.Set("Accept", "text/event-stream") // a stream is always this type
	out := httpapi.NewStream(w, r)
	next, stop := pull(r.Context(), seq)
	defer stop()
	beat := time.NewTicker(s.cfg.Beat)
	defer beat.Stop()
	for {
		select {
		case e, ok := <-next:
			if !ok {
				return
			}
			data, err := jsonx.Marshal(wrap(&e))
			if err != nil {
				s.cfg.Logger.Error("an event cannot be written", "err", err)
				return
			}
			if out.Send("", "", data) != nil {
				return
			}
		case <-beat.C:
			if out.Beat() != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-s.open.Done():
			return
		}
	}
}

// pull runs seq in a goroutine and returns its events. stop ends the goroutine and waits for it.
func pull(ctx context.Context, seq iter.Seq[a2awire.Event]) (next <-chan a2awire.Event, stop func()) {
	events, gone, over := make(chan a2awire.Event), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		defer close(events)
		for e := range seq {
			select {
			case events <- e:
			case <-gone:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return events, func() { close(gone) }
}
