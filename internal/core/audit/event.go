package audit

// Event is the type of a record. The corresponding bus event has dots instead of underscores.
type Event string

// The audit events, grouped by subject.
const (
	CapabilityStarted   Event = "capability_started"
	CapabilityExecuted  Event = "capability_executed"
	CapabilitySlow      Event = "capability_slow"
	CapabilityFailed    Event = "capability_failed"
	CapabilityTimeout   Event = "capability_timeout"
	CapabilityCancelled Event = "capability_cancelled"
	PermissionDenied    Event = "permission_denied"
	ApprovalRequired    Event = "approval_required" // the call did not run; permission_denied in records of earlier versions
	SecurityViolation   Event = "security_violation"
	CommandRouted       Event = "command_routed"
	RateLimited         Event = "rate_limited"
	QueueRejected       Event = "queue_rejected"

	ExtensionInstalled     Event = "extension_installed"
	ExtensionInstallFailed Event = "extension_install_failed"
	ExtensionEnabled       Event = "extension_enabled"
	ExtensionDisabled      Event = "extension_disabled"
	ExtensionUpgraded      Event = "extension_upgraded"
	ExtensionUninstalled   Event = "extension_uninstalled"
	ExtensionStepExecuted  Event = "extension_step_executed"
	CommandConflict        Event = "command_conflict"
	SandboxDegraded        Event = "sandbox_degraded"
	EgressAllowed          Event = "egress_allowed"
	EgressDenied           Event = "egress_denied"

	GrantCreated          Event = "grant_created"
	GrantUsed             Event = "grant_used"
	GrantRevoked          Event = "grant_revoked"
	PolicyChanged         Event = "policy_changed"
	ConfirmationRequested Event = "confirmation_requested"
	ConfirmationAnswered  Event = "confirmation_answered"

	EndpointConnected    Event = "endpoint_connected"
	EndpointDisconnected Event = "endpoint_disconnected"
	EndpointSynced       Event = "endpoint_synced"
	EndpointDown         Event = "endpoint_down"
	EndpointUp           Event = "endpoint_up"
	TrustDecided         Event = "trust_decided"
	ModuleLoaded         Event = "module_loaded"
	ModuleReloaded       Event = "module_reloaded"
	ModuleUnloaded       Event = "module_unloaded"

	NodeJoined       Event = "node_joined"
	NodeResumed      Event = "node_resumed"
	NodeSuspect      Event = "node_suspect"
	NodeLeft         Event = "node_left"
	NodeUpdated      Event = "node_updated"
	NodeSuperseded   Event = "node_superseded"
	NodeRevoked      Event = "node_revoked"
	SkillInstalled   Event = "skill_installed"
	SkillUpdated     Event = "skill_updated"
	SkillUninstalled Event = "skill_uninstalled"
	SkillDegraded    Event = "skill_degraded"
	CallLost         Event = "call_lost"

	ChannelAdded       Event = "channel_added"
	ChannelRemoved     Event = "channel_removed"
	ChannelUp          Event = "channel_up"
	ChannelDown        Event = "channel_down"
	ChannelPairing     Event = "channel_pairing" // a code was made
	ChannelPaired      Event = "channel_paired"
	ChannelUnpaired    Event = "channel_unpaired"
	ChannelGuest       Event = "channel_guest"   // a person in a group who is not paired wrote to the agent
	ChannelRefused     Event = "channel_refused" // what arrived changes nothing
	ChannelUndelivered Event = "channel_undelivered"

	UpstreamAdded            Event = "upstream_added"
	UpstreamLoggedIn         Event = "upstream_logged_in"
	UpstreamLoggedOut        Event = "upstream_logged_out"
	UpstreamRemoved          Event = "upstream_removed"
	UpstreamFailed           Event = "upstream_failed"
	UpstreamRecovered        Event = "upstream_recovered"
	PinHeld                  Event = "pin_held"
	PinApproved              Event = "pin_approved"
	UpstreamQuestionAnswered Event = "upstream_question_answered"

	TaskCreated          Event = "task_created"
	TaskStatusChanged    Event = "task_status_changed"
	TaskDecision         Event = "task_decision"
	TaskValidated        Event = "task_validated"
	TaskRecovered        Event = "task_recovered"
	WorkspaceProvisioned Event = "workspace_provisioned"
	WorkspaceFinalized   Event = "workspace_finalized"
	WorkspaceRemoved     Event = "workspace_removed"
	AgentPermission      Event = "agent_permission"
	TerminalTaken        Event = "terminal_taken" // a person types into it from now on

	TokenCreated Event = "token_created"
	TokenRevoked Event = "token_revoked"
	Login        Event = "login" // of a browser
	LoginFailed  Event = "login_failed"
	SessionEnded Event = "session_ended" // of a browser

	PasskeyAdded   Event = "passkey_added"
	PasskeyRemoved Event = "passkey_removed"

	ConfigChanged Event = "config_changed"
	ServerStarted Event = "server_started"
	ServerStopped Event = "server_stopped"
	AuditVerified Event = "audit_verified"
	AuditDegraded Event = "audit_degraded"

	ArgumentsRead    Event = "arguments_read"
	ArgumentsRemoved Event = "arguments_removed"

	PushSubscribed   Event = "push_subscribed" // notifications to a browser
	PushUnsubscribed Event = "push_unsubscribed"

	CapabilityConflictDetected  Event = "capability_conflict_detected"
	CapabilityNameDisambiguated Event = "capability_name_disambiguated"
	CapabilitySlotSelected      Event = "capability_slot_selected"
	CapabilityRouteVetoed       Event = "capability_route_vetoed"
)

// Level is the severity of a record, spelled as in the log.
type Level string

// The levels, weakest first.
const (
	Debug   Level = "DEBUG"
	Info    Level = "INFO"
	Warning Level = "WARNING"
	Error   Level = "ERROR"
)

// Rank orders levels: DEBUG 0 to ERROR 3; an unknown level counts as ERROR.
func (l Level) Rank() int {
	switch l {
	case Debug:
		return 0
	case Info:
		return 1
	case Warning:
		return 2
	}
	return 3
}

// Mirrors is the set of files under logs/ that repeat a record.
type Mirrors uint8

// The mirror files.
const (
	MirrorCapabilities Mirrors = 1 << iota // logs/capabilities.log
	MirrorSecurity                         // logs/security.log
)

// EventRow describes one event.
type EventRow struct {
	Event Event
	// Level is used if a record sets none.
	Level Level
	// Mirrors are the files that repeat the record.
	Mirrors Mirrors
	// Ends reports whether the record closes a capability_started of the same run.
	Ends bool
}

// EventTable returns every event once. Credentials, trust, consent and the state of the
// audit itself go to security.log; calls and the modules, endpoints and nodes that
// handle them go to capabilities.log; tasks and the server's lifecycle go to neither.
func EventTable() (rows []EventRow) {
	const c, s = MirrorCapabilities, MirrorSecurity
	for _, group := range []struct {
		level   Level
		mirrors Mirrors
		ends    bool
		events  []Event
	}{
		{Debug, c, false, []Event{CapabilityStarted}},
		{Info, c, true, []Event{CapabilityExecuted, CapabilityCancelled}},
		{Warning, c, false, []Event{
			CapabilitySlow, CommandConflict, EndpointDown, NodeSuspect, SkillDegraded, UpstreamFailed,
			CapabilityConflictDetected, CapabilityRouteVetoed, ChannelDown, ChannelUndelivered,
		}},
		{Error, c, true, []Event{CapabilityFailed, CapabilityTimeout}},
		{Warning, s | c, true, []Event{PermissionDenied}},
		{Info, s | c, true, []Event{ApprovalRequired}},
		{Error, s | c, true, []Event{SecurityViolation}},
		{Info, c, false, []Event{
			CommandRouted, ExtensionInstalled, ExtensionEnabled, ExtensionDisabled, ExtensionUpgraded, ExtensionUninstalled,
			ExtensionStepExecuted, EgressAllowed, EndpointConnected, EndpointDisconnected, EndpointSynced, EndpointUp,
			ModuleLoaded, ModuleReloaded, ModuleUnloaded, NodeJoined, NodeResumed, NodeLeft, NodeUpdated, SkillInstalled,
			SkillUpdated, SkillUninstalled, UpstreamAdded, UpstreamRemoved, UpstreamRecovered, ChannelUp, CapabilityNameDisambiguated,
			CapabilitySlotSelected,
		}},
		{Warning, c, true, []Event{RateLimited, QueueRejected}},
		{Error, c, false, []Event{ExtensionInstallFailed, CallLost}},
		{Warning, s | c, false, []Event{SandboxDegraded, NodeSuperseded}},
		{Warning, s, false, []Event{EgressDenied, GrantRevoked, PolicyChanged, NodeRevoked, PinHeld, TokenRevoked, LoginFailed, ChannelRefused}},
		{Info, s, false, []Event{
			GrantCreated, GrantUsed, ConfirmationRequested, ConfirmationAnswered, TrustDecided, UpstreamLoggedIn, UpstreamLoggedOut, PinApproved,
			UpstreamQuestionAnswered, AgentPermission, TerminalTaken, TokenCreated, ChannelAdded, ChannelRemoved, ChannelPairing, ChannelPaired,
			ChannelUnpaired, ChannelGuest, Login, SessionEnded, PasskeyAdded, PasskeyRemoved, PushSubscribed, PushUnsubscribed, ConfigChanged,
			AuditVerified, ArgumentsRead, ArgumentsRemoved,
		}},
		{Info, 0, false, []Event{
			TaskCreated, TaskStatusChanged, TaskDecision, TaskValidated, WorkspaceProvisioned, WorkspaceFinalized,
			WorkspaceRemoved, ServerStarted, ServerStopped,
		}},
		{Warning, 0, false, []Event{TaskRecovered}},
		{Error, s, false, []Event{AuditDegraded}},
	} {
		for _, e := range group.events {
			rows = append(rows, EventRow{e, group.level, group.mirrors, group.ends})
		}
	}
	return rows
}
