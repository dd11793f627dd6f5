package channels

import (
	"context"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
)

// Place is a conversation of several people.
type Place struct {
	ID, Name string
	Group    bool // without a name of its own at the service
}

// Lister is a channel that lists the places which the account sees.
type Lister interface {
	// Places returns at most MaxPlaces.
	Places(ctx context.Context) ([]Place, error)
}

// Found is a message that was searched for.
type Found struct {
	Message
	Conversation string
}

// Searcher is a channel whose messages can be searched.
type Searcher interface {
	// Search returns at most limit messages, the newest first.
	Search(ctx context.Context, query string, limit int) ([]Found, error)
}

// search carries out message.search. Messages of conversations that the caller may not read are left out.
func (c *connection) search(ctx context.Context, k capability.Call, in input) (capability.Result, error) {
	searcher, ok := c.channel.(Searcher)
	if !ok {
		return capability.Result{}, capability.UnknownCapability(k.Member)
	}
	list, err := searcher.Search(ctx, in.text("query"), in.limit(maxFound))
	if err != nil {
		return capability.Result{}, err
	}
	out, readable := []map[string]any{}, make(map[string]bool)
	for _, f := range list {
		may, known := readable[f.Conversation]
		if !known {
			may = c.readable(ctx, k, f.Conversation) == nil
			readable[f.Conversation] = may
		}
		if may {
			out = append(out, c.described(f.Conversation, f.Message))
		}
	}
	return result(map[string]any{"messages": out}, "")
}

// limit returns the limit of a list, at most most.
func (in input) limit(most int) int {
	if n, ok := in["limit"].(float64); ok {
		return min(int(n), most)
	}
	return most
}

// directory carries out directory.list and directory.lookup: of the paired people, and of the places
// that the account sees. An id is what message.send takes as its target.
func (c *connection) directory(ctx context.Context, k capability.Call, in input) (capability.Result, error) {
	if c.guestsOnly(k, "") {
		return capability.Result{}, capability.Errorf(capability.CodeDenied, string(k.Action), "guests do not see who else is there").
			With("not_yours", "ask a paired person")
	}
	kind, query := in.text("type"), strings.ToLower(strings.TrimPrefix(in.text("query"), "#"))
	out := []map[string]any{}
	add := func(of, conversation, name string) {
		if (kind == "" || kind == of) && strings.Contains(strings.ToLower(name), query) && len(out) < in.limit(MaxPlaces) {
			out = append(out, map[string]any{
				"providerKey": string(c.account.Key()), "id": c.account.String() + ":" + conversation, "type": of,
				"label": text.CutBytes(text.Visible(name), maxLabel),
			})
		}
	}
	if kind == "" || kind == "person" {
		people, err := c.hub.cfg.Store.People(ctx, c.account.Ref)
		if err != nil {
			return capability.Result{}, err
		}
		for _, p := range people {
			name := strings.TrimSpace(p.Name)
			if name == "" {
				name = p.Principal
			}
			add("person", p.Conversation, name)
		}
	}
	if lister, ok := c.channel.(Lister); ok && (kind == "" || kind == "channel" || kind == "group") {
		places, err := lister.Places(ctx)
		if err != nil {
			return capability.Result{}, err
		}
		for _, p := range places {
			add(map[bool]string{true: "group", false: "channel"}[p.Group], p.ID, p.Name)
		}
	}
	if k.Action == "directory.list" {
		return result(map[string]any{"entries": out}, "")
	}
	return result(map[string]any{"matches": out}, "")
}
