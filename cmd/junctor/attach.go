package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"
	tty "golang.org/x/term"

	"github.com/junctor-run/junctor/capability"
)

const detachKey = 0x1d // Ctrl-]

// attachCommand returns the command that shows the terminal of a task agent and lets the user type.
func (a *app) attachCommand() *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use: "attach ID", Short: "Show the terminal of a session and type into it", Args: cobra.ExactArgs(1),
		Long: `Show the terminal of a session and type into it. ID is a session, or a thread or
task: then it is the last of its sessions that runs. Ctrl-] leaves it running.

While you are attached nobody else types: messages wait, and dialogs are not answered.
That ends when you leave, or after a minute without a key.`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.attach(cmd.Context(), args[0], watch) },
	}
	c.Flags().BoolVar(&watch, "watch", false, "only look; keys are not passed on")
	return c
}

// attached is the connection to one session's terminal.
type attached struct {
	conn    *websocket.Conn
	session string
	typed   time.Time // last time at which control was taken
	// bare is set if the session has no terminal, so that each typed line is sent as a message.
	bare atomic.Bool
	line []byte
}

func (t *attached) send(ctx context.Context, doc map[string]any) error {
	doc["sessionId"] = t.session
	data, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, attachWriteTimeout)
	defer cancel()
	return t.conn.Write(ctx, websocket.MessageText, data)
}

// attach connects to the console of the server, shows the session's terminal and, unless watch is
// set or standard input is not a terminal, sends the typed keys. It returns when the session ends
// or the user detaches.
func (a *app) attach(ctx context.Context, session string, watch bool) error {
	const op = "tasks.attach"
	session, err := a.sessionOf(ctx, session)
	if err != nil {
		return err
	}
	url, token, err := a.connection()
	if err != nil {
		return err
	}
	header := http.Header{"Authorization": {"Bearer " + token.Reveal()}}
	address := "ws" + strings.TrimPrefix(url, "http") + childBase + "/console"
	//nolint:bodyclose // the library does not require it
	conn, res, err := websocket.Dial(ctx, address, &websocket.DialOptions{HTTPHeader: header})
	switch {
	case err != nil && res != nil && res.StatusCode == http.StatusUnauthorized:
		return capability.Errorf(capability.CodeUnauthenticated, op, "the server does not know this token").With("",
			"give one with --token or JUNCTOR_TOKEN")
	case err != nil && res != nil:
		return capability.Errorf(capability.CodeDenied, op, "the server does not let you watch sessions (HTTP %d)", res.StatusCode)
	case err != nil:
		return capability.Wrap(capability.CodeUnavailable, op, "the server cannot be reached", err)
	}
	defer func() { _ = conn.CloseNow() }() // errors of closing are irrelevant
	conn.SetReadLimit(maxAttachMessage)
	t := &attached{conn: conn, session: session}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := t.send(ctx, map[string]any{"type": "subscribe", "base64": true}); err != nil {
		return capability.Wrap(capability.CodeUnavailable, op, "the server does not listen", err)
	}
	in, isFile := a.stdin.(*os.File)
	if isFile && terminal(in) && !watch {
		old, err := tty.MakeRaw(int(in.Fd()))
		if err != nil {
			return capability.Wrap(capability.CodeFailed, op, "this terminal cannot be made to pass keys on", err)
		}
		defer func() {
			_ = tty.Restore(int(in.Fd()), old) // undo raw mode
			a.printf("\x1b[!p\x1b[?1049l\x1b[?2004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?25h\r\n")
		}()
		a.resize(ctx, t, in)
		sized := make(chan os.Signal, 1)
		onResize(sized)
		defer signal.Stop(sized)
		go t.follow(ctx, sized, func() { a.resize(ctx, t, in) })
		go a.keys(ctx, t, in, cancel) // its last read ends with the program
	}
	return a.show(ctx, t)
}

// resize takes control and sets the size of the session's terminal to that of this one.
func (a *app) resize(ctx context.Context, t *attached, in *os.File) {
	_ = t.send(ctx, map[string]any{"type": "control", "take": true}) // the next read reports a failure
	if cols, rows, err := tty.GetSize(int(in.Fd())); err == nil && cols > 0 {
		_ = t.send(ctx, map[string]any{"type": "resize", "cols": cols, "rows": rows})
	}
}

func (t *attached) follow(ctx context.Context, sized <-chan os.Signal, resize func()) {
	for {
		select {
		case <-sized:
			resize()
		case <-ctx.Done():
			return
		}
	}
}

// keys sends typed keys to the session until the user detaches, and then calls leave with errLeft.
func (a *app) keys(ctx context.Context, t *attached, in *os.File, leave context.CancelCauseFunc) {
	buf := make([]byte, 4096)
	for ctx.Err() == nil {
		n, err := in.Read(buf)
		text := string(buf[:n])
		if before, _, left := strings.Cut(text, string(rune(detachKey))); left || err != nil {
			if before != "" && !t.bare.Load() {
				_ = t.send(ctx, map[string]any{"type": "input", "data": before})
			}
			leave(errLeft)
			return
		}
		if t.bare.Load() {
			a.printf("%s", t.compose(ctx, buf[:n]))
			continue
		}
		if time.Since(t.typed) > renewControlInterval {
			_ = t.send(ctx, map[string]any{"type": "control", "take": true})
			t.typed = time.Now()
		}
		if t.send(ctx, map[string]any{"type": "input", "data": text}) != nil {
			return
		}
	}
}

// compose adds typed bytes to the line of a message, sends the line at Enter, and returns the text
// to echo.
func (t *attached) compose(ctx context.Context, typed []byte) (echo string) {
	for _, b := range typed {
		switch {
		case b == '\r' || b == '\n':
			if len(t.line) > 0 {
				_ = t.send(ctx, map[string]any{"type": "message", "text": string(t.line)}) // the next read reports a failure
			}
			t.line, echo = t.line[:0], echo+"\r\x1b[K" // the server shows it as part of the conversation
		case b == 0x7f || b == '\b':
			_, size := utf8.DecodeLastRune(t.line)
			t.line = t.line[:len(t.line)-size]
			echo += "\r\x1b[K" + string(t.line)
		case b >= ' ':
			t.line = append(t.line, b)
			echo += string([]byte{b})
		}
	}
	return echo
}

// errLeft is the cause of a context that ended because the user detached.
var errLeft = errors.New("left")

// show prints the session's output until the session ends or the user detaches, which are not
// errors. It fails with unavailable if the connection is lost.
func (a *app) show(ctx context.Context, t *attached) error {
	const op = "tasks.attach"
	for {
		_, data, err := t.conn.Read(ctx)
		if err != nil {
			if errors.Is(context.Cause(ctx), errLeft) {
				return nil
			}
			return capability.Wrap(capability.CodeUnavailable, op, "the connection to the server is lost", err)
		}
		var m struct {
			Type, Code, Message, Data string
			Event                     struct {
				Type     string
				ExitCode *int
			}
		}
		if json.Unmarshal(data, &m) != nil {
			continue
		}
		switch m.Type {
		case "snapshot", "output":
			out, err := base64.StdEncoding.DecodeString(m.Data)
			if err != nil {
				return capability.Wrap(capability.CodeFailed, op, "the server sends something else than output", err)
			}
			if _, err := a.stdout.Write(out); err != nil {
				return err
			}
		case "error":
			if m.Code == "session_not_found" {
				return capability.Errorf(capability.CodeNotFound, op, "%s", plainText(m.Message)).With(m.Code, "list them with: junctor tasks list")
			}
			if m.Code == "no_terminal" {
				if !t.bare.Swap(true) {
					a.printf("\r\n[it has no terminal: what you type is sent as a message when you press Enter]\r\n")
				}
				continue
			}
			a.printf("\r\n[%s]\r\n", plainText(m.Message))
		case "status":
			if m.Event.Type == "stopped" || m.Event.Type == "error" {
				a.printf("\r\n[the session is over]\r\n")
				return nil
			}
		}
	}
}
