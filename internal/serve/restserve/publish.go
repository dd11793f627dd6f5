package restserve

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// publication is the body of POST /api/v1/events/publish.
type publication struct {
	Event   string    `json:"event"`
	Payload jsonx.Raw `json:"payload,omitempty"`
}

// delivery is the result of delivering an event to one module.
type delivery struct {
	Module     string            `json:"module"`
	Endpoint   string            `json:"endpoint,omitempty"`
	OK         bool              `json:"ok"`
	Handled    bool              `json:"handled"`
	Invocation string            `json:"invocation"`
	Error      *capability.Error `json:"error,omitempty"`
}

// deliverAtOnce is the number of concurrent deliveries.
const deliverAtOnce = 16

// publishEvent delivers an event to every module that declares it, and writes the result
// of each. Each delivery is a separate invocation, so that a module that fails or hangs
// does not affect the others.
func (s *Surface) publishEvent(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	body, err := httpapi.ReadBody(w, r, s.MaxInput)
	if err != nil {
		return err
	}
	var req publication
	if err := jsonx.UnmarshalStrict(body, &req); err != nil {
		return httpapi.BadJSON(err)
	}
	switch {
	case strings.TrimSpace(req.Event) == "":
		return capability.Errorf(capability.CodeInvalidInput, "events.publish", "event must name the event")
	case len(req.Payload) > 0 && req.Payload.Kind() != '{':
		return capability.Errorf(capability.CodeInvalidInput, "events.publish", "payload must be a JSON object")
	}
	results, targets := s.listeners(req.Event)
	var parts sync.WaitGroup
	places := make(chan struct{}, deliverAtOnce)
	for i := range results {
		places <- struct{}{}
		parts.Go(func() {
			defer func() { <-places }()
			s.deliver(r, who, targets[i], req.Payload, &results[i])
		})
	}
	parts.Wait()
	delivered := 0
	for _, d := range results {
		if d.OK {
			delivered++
		}
	}
	return httpapi.Answer(w, map[string]any{"event": req.Event, "delivered": delivered, "results": results}, nil)
}

// listeners returns the modules that declare the event, ordered by id, with the target of each.
func (s *Surface) listeners(event string) ([]delivery, []capability.Target) {
	results, targets := []delivery{}, []capability.Target{}
	seen := make(map[delivery]bool)
	for e := range s.Catalog.Snapshot().Entries() {
		m := e.Contribution.Member
		if m.Kind != "event" || m.Name != event {
			continue
		}
		one := delivery{Module: m.Module, Endpoint: e.Module.Endpoint}
		if !seen[one] {
			seen[one] = true
			results = append(results, one)
		}
	}
	slices.SortFunc(results, func(a, b delivery) int {
		return cmp.Or(strings.Compare(a.Module, b.Module), strings.Compare(a.Endpoint, b.Endpoint))
	})
	for _, d := range results {
		target := capability.Target{Member: capability.Member{Module: d.Module, Kind: "event", Name: event}}
		if d.Endpoint != "" {
			target.Select = capability.Selector{"endpoint": d.Endpoint}
		}
		targets = append(targets, target)
	}
	return results, targets
}

func (s *Surface) deliver(r *http.Request, who capability.Principal, target capability.Target, payload jsonx.Raw, d *delivery) {
	reply, err := s.Engine.Invoke(r.Context(), capability.Invocation{
		Surface: "http", Client: r.UserAgent(), Principal: who, Audience: capability.AudienceInternal, Target: target, Input: []byte(payload),
	})
	d.Invocation = reply.Invocation
	if err != nil {
		d.Error = capability.AsError(err)
		return
	}
	var out struct {
		Handled bool `json:"handled"`
	}
	_ = jsonx.Unmarshal(reply.Result, &out) // the provider checked the form of the answer
	d.OK, d.Handled = true, out.Handled
}
