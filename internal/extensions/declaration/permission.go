package declaration

// This file is the one table of what an extension may request: the names and the other spellings
// in use, the effects of each and its risk, and which of them the locked deployment modes
// withhold. Validation of a manifest, its mapping to the catalog and consent all read it here.

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// Risk is the risk of a permission, as the consent screen shows it.
type Risk string

// The risks, least first.
const (
	RiskLow    Risk = "low"
	RiskMedium Risk = "medium"
	RiskHigh   Risk = "high"
)

// Permission is one permission.
type Permission struct {
	Name    string
	Aliases []string // spellings that are read as Name
	Grants  string   // what it lets the extension do, after "It may"
	Risk    Risk
	Effect  capability.Effect
	Locked  bool // withheld in local_locked and remote_exposed
}

// Permissions returns every permission.
func Permissions() []Permission {
	const r, w, x = capability.EffectRead, capability.EffectWrite, capability.EffectExternal
	return []Permission{
		{"exec", []string{"exec_shell"}, "run command-line programs", RiskHigh, x, true},
		{"network", []string{"network_http", "network.call"}, "connect to the hosts listed below", RiskMedium, x, false},
		{"filesystem.read", []string{"fs_read"}, "read its own working folder", RiskLow, r, false},
		{"filesystem.write", []string{"fs_write"}, "write to its own working folder", RiskMedium, w, true},
		{"browser", nil, "drive a web browser", RiskHigh, x, true},
		{"llm", nil, "send text to the configured language model", RiskMedium, r, false},
		{"builtin.exec", []string{"exec_builtin"}, "run scripts of its own in the built-in runtime", RiskMedium, x, false},
		{"read_status", nil, "read the status of this system and project", RiskLow, r, false},
		{"exec.interpreter", nil, "run shells and language interpreters, which can run anything", RiskHigh, x, true},
		{"db.read", nil, "read its databases", RiskMedium, r, false},
		{"db.write", nil, "change its databases", RiskHigh, w, true},
		{"session.read", nil, "read the last answer of other extensions in the same session", RiskMedium, r, false},
		{"network.raw", nil, "connect to any host and port, without the filtering proxy", RiskHigh, x, true},
	}
}

// LookupPermission returns a permission by its exact name or alias.
func LookupPermission(name string) (Permission, bool) {
	table := Permissions()
	i := slices.IndexFunc(table, func(r Permission) bool { return r.Name == name || slices.Contains(r.Aliases, name) })
	if i < 0 {
		return Permission{}, false
	}
	return table[i], true
}

// PermissionNames returns the canonical names, for messages.
func PermissionNames() string {
	var names []string
	for _, r := range Permissions() {
		names = append(names, r.Name)
	}
	return strings.Join(names, ", ")
}

// PermissionsEffect returns the highest effect among permissions. An unknown one counts
// as external; an empty list is read.
func PermissionsEffect(names []string) capability.Effect {
	effect := capability.EffectRead
	for _, name := range names {
		of := capability.EffectExternal
		if row, ok := LookupPermission(name); ok {
			of = row.Effect
		}
		if of.AtLeast(effect) {
			effect = of
		}
	}
	return effect
}

// CanonicalPermissions returns the permissions that names and aliases stand for, each once and in
// the order of the table. If a name is not a permission, list is nil and unknown is the first such
// name.
func CanonicalPermissions(names []string) (list []string, unknown string) {
	for _, name := range names {
		if _, ok := LookupPermission(name); !ok {
			return nil, name
		}
	}
	for _, row := range Permissions() {
		if slices.ContainsFunc(names, func(n string) bool { return n == row.Name || slices.Contains(row.Aliases, n) }) {
			list = append(list, row.Name)
		}
	}
	return list, ""
}

// NeededPermissions returns the permissions that an action of a runner requires; remote
// is set for a database on another machine. Analyses require none, because they work
// without a model if llm is missing.
func NeededPermissions(runner string, remote bool) []string {
	family, _, _ := strings.Cut(runner, ".")
	switch {
	case runner == "builtin" || runner == "default" || runner == "exec.python_handler":
		return []string{"builtin.exec"}
	case family == "exec" || family == "script":
		return []string{"exec"}
	case family == "api":
		return []string{"network"}
	case family == "browser":
		return []string{"browser", "network"}
	case family == "db":
		needed := []string{"db.read"}
		if runner == "db.exec" {
			needed[0] = "db.write"
		}
		if remote {
			needed = append(needed, "network")
		}
		return needed
	}
	return nil
}
