package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// Node is an entry of the list of devices.
type Node struct {
	ID            string   `json:"node_id"`
	Status        string   `json:"status"` // connected, disconnected, draining
	Version       string   `json:"version"`
	Location      string   `json:"location"`
	Labels        []string `json:"capabilities"` // sorted
	Functions     []string `json:"functions"`    // names, sorted
	Load          float64  `json:"current_load"` // 0 to 1
	LastHeartbeat int64    `json:"last_heartbeat"`
}

// NodeStatus is the state of one node in detail.
type NodeStatus struct {
	Node
	CPU      float64 `json:"cpu_usage"` // 0 to 100
	Memory   float64 `json:"memory_usage"`
	GPU      float64 `json:"gpu_usage"`
	Health   float64 `json:"health_score"` // 1 while it is connected
	LastSeen int64   `json:"last_seen"`
}

// NodeFilter narrows a list: a node must have all labels and offer all functions.
// Empty fields do not restrict the list.
type NodeFilter struct {
	Labels, Functions []string
	Status            string
}

// Nodes returns the devices that are visible to the token, sorted by id.
func (c *Client) Nodes(ctx context.Context, f NodeFilter) ([]Node, error) {
	var all []Node
	for cursor := ""; ; {
		q := url.Values{"label": f.Labels, "function": f.Functions, "limit": {"1000"}}
		for key, value := range map[string]string{"status": f.Status, "cursor": cursor} {
			if value != "" {
				q.Set(key, value)
			}
		}
		var page struct {
			Nodes []Node `json:"nodes"`
			Next  string `json:"next"`
		}
		if err := c.Do(ctx, http.MethodGet, "/api/v1/nodes?"+q.Encode(), nil, &page); err != nil {
			return nil, err
		}
		if all = append(all, page.Nodes...); page.Next == "" {
			return all, nil
		}
		cursor = page.Next
	}
}

// NodeStatus returns one node. Error: not_found if the node does not exist or is not
// visible to the token.
func (c *Client) NodeStatus(ctx context.Context, id string) (NodeStatus, error) {
	var s NodeStatus
	err := c.Do(ctx, http.MethodGet, "/api/v1/nodes/"+url.PathEscape(id), nil, &s)
	return s, err
}

// ResolveNode returns the only node that matches f. Errors: not_found, reason
// node_not_found, if none matches; selection_required, reason selection_ambiguous, with
// their names in the message, if several do.
func (c *Client) ResolveNode(ctx context.Context, f NodeFilter) (Node, error) {
	all, err := c.Nodes(ctx, f)
	if err != nil {
		return Node{}, err
	}
	switch len(all) {
	case 0:
		return Node{}, capability.Errorf(capability.CodeNotFound, "nodes.resolve", "no nodes match").With("node_not_found", "")
	case 1:
		return all[0], nil
	}
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = all[i].ID
	}
	return Node{}, capability.Errorf(capability.CodeSelectionRequired, "nodes.resolve", "multiple nodes match: %s",
		strings.Join(ids, ", ")).With("selection_ambiguous", "")
}

// NodeOf returns the least loaded node of a user (label user:<id>) that offers a
// function; of several with the same load, the first by id. Error: not_found, reason
// node_not_found, if no node qualifies.
func (c *Client) NodeOf(ctx context.Context, user, function string) (Node, error) {
	all, err := c.Nodes(ctx, NodeFilter{Labels: []string{"user:" + user}, Functions: []string{function}, Status: "connected"})
	if err == nil && len(all) == 0 {
		err = capability.Errorf(capability.CodeNotFound, "nodes.resolve", "no node of %s offers %s now", user, function).With("node_not_found",
			"")
	}
	if err != nil {
		return Node{}, err
	}
	return slices.MinFunc(all, func(a, b Node) int { // the list is by id, and the first of equals wins
		switch {
		case a.Load < b.Load:
			return -1
		case a.Load > b.Load:
			return 1
		}
		return 0
	}), nil
}

// CallOptions select the node and bound the call. The zero value calls the least loaded
// node that offers the function.
type CallOptions struct {
	// Node is a node's id; "" leaves the choice to the gateway: the least loaded of
	// those that offer the function.
	Node string
	// Balancing is the name of a strategy or an object; broadcast calls every node. It is
	// ignored unless Node is empty; nil means resource_aware.
	Balancing      any
	Timeout        time.Duration // 0: the server's
	IdempotencyKey string
}

func (o CallOptions) invocation(function string, arguments any) (Invocation, error) {
	in, err := json.Marshal(map[string]any{"function": function, "args": arguments})
	if err != nil {
		return Invocation{}, capability.Wrap(capability.CodeInvalidInput, "nodes.call", "the arguments are not JSON", err)
	}
	inv := Invocation{Target: "device.function.invoke", Input: in, IdempotencyKey: o.IdempotencyKey}
	if o.Timeout > 0 {
		inv.Timeout = o.Timeout.String()
	}
	switch node := strings.TrimSpace(o.Node); {
	case node != "":
		inv.Select = map[string]string{"node": node}
	case o.Balancing != nil:
		inv.LoadBalancing = o.Balancing
	default:
		inv.LoadBalancing = true
	}
	return inv, nil
}

// Call calls a function on a node and returns its result and the id of the node that
// answered. arguments is any value that encodes to JSON: an object passes them by name, an
// array by position. With broadcast the result is an object with one entry per node, and
// node does not identify them. The client neither caches nor retries.
func (c *Client) Call(ctx context.Context, function string, arguments any, o CallOptions) (result json.RawMessage, node string, err error) {
	inv, err := o.invocation(function, arguments)
	if err != nil {
		return nil, "", err
	}
	var out Invoked
	if err := c.Invoke(ctx, inv, &out); err != nil {
		return nil, "", err
	}
	var about struct {
		Provider string `json:"provider"`
	}
	if err := json.Unmarshal(out.Invocation, &about); err != nil {
		return nil, "", capability.Wrap(capability.CodeFailed, "nodes.call", "the server's answer cannot be read", err)
	}
	return out.Result, about.Provider[strings.LastIndexByte(about.Provider, ':')+1:], nil
}

// Stream calls a function and yields its chunks as they arrive. A function that does not
// stream yields its result. Leaving the loop cancels the call.
func (c *Client) Stream(ctx context.Context, function string, arguments any, o CallOptions) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		inv, err := o.invocation(function, arguments)
		if err != nil {
			yield(nil, err)
			return
		}
		inv.Stream = true
		chunks := 0
		for line, err := range c.Lines(ctx, http.MethodPost, "/api/v1/invocations", inv) {
			if err != nil {
				yield(nil, err)
				return
			}
			var item struct {
				Progress *capability.Chunk `json:"progress"`
				Error    *capability.Error `json:"error"`
				Result   json.RawMessage   `json:"result"`
			}
			if err := json.Unmarshal(line, &item); err != nil {
				yield(nil, fmt.Errorf("the stream cannot be read: %w", err))
				return
			}
			switch {
			case item.Error != nil:
				yield(nil, item.Error)
				return
			case item.Progress != nil && item.Progress.Data != nil:
				chunks++
				if !yield(item.Progress.Data, nil) {
					return
				}
			case item.Progress == nil && chunks == 0 && item.Result != nil:
				if !yield(item.Result, nil) {
					return
				}
			}
		}
	}
}
