// Package cmp defines the capability management protocol of nodes: the arguments and
// results of the five reserved functions that manage skills on a running device.
// Package payload holds the skills themselves, package wire the messages between nodes
// and a gateway.
//
// Input is untrusted on both sides: decoding is bounded, and errors name the limit.
package cmp

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
)

// The reserved functions.
const (
	InstallSkill   = "device.install_remote_skill"
	UninstallSkill = "device.uninstall_remote_skill"
	ListSkills     = "device.list_installed_skills"
	ListFunctions  = "device.list_node_functions"
	HostStatus     = "device.get_capability_host_status"
)

// The effect classes of functions in the protocol.
const (
	EffectRead       = "read"
	EffectWrite      = "write"
	EffectExecute    = "execute"
	EffectAdminister = "administer"
)

// ReservedFunction is one of the five reserved functions.
type ReservedFunction struct {
	Name   string
	Tags   []string // sorted
	Effect string
}

// Reserved returns the five reserved functions, sorted by name.
func Reserved() []ReservedFunction {
	read, admin := []string{"device", "skill"}, []string{"device", "installer", "skill"}
	return []ReservedFunction{
		{HostStatus, read, EffectRead},
		{InstallSkill, admin, EffectAdminister},
		{ListSkills, read, EffectRead},
		{ListFunctions, read, EffectRead},
		{UninstallSkill, admin, EffectAdminister},
	}
}

// IsReserved reports whether a function has one of the five names.
func IsReserved(name string) bool {
	for _, r := range Reserved() {
		if r.Name == name {
			return true
		}
	}
	return false
}

// EngineEffect returns the effect class for an effect of the protocol. An unknown one is external.
func EngineEffect(effect string) capability.Effect {
	switch effect {
	case EffectRead:
		return capability.EffectRead
	case EffectWrite:
		return capability.EffectWrite
	case EffectAdminister:
		return capability.EffectAdmin
	}
	return capability.EffectExternal
}

var (
	nodeGrammar     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	functionGrammar = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}$`)
	skillGrammar    = regexp.MustCompile(`^[A-Za-z0-9@][A-Za-z0-9._@/-]{0,127}$`)
)

// CheckNode returns an error if a node's id is invalid.
func CheckNode(id string) error {
	if !nodeGrammar.MatchString(id) {
		return Errorf(ReasonParams, "%.140q is no id of a node: it is a letter or digit, then up to 127 letters, digits, dots, underscores or hyphens", id)
	}
	return nil
}

// CheckFunction returns an error if the name of a function is invalid.
func CheckFunction(name string) error {
	if !functionGrammar.MatchString(name) {
		return Errorf(ReasonPayload, "%.220q is no name of a function: it is a letter, digit or underscore, then up to 199 of those and . : / -",
			name)
	}
	return nil
}

// CheckSkill returns an error if the name of a skill is invalid.
func CheckSkill(name string) error {
	if !skillGrammar.MatchString(name) {
		return Errorf(ReasonPayload, "%.140q is no name of a skill: it is up to 128 letters, digits and . _ @ / - and begins with a letter, a digit or @", name)
	}
	return nil
}

// CheckAlias returns an error if an alias is invalid.
func CheckAlias(alias string) error {
	if alias == "" || len(alias) > MaxName || !plain(alias) {
		return Errorf(ReasonPayload, "%.140q is no alias: it is up to %d bytes of text without control characters", alias, MaxName)
	}
	return nil
}

// Labels returns the labels trimmed and sorted, without empty and repeated ones. Too many labels, and
// one that is too long or contains control characters, are invalid_params.
func Labels(in []string) ([]string, error) {
	out := Words(in)
	if len(out) > MaxLabels {
		return nil, Errorf(ReasonParams, "there are %d labels; the limit is %d", len(out), MaxLabels)
	}
	for _, l := range out {
		if len(l) > MaxName || !plain(l) {
			return nil, Errorf(ReasonParams, "the label %.140q has more than %d bytes or a control character", l, MaxName)
		}
	}
	return out, nil
}

// plain reports whether s is text without control characters.
func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
