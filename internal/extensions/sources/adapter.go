package sources

import (
	"cmp"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/extensions/manifest"
)

// ChatAdapter is a messaging channel as its adapter describes it.
type ChatAdapter struct {
	ID                string   // extension id, such as "slack"
	Kind              string   // provider kind; "" is the id
	Label             string   // "" is the id
	Origin            string   // "" is bundled
	Actions           []string // canonical ids or the adapters' own words (catalog spec, section 7.3)
	ConversationKinds []string
	Accounts          []ChatAccount
	Channel           *manifest.Channel // for the picker
	Dock              *manifest.Dock
	Reload            *manifest.Reload
	Features          []string // gateway features, which advertise only
	Setup             *manifest.Setup
	Commands          []manifest.Command
}

// ChatAccount is one configured account.
type ChatAccount struct {
	ID           string
	Label        string
	Actions      []string // nil: all of the adapter; either vocabulary
	Rank         int
	Availability capability.Availability
}

// Chat maps an adapter to one adapter.runtime with an instance for each account,
// its setup and status surfaces, its commands and what the picker shows. Words
// that no family covers are reported and stay tools of their own. An adapter
// without accounts is unconfigured: the picker and its setup are there, nothing can
// be called.
func Chat(a ChatAdapter) (manifest.Extension, []string, error) {
	var r report
	kind := cmp.Or(a.Kind, a.ID)
	x := manifest.Extension{ID: a.ID, Name: title(a.Label, a.ID), Label: label(a.Label, a.ID), Origin: cmp.Or(a.Origin, "bundled")}
	if a.Channel != nil {
		ch := *a.Channel
		ch.ID, ch.Label = cmp.Or(ch.ID, kind), cmp.Or(ch.Label, a.Label, a.ID)
		if ch.Dock == nil {
			ch.Dock = a.Dock
		}
		x.Channels = []manifest.Channel{ch}
	}
	for _, word := range a.Actions {
		if _, known := manifest.ActionOf(word); !known && !slices.Contains([]byte(word), '.') {
			r.add("action %s is in no family: it stays a tool of its own until somebody reviews it", shown(word))
		}
	}
	runtime := manifest.Contribution{
		ID: "adapter", Kind: "adapter.runtime", Title: title(a.Label, a.ID), Provider: &manifest.Provider{Kind: kind},
		Adapter: &manifest.Adapter{ConversationKinds: a.ConversationKinds, Actions: a.Actions, Dock: a.Dock, Reload: a.Reload, GatewayFeatures: a.Features},
	}
	for _, account := range a.Accounts {
		in := manifest.Instance{ID: account.ID, Label: account.Label, Rank: account.Rank, Availability: manifest.Availability{Availability: account.Availability}}
		if account.Actions != nil {
			in.Actions = []capability.Action{}
			for _, word := range account.Actions {
				in.Actions = append(in.Actions, capability.Action(word))
			}
		}
		runtime.Provider.Instances = append(runtime.Provider.Instances, in)
	}
	if len(a.Accounts) == 0 {
		runtime.Availability.State, runtime.Availability.Reason = capability.StateUnconfigured, "no account is configured"
	}
	x.Contributions = append(x.Contributions, runtime,
		manifest.Contribution{ID: "setup", Kind: "surface.setup", Title: title(x.Name + " setup"), Setup: a.Setup},
		manifest.Contribution{ID: "status", Kind: "surface.status", Title: title(x.Name + " status")})
	for i := range a.Commands {
		c := a.Commands[i]
		id, _ := naming.Slug(c.Name)
		x.Contributions = append(x.Contributions, manifest.Contribution{ID: "command." + id, Kind: "capability.control-command", Title: title("/" + c.Name), Description: text(c.Description), Command: &c})
	}
	return finish(x, &r)
}
