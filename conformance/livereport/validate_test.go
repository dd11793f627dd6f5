package livereport

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/conformance"
)

var observed = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type object = map[string]any

// sound is a report in which everything follows from everything.
func sound() object {
	targets := map[string]string{
		"action": "m:GREET", "provider": "m:MOOD", "route": "m:POST /greet", "viewAsset": "m:/assets/m.js", "model": "m:TEXT_SMALL",
		"lifecycle": "m:init", "event": "m:greeted", "service": "m:greetings.say", "appBridge": "m:handleAppRoutes", "evaluator": "m:TONE",
		"responseHandlerEvaluator": "m:POLISH", "responseHandlerFieldEvaluator": "m:tone",
	}
	exercised, exercises, calls := object{}, []any{}, []any{}
	for _, surface := range conformance.Surfaces() {
		exercised[surface] = targets[surface]
		exercises = append(exercises, object{"surface": surface, "moduleId": "m", "target": targets[surface]})
		for _, method := range methodsOf(surface) {
			calls = append(calls, object{"method": method, "surface": surface, "moduleId": "m", "target": targets[surface]})
		}
	}
	plugin := func() object {
		o := object{"pluginName": "@x/m", "moduleId": "m", "endpointId": "home-machine"}
		for _, name := range countNames() {
			o[name] = 1.0
		}
		return o
	}
	runtime := object{"pluginCount": 3.0, "remotePlugins": []any{plugin()}}
	for _, name := range countNames() {
		runtime[name] = 4.0
	}
	return object{
		"schemaVersion": 1.0, "kind": "provider", "endpointId": "home-machine", "observedAt": observed.Format("2006-01-02T15:04:05.000Z"),
		"provider": "home-machine", "providerId": "home-machine", "endpointUrlSha256": strings.Repeat("ab", 32),
		"providerEvidence": object{
			"provider": "home-machine", "endpointRuntime": "home-machine", "agentRuntime": "github-actions",
			"connection": "url-backed-provider",
		},
		"ci": object{
			"runId": "12", "runAttempt": "1", "workflow": "live", "eventName": "schedule", "repository": "o/r", "sha": strings.Repeat("a", 40),
			"ref": "refs/heads/main",
		},
		"conformance": object{
			"endpointId": "home-machine",
			"availability": object{
				"environment": "server", "available": true,
				"capabilities": object{"fs": false, "pty": false, "git": false, "model": false, "plugin": true},
			},
			"moduleCount": 1.0, "moduleIds": []any{"m"}, "exercised": exercised, "moduleExercises": exercises, "rpcCalls": calls,
			"actionResult": object{"text": "hello"}, "providerResult": object{"text": "fine"},
			"routeResult": object{"status": 200.0, "body": object{"greeting": "hello"}},
			"assetResult": object{
				"path": "/assets/m.js", "contentType": "text/javascript", "manifestContentType": "text/javascript",
				"byteLength": 3.0, "sha256": strings.Repeat("cd", 32),
			},
			"modelResult":     object{"result": object{"text": "x"}},
			"lifecycleResult": object{"ok": true}, "eventResult": object{"handled": true},
			"serviceResult": object{"result": "x"}, "appBridgeResult": object{"result": object{"handled": true}},
			"evaluatorResult": object{
				"shouldRun": object{"shouldRun": true}, "prepare": object{},
				"prompt": object{"prompt": "p"}, "process": object{"result": object{}},
			},
			"responseHandlerEvaluatorResult": object{"shouldRun": object{"shouldRun": true}, "evaluate": object{"patch": object{}}},
			"responseHandlerFieldEvaluatorResult": object{
				"shouldRun": object{"shouldRun": true}, "parse": object{"softFail": true},
				"handle": object{"effect": object{}},
			},
		},
		"sync": object{
			"registered": []any{"@x/m"}, "registeredModules": []any{plugin()}, "unloaded": []any{}, "skipped": []any{},
			"trustDecisions": []any{object{
				"moduleId": "m", "pluginName": "@x/m", "endpointId": "home-machine", "trusted": true,
				"reason": "allowed",
			}},
		},
		"runtime": runtime,
	}
}

var options = Options{MaxAge: time.Hour, MaxFuture: time.Minute, RequireCI: true, Now: observed.Add(time.Minute)}

func validate(t *testing.T, report object, stem string, opts Options) error {
	t.Helper()
	data, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Validate(data, stem, opts)
	return err
}

func TestASoundReportIsAccepted(t *testing.T) {
	t.Parallel()
	opts := options
	opts.Kind, opts.RequireFileIdentity = "provider", true
	opts.GitHub = map[string]string{
		"GITHUB_RUN_ID": "12", "GITHUB_RUN_ATTEMPT": "1", "GITHUB_WORKFLOW": "live", "GITHUB_EVENT_NAME": "schedule",
		"GITHUB_REPOSITORY": "o/r", "GITHUB_SHA": strings.Repeat("a", 40), "GITHUB_REF": "refs/heads/main",
	}
	if err := validate(t, sound(), "home-machine", opts); err != nil {
		t.Error(err)
	}
}

type removed struct{}

// set changes one place of a report; the path is the one errors use.
func set(t *testing.T, root object, path string, value any) {
	t.Helper()
	var at any = root
	steps := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
	for i, step := range steps {
		last := i == len(steps)-1
		switch x := at.(type) {
		case object:
			switch _, gone := value.(removed); {
			case last && gone:
				delete(x, step)
			case last:
				x[step] = value
			}
			at = x[step]
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n >= len(x) {
				t.Fatalf("%s: no item %s; want no error, n less than %v", path, step, len(x))
			}
			if last {
				x[n] = value
			}
			at = x[n]
		default:
			t.Fatalf("%s: nothing at %s", path, step)
		}
	}
}

// TestEveryOneChangeMutationIsNamed changes one place at a time; the error must
// name the field that gave it away.
func TestEveryOneChangeMutationIsNamed(t *testing.T) {
	t.Parallel()
	type mutation struct {
		path  string
		value any
		want  string // field in the message; "" = path
	}
	gone := removed{}
	mutations := []mutation{
		{"schemaVersion", 2.0, ""},
		{"schemaVersion", gone, ""},
		{"kind", "cloud", "provider"},
		{"kind", "other", ""},
		{"endpointId", "has space", ""},
		{"endpointId", "another", "conformance.endpointId"},
		{"observedAt", "2026-03-01T12:00:00Z", ""},
		{"observedAt", "2026-02-01T12:00:00.000Z", ""},
		{"observedAt", "2026-03-02T12:00:00.000Z", ""},
		{"observedAt", gone, ""},
		{"provider", "Home", ""},
		{"providerId", "e2b", ""},
		{"providerEvidence", gone, ""},
		{"providerEvidence.provider", "e2b", ""},
		{"providerEvidence.endpointRuntime", "laptop", ""},
		{"providerEvidence.agentRuntime", "laptop", ""},
		{"providerEvidence.connection", "direct", ""},
		{"endpointUrlSha256", "abc", ""},
		{"agentId", "a", ""},
		{"cloudApiBase", "https://api.example", ""},
		{"ci", gone, ""},
		{"ci.runId", "12a", ""},
		{"ci.runAttempt", 1.0, ""},
		{"ci.workflow", " ", ""},
		{"ci.eventName", "push", ""},
		{"ci.repository", "r", ""},
		{"ci.sha", "abc", ""},
		{"ci.ref", "main", ""},
		{"ci.token", "x", ""},
		{"extra", object{"api_key": "x"}, "extra.api_key"},
		{"extra", "Authorization: Bearer abcdefghijkl", ""},
		{"extra", []any{"password=hunter2hunter2"}, "extra[0]"},
		{"extra", "https://user:word@host/", ""},
		{"conformance", gone, ""},
		{"conformance.availability.available", false, ""},
		{"conformance.availability.capabilities.plugin", false, ""},
		{"conformance.moduleCount", 2.0, ""},
		{"conformance.moduleCount", 0.0, ""},
		{"conformance.moduleIds", []any{"m", "m"}, "conformance.moduleIds[1]"},
		{"conformance.moduleIds", []any{"."}, "conformance.moduleIds[0]"},
		{"conformance.exercised.action", gone, ""},
		{"conformance.exercised.action", "n:GREET", ""},
		{"conformance.exercised.action", "m:OTHER", ""},
		{"conformance.exercised.extra", "m:X", "conformance.exercised"},
		{"conformance.moduleExercises[0].surface", "actions", ""},
		{"conformance.moduleExercises[0].moduleId", "n", ""},
		{"conformance.moduleExercises[0].target", "GREET", ""},
		{"conformance.moduleExercises[1]", object{"surface": "action", "moduleId": "m", "target": "m:GREET"}, ""},
		{"conformance.rpcCalls[0].method", "plugin.provider.get", ""},
		{"conformance.rpcCalls[0].target", "m:OTHER", "conformance.rpcCalls[0]"},
		{"conformance.rpcCalls", []any{}, ""},
		{"conformance.actionResult", object{}, ""},
		{"conformance.providerResult", object{"extra": 1.0}, ""},
		{"conformance.routeResult.status", 302.0, ""},
		{"conformance.routeResult.body", object{}, ""},
		{"conformance.routeResult.body", "  ", ""},
		{"conformance.routeResult.body", gone, ""},
		{"conformance.assetResult.path", "/assets/m.css", ""},
		{"conformance.assetResult.path", "/../m.js", ""},
		{"conformance.assetResult.contentType", "text/html", ""},
		{"conformance.assetResult.manifestContentType", "text/ecmascript", ""},
		{"conformance.assetResult.byteLength", 0.0, ""},
		{"conformance.assetResult.sha256", emptySHA256, ""},
		{"conformance.assetResult.sha256", "ab", ""},
		{"conformance.assetResult.integrity", "sha256-AAAA", ""},
		{"conformance.assetResult.manifestIntegrity", "sha256-AAAA", "conformance.assetResult.integrity"},
		{"conformance.modelResult", object{}, "conformance.modelResult.result"},
		{"conformance.lifecycleResult.ok", false, ""},
		{"conformance.eventResult.handled", "yes", ""},
		{"conformance.serviceResult", gone, ""},
		{"conformance.appBridgeResult", object{}, "conformance.appBridgeResult.result"},
		{"conformance.evaluatorResult.prompt.prompt", "", ""},
		{"conformance.evaluatorResult.shouldRun.shouldRun", "yes", ""},
		{"conformance.responseHandlerEvaluatorResult.shouldRun.shouldRun", gone, ""},
		{"conformance.responseHandlerFieldEvaluatorResult.shouldRun.shouldRun", 1.0, ""},
		{"conformance.evaluatorResult.process", object{}, "conformance.evaluatorResult.process.result"},
		{"conformance.responseHandlerEvaluatorResult.evaluate", object{}, "conformance.responseHandlerEvaluatorResult.evaluate.patch"},
		{"conformance.responseHandlerFieldEvaluatorResult.parse", object{}, ""},
		{"conformance.responseHandlerFieldEvaluatorResult.handle", object{}, "conformance.responseHandlerFieldEvaluatorResult.handle.effect"},
		{"sync.registered", []any{}, ""},
		{"sync.registered", []any{"@x/m", "@x/n"}, "sync.registeredModules"},
		{"sync.registeredModules[0].pluginName", "@x/n", ""},
		{"sync.registeredModules[0].moduleId", "n", ""},
		{"sync.registeredModules[0].endpointId", "e", ""},
		{"sync.registeredModules[0].widgetCount", 0.0, "sync.registeredModules"},
		{"sync.registeredModules[0].widgetCount", -1.0, ""},
		{"sync.registeredModules[0].widgetCount", 1.5, ""},
		{"sync.registeredModules[0].appCount", 2.0, ""},
		{"sync.unloaded", []any{"@x/m"}, ""},
		{"sync.skipped", []any{"@x/m"}, ""},
		{"sync.skipped", []any{"@x/other"}, "sync.trustDecisions"},
		{"sync.trustDecisions", []any{}, ""},
		{"sync.trustDecisions[0].trusted", false, "sync.trustDecisions"},
		{"sync.trustDecisions[0].trusted", 1.0, ""},
		{"sync.trustDecisions[0].moduleId", "n", ""},
		{"sync.trustDecisions[0].reason", gone, ""},
		{"runtime.remotePlugins", []any{}, ""},
		{"runtime.remotePlugins[0].pluginName", "@x/n", ""},
		{"runtime.remotePlugins[0].endpointId", "e", ""},
		{"runtime.remotePlugins[0].routeCount", 2.0, ""},
		{"runtime.pluginCount", 0.0, ""},
		{"runtime.actionCount", 0.0, ""},
		{"runtime.viewCount", gone, ""},
	}
	if len(mutations) < 60 {
		t.Fatalf("only %d mutations; want len(mutations) at least 60", len(mutations))
	}
	for _, m := range mutations {
		value, _ := json.Marshal(m.value)
		t.Run(m.path+"="+string(value), func(t *testing.T) {
			t.Parallel()
			report := sound()
			set(t, report, m.path, m.value)
			want := m.want
			if want == "" {
				want = m.path
			}
			err := validate(t, report, "", options)
			if err == nil {
				t.Fatal("accepted; want an error")
			}
			if !strings.HasPrefix(err.Error(), want+" ") {
				t.Errorf(`%q does not begin with the field %s; want err.Error() beginning with want + " "`, err, want)
			}
		})
	}
}

func TestFileIdentity(t *testing.T) {
	t.Parallel()
	opts := options
	opts.RequireFileIdentity = true
	if err := validate(t, sound(), "e2b", opts); err == nil || !strings.HasPrefix(err.Error(), "provider ") {
		t.Errorf(`got %v; want an error, err.Error() beginning with "provider "`, err)
	}
}

func TestSkippedModulesNeedTheFlag(t *testing.T) {
	t.Parallel()
	report := sound()
	c := report["conformance"].(object)
	c["moduleIds"], c["moduleCount"] = []any{"m", "n"}, 2.0
	c["moduleExercises"] = append(c["moduleExercises"].([]any), object{"surface": "event", "moduleId": "n", "target": "n:e"})
	c["rpcCalls"] = append(c["rpcCalls"].([]any), object{
		"method": "plugin.event.handle", "surface": "event", "moduleId": "n",
		"target": "n:e",
	})
	s := report["sync"].(object)
	s["skipped"] = []any{"@x/n"}
	s["trustDecisions"] = append(s["trustDecisions"].([]any), object{
		"moduleId": "n", "pluginName": "@x/n", "endpointId": "home-machine",
		"trusted": false, "reason": "module-not-allowed",
	})
	if err := validate(t, report, "", options); err == nil {
		t.Error("accepted without the flag; want an error")
	}
	opts := options
	opts.AllowSkipped = true
	if err := validate(t, report, "", opts); err != nil {
		t.Error(err)
	}
}

func FuzzValidate(f *testing.F) {
	data, _ := json.Marshal(sound())
	f.Add(data)
	f.Add([]byte(`{}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = Validate(data, "x", options) // never panics
	})
}
