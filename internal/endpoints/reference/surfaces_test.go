package reference

import (
	"fmt"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

func TestDeviceStateFollowsTheCalls(t *testing.T) {
	r := start(t)
	out := r.call("plugin.action.invoke", deviceID, `"action":"DEVICE_PING","content":{"text":"hi"},"options":{"uppercase":true}`)
	if out["text"] != "pong: HI" || at(out, "values.count") != 1.0 || at(out, "data.hostTime") == nil {
		t.Errorf(`%v; want out["text"] = "pong: HI", at(out, "values.count") = 1.0, at(out, "data.hostTime") not nil`, out)
	}
	r.call("plugin.lifecycle.call", deviceID, `"hook":"init","config":{"greeting":"ahoy","remoteCapabilityModuleId":"x"}`)
	out = r.call("plugin.action.invoke", deviceID, `"action":"DEVICE_PING"`)
	if out["text"] != "ahoy" || at(out, "values.count") != 2.0 {
		t.Errorf(`%v; want out["text"] = "ahoy", at(out, "values.count") = 2.0`, out)
	}
	if _, err := r.try("plugin.lifecycle.call", deviceID, `"hook":"applyConfig","config":{"greeting":"x","noticeLimit":"many"}`); codeOf(t,
		err) != capability.CodeInvalidInput {
		t.Errorf("%v; want codeOf(t, err) = capability.CodeInvalidInput", err)
	}
	r.call("plugin.event.handle", deviceID, `"eventName":"DEVICE_NOTICE","payload":{"topic":"door","text":"open"}`)
	out = r.call("plugin.provider.get", deviceID, `"provider":"DEVICE_STATUS","state":{"verbose":true}`)
	if at(out, "values.greeting") != "ahoy" || at(out, "values.notices") != 1.0 || at(out, "data.topics.door") != 1.0 ||
		at(out, "values.ready") != true {
		t.Errorf(`%v; want at(out, "values.greeting") = "ahoy", at(out, "values.notices") = 1.0, at(out, "data.topics.door") = `+
			`1.0, at(out, "values.ready") = true`, out)
	}
	r.call("plugin.lifecycle.call", deviceID, `"hook":"dispose"`)
	if out = r.call("plugin.provider.get", deviceID, `"provider":"DEVICE_STATUS"`); at(out, "values.pings") != 0.0 ||
		at(out, "values.ready") != false {
		t.Errorf(`%v; want at(out, "values.pings") = 0.0, at(out, "values.ready") = false`, out)
	}
}

func TestAppBridgeRunsSessions(t *testing.T) {
	r := start(t)
	id := at(r.call("plugin.appBridge.call", deviceID, `"hook":"resolveLaunchSession"`), "result.sessionId")
	session := fmt.Sprintf(`"context":{"session":{"sessionId":%q}}`, id)
	if n := at(r.call("plugin.appBridge.call", deviceID, `"hook":"refreshRunSession",`+session), "result.refreshes"); n != 1.0 {
		t.Errorf("%v; want n = 1.0", n)
	}
	if n := at(r.call("plugin.appBridge.call", deviceID, `"hook":"stopRun",`+session), "result.stopped"); n != 1.0 {
		t.Errorf("%v; want n = 1.0", n)
	}
	if _, err := r.try("plugin.appBridge.call", deviceID, `"hook":"refreshRunSession",`+session); codeOf(t, err) != capability.CodeNotFound {
		t.Errorf("%v; want codeOf(t, err) = capability.CodeNotFound", err)
	}
	out := r.call("plugin.appBridge.call", deviceID, `"hook":"handleAppRoutes","context":{"method":"POST","pathname":"/api/apps/device-tools/echo","body":{"a":1.50}}`)
	if at(out, "result.handled") != true || at(out, "result.body.a") != 1.5 {
		t.Errorf(`%v; want at(out, "result.handled") = true, at(out, "result.body.a") = 1.5`, out)
	}
}

func TestFieldEvaluatorUnderstandsOrFailsSoftly(t *testing.T) {
	r := start(t)
	tests := []struct{ value, level, mode string }{
		{`"HIGH"`, "high", "ack-and-stop"}, {`0`, "none", "ignore"}, {`5`, "normal", ""}, {`{"raw":true}`, "", ""}, {`null`, "", ""},
	}
	for _, tt := range tests {
		out := r.call("plugin.responseHandlerFieldEvaluator.parse", deviceID, `"field":"urgency","value":`+tt.value)
		if tt.level == "" {
			if out["softFail"] != true {
				t.Errorf(`%s: %v; want out["softFail"] = true`, tt.value, out)
			}
			if out = r.call("plugin.responseHandlerFieldEvaluator.handle", deviceID, `"field":"urgency","value":`+tt.value); at(out,
				"effect.patch") != nil {
				t.Errorf(`%s: %v; want at(out, "effect.patch") = nil`, tt.value, out)
			}
			continue
		}
		parsed, _ := jsonx.Marshal(out["value"])
		out = r.call("plugin.responseHandlerFieldEvaluator.handle", deviceID,
			fmt.Sprintf(`"field":"urgency","value":%s,"parsed":%s`, tt.value, parsed))
		mode, _ := at(out, "effect.preempt.mode").(string)
		if at(out, "effect.patch.urgency") != tt.level || mode != tt.mode {
			t.Errorf(`%s: %v; want at(out, "effect.patch.urgency") = %v, mode = %v`, tt.value, out, tt.level, tt.mode)
		}
	}
}

// elizaOS passes the model's whole answer as parsed, and does not wait for the parse of an endpoint.
func TestFieldEvaluatorHandlesTheValueAndNotTheWholeAnswer(t *testing.T) {
	r := start(t)
	for _, value := range []string{`"high"`, `9`, `{"level":"high"}`} {
		out := r.call("plugin.responseHandlerFieldEvaluator.handle", deviceID,
			`"field":"urgency","value":`+value+`,"parsed":{"urgency":`+value+`,"level":"low"}`)
		if got := at(out, "effect.patch.urgency"); got != "high" {
			t.Errorf("handle of %s: got %v, want high", value, got)
		}
	}
}

func TestNotesOverRoutesActionsAndEvaluator(t *testing.T) {
	r := start(t)
	route := func(members string) (float64, any) {
		out := r.call("plugin.route.call", notesID, members)
		return out["status"].(float64), out["body"]
	}
	if code, body := route(`"method":"POST","path":"/notes","body":{"text":"buy milk","tags":["home"]}`); code != 201 ||
		at(body, "id") != "n1" {
		t.Errorf(`%v %v; want code = 201, at(body, "id") = "n1"`, code, body)
	}
	r.call("plugin.action.invoke", notesID, `"action":"NOTE_ADD","content":{"text":"call the plumber"}`)
	if _, err := r.try("plugin.action.invoke", notesID, `"action":"NOTE_ADD","content":{"text":" "}`); codeOf(t,
		err) != capability.CodeInvalidInput {
		t.Errorf("%v; want codeOf(t, err) = capability.CodeInvalidInput", err)
	}
	for members, want := range map[string]float64{
		`"method":"GET","path":"/notes","query":{"q":"MILK","limit":["1"]}`: 200, `"method":"GET","path":"/notes","query":{"limit":"0"}`: 400,
		`"method":"POST","path":"/notes"`: 400, `"method":"PUT","path":"/notes"`: 405, `"method":"GET","path":"/other"`: 404,
		`"method":"GET","path":"/notes/n1"`: 200, `"method":"GET","path":"/notes/n9"`: 404, `"method":"PATCH","path":"/notes/n1"`: 405,
	} {
		if code, body := route(members); code != want {
			t.Errorf("%s: %v %v; want code = %v", members, code, body, want)
		}
	}
	if out := r.call("plugin.action.invoke", notesID, `"action":"NOTE_SEARCH","content":{"text":"milk!"}`); at(out, "values.matches") != 1.0 {
		t.Errorf(`%v; want at(out, "values.matches") = 1.0`, out)
	}
	const message = `"evaluator":"note-extractor","message":{"text":"Hello. Please remember the key is blue."}`
	if out := r.call("plugin.evaluator.shouldRun", notesID, message); out["shouldRun"] != true {
		t.Errorf(`%v; want out["shouldRun"] = true`, out)
	}
	prepared, _ := jsonx.Marshal(r.call("plugin.evaluator.prepare", notesID, message)["prepared"])
	if out := r.call("plugin.evaluator.prompt", notesID, message+`,"prepared":`+string(prepared)); !strings.Contains(out["prompt"].(string),
		"plumber") {
		t.Errorf(`%v; want out["prompt"].(string) with "plumber"`, out)
	}
	for _, want := range []float64{3, 3} { // the second time it is known already
		if out := r.call("plugin.evaluator.process", notesID, message+`,"output":"no json","prepared":`+string(prepared)); at(out,
			"result.total") != want {
			t.Errorf(`%v; want at(out, "result.total") = %v`, out, want)
		}
	}
	r.call("plugin.lifecycle.call", notesID, `"hook":"applyConfig","config":{"maxNotes":"2"}`)
	r.call("plugin.event.handle", notesID, `"eventName":"NOTES_IMPORTED","payload":{"notes":["one more"]}`)
	out := r.call("plugin.provider.get", notesID, `"provider":"NOTES_RECENT","state":{"limit":10}`)
	if at(out, "values.noteCount") != 2.0 || !strings.Contains(out["text"].(string), "- one more\n- Please remember the key is blue.") {
		t.Errorf(`%v; want at(out, "values.noteCount") = 2.0, out["text"].(string) with "- one more\n- Please remember the key is blue."`,
			out)
	}
	if code, _ := route(`"method":"DELETE","path":"/notes/n1"`); code != 404 {
		t.Errorf("the oldest note outlived the limit: %v; want code = 404", code)
	}
}

func TestServicesCheckTheirArguments(t *testing.T) {
	r := start(t)
	call := func(members string) (any, error) {
		out, err := r.try("plugin.service.call", notesID, `"serviceType":"notes-store",`+members)
		return out["result"], err
	}
	for _, members := range []string{
		`"method":"set","args":["k"]`, `"method":"set","args":[1,2]`, `"method":"get","args":[" "]`, `"method":"list","args":[{"prefix":1}]`,
		`"method":"list","args":["x"]`,
	} {
		if _, err := call(members); codeOf(t, err) != capability.CodeInvalidInput {
			t.Errorf("%s: %v; want codeOf(t, err) = capability.CodeInvalidInput", members, err)
		}
	}
	if _, err := call(`"method":"set","args":["a.k",{"n":[1,null]}]`); err != nil {
		t.Fatal(err)
	}
	if v, err := call(`"method":"get","args":["a.k"]`); err != nil || fmt.Sprint(at(v, "value")) != "map[n:[1 <nil>]]" {
		t.Errorf(`%v, %v; want no error, fmt.Sprint(at(v, "value")) = "map[n:[1 <nil>]]"`, v, err)
	}
	if v, err := call(`"method":"list","args":[{"prefix":"b"}]`); err != nil || len(at(v, "keys").([]any)) != 0 || at(v, "total") != 1.0 {
		t.Errorf(`%v, %v; want no error, len(at(v, "keys").([]any)) = 0, at(v, "total") = 1.0`, v, err)
	}
	if v, err := call(`"method":"delete","args":["a.k"]`); err != nil || at(v, "deleted") != true {
		t.Errorf(`%v, %v; want no error, at(v, "deleted") = true`, v, err)
	}
	if _, err := call(`"method":"get","args":["a.k"]`); codeOf(t, err) != capability.CodeNotFound {
		t.Errorf("%v; want codeOf(t, err) = capability.CodeNotFound", err)
	}
	if _, err := r.try("plugin.service.call", deviceID, `"serviceType":"device-clock","method":"elapsed","args":["2020-01-01T00:00:00Z"]`); err != nil {
		t.Error(err)
	}
}

func TestModelsDependOnTheirInput(t *testing.T) {
	r := start(t)
	text := "Otters hold hands. Otters sleep on water, and otters dive in water. Rain fell. Nobody minded."
	params, _ := jsonx.Marshal(map[string]any{"prompt": text, "sentences": 1})
	if out := r.call("plugin.model.invoke", deviceID, `"modelType":"TEXT_SMALL","params":`+
		string(params)); out["result"] != "Otters sleep on water, and otters dive in water." {
		t.Errorf(`%v; want out["result"] = "Otters sleep on water, and otters dive in water."`, out)
	}
	vector := func(s string) []any {
		return r.call("plugin.model.invoke", notesID, fmt.Sprintf(`"modelType":"TEXT_EMBEDDING","params":{"text":%q}`, s))["result"].([]any)
	}
	product := func(a, b []any) (sum float64) {
		for i := range a {
			sum += a[i].(float64) * b[i].(float64)
		}
		return sum
	}
	milk := vector("buy milk today")
	if len(milk) != embeddingSize || product(milk, milk) < 0.999 ||
		product(milk, vector("milk today")) <= product(milk, vector("otters dive")) {
		t.Errorf(`%v; want len(milk) = %v, product(milk, milk) at least 0.999, product(milk, vector("milk today")) more than `+
			`product(milk, vector("otters dive"))`, milk, embeddingSize)
	}
	if _, err := r.try("plugin.model.invoke", deviceID, `"modelType":"TEXT_SMALL","params":{}`); codeOf(t,
		err) != capability.CodeInvalidInput {
		t.Errorf("%v; want codeOf(t, err) = capability.CodeInvalidInput", err)
	}
}
