package structured

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

// served is a program that offers its protocol over HTTP on loopback, as a [Child] with lines: package
// dialect describes them. It reads the address from the program's output and its events from GET /event.
// Only it and the program have the password. If the server does not answer, or sends what is too large,
// the program is killed, and the reason is added to its standard error.
type served struct {
	Child
	words    io.Writer
	password string
	client   *http.Client

	ctx    context.Context
	cancel context.CancelFunc
	ready  chan struct{} // closed when events arrive
	base   string        // the address, once ready is closed
	lines  *io.PipeReader
	mu     sync.Mutex // held while a line is written to out
	out    *io.PipeWriter
	group  sync.WaitGroup
}

// listening matches the line with the address. Other addresses are not used.
var listening = regexp.MustCompile(`^opencode server listening on (http://127\.0\.0\.1:[0-9]{1,5})/?\s*$`)

func serve(c Child, password string, words io.Writer) *served {
	s := &served{Child: c, words: words, password: password, ready: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.lines, s.out = io.Pipe()
	s.client = &http.Client{
		Transport: &http.Transport{
			ResponseHeaderTimeout: handshakeTimeout, MaxResponseHeaderBytes: maxHeader, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.group.Go(s.run)
	return s
}

// Read reads lines for the session.
func (s *served) Read(b []byte) (int, error) { return s.lines.Read(b) }

// Close ends all requests and closes the program's pipes.
func (s *served) Close() error {
	s.cancel()
	_ = s.lines.Close()
	err := s.Child.Close()
	s.group.Wait()
	s.client.CloseIdleConnections()
	return err
}

// fail kills the program for a reason.
func (s *served) fail(format string, args ...any) {
	if s.ctx.Err() == nil {
		_, _ = fmt.Fprintf(s.words, "\n"+format+"\n", args...) // to memory
		s.Kill()
	}
}

// run reads the address and then the events, until the program ends.
func (s *served) run() {
	defer s.out.Close()
	output := bufio.NewReader(s.Child)
	for range maxGarbage {
		line, _, err := readLine(output, maxHeader)
		if err != nil {
			return
		}
		if m := listening.FindSubmatch(line); m != nil {
			s.base = string(m[1])
			break
		}
	}
	if s.base == "" {
		s.fail("the program did not print the address of its server")
		return
	}
	s.group.Go(func() { _, _ = io.Copy(io.Discard, output) }) // until the program ends
	err := s.events()
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-s.Done():
	case <-s.ctx.Done():
	case <-grace.C:
		s.fail("the events of the program's server ended: %v", err)
	}
}

// events passes the server's events on. Heartbeats show that it lives, and are not passed on.
func (s *served) events() error {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	res, err := s.request(ctx, http.MethodGet, "/event", nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /event was answered with status %d", res.StatusCode)
	}
	close(s.ready)
	in := bufio.NewReaderSize(res.Body, 64<<10)
	silence := time.AfterFunc(silenceTimeout, func() { cancel(fmt.Errorf("nothing arrived for %s", silenceTimeout)) })
	defer silence.Stop()
	for {
		silence.Reset(silenceTimeout)
		line, whole, err := readLine(in, maxLine)
		silence.Stop() // a session that reads slowly is not the server's silence
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if err != nil {
			return err
		}
		if !whole {
			return fmt.Errorf("one has more than %d bytes", maxLine)
		}
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok || isHeartbeat(data) {
			continue
		}
		if !jsonx.Valid(data) {
			return errors.New("one is not JSON")
		}
		if err := s.pass(`{"method":"event","params":`, string(bytes.TrimSpace(data)), `}`); err != nil {
			return err
		}
	}
}

// isHeartbeat reports whether an event only shows that the server lives. The input of a tool may look
// like one, so the event's own type decides.
func isHeartbeat(data []byte) bool {
	var event struct {
		Type string `json:"type"`
	}
	return len(data) < maxHeader && json.Unmarshal(data, &event) == nil && event.Type == "server.heartbeat"
}

// pass writes one line for the session.
func (s *served) pass(parts ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := io.WriteString(s.out, strings.Join(parts, "")+"\n")
	return err
}

func (s *served) request(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.SetBasicAuth("opencode", s.password)
	req.Header.Set("Content-Type", "application/json")
	return s.client.Do(req)
}

// Write sends one call of the session as a request, and passes the response on. Calls are sent one
// after the other.
func (s *served) Write(line []byte) (int, error) {
	select {
	case <-s.ready:
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	case <-s.Done():
		return 0, io.ErrClosedPipe
	}
	var call struct {
		ID     json.Number     `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(line, &call); err != nil {
		return 0, err
	}
	method, path, _ := strings.Cut(call.Method, " ")
	if method == http.MethodGet {
		call.Params = nil
	}
	status, body, err := s.call(method, path, call.Params)
	if err != nil {
		s.fail("the program's server did not answer %s: %v", call.Method, err)
		return 0, err
	}
	answer := map[string]any{"id": call.ID, "result": json.RawMessage("true")}
	switch {
	case status >= 300:
		delete(answer, "result")
		answer["error"] = map[string]any{"code": status, "message": fault(status, body)}
	case json.Valid(body):
		answer["result"] = json.RawMessage(body)
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return 0, err
	}
	return len(line), s.pass(string(data))
}

func (s *served) call(method, path string, body []byte) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, answerTimeout)
	defer cancel()
	res, err := s.request(ctx, method, path, body)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err == nil && len(answer) > maxAnswer {
		err = fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	return res.StatusCode, bytes.TrimSpace(answer), err
}

// fault returns the message of an error of the server.
func fault(status int, body []byte) string {
	var doc struct {
		Message string `json:"message"`
		Data    struct {
			Message string `json:"message"`
		} `json:"data"`
	}
	_ = json.Unmarshal(body, &doc) // of another form: only the status is known
	if doc.Message == "" {
		doc.Message = doc.Data.Message
	}
	return text.ShortenBytes(strings.TrimSpace(fmt.Sprintf("status %d %s", status, doc.Message)), maxHeader)
}
