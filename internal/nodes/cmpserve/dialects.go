package cmpserve

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
)

// mcp is the old dialect of MCP.
func (s *Surface) mcp(ctx context.Context, c *call) (any, *fault) {
	switch strings.TrimPrefix(c.method, "mcp.") {
	case "initialize":
		return map[string]any{
			"protocolVersion": "2024-11-05",
			"serverInfo":      map[string]any{"name": "junctor", "version": s.Version},
			"capabilities": map[string]any{
				"tools": map[string]any{"listChanged": false, "streaming": true}, "resources": map[string]any{"subscribe": false},
			},
		}, nil
	case "tools/list":
		tools := []map[string]any{}
		for _, o := range s.offers(c.who) {
			schema := jsonx.Raw(o.schema)
			if schema == nil {
				schema = jsonx.Raw(`{"type":"object","properties":{},"additionalProperties":true}`)
			}
			tools = append(tools, map[string]any{
				"name": o.name, "description": o.description, "inputSchema": schema,
				"annotations": map[string]any{"nodes": o.nodes, "tags": o.tags},
			})
		}
		return map[string]any{"tools": tools}, nil
	case "tools/call":
		return s.callTool(ctx, c)
	}
	if c.method == "ping" {
		return map[string]any{"pong": true}, nil
	}
	return nil, &fault{Code: jsonrpc.CodeMethodNotFound, Message: "there is no method " + c.method}
}

func (s *Surface) callTool(ctx context.Context, c *call) (any, *fault) {
	q, f := s.request(c, c.params, []string{"name", "tool"}, []string{"arguments"}, []string{"node_id"})
	if f != nil {
		return nil, f
	}
	result, f := s.carry(ctx, c, q)
	if f != nil {
		return nil, f
	}
	item := map[string]any{"type": "json", "json": jsonx.Raw(result)}
	if len(result) > 0 && result[0] == '"' {
		var text string
		if jsonx.Unmarshal(result, &text) == nil {
			item = map[string]any{"type": "text", "text": text}
		}
	}
	return map[string]any{"content": []any{item}}, nil
}

// request reads what both dialects say of a call.
func (s *Surface) request(c *call, from map[string]json.RawMessage, function, arguments, node []string) (q request, f *fault) {
	if q.function, f = c.text(from, function...); f != nil {
		return q, f
	}
	if q.function = strings.TrimSpace(q.function); q.function == "" {
		return q, &fault{Code: jsonrpc.CodeInvalidParams, Message: "the name of a function is missing"}
	}
	for _, name := range arguments {
		if v, ok := from[name]; ok {
			q.arguments = v
			break
		}
	}
	if q.node, f = c.text(from, node...); f != nil {
		return q, f
	}
	q.node = strings.TrimSpace(q.node)
	q.balancing = from["load_balancing"]
	var err error
	if q.stream, err = cmp.Bool(from["stream"], "stream", false); err != nil {
		return q, faultOf(err)
	}
	return q, nil
}

// a2a is the old dialect of A2A.
func (s *Surface) a2a(ctx context.Context, c *call) (any, *fault) {
	switch strings.ReplaceAll(c.method, "/", ".") {
	case "agent.capabilities", "capabilities":
		list := []map[string]any{}
		for _, o := range s.offers(c.who) {
			list = append(list, map[string]any{
				"name": o.name, "description": o.description, "nodes": o.nodes, "tags": o.tags, "metadata": map[string]any{"node_count": len(o.nodes)},
			})
		}
		return map[string]any{"agent": map[string]any{"name": "junctor", "protocol": "a2a", "version": s.Version, "capabilities": list}}, nil
	case "task.execute", "task.send", "tasks.execute", "tasks.send":
		return s.executeTask(ctx, c)
	case "ping":
		return map[string]any{"pong": true}, nil
	}
	return nil, &fault{Code: jsonrpc.CodeMethodNotFound, Message: "there is no method " + c.method}
}

// executeTask runs a task to its end: a task has no other state here.
func (s *Surface) executeTask(ctx context.Context, c *call) (any, *fault) {
	from := c.params
	if raw, ok := c.params["task"]; ok {
		var task map[string]json.RawMessage
		if len(raw) == 0 || raw[0] != '{' || jsonx.Unmarshal(raw, &task) != nil {
			return nil, &fault{Code: jsonrpc.CodeInvalidParams, Message: "task must be an object"}
		}
		if _, says := task["stream"]; !says {
			task["stream"] = c.params["stream"]
		}
		from = task
	}
	q, f := s.request(c, from, []string{"function", "name", "tool"}, []string{"input", "arguments"}, []string{"node_id", "target_node"})
	if f != nil {
		return nil, f
	}
	id := c.params["task_id"]
	if id == nil {
		id = from["task_id"]
	}
	if id == nil {
		id = from["id"]
	}
	if id == nil {
		id = json.RawMessage(c.id)
	}
	output, f := s.carry(ctx, c, q)
	if f != nil {
		return nil, f
	}
	if id == nil {
		id = json.RawMessage("null")
	}
	return map[string]any{"task": map[string]any{"id": jsonx.Raw(id), "status": "completed", "output": jsonx.Raw(output)}}, nil
}
