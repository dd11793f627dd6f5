package livereport

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
)

// countNames are the counts of a registered module.
func countNames() []string {
	return []string{
		"actionCount", "providerCount", "evaluatorCount", "responseHandlerEvaluatorCount", "responseHandlerFieldEvaluatorCount",
		"routeCount", "modelCount", "eventCount", "serviceCount", "appCount", "appBridgeCount", "lifecycleCount",
		"widgetCount", "componentTypeCount", "viewCount",
	}
}

// integrityIs reports whether a sha256 token of integrity is the hex digest.
func integrityIs(integrity, sum string) bool {
	for token := range strings.FieldsSeq(integrity) {
		value, ok := strings.CutPrefix(token, "sha256-")
		if !ok {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(value)
		if err == nil && hex.EncodeToString(raw) == sum {
			return true
		}
	}
	return false
}

// sync is rule 5: what was registered is what was observed, exercised and
// trusted.
func (v *validator) sync(n, conformance node) {
	registered := n.at("registered").texts()
	if len(registered) == 0 {
		fail(n.at("registered").path, "is empty")
	}
	v.names, v.counts, v.totals = make(map[string]string), make(map[string]map[string]int64), make(map[string]int64)
	list := n.at("registeredModules").items()
	if len(list) != len(registered) {
		fail(n.at("registeredModules").path, "has %d entries for %d registered modules", len(list), len(registered))
	}
	for _, item := range list {
		v.registered(item.object(), registered)
	}
	for _, name := range countNames() {
		if v.totals[name] == 0 {
			fail(n.at("registeredModules").path, "has no %s above 0", name)
		}
	}
	if !v.opts.AllowSkipped {
		for _, m := range v.modules {
			if v.names[m] == "" {
				fail(n.at("registeredModules").path, "lacks the observed module %s", m)
			}
		}
	}
	for m := range v.names {
		if !slices.ContainsFunc(conformance.at("moduleExercises").items(), func(e node) bool { return e.at("moduleId").value == m }) {
			fail(n.at("registeredModules").path, "has %s, which was not exercised", m)
		}
	}
	unloaded, skipped := n.at("unloaded").texts(), n.at("skipped").texts()
	for _, other := range [][2]any{{unloaded, "unloaded"}, {skipped, "skipped"}} {
		for _, name := range other[0].([]string) {
			if slices.Contains(registered, name) {
				fail(n.at(other[1].(string)).path, "names %s, which is registered", name)
			}
		}
	}
	for _, name := range skipped {
		if slices.Contains(unloaded, name) {
			fail(n.at("skipped").path, "names %s, which is unloaded too", name)
		}
	}
	v.decisions(n.at("trustDecisions"), skipped)
}

func (v *validator) registered(item node, registered []string) {
	name := item.at("pluginName").text()
	if !slices.Contains(registered, name) {
		fail(item.at("pluginName").path, "is not registered")
	}
	module := item.at("moduleId").text()
	if !slices.Contains(v.modules, module) {
		fail(item.at("moduleId").path, "was not observed")
	}
	if _, twice := v.names[module]; twice {
		fail(item.at("moduleId").path, "repeats %s", module)
	}
	for _, other := range v.names {
		if other == name {
			fail(item.at("pluginName").path, "repeats %s", name)
		}
	}
	item.at("endpointId").equals(v.endpoint)
	v.names[module], v.counts[module] = name, countsOf(item)
	var sum int64
	for c, n := range v.counts[module] {
		v.totals[c] += n
		sum += n
	}
	if sum == 0 {
		fail(item.path, "has nothing but zero counts")
	}
}

func countsOf(item node) map[string]int64 {
	out := make(map[string]int64, len(countNames()))
	for _, name := range countNames() {
		n := item.at(name).integer(0)
		if (name == "appCount" || name == "appBridgeCount") && n > 1 {
			fail(item.at(name).path, "must be 0 or 1")
		}
		out[name] = n
	}
	return out
}

// decisions: every skipped module was refused, and the trusted ones are exactly
// those registered. Decisions about other endpoints do not count.
func (v *validator) decisions(n node, skipped []string) {
	trusted := make(map[string]bool)
	var refused []string
	for _, item := range n.items() {
		item.object()
		module, name := item.at("moduleId").text(), item.at("pluginName").text()
		item.at("reason").text()
		verdict, ok := item.at("trusted").value.(bool)
		if !ok {
			fail(item.at("trusted").path, "must be true or false")
		}
		if endpoint, ok := item.at("endpointId").value.(string); ok && endpoint != v.endpoint {
			continue
		}
		if !verdict {
			refused = append(refused, name)
			continue
		}
		if trusted[module] {
			fail(item.at("moduleId").path, "is decided twice")
		}
		if v.names[module] != name {
			fail(item.at("moduleId").path, "is trusted but not registered under that name")
		}
		trusted[module] = true
	}
	for _, name := range skipped {
		if !slices.Contains(refused, name) {
			fail(n.path, "has no refusal for the skipped %s", name)
		}
	}
	for m := range v.names {
		if !trusted[m] {
			fail(n.path, "has no decision that trusts %s", m)
		}
	}
}

// runtime is rule 6: the agent runs exactly what was registered.
func (v *validator) runtime(n node) {
	list := n.at("remotePlugins").items()
	if len(list) != len(v.names) {
		fail(n.at("remotePlugins").path, "has %d entries for %d registered modules", len(list), len(v.names))
	}
	seen := make(map[string]bool)
	for _, item := range list {
		module := item.object().at("moduleId").text()
		if seen[module] {
			fail(item.at("moduleId").path, "repeats %s", module)
		}
		seen[module] = true
		if v.names[module] == "" {
			fail(item.at("moduleId").path, "is not registered")
		}
		item.at("pluginName").equals(v.names[module])
		item.at("endpointId").equals(v.endpoint)
		counts := countsOf(item)
		for _, name := range countNames() {
			if counts[name] != v.counts[module][name] {
				fail(item.at(name).path, "is %d here and %d in registeredModules", counts[name], v.counts[module][name])
			}
		}
	}
	if plugins := n.at("pluginCount").integer(1); plugins < int64(len(v.names)) {
		fail(n.at("pluginCount").path, "is less than the remote plugins")
	}
	for _, name := range countNames() {
		if n.at(name).integer(1) < v.totals[name] {
			fail(n.at(name).path, "is less than the remote plugins have together")
		}
	}
}
