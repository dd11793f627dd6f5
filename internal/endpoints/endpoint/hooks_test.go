package endpoint_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hooks answers lifecycle calls as the test says and remembers them.
type hooks struct {
	mu     sync.Mutex
	calls  []string                     // "init m"
	up     map[string]bool              // what the modules believe
	config map[string]map[string]string // of the last call, by module
	fail   map[string]string            // call → "error", "not ok", also ", once"; "silent" waits for the end
	during func(call string)
}

func (h *hooks) answer(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	var in struct {
		ModuleID, Hook string
		Config         map[string]string
	}
	if err := json.Unmarshal(params, &in); err != nil {
		return nil, err
	}
	call := in.Hook + " " + in.ModuleID
	h.mu.Lock()
	h.calls = append(h.calls, call)
	h.config[in.ModuleID] = in.Config
	how, during := h.fail[call], h.during
	if strings.HasSuffix(how, ", once") {
		how = strings.TrimSuffix(how, ", once")
		delete(h.fail, call)
	}
	h.mu.Unlock()
	if during != nil {
		during(call)
	}
	switch how {
	case "error":
		return nil, errors.New("it does not start")
	case "not ok":
		return json.RawMessage(`{"ok":false}`), nil
	case "silent":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch in.Hook {
	case "init":
		h.up[in.ModuleID] = true
	case "dispose":
		delete(h.up, in.ModuleID)
	}
	return json.RawMessage(`{"ok":true}`), nil
}

func (h *hooks) set(call, how string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail[call] = how
}

// meanwhile has f run in every call, before it is answered.
func (h *hooks) meanwhile(f func(call string)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.during = f
}

// took returns the calls since the last time.
func (h *hooks) took() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.calls
	h.calls = nil
	return out
}

func (h *hooks) want(t testing.TB, calls ...string) {
	t.Helper()
	if d := cmp.Diff(calls, h.took()); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
}

// living is an endpoint whose modules have lifecycle hooks.
func living(t testing.TB, modules ...string) (*host, *answers, *hooks) {
	t.Helper()
	s, a := scripted(t, modules...)
	h := &hooks{up: make(map[string]bool), config: make(map[string]map[string]string), fail: make(map[string]string)}
	other := a.invoke
	a.invoke = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
		switch method {
		case "plugin.lifecycle.call":
			return h.answer(ctx, params)
		case "plugin.model.invoke":
			return json.RawMessage(`{"result":` + string(params) + `}`), nil
		}
		return other(ctx, method, params)
	}
	return s, a, h
}

func withHooks(id, members string, names ...string) string {
	list, _ := json.Marshal(names)
	doc := oneAction + `,"lifecycle":{"hooks":` + string(list) + `}`
	if members != "" {
		doc += "," + members
	}
	return manifest(id, doc)
}
