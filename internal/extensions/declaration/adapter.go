package declaration

import (
	"cmp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
)

// Adapter is the declaration of a chat adapter. Actions are canonical ids or words of the
// adapters' vocabulary, which [ActionOf] translates. GatewayFeatures are informational;
// callable methods are contributions of kind capability.rpc.
type Adapter struct {
	ConversationKinds  []string `json:"conversationKinds,omitempty"` // dm, group, channel, thread, call, cli
	Actions            []string `json:"actions,omitempty"`
	InteractionClasses []string `json:"interactionClasses,omitempty"`
	Dock               *Dock    `json:"dock,omitempty"`
	Reload             *Reload  `json:"reload,omitempty"`
	GatewayFeatures    []string `json:"gatewayFeatures,omitempty"`
}

// Reload lists the prefixes of configuration keys that restart an adapter, and those that do not.
type Reload struct {
	ConfigPrefixes []string `json:"configPrefixes,omitempty"`
	NoopPrefixes   []string `json:"noopPrefixes,omitempty"`
}

// Import is the translation of an adapter word: the canonical action and, if the word
// selects a part of it, the argument that does ("op", "type", "remove").
type Import struct {
	Action capability.Action
	Args   map[string]any
}

// ActionOf translates a word of the adapters' vocabulary. known is false for words that are not in
// the table. Those, and four known words whose Action is "", become single tools.
func ActionOf(word string) (_ Import, known bool) {
	for _, row := range importTable() {
		if slices.Contains(strings.Fields(row.words), word) {
			in := Import{Action: row.action}
			if row.arg != "" {
				in.Args = map[string]any{row.arg: row.value}
			}
			return in, true
		}
	}
	return Import{}, false
}

type importRow struct {
	words  string
	action capability.Action
	arg    string
	value  any
}

func importTable() []importRow {
	return []importRow{
		{"send sendAttachment sendWithEffect sticker x-post x-dm x-quote", "message.send", "", nil},
		{"reply thread-reply x-reply", "message.reply", "", nil},
		{"broadcast", "message.broadcast", "", nil},
		{"poll", "message.poll", "", nil},
		{"poll-vote", "message.poll.vote", "", nil},
		{"react x-like", "message.react", "", nil},
		{"x-unlike", "message.react", "remove", true},
		{"reactions", "message.reactions.list", "", nil},
		{"edit", "message.edit", "", nil},
		{"delete unsend", "message.delete", "", nil},
		{"pin", "message.pin", "op", "pin"},
		{"unpin", "message.pin", "op", "unpin"},
		{"list-pins", "message.pins.list", "", nil},
		{"thread-create topic-create", "message.thread.manage", "op", "create"},
		{"thread-list", "message.thread.manage", "op", "list"},
		{"topic-edit", "message.thread.manage", "op", "rename"},
		{"read x-timeline x-tweet-info", "message.read", "", nil},
		{"search x-search", "message.search", "", nil},
		{"download-file", "message.attachment.fetch", "", nil},
		{"channel-create category-create", "conversation.manage", "op", "create"},
		{"channel-edit category-edit", "conversation.manage", "op", "edit"},
		{"channel-delete category-delete", "conversation.manage", "op", "delete"},
		{"channel-move", "conversation.manage", "op", "move"},
		{"renameGroup", "conversation.manage", "op", "rename"},
		{"setGroupIcon", "conversation.manage", "op", "icon"},
		{"addParticipant", "conversation.members.manage", "op", "add"},
		{"removeParticipant", "conversation.members.manage", "op", "remove"},
		{"role-add", "conversation.members.manage", "op", "role-add"},
		{"role-remove", "conversation.members.manage", "op", "role-remove"},
		{"timeout", "conversation.moderate", "op", "timeout"},
		{"kick", "conversation.moderate", "op", "kick"},
		{"ban", "conversation.moderate", "op", "ban"},
		{"leaveGroup", "conversation.leave", "", nil},
		{"emoji-upload", "conversation.asset.upload", "type", "emoji"},
		{"sticker-upload", "conversation.asset.upload", "type", "sticker"},
		{"event-create", "conversation.event.manage", "op", "create"},
		{"event-list", "conversation.event.manage", "op", "list"},
		{"set-profile set-presence", "account.presence.set", "", nil},
		{"member-info x-user-info x-me", "directory.lookup", "type", "person"},
		{"role-info permissions", "directory.lookup", "type", "role"},
		{"channel-info", "directory.lookup", "type", "channel"},
		{"channel-list", "directory.list", "type", "channel"},
		{"emoji-list sticker-search", "directory.list", "", nil},
		{"voice-status", "voice.call.status", "", nil},
		{"x-follow x-unfollow x-repost x-unrepost", "", "", nil}, // single tools until an operator reviews a family
	}
}

// families returns the canonical actions of a contribution, and the adapter words without
// one, which become single tools.
func (c *Contribution) families() (list []capability.Action, tools []string) {
	list = c.Actions
	if c.Adapter == nil {
		return list, nil
	}
	list = slices.Clone(list)
	for _, word := range c.Adapter.Actions {
		action := wordAction(word)
		switch {
		case action == "" && !slices.Contains(tools, word):
			tools = append(tools, word)
		case action != "" && !slices.Contains(list, action):
			list = append(list, action)
		}
	}
	return list, tools
}

// wordAction returns the canonical action of an id or adapter word, or "".
func wordAction(word string) capability.Action {
	if strings.Contains(word, ".") {
		if row, ok := actions.Lookup(capability.Action(word)); ok {
			return row.ID
		}
		return capability.Action(word)
	}
	in, _ := ActionOf(word)
	return in.Action
}

// loose returns the tool contribution of an adapter word without a canonical action.
func (c *Contribution) loose(x *Extension, base capability.Contribution, word string) capability.Contribution {
	base.ID, base.Kind, base.Tool, base.Title = c.ID+"."+word, "capability.agent-tool", word, cmp.Or(base.Title, c.ID)+": "+word
	base.Title = Clean(base.Title, maxTitle)
	base.Effect, base.Arbitration = capability.EffectExternal, nil
	base.Member = capability.Member{Module: x.ID, Kind: "contribution", Name: base.ID}
	return base
}

// supports reports whether the account supports an action or, if word is set, the tool of that
// adapter word. Its list may use canonical ids or adapter words; if nil, it supports all.
func (in *Instance) supports(action capability.Action, word string) bool {
	if in.Actions == nil || action == "" && word == "" {
		return true
	}
	return slices.ContainsFunc(in.Actions, func(a capability.Action) bool {
		if word != "" {
			return string(a) == word
		}
		return a == action || wordAction(string(a)) == action
	})
}

// identify converts a scope of an adapter that names accounts or one channel to provider
// instances, because an adapter's accounts identify it and do not restrict its use. It
// reports whether it changed the contribution.
func (c *Contribution) identify() bool {
	if c.Kind != "adapter.runtime" || c.Scope == nil || c.Provider != nil && len(c.Provider.Instances) > 0 {
		return false
	}
	wild := func(list []string) bool { return slices.Contains(list, "*") }
	s := *c.Scope
	if len(s.Account) == 0 && len(s.Channel) != 1 || len(s.Channel) > 1 || wild(s.Account) || wild(s.Channel) {
		return false
	}
	p := Provider{}
	if c.Provider != nil {
		p = *c.Provider
	}
	if len(s.Channel) == 1 && p.Kind == "" {
		p.Kind, s.Channel = s.Channel[0], nil
	}
	accounts := slices.Clone(s.Account)
	slices.Sort(accounts)
	for _, id := range slices.Compact(accounts) {
		p.Instances = append(p.Instances, Instance{ID: id})
	}
	s.Account = nil
	c.Provider, c.Scope = &p, &s
	return true
}

// normal returns a copy of a scope with sorted lists without duplicates.
func normal(s *capability.Scope) *capability.Scope {
	if s == nil {
		return nil
	}
	tidy := func(list []string) []string {
		list = slices.Clone(list)
		slices.Sort(list)
		return slices.Compact(list)
	}
	return &capability.Scope{
		Workspace: tidy(s.Workspace), Agent: tidy(s.Agent), Session: tidy(s.Session), Account: tidy(s.Account), Channel: tidy(s.Channel),
		Conversation: tidy(s.Conversation), ConversationKind: tidy(s.ConversationKind), Provider: tidy(s.Provider),
	}
}
