package main

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
)

func (a *app) eventsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "events", Short: "Follow the live feed of events, or publish an event", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.follow(cmd, "/api/v1/events", func(line json.RawMessage) error {
				ev, err := decode[struct {
					Type string          `json:"type"`
					At   time.Time       `json:"at"`
					Data json.RawMessage `json:"data"`
				}](line)
				if err != nil {
					return err
				}
				a.printf("%s %s %s\n", when(ev.At), plainText(ev.Type), plainText(string(ev.Data)))
				return nil
			})
		},
	}
	c.AddCommand(a.publishCommand())
	return c
}

// publishCommand returns the command that publishes an event to the modules that declare it.
func (a *app) publishCommand() *cobra.Command {
	var payload string
	c := &cobra.Command{
		Use: "publish NAME", Short: "Publish an event to every module that declares it",
		Long: `Publish an event to every module that declares it. Each delivery is a call of its own
on the governed path, so that one module that fails takes nothing from the others. The
exit status is 1 if one of them failed.`,
		Example: `  junctor events publish DEVICE_NOTICE --payload '{"text":"low battery"}'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"event": args[0]}
			if cmd.Flags().Changed("payload") {
				input, err := a.jsonInput("--payload", payload)
				if err != nil {
					return err
				}
				body["payload"] = input
			}
			var raw json.RawMessage
			if err := a.do(cmd.Context(), http.MethodPost, "/api/v1/events/publish", body, &raw); err != nil {
				return err
			}
			out, err := decode[struct {
				Delivered int
				Results   []struct {
					Module, Endpoint, Invocation string
					OK, Handled                  bool
					Error                        *capability.Error
				}
			}](raw)
			if err != nil {
				return err
			}
			var rows [][]string
			for _, r := range out.Results {
				what := "not handled"
				switch {
				case r.Error != nil:
					what = r.Error.Message
				case r.Handled:
					what = "handled"
				}
				rows = append(rows, []string{r.Module, dash(r.Endpoint), what, r.Invocation})
			}
			switch {
			case a.json:
				err = a.printJSON(raw)
			case len(rows) == 0:
				a.note("no module declares the event " + args[0] + "; see what there is with: junctor modules list")
			default:
				err = a.table([]string{"MODULE", "ENDPOINT", "RESULT", "INVOCATION"}, rows, "")
			}
			if err == nil && out.Delivered < len(out.Results) {
				return exitStatus(capability.CodeFailed.Row().Exit)
			}
			return err
		},
	}
	c.Flags().StringVar(&payload, "payload", "", "`JSON` object to send with the event; - reads one from standard input")
	return c
}
