package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
)

// nodeRow is one node in the server's answers.
type nodeRow struct {
	NodeID        string   `json:"node_id"`
	Status        string   `json:"status"`
	Version       string   `json:"version"`
	Location      string   `json:"location"`
	Capabilities  []string `json:"capabilities"`
	CurrentLoad   float64  `json:"current_load"`
	LastHeartbeat int64    `json:"last_heartbeat"`
	Epoch         int64    `json:"epoch"`
	Revision      uint64   `json:"revision"`
	OS            string   `json:"os"`
	Arch          string   `json:"arch"`
	Granted       []string `json:"granted_labels"`
	MaxConcurrent int      `json:"max_concurrent"`
	InFlight      int      `json:"in_flight"`
	Accepting     bool     `json:"accepting"`
}

func (n *nodeRow) cells(functions int) []string {
	return []string{
		n.NodeID, n.Status, fmt.Sprintf("%.0f%%", 100*n.CurrentLoad), fmt.Sprint(functions),
		dash(strings.Join(n.Capabilities, ",")), when(time.Unix(n.LastHeartbeat, 0)),
	}
}

func (a *app) nodesCommand() *cobra.Command {
	return a.group("nodes", "Look after the devices that joined",
		a.nodesListCommand(), a.nodesShowCommand(), a.nodesWatchCommand(), a.nodesDrainCommand(), a.nodesRemoveCommand())
}

func (a *app) nodesListCommand() *cobra.Command {
	var labels, functions []string
	var status string
	c := &cobra.Command{
		Use: "list", Short: "List nodes with their labels, load and last heartbeat", Args: cobra.NoArgs,
		Example: `  junctor nodes list --label gpu --function camera.photo`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			var all []json.RawMessage
			for cursor := ""; ; {
				q := url.Values{"label": labels, "function": functions, "limit": {"1000"}}
				for key, value := range map[string]string{"status": status, "cursor": cursor} {
					if value != "" {
						q.Set(key, value)
					}
				}
				var page struct {
					Nodes []json.RawMessage `json:"nodes"`
					Next  string            `json:"next"`
				}
				if err := c.Do(cmd.Context(), http.MethodGet, "/api/v1/nodes?"+q.Encode(), nil, &page); err != nil {
					return err
				}
				if all = append(all, page.Nodes...); page.Next == "" {
					break
				}
				cursor = page.Next
			}
			if a.json {
				if all == nil {
					all = []json.RawMessage{}
				}
				raw, err := json.Marshal(map[string]any{"nodes": all})
				if err != nil {
					return err
				}
				return a.printJSON(raw)
			}
			var rows [][]string
			for _, raw := range all {
				n, err := decode[struct {
					nodeRow
					Functions []string `json:"functions"`
				}](raw)
				if err != nil {
					return err
				}
				rows = append(rows, n.cells(len(n.Functions)))
			}
			return a.table([]string{"ID", "STATE", "LOAD", "FUNCTIONS", "LABELS", "HEARD"}, rows,
				"no node matches; a device joins with: junctor node join URL --node-token-file FILE")
		},
	}
	c.Flags().StringArrayVar(&labels, "label", nil, "`LABEL` only nodes with this label (repeatable)")
	c.Flags().StringArrayVar(&functions, "function", nil, "`FUNCTION` only nodes that offer this function (repeatable)")
	c.Flags().StringVar(&status, "state", "", "`STATE` only this state: connected, disconnected or draining")
	alsoSpelled(c, "status", "state")
	return c
}

func (a *app) nodesShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show NODE", Short: "Show a node: what it is, how it does, what it offers", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodGet, "/api/v1/nodes/"+url.PathEscape(args[0]), nil, decoded(func(n struct {
				nodeRow
				CPU     float64 `json:"cpu_usage"`
				Memory  float64 `json:"memory_usage"`
				GPU     float64 `json:"gpu_usage"`
				Details []struct {
					Name, Description, Effect, Owner string
					Stream                           bool
				} `json:"function_details"`
			},
			) error {
				rows := [][]string{
					{"id", n.NodeID},
					{"state", n.Status},
					{"software", n.Version},
					{"system", n.OS + "/" + n.Arch},
					{"location", dash(n.Location)},
					{"labels", dash(strings.Join(n.Capabilities, ", "))},
					{"granted labels", dash(strings.Join(n.Granted, ", "))},
					{"cpu, memory, gpu", fmt.Sprintf("%.0f%%, %.0f%%, %.0f%%", n.CPU, n.Memory, n.GPU)},
					{"calls under way", fmt.Sprintf("%d of %d", n.InFlight, n.MaxConcurrent)},
					{"takes new calls", fmt.Sprint(n.Accepting)},
					{"heard", when(time.Unix(n.LastHeartbeat, 0))},
					{"epoch, revision", fmt.Sprintf("%d, %d", n.Epoch, n.Revision)},
				}
				for _, f := range n.Details {
					what := f.Effect
					if f.Stream {
						what += ", streams"
					}
					if f.Owner != "" && f.Owner != "node" {
						what += ", of " + f.Owner
					}
					rows = append(rows, []string{"function " + f.Name, strings.TrimPrefix(what+": "+f.Description, ": ")})
				}
				return a.fields(rows)
			}))
		},
	}
}

func (a *app) nodesWatchCommand() *cobra.Command {
	return &cobra.Command{
		Use: "watch", Short: "Print the nodes there are, then every change as it happens", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.follow(cmd, "/api/v1/nodes/watch", func(line json.RawMessage) error {
				ev, err := decode[struct {
					Event  string    `json:"event"`
					NodeID string    `json:"node_id"`
					At     time.Time `json:"at"`
					Reason string    `json:"reason"`
				}](line)
				if err != nil || ev.Event == "" {
					return err
				}
				a.printf("%s %s %s %s\n", when(ev.At), plainText(ev.NodeID), plainText(strings.TrimPrefix(ev.Event, "node.")), plainText(ev.Reason))
				return nil
			})
		},
	}
}

func (a *app) nodesDrainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "drain NODE", Short: "Drain a node: no new calls; it finishes what runs and leaves", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodPost, "/api/v1/nodes/"+url.PathEscape(args[0])+"/drain", nil,
				a.done("%s finishes what it has and leaves\n", plainText(args[0])))
		},
	}
}

func (a *app) nodesRemoveCommand() *cobra.Command {
	var keep bool
	c := &cobra.Command{
		Use: "remove NODE", Short: "Remove a node: end its session and forget its credential", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/api/v1/nodes/" + url.PathEscape(args[0])
			said := "%s is removed; it has to show a node token to be let in again\n"
			if keep {
				said = "the session of %s is ended; it may come back\n"
			} else {
				path += "?forget=true"
			}
			return a.call(cmd.Context(), http.MethodDelete, path, nil, a.done(said, plainText(args[0])))
		},
	}
	c.Flags().BoolVar(&keep, "keep-credential", false, "end the session only; the node may come back at once")
	return c
}

// callTarget is the action that calls functions of nodes.
const callTarget = "device.function.invoke"

func (a *app) callCommand() *cobra.Command {
	var inv client.Invocation
	var strategy, hold string
	var prefer, exclude, labels []string
	var yes bool
	c := &cobra.Command{
		Use:   "call NODE FUNCTION [JSON|-]",
		Short: "Call a function of a node",
		Long: `Call a function of a node and print its result.

NODE is a node's id, or any for the least loaded one that offers the function.
JSON holds the arguments: an object by name, a list by place, anything else is one
argument by place; {"__args__":[…],"__kwargs__":{…}} gives both. The call takes the
governed path like any other.`,
		Example: `  junctor call laptop camera.photo '{"flash":true}'
  junctor call any resize '{"width":640}' --label gpu --stream`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := map[string]any{"function": args[1]}
			var arguments json.RawMessage
			var err error
			if len(args) == 3 {
				if arguments, err = a.jsonInput("JSON", args[2]); err != nil {
					return err
				}
				in["args"] = arguments
			}
			if hold != "" {
				if args[0] == "any" || args[0] == "all" || inv.Stream || inv.DryRun || inv.IdempotencyKey != "" {
					return capability.Errorf(capability.CodeInvalidInput, "",
						"a call is held for one node, as a whole, and runs once by itself: --hold goes with no other choice")
				}
				return a.holdCall(cmd, args[0], args[1], arguments, hold, inv.Timeout)
			}
			if inv.Input, err = json.Marshal(in); err != nil {
				return capability.Wrap(capability.CodeInvalidInput, "", "the arguments cannot be sent", err)
			}
			inv.Target, inv.Select = callTarget, map[string]string{"node": args[0]}
			if balanced := args[0] == "any"; balanced {
				inv.LoadBalancing = map[string]any{
					"strategy": strategy, "preferred_node_ids": prefer, "excluded_node_ids": exclude, "requirements": map[string]any{"labels": labels},
				}
			} else if strategy != "" || len(prefer)+len(exclude)+len(labels) > 0 {
				return capability.Errorf(capability.CodeInvalidInput, "",
					"--strategy, --prefer, --exclude and --label choose among nodes, and %s is named", args[0]).
					With("", "write any in place of the node")
			}
			return a.carry(cmd, inv, yes, a.streamCall)
		},
	}
	f := c.Flags()
	f.BoolVar(&inv.Stream, "stream", false, "print what comes, as it comes")
	f.StringVar(&inv.Timeout, "timeout", "", "`DURATION` deadline of one call, such as 30s")
	f.StringVar(&inv.IdempotencyKey, "idempotency-key", "", "`KEY` do the work once, however often the key is used")
	f.BoolVar(&inv.DryRun, "dry-run", false, "say what would be done; do nothing")
	f.StringVar(&hold, "hold", "", "`DURATION` if the node is away, keep the call for so long, such as 24h, and deliver it when the node is back")
	f.StringVar(&strategy, "strategy", "", "`STRATEGY` with any: how to choose: resource_aware, round_robin or random (default resource_aware)")
	f.StringArrayVar(&prefer, "prefer", nil, "`NODE` with any: node to take first, if it can (repeatable)")
	f.StringArrayVar(&exclude, "exclude", nil, "`NODE` with any: node not to take (repeatable)")
	f.StringArrayVar(&labels, "label", nil, "`LABEL` with any: label the node must have (repeatable)")
	f.BoolVar(&yes, "yes", false, yesHelp)
	return c
}

// streamCall prints the chunks of a stream, or the result of a function that does not stream.
func (a *app) streamCall(cmd *cobra.Command, c *client.Client, inv client.Invocation) error {
	return a.stream(cmd, c, inv, func(chunk json.RawMessage) error {
		_, err := fmt.Fprintln(a.stdout, string(chunk))
		return err
	})
}
