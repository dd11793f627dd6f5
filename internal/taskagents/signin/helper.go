package signin

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/platform/process"
	"github.com/junctor-run/junctor/internal/taskagents/term"
	"github.com/junctor-run/junctor/secret"
)

const (
	cols, rows = 120, 40
)

// Helper is a program's own login command.
type Helper struct {
	Argv []string
	Env  []string // complete environment, with Mark
	Dir  string
	Mark string // unique entry of Env that identifies its processes
	// LoggedIn reports whether a user is logged in.
	LoggedIn func(ctx context.Context) bool
}

// Run implements [Flow]. When it returns, the command and all its descendants have ended, also
// after a successful login. Output beyond 1 MiB is ignored.
//
// Its errors: those of [process.Start], that of ctx, and failed (login_failed) with the last
// line of output if the command ended and no user is logged in.
func (h Helper) Run(ctx context.Context, show func(Prompt), typed <-chan string) error {
	before := h.LoggedIn(ctx) // if true, a check proves this login only after the command has ended
	p, err := process.Start(process.Spec{Argv: h.Argv, Env: h.Env, Dir: h.Dir, Cols: cols, Rows: rows, Mark: h.Mark})
	if err != nil {
		return err
	}
	w := newWatch(p)
	read := make(chan struct{})
	go func() {
		defer close(read)
		w.read(p)
	}()
	gone := make(chan struct{})
	go func() {
		<-p.Done()
		<-read
		_ = p.Close() // all output was read
		close(gone)
	}()
	defer func() {
		p.Kill()
		<-gone
	}()
	return h.wait(ctx, before, p, w, gone, show, typed)
}

// wait calls show when the screen has an address, or firstOutputTimeout after the first output,
// and for later changes. It sends typed texts to the command and checks the account until a user
// is logged in, the command has ended or ctx ends.
func (h Helper) wait(ctx context.Context, before bool, p *process.Process, w *watch, gone <-chan struct{}, show func(Prompt),
	typed <-chan string,
) error {
	poll, glance := time.NewTicker(pollInterval), time.NewTicker(lookInterval)
	defer poll.Stop()
	defer glance.Stop()
	var late <-chan time.Time
	var f found
	shown, entered := false, false
	tell := func() {
		shown = true
		show(f.prompt(h.Argv))
	}
	for {
		select {
		case <-ctx.Done():
			return capability.AsError(ctx.Err())
		case <-glance.C:
			var news bool
			if f, news = w.look(f); !news {
				continue
			}
			if f.url != "" || shown {
				tell()
			} else if late == nil {
				late = time.After(firstOutputTimeout)
			}
		case <-late:
			if !shown {
				tell()
			}
		case text := <-typed:
			entered = true
			go func() { _, _ = p.Write([]byte(text + "\r")) }() // a program that does not read is ended later
		case <-poll.C:
			if !before && h.LoggedIn(ctx) {
				return nil
			}
		case <-gone:
			if h.LoggedIn(ctx) && (p.Exit().Code == 0 || !before) {
				return nil
			}
			if ctx.Err() != nil {
				return capability.AsError(ctx.Err())
			}
			words := w.last()
			if entered { // the output may contain the code
				words = "the code was not taken"
			}
			return capability.Errorf(capability.CodeFailed, "tasks.login", "%s has ended without a login: %s", h.Argv[0],
				words).With("login_failed", "run it yourself, on the machine of the server")
		}
	}
}

// prompt returns the instructions for the user.
func (f found) prompt(argv []string) Prompt {
	p := Prompt{URL: f.url, DeviceCode: f.code}
	switch {
	case f.url != "" && f.code != "":
		p.Instructions = "Open the address and enter the code there."
	case f.url != "":
		p.Instructions = "Open the address and log in there. Where the page ends at an address of this machine, open it in a browser of this machine."
	case f.code != "":
		p.Instructions = "Enter the code where the program says."
	default:
		p.Instructions = "The program shows no address yet. If none comes, run it yourself, on the machine of the server: " +
			strings.Join(argv, " ")
	}
	if f.asks {
		p.Instructions += " Where you are given a code there, send it as {\"code\": \"…\"} to where this login was started."
	}
	if f.url == "" && len(f.others) > 0 {
		told := strings.Join(f.others, " ")
		p.Instructions += " It names an address of a host that is not known to be the vendor's, so look at it before you open it: " +
			text.ValidBytes(told, maxTold)
	}
	return p
}

// watch holds the screen of a program and the links on it.
type watch struct {
	mu      sync.Mutex
	screen  *term.Screen
	links   []string
	changed bool // since the last look
}

func newWatch(p *process.Process) *watch {
	w := &watch{screen: term.New(cols, rows)}
	replies := 0
	w.screen.Reply = func(answer []byte) {
		if replies++; replies <= maxReplies {
			_, _ = p.Write(answer) // a program that has ended needs no reply
		}
	}
	w.screen.OSC = func(n int, data string) {
		if _, uri, ok := strings.Cut(data, ";"); n == 8 && ok && rest.MatchString(uri) && len(w.links) < maxLinks {
			w.links = append(w.links, uri)
		}
	}
	return w
}

// read writes the program's output to the screen until the program ends.
func (w *watch) read(p *process.Process) {
	buf := make([]byte, 32<<10)
	for printed := 0; ; {
		n, err := p.Read(buf)
		if printed += n; n > 0 && printed <= maxPrinted {
			w.mu.Lock()
			_, _ = w.screen.Write(buf[:n]) // it never fails
			w.changed = true
			w.mu.Unlock()
		}
		if err != nil { // the end
			return
		}
	}
}

// look returns the content of the screen, and whether it differs from was.
func (w *watch) look(was found) (f found, changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.changed {
		return was, false
	}
	w.changed = false
	return look(w.lines(), cols, w.links), true
}

func (w *watch) lines() []string {
	lines := w.screen.Scrollback()
	lines = lines[max(0, len(lines)-maxLines):]
	for y := range rows {
		lines = append(lines, strings.TrimRight(w.screen.Row(y), " "))
	}
	return lines
}

// last returns the last line that is not blank, with credentials masked.
func (w *watch) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines()
	for i := len(lines) - 1; i >= 0; i-- {
		if line := strings.TrimSpace(lines[i]); line != "" {
			line = secret.MaskTokens(line)
			return text.ValidBytes(line, 200)
		}
	}
	return "it said nothing"
}
