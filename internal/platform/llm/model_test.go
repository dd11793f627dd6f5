package llm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/llm"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

// pair returns a model with two services and the clock of its breakers.
func pair(t *testing.T, first, second func(n int, w http.ResponseWriter, r *http.Request)) (*llm.Model, []*service, *time.Time) {
	t.Helper()
	now := time.Unix(0, 0)
	services := []*service{serve(t, first), serve(t, second)}
	var clients []*llm.Client
	for i, s := range services {
		c, err := llm.New(llm.Config{
			Form: modelwire.OpenAIChat, BaseURL: s.URL + "/v1", Model: fmt.Sprint("m-", i), Wait: immediately, Timeout: 5 * time.Second,
		})
		if err != nil {
			t.Fatalf("make a client of %s: got %v, want no error", s.URL, err)
		}
		t.Cleanup(c.Close)
		clients = append(clients, c)
	}
	return llm.NewModel(func() time.Time { return now }, clients...), services, &now
}

func whole(_ int, w http.ResponseWriter, _ *http.Request) { write(w, "application/json", openAIBody) }

func status(code int) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func TestTheNextServiceIsAskedWhereThatHelps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first func(int, http.ResponseWriter, *http.Request)
		want  string // error code, requests of the first and of the second service
	}{
		"overloaded":            {status(http.StatusTooManyRequests), " 1 1"},
		"out of order":          {status(529), " 1 1"},
		"cut before a piece":    {func(int, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, " 1 1"},
		"the request is faulty": {status(http.StatusBadRequest), "failed 1 0"},
		"the key is faulty":     {status(http.StatusUnauthorized), "unavailable 1 0"},
		"works":                 {whole, " 1 0"},
	} {
		m, services, _ := pair(t, c.first, whole)
		text, _, err := m.Complete(t.Context(), "", "x")
		if got := fmt.Sprint(capability.CodeOf(err), " ", len(services[0].asked()), " ", len(services[1].asked())); got != c.want {
			t.Errorf("%s: got %q (%v), want %q", name, got, err, c.want)
		}
		if err == nil && text != "hello é" {
			t.Errorf("%s: got %q, want %q", name, text, "hello é")
		}
	}
}

func TestAReplyThatHasBegunIsNotAskedAgainElsewhere(t *testing.T) {
	t.Parallel()
	m, services, _ := pair(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		write(w, "text/event-stream", `data: {"choices":[{"delta":{"content":"a"}}]}`+"\n\n")
	}, whole)
	var got []string
	_, err := m.Exchange(t.Context(), modelwire.Request{}, func(d modelwire.Delta) error { got = append(got, d.Text); return nil })
	if capability.CodeOf(err) != capability.CodeUnavailable || len(services[1].asked()) != 0 || strings.Join(got, "") != "a" {
		t.Errorf("got %q, %v and %d requests to the second service, want a, unavailable and 0", got, err, len(services[1].asked()))
	}
}

func TestAServiceThatFailsInARowIsLeftOutForAWhile(t *testing.T) {
	t.Parallel()
	m, services, now := pair(t, status(http.StatusBadGateway), whole)
	ask := func(want string) {
		t.Helper()
		if _, _, err := m.Complete(t.Context(), "", "x"); err != nil {
			t.Errorf("ask: got %v, want no error", err)
		}
		if got := fmt.Sprint(len(services[0].asked()), " ", len(services[1].asked())); got != want {
			t.Errorf("requests of the two services: got %s, want %s", got, want)
		}
	}
	ask("1 1")
	ask("2 2")
	ask("3 3")
	ask("3 4")
	*now = now.Add(31 * time.Second)
	ask("4 5") // the trial fails
	ask("4 6")
	*now = now.Add(31 * time.Second)
	ask("4 7") // twice as long now
}

func TestAnExchangeHasToolsCallsAndTheServicesOwnContent(t *testing.T) {
	t.Parallel()
	const message = `{"role":"assistant","content":null,"own": [1.50],"tool_calls":[{"id":"c1","type":"function","function":{"name":"read","arguments":"{}"}}]}`
	s := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"choices":[{"message":`+message+`,"finish_reason":"tool_calls"}]}`)
	})
	m := s.client(t, llm.Config{})
	req := modelwire.Request{
		Tools:    []modelwire.Tool{{Name: "read"}},
		Messages: []modelwire.Message{{Role: modelwire.User, Blocks: []modelwire.Block{{Kind: modelwire.Text, Text: "x"}}}},
	}
	var pieces []modelwire.Delta
	reply, err := m.Exchange(t.Context(), req, func(d modelwire.Delta) error { pieces = append(pieces, d); return nil })
	if err != nil || reply.Stop != modelwire.StopCalls || len(reply.Message.Calls()) != 1 || len(pieces) != 1 || pieces[0].Name != "read" {
		t.Errorf("got %+v, pieces %+v, %v; want one call of read, also as a piece, and no error", reply, pieces, err)
	}
	req.Messages = append(req.Messages, reply.Message, modelwire.Message{
		Role: modelwire.User, Blocks: []modelwire.Block{{Kind: modelwire.Result, ID: "c1", Name: "read", Text: "found"}},
	})
	if _, err := m.Exchange(t.Context(), req, nil); err != nil || !strings.Contains(s.asked()[1], message) {
		t.Errorf("second request: %v, got %s, want it with %s", err, s.asked()[1], message)
	}
}

// The model of a module gets one text, and its failure passes on to the next service.
func TestAModelWithoutAServiceAnswersTexts(t *testing.T) {
	t.Parallel()
	var prompts []string
	fails := false
	asked, err := llm.New(llm.Config{Model: "TEXT_SMALL", MaxText: 10, Ask: func(_ context.Context, prompt string, _ int) (string, error) {
		prompts = append(prompts, prompt)
		if fails {
			return "", errors.New("it is out of order")
		}
		return "a very long answer", nil
	}})
	if err != nil {
		t.Fatalf("make a client: got %v, want no error", err)
	}
	t.Cleanup(asked.Close)
	next := serve(t, whole)
	other, err := llm.New(llm.Config{
		Form: modelwire.OpenAIChat, BaseURL: next.URL + "/v1", Model: "m", Wait: immediately, Timeout: 5 * time.Second, PriceIn: 3, PriceOut: 5,
	})
	if err != nil {
		t.Fatalf("make a client: got %v, want no error", err)
	}
	t.Cleanup(other.Close)
	m := llm.NewModel(nil, asked, other)
	req := modelwire.Request{System: []string{"Be brief."}, Messages: []modelwire.Message{
		{Role: modelwire.User, Blocks: []modelwire.Block{{Kind: modelwire.Text, Text: "hello"}}},
	}}
	reply, err := m.Exchange(t.Context(), req, nil)
	if got := reply.Message.Text(); got != "a very lon" || err != nil || prompts[0] != "Be brief.\n\nuser: hello\n" {
		t.Errorf("got %q for %q and %v, want the answer cut at 10 bytes", got, prompts, err)
	}
	fails = true
	if reply, err = m.Exchange(t.Context(), req, nil); err != nil || len(prompts) != 2 || reply.Message.Text() == "" {
		t.Errorf("after a failure: got %+v and %v, want the answer of the next service", reply, err)
	}
	if want := int64(reply.Usage.In*3 + reply.Usage.Out*5); want == 0 || reply.Usage.Cost != want {
		t.Errorf("the cost of %+v: got %d, want %d", reply.Usage, reply.Usage.Cost, want)
	}
	req.Tools = []modelwire.Tool{{Name: "t"}}
	if _, err := llm.NewModel(nil, asked).Exchange(t.Context(), req, nil); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("a request with tools: got %v, want invalid_input", err)
	}
}
