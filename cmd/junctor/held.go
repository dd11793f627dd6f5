package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
)

// heldRow is one held call in the server's answers.
type heldRow struct {
	ID         string            `json:"id"`
	NodeID     string            `json:"node_id"`
	Function   string            `json:"function"`
	Principal  string            `json:"principal"`
	State      string            `json:"state"`
	Created    time.Time         `json:"created"`
	Expires    time.Time         `json:"expires"`
	Invocation string            `json:"invocation"`
	Result     json.RawMessage   `json:"result"`
	Error      *capability.Error `json:"error"`
}

func (a *app) heldCommand() *cobra.Command {
	var node string
	list := &cobra.Command{
		Use: "list", Short: "List calls that wait, and those that ended in the last day", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := "/api/v1/calls?" + url.Values{"node": {node}}.Encode()
			return a.call(cmd.Context(), http.MethodGet, path, nil, decoded(func(out struct{ Calls []heldRow }) error {
				var rows [][]string
				for _, c := range out.Calls {
					rows = append(rows, []string{c.ID, c.State, c.NodeID, c.Function, c.Principal, when(c.Created), when(c.Expires)})
				}
				return a.table([]string{"ID", "STATE", "NODE", "FUNCTION", "PRINCIPAL", "CREATED", "EXPIRES"}, rows,
					"no call is held; hold one with: junctor call NODE FUNCTION --hold 24h")
			}))
		},
	}
	list.Flags().StringVar(&node, "node", "", "`NODE` only this node")
	show := &cobra.Command{
		Use: "show ID", Short: "Show what became of a held call: its result, or why it failed", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodGet, "/api/v1/calls/"+url.PathEscape(args[0]), nil, decoded(func(c heldRow) error {
				switch {
				case c.Error != nil:
					return c.Error
				case c.Result != nil:
					a.printf("%s\n", indent(c.Result))
					return nil
				}
				a.printf("%s for %s is %s, until %s\n", plainText(c.Function), plainText(c.NodeID), c.State, when(c.Expires))
				return nil
			}))
		},
	}
	cancel := &cobra.Command{
		Use: "cancel ID", Short: "Cancel a call that waits", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodDelete, "/api/v1/calls/"+url.PathEscape(args[0]), nil,
				a.done("%s is withdrawn\n", plainText(args[0])))
		},
	}
	return a.group("held", "Look after calls held for nodes that are away", list, show, cancel)
}

// holdCall stores a call for a node that may not be connected, for the duration hold.
func (a *app) holdCall(cmd *cobra.Command, node, function string, arguments json.RawMessage, hold, timeout string) error {
	body := map[string]any{"function": function, "hold": hold}
	if arguments != nil {
		body["args"] = arguments
	}
	if timeout != "" {
		body["timeout"] = timeout
	}
	return a.call(cmd.Context(), http.MethodPost, "/api/v1/nodes/"+url.PathEscape(node)+"/calls", body, decoded(func(c heldRow) error {
		a.printf("%s is held for %s until %s; see: junctor held show %s\n", c.ID, plainText(c.NodeID), when(c.Expires), c.ID)
		return nil
	}))
}
