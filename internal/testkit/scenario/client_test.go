package scenario_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
)

func TestTheClientsOperationsOnNodes(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	for _, id := range []string{"a", "b"} {
		p.join(t, options{id: id, token: p.newToken(t, "node", "user:ann"), labels: []string{"user:ann", "room:" + id}, before: func(d *device) {
			d.does(functions.Function{
				Name: "user.who", Effect: cmp.EffectRead,
				Handle: func(_ context.Context, c functions.Call) (json.RawMessage, error) {
					return json.Marshal(map[string]any{"node": d.id, "kwargs": c.Args.Kwargs})
				},
			})
			d.does(functions.Function{
				Name: "user.count", Effect: cmp.EffectRead, Stream: true,
				Handle: func(ctx context.Context, c functions.Call) (json.RawMessage, error) {
					for i := range 1000 {
						chunk, err := json.Marshal(i)
						if err != nil {
							return nil, err
						}
						if err := c.Emit(ctx, chunk); err != nil {
							return nil, err
						}
					}
					return nil, nil
				},
			})
		}})
	}
	ctx, c := t.Context(), p.admin
	all, err := c.Nodes(ctx, client.NodeFilter{Labels: []string{"user:ann", " "}})
	if err != nil || len(all) != 2 || all[0].ID != "a" || !slices.Contains(all[0].Functions, "user.who") {
		t.Errorf(`%+v %v; want no error, len(all) = 2, all[0].ID = "a", all[0].Functions with "user.who"`, all, err)
	}
	if n, err := c.ResolveNode(ctx, client.NodeFilter{Labels: []string{"room:b"}}); err != nil || n.ID != "b" {
		t.Errorf(`%+v %v; want no error, n.ID = "b"`, n, err)
	}
	if _, err := c.ResolveNode(ctx, client.NodeFilter{Labels: []string{"user:ann"}}); reason(err) != cmp.ReasonAmbiguous ||
		!strings.Contains(err.Error(), "a, b") {
		t.Errorf(`%v; want reason(err) = cmp.ReasonAmbiguous, err.Error() with "a, b"`, err)
	}
	if _, err := c.ResolveNode(ctx, client.NodeFilter{Labels: []string{"none"}}); reason(err) != cmp.ReasonNodeNotFound {
		t.Errorf("%v; want reason(err) = cmp.ReasonNodeNotFound", err)
	}
	if s, err := c.NodeStatus(ctx, "a"); err != nil || s.Health != 1 || s.Status != "connected" {
		t.Errorf(`%+v %v; want no error, s.Health = 1, s.Status = "connected"`, s, err)
	}
	// A keyword of the function that is also an option of the client reaches it.
	result, node, err := c.Call(ctx, "user.who", map[string]any{"timeout_ms": 5}, client.CallOptions{Node: "b"})
	if err != nil || node != "b" || string(result) != `{"kwargs":{"timeout_ms":5},"node":"b"}` {
		t.Errorf(`%s %s %v; want no error, node = "b", string(result) = "{\"kwargs\":{\"timeout_ms\":5},\"node\":\"b\"}"`,
			result, node, err)
	}
	if _, node, err := c.Call(ctx, "user.who", nil, client.CallOptions{Balancing: map[string]any{"excluded_node_ids": []string{"a"}}}); err != nil || node != "b" {
		t.Errorf(`%s %v; want no error, node = "b"`, node, err)
	}
	n := 0
	for chunk, err := range c.Stream(ctx, "user.count", nil, client.CallOptions{Node: "a"}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 10 {
			if string(chunk) != "9" {
				t.Errorf(`%s; want string(chunk) = "9"`, chunk)
			}
			break // which ends the call
		}
	}
	skills := client.NewSkills(c, client.Profile{User: "ann", Language: "zh_CN"})
	raw := json.RawMessage(`{"schema":"easyremote.remote-skill-pipeline","version":"1.0","skill_name":"pack","capabilities":[
		{"alias":"who","function_name":"user.who","languages":["zh-cn","de"],"metadata":{}},
		{"alias":"only","function_name":"user.who","languages":["fr"],"metadata":{}},
		{"alias":"pinned","function_name":"user.who","node_id":"b","metadata":{}}]}`)
	if name, err := skills.Install(raw, false); err != nil || name != "pack" {
		t.Fatalf(`skills.Install(raw, false): err = %v, want nil; name = %q, want "pack"`, err, name)
	}
	if _, err := skills.Install(raw, false); capability.CodeOf(err) != capability.CodeConflict {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeConflict", err)
	}
	for ref, want := range map[string]string{"pack/who": `"node":"a"`, "pack.who": `"node":"a"`, "who": `"node":"a"`, "pinned": `"node":"b"`} {
		o := client.RunOptions{User: "ann"}
		if ref == "pinned" {
			o = client.RunOptions{}
		}
		if out, err := skills.RunRef(ctx, ref, nil, o); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %s %v; want no error, string(out) with %v", ref, out, err, want)
		}
	}
	if _, err := skills.Run(ctx, "pack", "only", nil, client.RunOptions{}); capability.CodeOf(err) != capability.CodeInvalidInput ||
		!strings.Contains(err.Error(), "fr") || !strings.Contains(err.Error(), "zh-cn") {
		t.Errorf(`%v; want capability.CodeOf(err) = capability.CodeInvalidInput, err.Error() with "fr", err.Error() with "zh-cn"`, err)
	}
	if _, err := skills.Run(ctx, "pack", "only", nil, client.RunOptions{Language: "fr-ca", Node: "a"}); err != nil {
		t.Error(err)
	}
	if !skills.Uninstall("pack") || skills.Uninstall("pack") || len(skills.List()) != 0 {
		t.Error(`uninstall; want skills.Uninstall("pack"), not skills.Uninstall("pack"), len(skills.List()) = 0`)
	}
}
