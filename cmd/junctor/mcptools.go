package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	tty "golang.org/x/term"

	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/base/text"
)

// trustWord is the value of --trust-hints: ask, yes or no.
type trustWord string

// flag adds --trust-hints, which without a value is yes.
func (w *trustWord) flag(c *cobra.Command, usage string) {
	c.Flags().Var(w, "trust-hints", usage)
	c.Flags().Lookup("trust-hints").NoOptDefVal = "yes"
}

// String implements pflag.Value.
func (w *trustWord) String() string { return string(*w) }

// Type implements pflag.Value.
func (w *trustWord) Type() string { return "trust" }

// Set implements pflag.Value. The flag was a switch once, so it also takes true and false.
func (w *trustWord) Set(s string) error {
	switch s {
	case "true":
		s = "yes"
	case "false":
		s = "no"
	case "ask", "yes", "no":
	default:
		return fmt.Errorf("write ask, yes or no")
	}
	*w = trustWord(s)
	return nil
}

// addUpstream adds an upstream and prints its tools with the decisions about them. If the hints may
// be trusted after a question, the question is asked at the terminal.
func (a *app) addUpstream(ctx context.Context, body map[string]any, hints trustWord) error {
	name := fmt.Sprint(body["name"])
	c, u, err := a.connect(ctx, name, upstreamsPath, body)
	if err != nil || u == nil {
		return err
	}
	a.printAdded(u)
	if u.Counts.Tools == 0 {
		return nil
	}
	reads, err := a.printUpstreamTools(ctx, c, name)
	if err != nil || reads == 0 || u.HintsTrusted {
		return err
	}
	claim := fmt.Sprintf("%s declares that %d of its tools only %s, which is not trusted", plainText(name), reads,
		counted(reads, "reads", "read"))
	if hints != "ask" || !terminal(a.stdin) {
		a.printf("%s; to trust it: junctor mcp set %s --trust-hints\n", claim, plainText(name))
		return nil
	}
	fmt.Fprintf(a.stderr, "%s.\nTrust it, so that the rules treat %s as %s? [y/N] ", claim,
		counted(reads, "it", "them"), counted(reads, "a read", "reads"))
	word, _ := bufio.NewReader(a.stdin).ReadString('\n')
	if word = strings.ToLower(strings.TrimSpace(word)); word != "y" && word != "yes" {
		return nil
	}
	if err := c.Do(ctx, http.MethodPost, upstreamPath(name, "/settings"), map[string]any{"hints_trusted": true}, nil); err != nil {
		return err
	}
	_, err = a.printUpstreamTools(ctx, c, name)
	return err
}

// connect sends a request that connects an upstream, with its progress at a terminal. The upstream is
// nil if the answer was printed as JSON.
func (a *app) connect(ctx context.Context, name, path string, body any) (*client.Client, *upstreamRow, error) {
	c, err := a.client()
	if err != nil {
		return nil, nil, err
	}
	stop := a.showConnecting(ctx, c, name)
	var raw json.RawMessage
	err = c.Do(ctx, http.MethodPost, path, body, &raw)
	stop()
	if err != nil {
		return nil, nil, err
	}
	if a.json {
		return c, nil, a.printJSON(raw)
	}
	u, err := decode[upstreamRow](raw)
	return c, &u, err
}

// printUpstreamTools prints each tool of an upstream: what it declares, and the decision about calls
// of an agent. It returns the number of tools that declare that they only read.
func (a *app) printUpstreamTools(ctx context.Context, c *client.Client, name string) (reads int, err error) {
	var shown upstreamRow
	if err := c.Do(ctx, http.MethodGet, upstreamPath(name, ""), nil, &shown); err != nil {
		return 0, err
	}
	var listed struct {
		Tools []struct {
			Tool, Decision, Because string
			Rules                   []policyRow
		}
	}
	if err := c.Do(ctx, http.MethodGet, "/api/v1/tools?as=agent&server="+url.QueryEscape(name), nil, &listed); err != nil {
		return 0, err
	}
	decisions := make(map[string]string)
	for _, t := range listed.Tools {
		because := t.Because
		var rules []string
		for _, r := range t.Rules {
			rules = append(rules, r.ID)
		}
		if len(rules) > 0 {
			because = "rule " + strings.Join(rules, ", ")
		}
		decisions[t.Tool] = t.Decision + "\x00" + because
	}
	var rows [][]string
	counts := make(map[string]int)
	for _, d := range shown.Definitions {
		if d.Kind != "tool" {
			continue
		}
		if d.Declares == "reads" {
			reads++
		}
		decision, because, _ := strings.Cut(decisions[name+"/"+d.Name], "\x00")
		decision = cmp.Or(decision, d.State)
		counts[decision]++
		rows = append(rows, []string{name + "/" + d.Name, claimOf(d.Declares), decision, dash(because)})
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	more := max(0, len(rows)-maxToolsShown)
	if err := a.table([]string{"TOOL", "DECLARES", "DECISION", "BECAUSE"}, rows[:len(rows)-more], ""); err != nil || a.quiet {
		return reads, err
	}
	if more > 0 {
		a.printf("and %d more: junctor mcp show %s\n", more, plainText(name))
	}
	a.printf("agents: %d allowed, %d after an approval, %d refused; change it with: junctor policy\n", counts["allow"], counts["ask"], counts["deny"])
	return reads, nil
}

// claimOf returns the effect that a tool declares.
func claimOf(word string) string {
	if word == "" {
		return "nothing"
	}
	return word
}

// showConnecting shows at a terminal, until stop is called, that an upstream is being connected, with
// the last line that it wrote.
func (a *app) showConnecting(ctx context.Context, c *client.Client, name string) (stop func()) {
	if a.json || !terminal(a.stderr) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.connecting(ctx, c, name)
	}()
	return func() {
		cancel()
		<-done
	}
}

func (a *app) connecting(ctx context.Context, c *client.Client, name string) {
	const clear = "\r\x1b[K"
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	began, shown := time.Now(), false
	for {
		select {
		case <-ctx.Done():
			if shown {
				fmt.Fprint(a.stderr, clear)
			}
			return
		case <-ticker.C:
		}
		line := fmt.Sprintf("connecting to %s, %s", plainText(name), time.Since(began).Round(time.Second))
		var logs upstreamLogs
		if err := c.Do(ctx, http.MethodGet, upstreamPath(name, "/logs?limit=1"), nil, &logs); err == nil && len(logs.Lines) > 0 {
			line += ": " + plainText(logs.Lines[0].Text)
		}
		shown = true
		fmt.Fprint(a.stderr, clear, text.CutRunes(line, terminalWidth(a.stderr)-1))
	}
}

// terminalWidth returns the width of a terminal, or 80 for other streams.
func terminalWidth(stream any) int {
	if f, ok := stream.(*os.File); ok {
		if width, _, err := tty.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}
