package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// far is the browser's end of a pipe.
type far struct {
	*pipe
	commands, answers *os.File
	ended             chan struct{} // closed when ours asked for its end
	events            chan string
}

func talk(t *testing.T) far {
	t.Helper()
	commands, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, answers, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	f := far{commands: commands, answers: answers, ended: make(chan struct{}), events: make(chan string, 10)}
	f.pipe = newPipe(to, func() { close(f.ended) }, func(session, method string, _ json.RawMessage) { f.events <- session + " " + method })
	go f.listen(from)
	t.Cleanup(func() {
		_ = closeAll(nil, commands, answers)
		<-f.done
		_ = closeAll(nil, to, from)
	})
	return f
}

func TestAnswersAndEventsFindTheirWay(t *testing.T) {
	t.Parallel()
	f := talk(t)
	go func() {
		r := bufio.NewReader(f.commands)
		for _, answer := range []string{
			`{"method":"Page.loaded","sessionId":"s","params":{}}` + "\x00" + `{"id":99,"result":{}}` + "\x00" + `{"id":1,"result":{"n":7}}` +
				"\x00",
			`{"id":2,"error":{"message":"no such thing"}}` + "\x00",
			`no message` + "\x00",
		} {
			text, err := r.ReadString(0)
			if err != nil || !strings.Contains(text, `"sessionId":"s"`) {
				return
			}
			_, _ = f.answers.WriteString(answer)
		}
	}()
	var got struct{ N int }
	if err := f.call(t.Context(), "s", "A.b", map[string]any{"x": 1}, &got); err != nil || got.N != 7 {
		t.Errorf("%+v %v; want no error, got.N = 7", got, err)
	}
	if event := <-f.events; event != "s Page.loaded" {
		t.Errorf(`event = %q, want "s Page.loaded"`, event)
	}
	err := f.call(t.Context(), "s", "A.c", nil, nil)
	if !refusedBy(err) || err.Error() != "A.c: no such thing" {
		t.Errorf(`%v; want refusedBy(err), err.Error() = "A.c: no such thing"`, err)
	}
	if err := f.call(t.Context(), "s", "A.d", nil, nil); !errors.Is(err, errGone) {
		t.Errorf("what is not a message ends it: %v; want err is %v", err, errGone)
	}
}

func TestABrowserThatDoesNotListenIsEnded(t *testing.T) {
	t.Parallel()
	f := talk(t)
	f.patience = 50 * time.Millisecond
	err := f.call(t.Context(), "", "A.b", strings.Repeat("x", 1<<20), nil) // more than a pipe holds
	if !errors.Is(err, errGone) {
		t.Errorf("%v; want err is %v", err, errGone)
	}
	<-f.ended
}

func TestACallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := talk(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.call(ctx, "", "A.b", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want err is context.Canceled", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting) != 0 {
		t.Errorf("it is still waited for; got len(f.waiting) = %v; want len(f.waiting) = 0", len(f.waiting))
	}
}

func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	if _, err := readMessage(bufio.NewReader(strings.NewReader(strings.Repeat("x", maxMessage+1) + "\x00"))); !errors.Is(err,
		bufio.ErrTooLong) {
		t.Errorf("%v; want err is bufio.ErrTooLong", err)
	}
}
