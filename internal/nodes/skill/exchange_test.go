package skill_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/skill"
	wire "github.com/junctor-run/junctor/protocol/cmp"
)

// holds reports the first place where got lacks something of want; got may have
// more members.
func holds(at string, got, want any) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return at
		}
		for name, v := range w {
			if _, there := g[name]; !there {
				return at + "." + name + " is not there"
			}
			if where := holds(at+"."+name, g[name], v); where != "" {
				return where
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return at
		}
		for i := range w {
			if where := holds(at, g[i], w[i]); where != "" {
				return where
			}
		}
		return ""
	}
	if got != want {
		return at
	}
	return ""
}

// The worked exchange of appendix A, in a language that is run here.
func TestTheWorkedExchange(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 15, 17, 19, 82950000, time.UTC)
	r := device(t, func(c *skill.Config) {
		c.Node, c.AllowCode, c.PreferCode, c.AutoConsent = "user-device-demo", true, true, true
		c.Now = func() time.Time { return at }
	})
	raw, err := r.call(wire.InstallSkill, map[string]any{"skill_payload": json.RawMessage(`{"schema":"easyremote.remote-skill-pipeline","version":"1.0","skill_name":"camera-pack","namespace":"user",
 "created_at":"2026-11-20T15:17:19.081306+00:00",
 "capabilities":[{"alias":"take_photo","function_name":"user.camera.take_photo","node_id":null,"timeout":null,
   "stream":false,"load_balancing":true,"media_type":"application/json","codec":null,"languages":["en-us","zh-cn"],
   "metadata":{"device_action":"camera.take_photo","tags":["camera"],"requires_user_consent":true,
     "languages":["en-us","zh-cn"],"code_binding":{"module_id":"camera-v1","export":"take_photo_impl"}},
   "gateway_address":null}],
 "runtime_modules":[{"module_id":"camera-v1","language":"javascript","source":"take_photo_impl: photo"}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	const answer = `{"installed_skill":"camera-pack",
 "installed_skills":{"camera-pack":{"source":"server-agent","installed_at":"2026-11-20T15:17:19.082950+00:00",
   "capabilities":{"take_photo":{"function_name":"user.camera.take_photo","action_name":null,
     "binding_mode":"code_transfer","code_binding":{"module_id":"camera-v1","export":"take_photo_impl"},
     "stream":false,"media_type":"application/json",
     "metadata":{"device_action":"camera.take_photo","tags":["camera"],"requires_user_consent":true,
       "languages":["en-us","zh-cn"],"code_binding":{"module_id":"camera-v1","export":"take_photo_impl"}},
     "registered":true}},
   "metadata":{"runtime_modules":["camera-v1"]}}},
 "capability_host_status":{"node_id":"user-device-demo",
   "flags":{"auto_refresh_registration":true,"prefer_transferred_code":true,"allow_transferred_code":true,"auto_consent":true},
   "action_count":0,"installed_skill_count":1,
   "sandbox":{"attempted":false,"path":null,"loaded":false,"actions_registered":0,"error":null,"error_type":null,"attempted_at":null},
   "sandbox_module_count":0},
 "node_id":"user-device-demo",
 "node_functions":["device.get_capability_host_status","device.install_remote_skill","device.list_installed_skills",
   "device.list_node_functions","device.uninstall_remote_skill","user.camera.take_photo"]}`
	check := func(raw json.RawMessage, expected string) {
		t.Helper()
		var got, want any
		if json.Unmarshal(raw, &got) != nil || json.Unmarshal([]byte(expected), &want) != nil {
			t.Fatal("no JSON; want json.Unmarshal(raw, &got) = nil, json.Unmarshal([]byte(expected), &want) = nil")
		}
		if where := holds("answer", got, want); where != "" {
			t.Errorf(`%s: %s; want where = ""`, where, raw)
		}
	}
	check(raw, answer)
	list, err := r.call(wire.ListFunctions, nil)
	if err != nil {
		t.Fatal(err)
	}
	var functions struct {
		Functions []json.RawMessage `json:"functions"`
	}
	if json.Unmarshal(list, &functions) != nil || len(functions.Functions) != 6 {
		t.Fatalf("%s; want json.Unmarshal(list, &functions) = nil, len(functions.Functions) = 6", list)
	}
	check(functions.Functions[5], `{"name":"user.camera.take_photo","tags":["camera","camera-pack","code-transfer","remote-agent"],"description":"Transferred runtime code from remote agent",
 "version":"1.0.0","timeout_seconds":null,"priority":5,"execution_mode":"normal","is_async":false,"is_generator":false}`)
	gone, err := r.call(wire.UninstallSkill, []any{"camera-pack"})
	if err != nil {
		t.Fatal(err)
	}
	check(gone, `{"skill_name":"camera-pack","uninstalled":true,"installed_skills":{},"node_id":"user-device-demo"}`)
}
