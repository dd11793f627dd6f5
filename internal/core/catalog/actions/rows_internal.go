package actions

import "github.com/junctor-run/junctor/capability"

// internalRows returns the pipelines and backends of the host. Their effect is read,
// because they run inside a call that was judged by its own effect. Planners call none
// of them, and none has a schema.
func internalRows() []Row {
	return []Row{
		{
			ID: "context.engine", Title: "Context engine",
			Description: "Builds the context of a turn; one holds the slot.",
			Mode:        ModeExclusive, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectRead,
			Visibility: capability.AudienceInternal, Slot: "context-engine",
		},
		{
			ID: "context.augment", Title: "Context augmenter",
			Description: "Adds to the context of a turn.",
			Mode:        ModeComposed, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
			Visibility: capability.AudienceInternal,
		},
		{
			ID: "prompt.guide", Title: "Prompt guide",
			Description: "Adds guidance to a prompt.",
			Mode:        ModeComposed, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
			Visibility: capability.AudienceInternal,
		},
		{
			ID: "telemetry.enrich", Title: "Telemetry enricher",
			Description: "Adds tags to telemetry.",
			Mode:        ModeComposed, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
			Visibility: capability.AudienceInternal,
		},
		{
			ID: "route.augment", Title: "Route augmenter",
			Description: "Observes, augments, vetoes or resolves a route.",
			Mode:        ModeComposed, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
			Visibility: capability.AudienceInternal,
		},
		{
			ID: "event.observe", Title: "Event observer",
			Description: "Is told about events and changes nothing.",
			Mode:        ModeComposed, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
			Visibility: capability.AudienceInternal,
		},
		{
			ID: "runtime.backend", Title: "Runtime backend",
			Description: "A backend that can run models, sandboxes or agents; ranked in its class.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectRead,
			Visibility: capability.AudienceInternal,
		},
		{
			ID: "runtime.rpc", Title: "Callable method",
			Description: "A method that code calls by name; never arbitrated.",
			Mode:        ModeParallel, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectRead,
			Visibility: capability.AudienceInternal,
		},
	}
}
