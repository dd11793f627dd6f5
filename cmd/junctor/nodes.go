package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
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
