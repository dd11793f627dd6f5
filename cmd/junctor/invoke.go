package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/core/command"
)

func (a *app) invokeCommand() *cobra.Command {
	var inv client.Invocation
	var selects, contexts []string
	var yes bool
	c := &cobra.Command{
		Use:   "invoke TARGET [INPUT|-]",
		Short: "Invoke a capability over the governed path",
		Long: `Carry one call over the governed path and print its result.

TARGET is SERVER/TOOL (files/read_file), a canonical action (fs.list), a name that
junctor catalog agent lists (DEVICE_PING), module:kind:name
(device-tools:action:DEVICE_PING), or a capability id (it holds a #). INPUT is a
JSON value, or - to read one from standard input.`,
		Example: `  junctor invoke fs.list '{"path":"."}'
  junctor invoke fs.readText '{"path":"notes.txt"}' --select endpoint=demo
  junctor invoke device-tools:action:DEVICE_PING '{"text":"hello"}'`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			inv.Target = args[0]
			if len(args) == 2 {
				input, err := a.input(args[1])
				if err != nil {
					return err
				}
				inv.Input = input
			}
			var err error
			if inv.Select, err = pairs("select", selects); err != nil {
				return err
			}
			if inv.Context, err = contextFlag(contexts); err != nil {
				return err
			}
			return a.carry(cmd, inv, yes, a.streamInvoke)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&contexts, "context", nil, contextHelp)
	f.StringArrayVar(&selects, "select", nil, "`KEY=VALUE` choose the provider: provider=…, endpoint=…, node=… (repeatable)")
	f.StringVar(&inv.Session, "session", "", "`SESSION` session it belongs to")
	f.StringVar(&inv.Timeout, "timeout", "", "`DURATION` deadline of one call, such as 30s")
	f.StringVar(&inv.IdempotencyKey, "idempotency-key", "", "`KEY` do the work once, however often the key is used")
	f.BoolVar(&inv.DryRun, "dry-run", false, "say what would be done; do nothing")
	f.BoolVar(&inv.Stream, "stream", false, "print what comes, as it comes")
	f.BoolVar(&yes, "yes", false, yesHelp)
	return c
}

// carry sends an invocation, after a confirmation if the server requires one, and prints its result.
// If inv.Stream is set, it calls stream instead.
func (a *app) carry(cmd *cobra.Command, inv client.Invocation, yes bool,
	stream func(*cobra.Command, *client.Client, client.Invocation) error,
) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	err = a.confirmed(cmd.Context(), yes, func() error {
		if inv.Stream {
			return stream(cmd, c, inv)
		}
		var raw json.RawMessage
		if err := c.Invoke(cmd.Context(), inv, &raw); err != nil {
			return err
		}
		return a.printInvoked(raw, inv.DryRun)
	})
	return suggested(cmd.Context(), c, inv, err)
}

// suggested adds similar names to the error about an unknown target, from the catalog that the caller
// may read.
func suggested(ctx context.Context, c *client.Client, inv client.Invocation, err error) error {
	e, ok := errors.AsType[*capability.Error](err)
	if !ok || e.Code != capability.CodeUnknownCapability || strings.ContainsAny(inv.Target, "#:") {
		return err
	}
	if inv.Target == callTarget && e.Reason == "" {
		return capability.Errorf(e.Code, e.Op, "no registered node is available to you").With("",
			"list them with: junctor nodes list; a device joins with: junctor node join URL")
	}
	var catalog struct{ Actions []struct{ Name string } }
	if c.Do(ctx, http.MethodGet, "/api/v1/catalog/agent", nil, &catalog) != nil {
		return err
	}
	var names []string
	for _, a := range catalog.Actions {
		names = append(names, a.Name)
	}
	if near := command.Nearest(inv.Target, names); len(near) > 0 {
		return e.With(e.Reason, "did you mean "+strings.Join(near, " or ")+"? All there is: junctor catalog agent")
	}
	return err
}

func (a *app) input(arg string) (json.RawMessage, error) { return a.jsonInput("INPUT", arg) }

// jsonInput returns one JSON value from the command line, or from standard input for "-".
func (a *app) jsonInput(name, arg string) (json.RawMessage, error) {
	data := []byte(arg)
	if arg == "-" {
		var err error
		if data, err = io.ReadAll(io.LimitReader(a.stdin, maxInput+1)); err != nil {
			return nil, capability.Wrap(capability.CodeInvalidInput, "", "standard input cannot be read", err)
		}
		if len(data) > maxInput {
			return nil, capability.Errorf(capability.CodeTooLarge, "", "the input is larger than %d bytes", maxInput)
		}
	}
	var probe json.RawMessage
	if err := json.Unmarshal(data, &probe); err != nil {
		at := int64(len(data))
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = e.Offset
		}
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "%s is not JSON: it goes wrong at byte %d of %d", name, at,
			len(data)).With("", `in a shell, write it in single quotes: '{"name":"value"}'`)
	}
	return data, nil
}

// printInvoked prints the result of an invocation, or the explanation of a dry run. At a terminal it
// also prints provider and duration on standard error.
func (a *app) printInvoked(raw json.RawMessage, dryRun bool) error {
	if a.json {
		return a.printJSON(raw)
	}
	if dryRun {
		return decoded(a.printExplanation)(raw)
	}
	out, err := decode[client.Invoked](raw)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(a.stdout, indent(out.Result)); err != nil {
		return err
	}
	if terminal(a.stderr) {
		var inv struct {
			ID       string  `json:"id"`
			Provider string  `json:"provider"`
			Millis   float64 `json:"duration_ms"`
		}
		if json.Unmarshal(out.Invocation, &inv) == nil {
			fmt.Fprintf(a.stderr, "%s by %s in %.1f ms\n", inv.ID, inv.Provider, inv.Millis)
		}
	}
	return nil
}

// indent returns JSON with indentation, or raw unchanged if it is not valid.
func indent(raw json.RawMessage) string {
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // numbers must not be reformatted
	if dec.Decode(&v) != nil {
		return string(raw)
	}
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return string(raw)
	}
	return string(data)
}

// streamInvoke prints the progress of a call on standard error and then its result.
func (a *app) streamInvoke(cmd *cobra.Command, c *client.Client, inv client.Invocation) error {
	return a.stream(cmd, c, inv, nil)
}

// stream prints a call's lines as they arrive. If show is not nil, it prints the chunks, and the
// result, which is the list of chunks, is left out.
func (a *app) stream(cmd *cobra.Command, c *client.Client, inv client.Invocation, show func(json.RawMessage) error) error {
	shown := false
	for line, err := range c.Lines(cmd.Context(), http.MethodPost, "/api/v1/invocations", inv) {
		if err != nil {
			return err
		}
		item, err := decode[struct {
			Progress *capability.Chunk `json:"progress"`
			Error    *capability.Error `json:"error"`
		}](line)
		if err != nil {
			return err
		}
		switch {
		case item.Error != nil:
			return item.Error
		case a.json:
			if err := a.printJSON(line); err != nil {
				return err
			}
		case item.Progress != nil && item.Progress.Data != nil && show != nil:
			shown = true
			if err := show(item.Progress.Data); err != nil {
				return err
			}
		case item.Progress != nil:
			fmt.Fprintf(a.stderr, "%g %s\n", item.Progress.Progress, plainText(item.Progress.Message))
		case !shown:
			if err := a.printInvoked(line, false); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *app) printExplanation(out struct {
	Target   string
	Tool     string
	OK       bool
	Error    *capability.Error
	Selected *struct {
		CapabilityID string `json:"capability_id"`
		Provider     string
		Effect       string
	}
	Selection *struct {
		Step      int
		DecidedBy string `json:"decided_by"`
	}
	Decision *struct {
		Policies []string
		Consent  string
	}
	Text string
},
) error {
	out.Target = cmp.Or(out.Tool, toolName(out.Target))
	if out.Error != nil {
		a.printf("%s would fail: %s\n", plainText(out.Target), plainText(out.Error.Message))
	}
	if out.Selected != nil && out.Selection != nil {
		a.printf("%s goes to %s: step %d, %s\n", plainText(out.Target), plainText(out.Selected.Provider), out.Selection.Step,
			out.Selection.DecidedBy)
		a.printf("  capability %s, effect %s\n", plainText(out.Selected.CapabilityID), out.Selected.Effect)
	}
	if out.Decision != nil {
		a.printf("  permitted by %v", out.Decision.Policies)
		if out.Decision.Consent != "" {
			a.printf(", after the approval of the %s", out.Decision.Consent)
		}
		a.printf("\n")
	}
	for line := range strings.Lines(out.Text) {
		a.printf("  %s\n", plainText(strings.TrimRight(line, "\n")))
	}
	return nil
}
