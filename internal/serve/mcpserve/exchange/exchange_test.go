package exchange

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// made answers one request, and returns what was written.
func made(accept string, e mcpwire.Era, during func(*Exchange), out Outcome) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/mcp", http.NoBody)
	r.Header.Set("Accept", accept)
	m := &mcpwire.Message{ID: json.RawMessage(`7`)}
	m.Params.Meta.Progress = json.RawMessage(`"p"`)
	x := New(w, r, m, e)
	during(x)
	x.End(out)
	return w
}

func TestAnAnswerIsJSONUntilSomethingIsSaidBefore(t *testing.T) {
	t.Parallel()
	nothing := func(*Exchange) {}
	says := func(x *Exchange) { x.SendChunk(capability.Chunk{Progress: 1, Message: "half"}) }
	fault := &mcpwire.Fault{Status: http.StatusForbidden, Code: jsonrpc.CodeInvalidRequest, Message: "no"}
	for name, tt := range map[string]struct {
		accept string
		modern bool
		during func(*Exchange)
		out    Outcome
		status int
		kind   string
		has    []string
	}{
		"a result": {
			"*/*", false, nothing,
			Outcome{Result: []byte(`{}`)},
			200, "application/json",
			[]string{`{"jsonrpc":"2.0","id":7,"result":{}}`},
		},
		"a result after progress": {
			"*/*", false, says,
			Outcome{Result: []byte(`{}`)},
			200, "text/event-stream",
			[]string{`"progressToken":"p","progress":1,"message":"half"`, `"result":{}`},
		},
		"a client that takes no event": {
			"application/json", false, says,
			Outcome{Result: []byte(`{}`)},
			200, "application/json",
			[]string{`"result":{}`},
		},
		"a fault of a session": {"*/*", false, nothing, Outcome{Fault: fault}, 200, "application/json", []string{`"message":"no"`}},
		"a token too narrow for it": {
			"*/*", false, nothing,
			Outcome{Fault: fault, Narrow: capability.EffectWrite},
			403, "application/json",
			[]string{`"message":"no"`},
		},
		"a fault": {"*/*", true, nothing, Outcome{Fault: fault}, 403, "application/json", []string{`"message":"no"`}},
		"a fault after progress": {
			"*/*", true, says,
			Outcome{Fault: fault},
			200, "text/event-stream",
			[]string{`"message":"half"`, `"message":"no"`},
		},
		"a call that was withdrawn": {"*/*", false, nothing, Outcome{Silent: true}, 200, "text/event-stream", nil},
	} {
		w := made(tt.accept, mcpwire.Era{Modern: tt.modern}, tt.during, tt.out)
		if w.Code != tt.status || w.Header().Get("Content-Type") != tt.kind {
			t.Errorf(`%s: %d %s; want w.Code = %v, w.Header().Get("Content-Type") = %v`,
				name, w.Code, w.Header().Get("Content-Type"), tt.status, tt.kind)
		}
		rest := w.Body.String()
		for _, part := range tt.has {
			_, after, ok := strings.Cut(rest, part)
			if !ok {
				t.Errorf("%s: %s is not in %s; want ok = true", name, part, w.Body)
			}
			rest = after
		}
		if len(tt.has) == 0 && rest != "" {
			t.Errorf(`%s: %s; want not (len(tt.has) == 0 && rest != "")`, name, rest)
		}
	}
}

func TestProgressIsRareAndItsLastIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := made("*/*", mcpwire.Era{}, func(x *Exchange) {
			for i := range 1000 {
				x.SendChunk(capability.Chunk{Progress: float64(i)})
			}
		}, Outcome{Result: []byte(`{}`)})
		if n := strings.Count(w.Body.String(), "notifications/progress"); n > MaxProgress+1 ||
			!strings.Contains(w.Body.String(), `"progress":999}`) {
			t.Errorf(`%d notices: %s; want n at most MaxProgress + 1, w.Body.String() with "\"progress\":999}"`, n, w.Body)
		}
	})
}

func TestALogIsHeardFromItsSeverityOn(t *testing.T) {
	t.Parallel()
	w := made("*/*", mcpwire.Era{}, func(x *Exchange) {
		x.Logs, x.Severity = true, 3
		for _, level := range append(Severities(), "unknown") {
			x.SendChunk(capability.Chunk{Stage: capability.StageLog, Data: json.RawMessage(`{"level":"` + level + `"}`)})
		}
	}, Outcome{Result: []byte(`{}`)})
	for i, level := range append(Severities(), "unknown") {
		if strings.Contains(w.Body.String(), `"level":"`+level+`"`) != (i >= 3) {
			t.Errorf("%s: %s; want strings.Contains(w.Body.String(), `\"level\":\"`+level+`\"`) = (i >= 3)", level, w.Body)
		}
	}
}
