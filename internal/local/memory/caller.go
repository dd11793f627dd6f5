package memory

import "github.com/junctor-run/junctor/capability"

// caller is the principal of a call, and the workspace that the call is made in.
type caller struct {
	workspace, id string
	operator      bool // may forget what others shared, and owns the items without an owner
}

func callerOf(workspace string, p capability.Principal) caller {
	return caller{workspace, p.Owner(), p.Role == capability.RoleOperator || p.Role == capability.RoleAdmin}
}

// visible is the condition for an item i that the caller can see; its arguments are
// [caller.sees]. Items that were stored before items had owners have the owner ”; they
// belong to the operators.
const visible = `i.workspace = ? AND (i.owner = ? OR i.owner = ? OR i.shared <> 0)`

func (c caller) sees() []any {
	if c.operator {
		return []any{c.workspace, c.id, ""}
	}
	return []any{c.workspace, c.id, c.id}
}

// place returns the name of a set of items in the index: those that are shared in the
// workspace, or those of the caller. If two names are equal because a workspace contains the
// separator, visible still separates their items.
func (c caller) place(shared bool) string {
	if shared {
		return c.workspace + "\x00"
	}
	return c.workspace + "\x00" + c.id
}

// places returns the sets of items that the caller can see. Items without an owner have the
// bare workspace as their place.
func (c caller) places() []string {
	out := []string{c.place(true), c.place(false)}
	if c.operator {
		out = append(out, c.workspace)
	}
	return out
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
