package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/policy"
)

func (a *app) watchApprovalsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "watch", Short: "Show each new approval as it is requested, and decide it at the terminal", Args: cobra.NoArgs,
		Long: `Show each approval as it is requested. At a terminal, it is shown with every value that it
covers and you decide it with a letter. Otherwise, each is one line. The command runs
until it is interrupted.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := &approvalWatch{app: a, seen: make(map[string]bool)}
			if !a.json && terminal(a.stdin) && terminal(a.stdout) {
				w.lines = a.typedLines(cmd.Context())
			}
			return w.run(cmd.Context())
		},
	}
}

// approvalWatch shows pending approvals.
type approvalWatch struct {
	*app
	seen  map[string]bool
	lines <-chan string // what is typed; nil if nothing is asked
	news  <-chan struct{}
}

// aboutApprovals reports whether an event of the live feed is about an approval.
func aboutApprovals(event string) bool { return strings.HasPrefix(event, "approval.") }

// feed returns a channel that receives a value after events of the live feed whose type matches, and
// after the connection was lost. The goroutine ends with ctx.
func (a *app) feed(ctx context.Context, match func(event string) bool) (<-chan struct{}, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	news := make(chan struct{}, 1)
	notify := func() {
		select {
		case news <- struct{}{}:
		default: // one is waiting
		}
	}
	go func() {
		for ctx.Err() == nil {
			for line, err := range c.Lines(ctx, http.MethodGet, "/api/v1/events", nil) {
				if err != nil {
					break
				}
				var ev struct{ Type string }
				if json.Unmarshal(line, &ev) == nil && (match(ev.Type) || ev.Type == "resync") {
					notify()
				}
			}
			select {
			case <-time.After(feedRetryDelay):
			case <-ctx.Done():
			}
			notify() // an event may have been missed, and the request reports a server that is gone
		}
	}()
	return news, nil
}

// typedLines returns the lines of standard input as they are typed. The goroutine ends with the
// input or, after the next line, with ctx.
func (a *app) typedLines(ctx context.Context) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(a.stdin); in.Scan(); {
			select {
			case lines <- in.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}

func (w *approvalWatch) run(ctx context.Context) (err error) {
	if w.news, err = w.feed(ctx, aboutApprovals); err != nil {
		return err
	}
	tick := time.NewTicker(approvalPollInterval)
	defer tick.Stop()
	for {
		pending, err := w.pendingApprovals(ctx)
		if ctx.Err() != nil {
			return exitStatus(130) // Ctrl-C is the usual end and needs no message
		}
		if err != nil {
			return err
		}
		for i := len(pending) - 1; i >= 0; i-- { // the oldest first
			if c := pending[i]; !w.seen[c.ID] {
				w.seen[c.ID] = true
				if err := w.show(ctx, c); err != nil {
					return err
				}
			}
		}
		w.forget(pending)
		select {
		case <-w.news:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// forget removes the ids that are not pending any more.
func (w *approvalWatch) forget(pending []policy.Approval) {
	still := make(map[string]bool, len(pending))
	for _, c := range pending {
		still[c.ID] = w.seen[c.ID]
	}
	w.seen = still
}

func (w *approvalWatch) show(ctx context.Context, c policy.Approval) error {
	switch {
	case w.json:
		return w.printObject(c)
	case w.lines == nil:
		w.printf("%s %s: %s\n", when(c.Asked), c.ID, text.Visible(c.Summary))
		return nil
	}
	out, err := w.fetchApproval(ctx, c.ID)
	if err != nil {
		return err
	}
	if out.one().State != policy.ApprovalPending {
		return nil
	}
	w.printf("\n")
	if err := w.printApproval(out, true); err != nil {
		return err
	}
	if !c.Waits() {
		w.note(alwaysRule(c))
	}
	return w.ask(ctx, c)
}

// ask reads a decision from the terminal. What was typed before the approval was shown does not count.
func (w *approvalWatch) ask(ctx context.Context, c policy.Approval) error {
	session := ""
	if c.Waits() {
		return w.askProgram(ctx, c)
	}
	if c.Session != "" {
		session = ", [s]ession"
	}
	w.drain()
	for {
		fmt.Fprintf(w.stdout, "[o]nce, one [h]our%s, [a]lways, [d]eny, or Enter for later: ", session)
		line, ok, err := w.read(ctx, c.ID)
		if !ok {
			return err
		}
		decision, known := decisionOf(line, c.Session != "")
		switch {
		case !known:
			continue
		case decision == "":
			return nil
		}
		if err := w.decide(ctx, currentApprovals, c.ID, string(decision)); err != nil {
			w.warnf("%s", plainText(err.Error())) // another operator decided it, or it expired
		}
		return nil
	}
}

// read returns the next typed line. ok is false if the approval is not pending any more, ctx ended, or
// the input did, for which err ends the command.
func (w *approvalWatch) read(ctx context.Context, id string) (line string, ok bool, err error) {
	for {
		select {
		case line, open := <-w.lines:
			if !open {
				return "", false, exitStatus(0)
			}
			return line, true, nil
		case <-w.news:
			if w.ended(ctx, id) {
				return "", false, nil
			}
		case <-ctx.Done():
			return "", false, nil
		}
	}
}

// drain discards the lines that were typed before.
func (w *approvalWatch) drain() {
	for {
		select {
		case _, ok := <-w.lines:
			if !ok {
				return
			}
		default:
			return
		}
	}
}

// askProgram reads an answer for the program that waits. A form of several questions is answered with
// approvals approve.
func (w *approvalWatch) askProgram(ctx context.Context, c policy.Approval) error {
	if len(c.Shown.Questions) > 1 {
		w.note("it has several questions; answer with: junctor approvals approve " + c.ID + " --answer QUESTION=ANSWER …")
		return nil
	}
	w.drain()
	for {
		fmt.Fprint(w.stdout, "a number or label of the list, no, or Enter for later: ")
		line, ok, err := w.read(ctx, c.ID)
		if !ok {
			return err
		}
		if line = strings.TrimSpace(line); line == "" {
			return nil
		}
		err = w.postApproval(ctx, currentApprovals, c.ID, map[string]any{"answer": line})
		if err == nil {
			return nil
		}
		w.warnf("%s", plainText(err.Error()))
		if capability.CodeOf(err) != capability.CodeInvalidInput {
			return nil // it is answered already, or the server is gone
		}
	}
}

// ended reports whether an approval that is being asked about is not pending any more, and
// prints its state.
func (w *approvalWatch) ended(ctx context.Context, id string) bool {
	out, err := w.fetchApproval(ctx, id)
	if err != nil || out.one().State == policy.ApprovalPending {
		return false
	}
	by := ""
	if c := out.one(); c.DecidedBy != "" {
		by = " by " + plainText(c.DecidedBy)
	}
	w.printf("\n%s is %s%s\n", id, out.one().State, by)
	return true
}

// decisionOf returns the decision that a typed letter means, "" for later. Known is false for any
// other text.
func decisionOf(line string, inSession bool) (d policy.Decision, known bool) {
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "":
		return "", true
	case "o", "once":
		return policy.DecideOnce, true
	case "h", "hour":
		return policy.DecideTimed, true
	case "s", "session":
		return policy.DecideSession, inSession
	case "a", "always":
		return policy.DecideAlways, true
	case "d", "deny":
		return policy.DecideDeny, true
	}
	return "", false
}
