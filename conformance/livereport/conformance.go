package livereport

import (
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/conformance"
	"github.com/junctor-run/junctor/protocol/router"
)

// methodsOf returns the methods that every exercise of a surface must have called. They
// are derived from the method table, so that a new one is required here too.
func methodsOf(surface string) []string {
	noun := surface
	if surface == "viewAsset" {
		noun = "view"
	}
	var out []string
	for _, m := range router.Methods() {
		if m.Surface == noun && m.Family == router.FamilyPlugin {
			out = append(out, m.Name)
		}
	}
	return out
}

// conformance checks that the block is complete and consistent.
func (v *validator) conformance(n node) {
	n.at("endpointId").equals(v.endpoint)
	availability := n.at("availability").object()
	availability.at("available").isTrue()
	availability.at("capabilities").object().at("plugin").isTrue()
	v.modules = n.at("moduleIds").texts()
	for i, item := range n.at("moduleIds").items() {
		if router.CheckModuleID(v.modules[i]) != nil {
			fail(item.path, "is not a module id")
		}
	}
	if count := n.at("moduleCount").integer(1); count != int64(len(v.modules)) {
		fail(n.at("moduleCount").path, "is %d, but there are %d module ids", count, len(v.modules))
	}
	exercises := v.exercises(n)
	v.ledger(n, exercises)
	v.results(n)
}

type exercise struct{ surface, module, target string }

// exercises checks exercised and moduleExercises against each other.
func (v *validator) exercises(n node) []exercise {
	var list []exercise
	for _, item := range n.at("moduleExercises").items() {
		e := v.exercise(item.object())
		if slices.Contains(list, e) {
			fail(item.path, "repeats the exercise of %s", e.target)
		}
		list = append(list, e)
	}
	exercised := n.at("exercised").object()
	for _, surface := range conformance.Surfaces() {
		target := exercised.at(surface).text()
		module, _, ok := strings.Cut(target, ":")
		if !ok || !slices.Contains(v.modules, module) {
			fail(exercised.at(surface).path, "must be observedModule:target")
		}
		if !slices.Contains(list, exercise{surface, module, target}) {
			fail(exercised.at(surface).path, "is not among the moduleExercises")
		}
	}
	if o, ok := exercised.value.(map[string]any); ok && len(o) != len(conformance.Surfaces()) {
		fail(exercised.path, "has members that are not surfaces")
	}
	for _, m := range v.modules {
		if !slices.ContainsFunc(list, func(e exercise) bool { return e.module == m }) {
			fail(n.at("moduleExercises").path, "has none for the module %s", m)
		}
	}
	return list
}

func (v *validator) exercise(item node) exercise {
	e := exercise{item.at("surface").oneOf(conformance.Surfaces()...), item.at("moduleId").text(), item.at("target").text()}
	if !slices.Contains(v.modules, e.module) {
		fail(item.at("moduleId").path, "is not an observed module")
	}
	if rest, ok := strings.CutPrefix(e.target, e.module+":"); !ok || rest == "" {
		fail(item.at("target").path, "must begin with the module and a colon")
	}
	return e
}

// ledger checks rpcCalls: each belongs to an exercise with a method of its
// surface, none twice, and each exercise has all its methods.
func (v *validator) ledger(n node, exercises []exercise) {
	type call struct {
		method string
		exercise
	}
	var calls []call
	for _, item := range n.at("rpcCalls").items() {
		c := call{item.object().at("method").text(), v.exercise(item)}
		if !slices.Contains(methodsOf(c.surface), c.method) {
			fail(item.at("method").path, "is not a method of the surface %s", c.surface)
		}
		if !slices.Contains(exercises, c.exercise) {
			fail(item.path, "belongs to no exercise")
		}
		if slices.Contains(calls, c) {
			fail(item.path, "repeats %s", c.method)
		}
		calls = append(calls, c)
	}
	for _, e := range exercises {
		for _, m := range methodsOf(e.surface) {
			if !slices.Contains(calls, call{m, e}) {
				fail(n.at("rpcCalls").path, "lacks %s for %s", m, e.target)
			}
		}
	}
}

var scriptType = regexp.MustCompile(`(?i)/(java|ecma)script`)

// emptySHA256 is the digest of nothing: an asset cannot have it.
const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func (v *validator) results(n node) {
	if action := n.at("actionResult").object(); !action.has("text") && !action.has("actions") && !action.has("values") && !action.has("data") {
		fail(action.path, "needs one of text, actions, values, data")
	}
	if provider := n.at("providerResult").object(); !provider.has("text") && !provider.has("values") && !provider.has("data") {
		fail(provider.path, "needs one of text, values, data")
	}
	route := n.at("routeResult").object()
	if status := route.at("status").integer(0); status < 200 || status > 299 {
		fail(route.at("status").path, "must be 200 to 299")
	}
	switch body := strings.TrimSpace(route.at("body").raw()); {
	case !route.has("body"), body == "null", body == `{}`, body == `[]`, strings.TrimSpace(strings.Trim(body, `"`)) == "":
		fail(route.at("body").path, "is empty")
	}
	v.asset(n.at("assetResult").object())
	for _, name := range []string{"modelResult", "serviceResult", "appBridgeResult"} {
		if r := n.at(name).object(); !r.has("result") {
			fail(r.at("result").path, "is missing")
		}
	}
	n.at("lifecycleResult").object().at("ok").isTrue()
	n.at("eventResult").object().at("handled").isTrue()
	e := n.at("evaluatorResult").object()
	e.at("shouldRun").object().at("shouldRun").boolean()
	e.at("prepare").object()
	e.at("prompt").object().at("prompt").text()
	if p := e.at("process").object(); !p.has("result") {
		fail(p.at("result").path, "is missing")
	}
	r := n.at("responseHandlerEvaluatorResult").object()
	r.at("shouldRun").object().at("shouldRun").boolean()
	if p := r.at("evaluate").object(); !p.has("patch") {
		fail(p.at("patch").path, "is missing")
	}
	f := n.at("responseHandlerFieldEvaluatorResult").object()
	f.at("shouldRun").object().at("shouldRun").boolean()
	if p := f.at("parse").object(); !p.has("value") && !p.has("softFail") {
		fail(p.path, "needs value or softFail")
	}
	if h := f.at("handle").object(); !h.has("effect") {
		fail(h.at("effect").path, "is missing")
	}
}

func (v *validator) asset(n node) {
	path := n.at("path").text()
	if router.CheckAssetPath(path) != nil || !strings.HasSuffix(path, ".js") && !strings.HasSuffix(path, ".mjs") {
		fail(n.at("path").path, "must be the path of a .js or .mjs asset")
	}
	contentType := n.at("contentType").matches(scriptType, "a script's content type")
	if n.has("manifestContentType") {
		n.at("manifestContentType").equals(contentType)
	}
	n.at("byteLength").integer(1)
	sum := n.at("sha256").matches(hex64, "64 hex digits")
	if sum == emptySHA256 {
		fail(n.at("sha256").path, "is the digest of nothing")
	}
	if n.has("manifestIntegrity") {
		n.at("integrity").equals(n.at("manifestIntegrity").text())
	}
	if n.has("integrity") {
		if !integrityIs(n.at("integrity").text(), sum) {
			fail(n.at("integrity").path, "has no sha256 token equal to sha256")
		}
	}
}
