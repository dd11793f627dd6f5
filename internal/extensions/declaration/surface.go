package declaration

import "github.com/junctor-run/junctor/capability"

// Command is a control command. Its metadata reaches the channels unchanged.
type Command struct {
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	AcceptsArgs bool              `json:"acceptsArgs,omitempty"`
	RequireAuth *bool             `json:"requireAuth,omitempty"` // default true
	Surfaces    []string          `json:"surfaces,omitempty"`
	NativeNames map[string]string `json:"nativeNames,omitempty"` // by provider, or "default"
	UsageDoc    string            `json:"usageDoc,omitempty"`
	Runner      string            `json:"runner,omitempty"`
	ActionID    string            `json:"actionId,omitempty"`
}

// Auth is a provider integration.
type Auth struct {
	ProviderID        string       `json:"providerId"`
	Aliases           []string     `json:"aliases,omitempty"`
	Methods           []AuthMethod `json:"methods,omitempty"`
	DiscoveryOrder    int          `json:"discoveryOrder,omitempty"`
	Onboarding        any          `json:"onboarding,omitempty"`
	Refresh           any          `json:"refresh,omitempty"`
	ModelSelectedHook string       `json:"modelSelectedHook,omitempty"`
}

// AuthMethod is one way to sign in.
type AuthMethod struct {
	ID    string `json:"id"`
	Label string `json:"label,omitempty"`
	Kind  string `json:"kind,omitempty"` // oauth, api-key, token, device, custom
	Rank  int    `json:"rank,omitempty"`
}

// Route is an HTTP surface.
type Route struct {
	Method    string            `json:"method"`
	Path      string            `json:"path"`
	Match     string            `json:"match,omitempty"`     // exact (default), prefix
	Auth      string            `json:"auth,omitempty"`      // gateway, plugin, public
	Lifecycle string            `json:"lifecycle,omitempty"` // static, dynamic
	Scope     *capability.Scope `json:"scope,omitempty"`
}

// CLI is a command-line surface.
type CLI struct {
	Path           string `json:"path,omitempty"`
	Description    string `json:"description,omitempty"`
	Mode           string `json:"mode,omitempty"` // standalone, subcommand, flow-entry
	Interactive    bool   `json:"interactive,omitempty"`
	NonInteractive bool   `json:"nonInteractive,omitempty"`
}

// Setup is an onboarding flow.
type Setup struct {
	FlowID          string   `json:"flowId,omitempty"`
	Target          string   `json:"target,omitempty"` // cli, status, setup-ui
	Modes           []string `json:"modes,omitempty"`  // interactive, non-interactive
	Phases          []string `json:"phases,omitempty"`
	Outputs         []string `json:"outputs,omitempty"`
	QuickstartScore int      `json:"quickstartScore,omitempty"`
	SelectionHint   string   `json:"selectionHint,omitempty"`
}

// Channel is a messaging channel in the picker. Every field reaches the catalog.
type Channel struct {
	ID                                   string   `json:"id"`
	Label                                string   `json:"label,omitempty"`
	SelectionLabel                       string   `json:"selectionLabel,omitempty"`
	DetailLabel                          string   `json:"detailLabel,omitempty"`
	DocsPath                             string   `json:"docsPath,omitempty"`
	DocsLabel                            string   `json:"docsLabel,omitempty"`
	Blurb                                string   `json:"blurb,omitempty"`
	Order                                *int     `json:"order,omitempty"`
	Aliases                              []string `json:"aliases,omitempty"`
	PreferOver                           []string `json:"preferOver,omitempty"`
	SystemImage                          string   `json:"systemImage,omitempty"`
	SelectionDocsPrefix                  string   `json:"selectionDocsPrefix,omitempty"`
	SelectionDocsOmitLabel               bool     `json:"selectionDocsOmitLabel,omitempty"`
	SelectionExtras                      []string `json:"selectionExtras,omitempty"`
	ShowConfigured                       *bool    `json:"showConfigured,omitempty"`
	QuickstartAllowFrom                  bool     `json:"quickstartAllowFrom,omitempty"`
	ForceAccountBinding                  bool     `json:"forceAccountBinding,omitempty"`
	PreferSessionLookupForAnnounceTarget bool     `json:"preferSessionLookupForAnnounceTarget,omitempty"`
	Install                              *Install `json:"install,omitempty"`
	Dock                                 *Dock    `json:"dock,omitempty"`
}

// Dock is static data about a channel, so that hints and formatting work while its
// adapter is not loaded.
type Dock struct {
	AdapterID    string   `json:"adapterId"`
	ChatTypes    []string `json:"chatTypes,omitempty"`
	Capabilities struct {
		Polls          bool `json:"polls,omitempty"`
		Reactions      bool `json:"reactions,omitempty"`
		Media          bool `json:"media,omitempty"`
		Threads        bool `json:"threads,omitempty"`
		NativeCommands bool `json:"nativeCommands,omitempty"`
		BlockStreaming bool `json:"blockStreaming,omitempty"`
	} `json:"capabilities,omitzero"`
	TextChunkLimit int `json:"textChunkLimit,omitempty"`
	Streaming      struct {
		MinChars int `json:"minChars,omitempty"`
		IdleMs   int `json:"idleMs,omitempty"`
	} `json:"streaming,omitzero"`
	Commands struct {
		EnforceOwner        bool `json:"enforceOwner,omitempty"`
		SkipWhenConfigEmpty bool `json:"skipWhenConfigEmpty,omitempty"`
	} `json:"commands,omitzero"`
	AllowFrom struct {
		StripPrefixes []string `json:"stripPrefixes,omitempty"`
		LowerCase     bool     `json:"lowerCase,omitempty"`
	} `json:"allowFrom,omitzero"`
	Mentions struct {
		StripPatterns []string `json:"stripPatterns,omitempty"`
	} `json:"mentions,omitzero"`
	Threading struct {
		ReplyToMode string `json:"replyToMode,omitempty"`
	} `json:"threading,omitzero"`
	Elevated struct {
		AllowFromPath []string `json:"allowFromPath,omitempty"`
	} `json:"elevated,omitzero"`
	AgentPrompt struct {
		MessageToolHints []string `json:"messageToolHints,omitempty"`
	} `json:"agentPrompt,omitzero"`
}
