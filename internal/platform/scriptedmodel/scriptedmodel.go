// Package scriptedmodel is a language model on loopback whose answers are in a script. With it,
// the programs of task agents run without a model service and without a network: in the check of
// programs whose version is not known yet, and in tests.
// It uses the Messages API of Anthropic, the Responses and chat completions APIs of OpenAI, and
// generateContent of Gemini, each streamed or not.
//
// It keeps no state of conversations: programs send the whole conversation each time.
// The last text of a user that holds the name of a play chooses it, and the results of
// tools that follow that text count its steps. What holds no name, or comes without
// tools, is a request of a program's own, such as for a title, and gets a harmless word.
package scriptedmodel

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Step is what the model does when it is asked; one member is set, Slow beside it or not.
type Step struct {
	Say   string        // ends the turn
	Write *File         // calls the program's tool that writes a file, or else its shell
	Patch *File         // the same, but prefers a tool that takes a patch to the shell
	Run   string        // calls its tool that runs a command
	Call  *Call         // calls a tool of the program by name
	Leave bool          // a command asks to leave the program's sandbox, where it has one
	Fail  Failure       // answers with an error
	Times int           // how many requests Fail is for, after which the next step counts; 0: all of them
	Slow  time.Duration // waits before that, two minutes at most, or until the client has disconnected
}

// File is a file for a program to write.
type File struct{ Path, Text string }

// Call is a call of the first of some tools that a program offers.
type Call struct {
	Names []string
	Args  map[string]any
	// Namespace is that of the first name, which is called if none is offered but a search for tools is.
	Namespace string
}

// Failure is the kind of an error.
type Failure string

// The failures.
const (
	Auth      Failure = "auth"       // 401
	RateLimit Failure = "rate_limit" // 429
	Billing   Failure = "billing"    // no money is left
	Cut       Failure = "cut"        // the connection ends in the middle of the answer
)

// Script is the plays by their names. A step after the last is the last one again.
type Script map[string][]Step

// Asked is one request for an answer.
type Asked struct {
	Path string
	Play string // "": a request of the program's own
	Step int
	Text string // the whole conversation with its system prompt
	Last string // the last text of the user
	// Tools are the names of those that the program offers, also of tools that the provider runs.
	Tools []string
	Tool  string // that the answer calls; "": it is words, or a failure
	At    time.Time
}

// Model is the server. Make it with Start; Close ends it.
type Model struct {
	url    string
	script Script
	server *http.Server
	done   chan struct{}

	mu    sync.Mutex
	asked []Asked
}

// Start listens on a port of its own on loopback.
func Start(script Script) (*Model, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &Model{url: "http://" + listener.Addr().String(), script: script, done: make(chan struct{})}
	m.server = &http.Server{Handler: m, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(m.done)
		_ = m.server.Serve(listener) // until Close
	}()
	return m, nil
}

// URL is the address, without a path.
func (m *Model) URL() string { return m.url }

// Close ends the server, and every request that still waits.
func (m *Model) Close() {
	_ = m.server.Close() // its connections are not waited for
	<-m.done
}

// Asked returns the requests that played a play, the oldest first; 500 are kept.
func (m *Model) Asked(play string) []Asked {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.asked), func(a Asked) bool { return a.Play != play })
}

// ServeHTTP answers one request of a program.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	speak := dialectOf(r.URL.Path)
	if speak == nil || r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/count_tokens") || strings.HasSuffix(r.URL.Path, ":countTokens") {
		writeJSON(w, http.StatusOK, object{"input_tokens": 5, "totalTokens": 5})
		return
	}
	req, err := speak.read(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	req.stream = req.stream || strings.HasSuffix(r.URL.Path, ":streamGenerateContent")
	play, n := m.find(req)
	step := Step{Say: "Hello"}
	if steps := m.script[play]; len(steps) > 0 {
		if first := steps[0]; first.Times > 0 && len(m.Asked(play)) >= first.Times {
			steps = steps[1:]
		}
		step = steps[min(n, len(steps)-1)]
	}
	out, ok := req.answer(step)
	if !ok {
		out = answer{say: "None of your tools does that."}
	}
	m.keep(Asked{Path: r.URL.Path, Play: play, Step: n, Text: req.text(), Last: req.last(), Tools: req.names, Tool: out.tool, At: time.Now()})
	if !pause(r.Context(), min(step.Slow, maxReplyDelay)) {
		return
	}
	if step.Fail == Cut {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: message_start\ndata: {\"type\":") // the rest never arrives
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	if step.Fail != "" {
		status, doc := speak.failure(step.Fail)
		w.Header().Set("Retry-After", "1")
		writeJSON(w, status, doc)
		return
	}
	speak.write(w, out, req.stream)
}

// find returns the play of a conversation and how many of its steps are done. The last text of the user that
// names a play decides; of several names the first counts, and of those that begin there the longest.
func (m *Model) find(req request) (play string, step int) {
	if !slices.ContainsFunc(req.tools, func(t tool) bool { return !t.free }) { // Codex offers tools with text input to its titles too
		return "", 0
	}
	for i, it := range slices.Backward(req.items) {
		if it.role != user {
			continue
		}
		first := -1
		for name := range m.script {
			if at := strings.Index(it.text, name); at >= 0 && (first < 0 || at < first || at == first && len(name) > len(play)) {
				play, first = name, at
			}
		}
		if first < 0 {
			continue
		}
		for _, later := range req.items[i+1:] {
			if later.role == result {
				step++
			}
		}
		return play, step
	}
	return "", 0
}

func (m *Model) keep(a Asked) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked[max(0, len(m.asked)-maxAsked+1):], a)
}

func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
