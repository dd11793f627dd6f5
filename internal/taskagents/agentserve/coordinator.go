package agentserve

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// Coordinator looks after threads (task-agents, sections 9.2 and 9.4). Values marshal to
// the answers as they are; requests come as the bodies that were sent.
type Coordinator interface {
	Status(ctx context.Context) (any, error)
	Create(ctx context.Context, by capability.Principal, request json.RawMessage) (any, error)
	Threads(ctx context.Context, q url.Values) (any, error)
	Count(ctx context.Context, q url.Values) (any, error)
	Thread(ctx context.Context, id string, q url.Values) (any, error)
	Share(ctx context.Context, id string) (any, error)
	// Control takes the action beside the rest of the request; "": the request says it.
	Control(ctx context.Context, by capability.Principal, id, action string, request json.RawMessage) (any, error)
	Task(ctx context.Context, session string) (any, error)
	Pending(ctx context.Context) (any, error)
	Confirm(ctx context.Context, session string, request json.RawMessage) (any, error)
	Supervision(thread string) any
	Supervise(ctx context.Context, request json.RawMessage) (any, error)
	// Snapshot is the first event of a stream; Events are those after an id, 0 being those
	// that come.
	Snapshot(ctx context.Context) (any, error)
	Events(ctx context.Context, after uint64) iter.Seq2[uint64, []byte]
}

const pingEvery = 30 * time.Second

func (s *Surface) coordinatorRoutes(mux *http.ServeMux, base string) {
	base += "/coordinator"
	handle := func(method, path string, h httpapi.Handler) { mux.Handle(method+" "+base+path, s.guard(h)) }
	get := func(path string, f func(r *http.Request) (any, error)) {
		handle("GET", path, func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
			doc, err := f(r)
			return answer(w, http.StatusOK, doc, err)
		})
	}
	post := func(path string, status int, f func(r *http.Request, by capability.Principal, body json.RawMessage) (any, error)) {
		handle("POST", path, func(w http.ResponseWriter, r *http.Request, by capability.Principal) error {
			body, err := bodyOf(w, r)
			if err != nil {
				return err
			}
			doc, err := f(r, by, body)
			return answer(w, status, doc, err)
		})
	}
	c := s.Coordinator
	handle("GET", "/events", s.coordinatorEvents)
	get("/status", func(r *http.Request) (any, error) { return c.Status(r.Context()) })
	get("/threads", func(r *http.Request) (any, error) { return c.Threads(r.Context(), r.URL.Query()) })
	get("/threads/count", func(r *http.Request) (any, error) { return c.Count(r.Context(), r.URL.Query()) })
	get("/threads/{thread}", func(r *http.Request) (any, error) { return c.Thread(r.Context(), r.PathValue("thread"), r.URL.Query()) })
	get("/threads/{thread}/share", func(r *http.Request) (any, error) { return c.Share(r.Context(), r.PathValue("thread")) })
	get("/tasks/{session}", func(r *http.Request) (any, error) { return c.Task(r.Context(), r.PathValue("session")) })
	get("/pending", func(r *http.Request) (any, error) { return c.Pending(r.Context()) })
	get("/supervision", func(r *http.Request) (any, error) { return c.Supervision(r.URL.Query().Get("threadId")), nil })
	post("/threads", http.StatusCreated, func(r *http.Request, by capability.Principal, body json.RawMessage) (any, error) {
		return c.Create(r.Context(), by, body)
	})
	for _, action := range []string{"archive", "reopen", "control"} {
		post("/threads/{thread}/"+action, http.StatusOK, func(r *http.Request, by capability.Principal, body json.RawMessage) (any, error) {
			if action == "control" {
				return c.Control(r.Context(), by, r.PathValue("thread"), "", body)
			}
			return c.Control(r.Context(), by, r.PathValue("thread"), action, body)
		})
	}
	post("/confirm/{session}", http.StatusOK, func(r *http.Request, _ capability.Principal, body json.RawMessage) (any, error) {
		return c.Confirm(r.Context(), r.PathValue("session"), body)
	})
	post("/supervision", http.StatusOK, func(r *http.Request, _ capability.Principal, body json.RawMessage) (any, error) {
		return c.Supervise(r.Context(), body)
	})
}

// coordinatorEvents streams what happens: a snapshot first, unless Last-Event-ID says
// where a client was.
func (s *Surface) coordinatorEvents(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	after := uint64(0)
	if text := r.Header.Get("Last-Event-ID"); text != "" {
		var err error
		if after, err = strconv.ParseUint(text, 10, 64); err != nil {
			return capability.Errorf(capability.CodeInvalidInput, "coordinator.events", "Last-Event-ID: %.40q is not a number", text)
		}
	}
	snapshot, err := s.Coordinator.Snapshot(r.Context())
	if err != nil {
		return err
	}
	first, err := json.Marshal(snapshot)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	w.Header().Set("Connection", "keep-alive")
	out := httpapi.NewStream(w, r)
	if out.Comment("ok") != nil || out.Send("", "", first) != nil {
		return nil
	}
	type event struct {
		id   uint64
		data []byte
	}
	feed := make(chan event)
	go func() {
		defer close(feed)
		for id, data := range s.Coordinator.Events(ctx, after) {
			select {
			case feed <- event{id, data}:
			case <-ctx.Done():
				return
			}
		}
	}()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		select {
		case e, ok := <-feed:
			if !ok || out.Send(strconv.FormatUint(e.id, 10), "", e.data) != nil {
				return nil
			}
		case <-ping.C:
			if out.Comment("ping") != nil {
				return nil
			}
		}
	}
}
