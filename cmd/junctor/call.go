package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
)

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
