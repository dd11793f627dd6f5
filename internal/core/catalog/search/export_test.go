package search

import "github.com/junctor-run/junctor/internal/core/catalog/compile"

// Describe resolves a name as catalog.describe receives it, and describes the action.
func (t Tools) Describe(a *compile.Agent, name string) (Described, error) {
	x, err := t.read(a, name)
	if err != nil {
		return Described{}, err
	}
	return t.DescribeAction(a, x)
}
