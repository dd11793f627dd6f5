package actions

import "github.com/junctor-run/junctor/capability"

// conversationRows returns the families that reach people: messages, conversations,
// accounts, directories, calls and forms. Their domains are route-aware.
func conversationRows() []Row {
	return []Row{
		{
			ID: "message.send", Title: "Send a message",
			Description: "Send a new message to a target. The target defaults to the current conversation only if the provider is the route's.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "message.reply", Title: "Reply",
			Description: "Answer in the current conversation or thread.",
			Mode:        ModeParallel, Address: AddressCurrent, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "message.broadcast", Title: "Broadcast a message",
			Description: "Send one message to many targets; each target is selected separately.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "message.poll", Title: "Create a poll",
			Description: "Create a poll.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "message.poll.vote", Title: "Vote in a poll",
			Description: "Cast a vote in a poll.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "message.react", Title: "React to a message",
			Description: "Add or remove a reaction.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "message.reactions.list", Title: "List reactions",
			Description: "List who reacted to a message.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinSoft, Effect: capability.EffectRead,
		},
		{
			ID: "message.edit", Title: "Edit a message",
			Description: "Change an own message.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "message.delete", Title: "Delete a message",
			Description: "Delete or unsend a message.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "message.pin", Title: "Pin a message",
			Description: "Pin or unpin a message.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "message.pins.list", Title: "List pinned messages",
			Description: "List the pinned messages of a conversation.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinSoft, Effect: capability.EffectRead,
		},
		{
			ID: "message.thread.manage", Title: "Manage threads",
			Description: "Create, rename, archive or list threads and topics.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "message.read", Title: "Read messages",
			Description: "Read the history of a conversation.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinSoft, Effect: capability.EffectRead,
		},
		{
			ID: "message.search", Title: "Search messages",
			Description: "Search messages.",
			Mode:        ModeParallel, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
		},
		{
			ID: "message.attachment.fetch", Title: "Fetch an attachment",
			Description: "Download an attachment of a message as an artifact.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinSoft, Effect: capability.EffectRead,
		},
		{
			ID: "conversation.manage", Title: "Manage conversations",
			Description: "Create, edit, delete, move or rename channels, groups and categories.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "conversation.members.manage", Title: "Manage members",
			Description: "Add or remove members and their roles.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "conversation.moderate", Title: "Moderate a member",
			Description: "Time out, kick or ban a member.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "conversation.leave", Title: "Leave a conversation",
			Description: "Leave a conversation.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "conversation.asset.upload", Title: "Upload an emoji or sticker",
			Description: "Add a custom emoji or sticker to a chat space.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "conversation.event.manage", Title: "Manage scheduled events",
			Description: "Create or list the scheduled events of a chat space.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "account.presence.set", Title: "Set presence",
			Description: "Set the account's own presence, status or profile.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "directory.lookup", Title: "Look up people and places",
			Description: "Find people, groups, channels and roles; all asks every source.",
			Mode:        ModeParallel, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
		},
		{
			ID: "directory.list", Title: "List a directory",
			Description: "Enumerate people, groups, channels or roles.",
			Mode:        ModeParallel, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
		},
		{
			ID: "voice.call.start", Title: "Start a call",
			Description: "Place a call.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "voice.call.speak", Title: "Speak",
			Description: "Speak in the current call.",
			Mode:        ModeParallel, Address: AddressCurrent, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "voice.call.end", Title: "End a call",
			Description: "Hang up the current call.",
			Mode:        ModeParallel, Address: AddressCurrent, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "voice.call.status", Title: "Call status",
			Description: "Report the state of a call.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinSoft, Effect: capability.EffectRead,
		},
		{
			ID: "interaction.modal.open", Title: "Open a form",
			Description: "Show a form to the person and wait for what they submit.",
			Mode:        ModeParallel, Address: AddressCurrent, Pin: PinStrict, Effect: capability.EffectExternal,
		},
	}
}
