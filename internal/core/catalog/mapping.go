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

// joinings maps runtime ids of mappable tools to the family they joined, and those of the
// others to the reason why they did not join.
type joinings struct {
	joined map[string]capability.Action
	odd    map[string]string
}

// without returns a copy that lacks the tools.
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

// settle decides which mappable tools join a family, and records the result in j. groups
// holds the tools by action: those that the operator's canonical map names, and functions of
// the same name on several nodes. Tools of one family must have equal input schemas. A mapped
// tool that differs from the most common schema is rejected with mapping_schema_mismatch.
// Functions of nodes join only if all schemas are equal.
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

// common returns the most common schema. Among equally common ones it is that of the tool
// with the lowest runtime id. It sorts list by runtime id.
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

// schemaSum returns a digest that is equal for schemas that differ only in the order of members
// and in white space.
func schemaSum(doc []byte) ordered.Sum {
	if c, err := jsonx.Sorted(doc); err == nil {
		doc = c
	}
	return sha256.Sum256(doc)
}

// serves reports whether a tool with input schema doc accepts calls of a family with schema
// base: it has every field the family requires, requires only fields that the family has, and
// the types of common fields agree. An empty base is served by any tool.
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
