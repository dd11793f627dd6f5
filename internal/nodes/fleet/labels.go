package fleet

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// permitLabel returns denied for a reserved label that is not granted.
func permitLabel(l string, granted []string) error {
	if l = strings.TrimSpace(l); reservedLabel(l) && !slices.Contains(granted, l) {
		return capability.Errorf(capability.CodeDenied, "nodes.join", "the label %s is not granted to this node", l).With("denied",
			"labels of users and tenants come with the node's token")
	}
	return nil
}

// reservedLabel reports whether a label determines who may call the node.
func reservedLabel(l string) bool {
	return strings.HasPrefix(l, "user:") || strings.HasPrefix(l, "tenant:")
}

// RejectedLabels returns the reserved labels of a list that are not granted. A gateway
// removes them before the node joins, and reports them to it.
func RejectedLabels(labels, granted []string) (rejected []string) {
	for _, l := range cmp.Words(labels) {
		if reservedLabel(l) && !slices.Contains(granted, l) {
			rejected = append(rejected, l)
		}
	}
	return rejected
}
