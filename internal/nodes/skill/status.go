package skill

import (
	"runtime"
	"slices"

	wire "github.com/junctor-run/junctor/protocol/cmp"
)

// Status returns the host's current status.
func (h *Host) Status(withActions, withSkills bool) wire.Status {
	actions, skills := h.cfg.Actions.List(), h.Installed()
	s := wire.Status{
		Flags: wire.Flags{
			AutoRefreshRegistration: !h.cfg.NoAutoRefresh, PreferTransferredCode: h.cfg.PreferCode, AllowTransferredCode: h.cfg.AllowCode,
			AutoConsent:        h.cfg.AutoConsent,
			ConsentInteractive: h.cfg.Owner != nil && h.cfg.Owner.Interactive(),
		},
		ActionCount: len(actions), InstalledSkillCount: len(skills), Languages: h.binder.Languages(), Limits: h.limits,
		OS: runtime.GOOS, Arch: runtime.GOARCH, Version: h.cfg.Version, ProtocolVersion: 1, Isolation: h.cfg.Isolation,
		DegradedSkills: []string{},
	}
	if h.cfg.Node != "" {
		node := h.cfg.Node
		s.NodeID = &node
	}
	if h.cfg.Epoch != nil {
		s.Epoch = h.cfg.Epoch()
	}
	s.Sandbox, s.SandboxModuleCount = h.cfg.Actions.Status()
	for name, r := range skills {
		if r.State == wire.StateDegraded {
			s.DegradedSkills = append(s.DegradedSkills, name)
		}
	}
	slices.Sort(s.DegradedSkills)
	if withActions {
		s.Actions = &actions
	}
	if withSkills {
		s.InstalledSkills = &skills
	}
	return s
}

// ListFunctions answers device.list_node_functions.
func (h *Host) ListFunctions() *wire.Functions {
	list, _ := h.cfg.Functions.List(false)
	return &wire.Functions{NodeID: h.cfg.Node, CapabilityHostStatus: h.Status(false, false), FunctionCount: len(list), Functions: list}
}

func (h *Host) installedAnswer(skill string, warnings []wire.Warning, changed bool) *wire.Installed {
	return &wire.Installed{
		InstalledSkill: skill, InstalledSkills: h.Installed(), CapabilityHostStatus: h.Status(false, false), NodeID: h.cfg.Node,
		NodeFunctions: h.cfg.Functions.Names(), Warnings: warnings, Changed: changed,
	}
}

func (h *Host) uninstalledAnswer(skill string, warnings []wire.Warning, done bool) *wire.Uninstalled {
	return &wire.Uninstalled{
		SkillName: skill, Uninstalled: done, InstalledSkills: h.Installed(), CapabilityHostStatus: h.Status(false, false), NodeID: h.cfg.Node,
		NodeFunctions: h.cfg.Functions.Names(), Warnings: warnings,
	}
}
