package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog/ordered"
)

// joinings is which mappable tools, by runtime id, are part of a family, and why
// others are not.
type joinings struct {
	joined map[string]capability.Action
	odd    map[string]string
}

// without returns a copy that knows nothing of the tools.
func (j joinings) without(tools []mappable) joinings {
	out := joinings{make(map[string]capability.Action, len(j.joined)), make(map[string]string, len(j.odd))}
	maps.Copy(out.joined, j.joined)
	maps.Copy(out.odd, j.odd)
	for _, p := range tools {
		delete(out.joined, p.runtime)
		delete(out.odd, p.runtime)
	}
	return out
}

// settle decides which mappable tools form a family: those that the operator's
// canonical map names, and functions of the same name on several nodes. Tools
// of one family must have equal input schemas. Of mapped tools the odd ones
// stay apart, rejected mapping_schema_mismatch; functions of nodes join only if
// all agree.
func (j *joinings) settle(groups map[capability.Action][]mappable) {
	for action, list := range groups {
		function := strings.HasPrefix(string(action), "fn.")
		schema := common(list)
		agree := !slices.ContainsFunc(list, func(p mappable) bool { return p.schema != schema })
		for _, p := range list {
			switch {
			case function && agree, !function && p.schema == schema && p.base:
				j.joined[p.runtime] = action
			case !function:
				j.odd[p.runtime] = "mapping_schema_mismatch"
			}
		}
	}
}

// common is the schema most of the list have; of equally common ones, that of the
// tool whose runtime id is first.
func common(list []mappable) ordered.Sum {
	slices.SortFunc(list, func(a, b mappable) int { return cmp.Compare(a.runtime, b.runtime) })
	count := make(map[ordered.Sum]int)
	var best ordered.Sum
	for _, p := range list {
		count[p.schema]++
	}
	for _, p := range list {
		if count[p.schema] > count[best] {
			best = p.schema
		}
	}
	return best
}

// schemaSum is equal for schemas that differ in spelling only.
func schemaSum(doc []byte) ordered.Sum {
	if c, err := jsonx.Sorted(doc); err == nil {
		doc = c
	}
	return sha256.Sum256(doc)
}

// serves reports whether a tool of schema doc can be called as a family whose
// schema is base demands: it knows every field the family requires, requires
// nothing the family does not have, and neither side's types disagree.
func serves(doc, base []byte) bool {
	type object struct {
		Type       any                        `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	var tool, family object
	if len(base) == 0 {
		return true
	}
	if len(doc) == 0 || json.Unmarshal(doc, &tool) != nil || json.Unmarshal(base, &family) != nil {
		return false
	}
	for _, name := range family.Required {
		if _, ok := tool.Properties[name]; !ok {
			return false
		}
	}
	for _, name := range tool.Required {
		if _, ok := family.Properties[name]; !ok {
			return false
		}
	}
	for name, mine := range tool.Properties {
		theirs, ok := family.Properties[name]
		if !ok {
			continue
		}
		var a, b struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(mine, &a) == nil && json.Unmarshal(theirs, &b) == nil && a.Type != "" && b.Type != "" && a.Type != b.Type {
			return false
		}
	}
	return true
}
