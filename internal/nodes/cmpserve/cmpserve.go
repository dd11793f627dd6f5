// Package cmpserve serves the JSON-RPC of the old capability management protocol to agents
// that were written for it: its dialects of MCP and A2A, unchanged, on separate paths. Both
// invoke the engine like every other surface.
package cmpserve

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
)

// Config configures the surface.
type Config struct {
	Door    *httpapi.Door
	Engine  *invoke.Engine
	Version string
	MaxBody int64 // bytes
}

// Surface serves the two paths.
type Surface struct{ Config }

// New returns the surface.
func New(cfg Config) *Surface { return &Surface{cfg} }

// Routes adds the paths to mux.
func (s *Surface) Routes(mux *http.ServeMux) {
	mux.Handle("POST /api/cmp/mcp", s.Door.Guard(s.serve("mcp", s.mcp)))
	mux.Handle("POST /api/cmp/a2a", s.Door.Guard(s.serve("a2a", s.a2a)))
}

// fault is an error of JSON-RPC.
type fault struct {
	Code    int            `json:"code"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data"`
}

// answer is a response; one of Result and Error is set.
type answer struct {
	JSONRPC string    `json:"jsonrpc"`
	ID      jsonx.Raw `json:"id"`
	Result  any       `json:"result,omitempty"`
	Error   *fault    `json:"error,omitempty"`
}

// call is one request on its way.
type call struct {
	who     capability.Principal
	client  string
	id      jsonx.Raw
	method  string
	params  map[string]json.RawMessage
	surface string
}

// method answers a request; an error that is a *fault goes out as it is.
type method func(ctx context.Context, c *call) (any, *fault)

func (s *Surface) serve(protocol string, do method) httpapi.Handler {
	return func(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
		body, err := httpapi.ReadBody(w, r, s.MaxBody)
		if err != nil {
			return err
		}
		one := func(raw json.RawMessage) *answer {
			c, notified, f := read(raw)
			if f == nil {
				c.who, c.client, c.surface = who, r.UserAgent(), "cmp."+protocol
				var result any
				if result, f = do(r.Context(), c); f == nil {
					if notified {
						return nil
					}
					return &answer{JSONRPC: "2.0", ID: c.id, Result: result}
				}
			}
			if notified {
				return nil
			}
			name := ""
			if c != nil {
				name = c.method
			}
			if f.Data == nil {
				f.Data = map[string]any{"error_type": "ValueError"}
			}
			f.Data["protocol"], f.Data["method"] = protocol, name
			id := jsonx.Raw("null")
			if c != nil && c.id != nil {
				id = c.id
			}
			return &answer{JSONRPC: "2.0", ID: id, Error: f}
		}
		body = bytes.TrimSpace(body)
		var probe json.RawMessage
		switch {
		case jsonx.Unmarshal(body, &probe) != nil:
			return httpapi.Answer(w, &answer{
				JSONRPC: "2.0", ID: jsonx.Raw("null"),
				Error: &fault{
					Code: jsonrpc.CodeParse, Message: "the body is not JSON",
					Data: map[string]any{"protocol": protocol, "method": "", "error_type": "ValueError"},
				},
			}, nil)
		case body[0] != '[':
			write(w, one(body))
			return nil
		}
		var batch []json.RawMessage
		if err := jsonx.Unmarshal(body, &batch); err != nil || len(batch) == 0 || len(batch) > maxBatch {
			write(w, &answer{JSONRPC: "2.0", ID: jsonx.Raw("null"), Error: &fault{
				Code:    jsonrpc.CodeInvalidRequest,
				Message: "a batch has 1 to 64 requests", Data: map[string]any{"protocol": protocol, "method": "", "error_type": "ValueError"},
			}})
			return nil
		}
		answers, held := []*answer{}, 0
		for _, raw := range batch {
			var a *answer
			if held < maxAnswers {
				a = one(raw)
			} else {
				a = late(raw, protocol)
			}
			if a == nil {
				continue
			}
			data, err := jsonx.Marshal(a.Result)
			if err != nil {
				return err
			}
			if a.Error == nil {
				a.Result = jsonx.Raw(data)
			}
			held += len(data)
			answers = append(answers, a)
		}
		if len(answers) == 0 {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		return httpapi.Answer(w, answers, nil)
	}
}

// late is the answer to a request of a batch whose answers are large enough already.
func late(raw json.RawMessage, protocol string) *answer {
	c, notified, _ := read(raw)
	if notified {
		return nil
	}
	a := &answer{JSONRPC: "2.0", ID: jsonx.Raw("null"), Error: &fault{
		Code: jsonrpc.CodeServer, Message: "this request was not carried out: the answers to those before it hold 8 MiB; send a smaller batch",
		Data: map[string]any{"protocol": protocol, "method": "", "error_type": "SerializationError"},
	}}
	if c != nil {
		a.Error.Data["method"] = c.method
		if c.id != nil {
			a.ID = c.id
		}
	}
	return a
}

func write(w http.ResponseWriter, a *answer) {
	if a == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	httpapi.WriteJSON(w, http.StatusOK, a)
}

// read takes the envelope apart. A request without the member id is a notification:
// carried out, and never answered.
func read(raw json.RawMessage) (c *call, notified bool, f *fault) {
	var in jsonrpc.Message
	if string(raw) != "null" { // which is a request without members
		var err error
		if in, err = jsonrpc.Decode(raw); err != nil {
			return nil, false, &fault{Code: jsonrpc.CodeInvalidRequest, Message: "a request is an object"}
		}
	}
	c = &call{}
	if in.ID != nil {
		if strings.IndexByte("{[tf", in.ID[0]) >= 0 {
			return nil, false, &fault{Code: jsonrpc.CodeInvalidRequest, Message: "id is a text, a number or null"}
		}
		c.id = jsonx.Raw(in.ID)
	}
	if !in.HasVersion() {
		return c, false, &fault{Code: jsonrpc.CodeInvalidRequest, Message: `jsonrpc must be "2.0"`}
	}
	var ok bool
	if c.method, ok = in.MethodName(); !ok {
		return c, false, &fault{Code: jsonrpc.CodeInvalidRequest, Message: "method must be a text"}
	}
	if p := in.Params; len(p) > 0 && string(p) != "null" {
		if p[0] != '{' || jsonx.Unmarshal(p, &c.params) != nil {
			return c, false, &fault{Code: jsonrpc.CodeInvalidRequest, Message: "params must be an object"}
		}
	}
	return c, in.ID == nil, nil
}

// faultOf is an error of the engine on this wire.
func faultOf(err error) *fault {
	e := capability.AsError(err)
	w := cmp.FromError(err, "", "", false)
	f := &fault{Code: jsonrpc.CodeServer, Message: e.Message, Data: map[string]any{
		"error_type": w.Type, "code": w.Code,
		"retryable": w.Retryable,
	}}
	if e.Code == capability.CodeInvalidInput || e.Code == capability.CodeTooLarge || e.Code == capability.CodeSelectionRequired {
		f.Code = jsonrpc.CodeInvalidParams
	}
	if e.Hint != "" {
		f.Data["hint"] = e.Hint
	}
	return f
}

// text reads the first of several members that is there.
func (c *call) text(from map[string]json.RawMessage, names ...string) (string, *fault) {
	for _, name := range names {
		if v, ok := from[name]; ok && string(v) != "null" {
			s, err := cmp.String(v, name)
			if err != nil {
				return "", faultOf(err)
			}
			return s, nil
		}
	}
	return "", nil
}

// request is a call of a function, as both dialects make it.
type request struct {
	function  string
	arguments json.RawMessage
	node      string
	balancing json.RawMessage
	stream    bool
}

// carry makes one invocation of it. The result of a stream is an object that says so.
func (s *Surface) carry(ctx context.Context, c *call, q request) (json.RawMessage, *fault) {
	b, err := cmp.ParseBalancing(q.balancing)
	if err != nil {
		return nil, faultOf(err)
	}
	in := map[string]any{"function": q.function}
	if len(q.arguments) > 0 {
		in["args"] = jsonx.Raw(q.arguments)
	}
	input, err := jsonx.Marshal(in)
	if err != nil {
		return nil, faultOf(err)
	}
	inv := capability.Invocation{
		Surface: c.surface, Client: c.client, Principal: c.who, Timeout: b.Timeout, Input: input,
		Target: capability.Target{Action: "device.function.invoke"},
	}
	switch {
	case q.node != "": // naming a node wins over balancing
		inv.Target.Select = capability.Selector{"node": q.node}
	case b.All:
		inv.Target.Select = capability.Selector{"node": "all"}
	case b.On:
		inv.Balance = &capability.Balance{
			Strategy: b.Strategy, Preferred: b.Preferred, Excluded: b.Excluded, Labels: b.Labels, Tags: b.Tags, NeedsGPU: b.NeedsGPU,
			MinMemory: b.MinMemory,
		}
	}
	if q.stream {
		inv.Progress = func(capability.Chunk) {}
	}
	reply, err := s.Engine.Invoke(ctx, inv)
	if err != nil {
		return nil, faultOf(err)
	}
	if !q.stream {
		return reply.Result, nil
	}
	var chunks []jsonx.Raw
	if err := jsonx.Unmarshal(reply.Result, &chunks); err != nil {
		if bytes.HasPrefix(reply.Result, []byte("{")) { // it says already how long it was
			return reply.Result, nil
		}
		chunks = []jsonx.Raw{jsonx.Raw(reply.Result)}
	}
	out, err := jsonx.Marshal(map[string]any{"mode": "stream", "chunks": chunks, "chunkCount": len(chunks)})
	if err != nil {
		return nil, faultOf(err)
	}
	return out, nil
}

// offer is a function and the live nodes that have it.
type offer struct {
	name, description string
	schema            json.RawMessage
	nodes, tags       []string
}

// offers are the functions that a caller may use, by name.
func (s *Surface) offers(who capability.Principal) []*offer {
	byName := make(map[string]*offer)
	for _, e := range s.Engine.List(who, capability.AudienceAgent) {
		_, kind, node := e.Key().Parts()
		m := e.Contribution.Member
		if kind != "node" || e.Module.Origin == "local" || m.Kind != "function" || !e.Eligible() {
			continue
		}
		o := byName[m.Name]
		if o == nil {
			o = &offer{name: m.Name, description: e.Contribution.Description, schema: e.Contribution.InputSchema}
			byName[m.Name] = o
		}
		o.nodes = append(o.nodes, node)
		o.tags = append(o.tags, e.Contribution.Tags...)
	}
	out := make([]*offer, 0, len(byName))
	for _, o := range byName {
		o.nodes, o.tags = cmp.Words(o.nodes), cmp.Words(o.tags)
		if o.description == "" {
			o.description = "EasyRemote distributed function"
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b *offer) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	return out
}
