package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
)

func (a *app) upstreamsSetCommand() *cobra.Command {
	var hints trustWord
	var changed, sampling, isolation string
	var timeout, idle, connect time.Duration
	var quarantine, disabled bool
	c := &cobra.Command{
		Use: "set NAME", Short: "Change settings of an upstream, and connect to it again", Args: cobra.ExactArgs(1),
		Long: `Change settings of an upstream, and connect to it again. What was approved stays approved,
and a login stays. Its folders and its network are changed with junctor mcp confine.`,
		Example: `  junctor mcp set files --trust-hints
  junctor mcp set files --connect-timeout 2m --timeout 30s
  junctor mcp set files --disabled`,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := make(map[string]any)
			for flag, member := range map[string]struct {
				name  string
				value any
			}{
				"trust-hints": {"hints_trusted", hints == "yes"}, "changed": {"changed_pin", changed}, "sampling": {"sampling", sampling},
				"isolation": {"isolation", isolation}, "timeout": {"timeout_ms", timeout.Milliseconds()}, "disabled": {"disabled", disabled},
				"idle-timeout": {"idle_timeout_ms", idle.Milliseconds()}, "connect-timeout": {"connect_timeout_ms", connect.Milliseconds()},
				"quarantine": {"trust", map[bool]string{true: "untrusted", false: "trusted"}[quarantine]},
			} {
				if cmd.Flags().Changed(flag) {
					body[member.name] = member.value
				}
			}
			switch {
			case len(body) == 0:
				return capability.Errorf(capability.CodeInvalidInput, "", "%s needs a flag that names what to change", cmd.CommandPath())
			case hints == "ask":
				return capability.Errorf(capability.CodeInvalidInput, "", "--trust-hints is yes or no here")
			}
			c, u, err := a.connect(cmd.Context(), args[0], upstreamPath(args[0], "/settings"), body)
			if err != nil || u == nil {
				return err
			}
			a.printf("%s is %s: %s\n", plainText(u.Name), u.State, u.counted())
			if u.Counts.Tools == 0 || !cmd.Flags().Changed("trust-hints") {
				return nil
			}
			_, err = a.printUpstreamTools(cmd.Context(), c, args[0])
			return err
		},
	}
	f := c.Flags()
	hints.flag(c, "`WORD` whether a tool that declares to only read counts as a read: yes or no")
	f.StringVar(&changed, "changed", "", "`CHANGED` what becomes of definitions that change: hold, warn or follow")
	f.StringVar(&sampling, "sampling", "", "`SAMPLING` whether it may use the caller's model: deny or forward")
	f.StringVar(&isolation, "isolation", "", "`ISOLATION` whose connections they are: shared, principal or client-session")
	f.DurationVar(&timeout, "timeout", 0, "`DURATION` deadline of one call; 0 for the server's default")
	f.DurationVar(&idle, "idle-timeout", 0, "`DURATION` longest silence of one call; 0 for the default")
	f.DurationVar(&connect, "connect-timeout", 0, "`DURATION` how long connecting may take; 0 for upstreams.connect_timeout")
	f.BoolVar(&quarantine, "quarantine", false, "hold each new definition until it is approved")
	f.BoolVar(&disabled, "disabled", false, "end it and offer nothing of it, until --disabled=false")
	return c
}

// upstreamLogs is an answer with lines of an upstream's log.
type upstreamLogs struct {
	Lines []struct {
		Number       uint64
		Time         time.Time
		Source, Text string
	}
	Dropped uint64
}

func (a *app) upstreamsLogsCommand() *cobra.Command {
	var lines uint
	var follow bool
	c := &cobra.Command{
		Use: "logs NAME", Short: "Show what an upstream wrote to standard error, and errors of its connection", Args: cobra.ExactArgs(1),
		Long: `Show the last lines of an upstream: what its program wrote to standard error (stderr),
lines of its output that are not messages of the protocol (stdout), and when it was
connected or why not (junctor). Secrets that the upstream has are removed. The server
stores the last 1,000 lines until it ends, also of an upstream that could not be added.`,
		Example: `  junctor mcp logs files
  junctor mcp logs files --follow`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path := upstreamPath(args[0], fmt.Sprintf("/logs?limit=%d", lines))
			if follow {
				return a.followLogs(cmd.Context(), args[0], path)
			}
			return a.call(cmd.Context(), http.MethodGet, path, nil, decoded(func(out upstreamLogs) error {
				a.printLogs(out)
				if len(out.Lines) == 0 {
					a.note("nothing was written")
				}
				return nil
			}))
		},
	}
	c.Flags().UintVarP(&lines, "lines", "n", 100, "`NUMBER` show at most this many of the last lines; 0 for all")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "show further lines until it is interrupted")
	return c
}

func (a *app) printLogs(out upstreamLogs) {
	for _, l := range out.Lines {
		a.printf("%s  %-7s  %s\n", l.Time.Local().Format("15:04:05"), plainText(l.Source), plainText(l.Text))
	}
}

// followLogs requests the log of an upstream at path, and then asks for newer lines at each interval,
// and prints them. It returns the error of ctx or of a request.
func (a *app) followLogs(ctx context.Context, upstream, path string) error {
	ticker := time.NewTicker(logPollInterval)
	defer ticker.Stop()
	for {
		var out struct{ Lines []json.RawMessage }
		if err := a.do(ctx, http.MethodGet, path, nil, &out); err != nil {
			return err
		}
		for _, raw := range out.Lines {
			var page upstreamLogs
			if err := json.Unmarshal([]byte(`{"lines":[`+string(raw)+`]}`), &page); err != nil {
				return err
			}
			if path = upstreamPath(upstream, fmt.Sprintf("/logs?after=%d", page.Lines[0].Number)); !a.json {
				a.printLogs(page)
			} else if err := a.printJSON(raw); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
