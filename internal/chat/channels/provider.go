package channels

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
)

// Source publishes the accounts in the catalog.
type Source struct{ *Hub }

// Run publishes the accounts at once and after every change until ctx ends.
func (s Source) Run(ctx context.Context, publish func(capability.Batch) error) error {
	for {
		if err := publish(s.batch()); err != nil {
			return err
		}
		select {
		case <-s.change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// batch returns one module for each kind that has accounts.
func (h *Hub) batch() capability.Batch {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := capability.Batch{Source: "channels"}
	for _, k := range h.cfg.Kinds {
		m := capability.Module{
			Extension: "channel." + k.Name, ID: k.Name, Name: k.Name, Label: k.Label, Origin: "channel", Contributions: []capability.Contribution{},
		}
		for r, c := range h.accounts {
			if r.Kind != k.Name {
				continue
			}
			b.Providers = append(b.Providers, provider{c})
			_, state := c.shown()
			for _, action := range slices.Concat(k.Actions, []capability.Action{"directory.list", "directory.lookup"}) {
				row, _ := actions.Lookup(action)
				m.Contributions = append(m.Contributions, capability.Contribution{
					ID: "account." + r.Account, Kind: "adapter.runtime", Action: action, Title: row.Title, Description: row.Description,
					Member:   capability.Member{Module: m.Extension, Kind: "account", Name: r.Account + "." + string(action)},
					Provider: r.Key(), Effect: row.Effect, InputSchema: row.InputSchema, OutputSchema: row.OutputSchema, Availability: state,
				})
			}
		}
		if len(m.Contributions) > 0 {
			slices.SortFunc(m.Contributions, func(a, b capability.Contribution) int { return strings.Compare(a.Member.Name, b.Member.Name) })
			b.Modules = append(b.Modules, m)
		}
	}
	return b
}

// provider makes the calls of one account.
type provider struct{ c *connection }

// Key implements [capability.Provider].
func (p provider) Key() capability.ProviderKey { return p.c.account.Key() }

// input is the input of an action, whose schema the engine has checked.
type input map[string]any

func (in input) text(name string) string { s, _ := in[name].(string); return s }

func (in input) is(name string) bool { is, _ := in[name].(bool); return is }

// Invoke implements [capability.Provider].
func (p provider) Invoke(ctx context.Context, c capability.Call) (capability.Result, error) {
	var in input
	if err := jsonx.Unmarshal(c.Input, &in); err != nil {
		return capability.Result{}, capability.Wrap(capability.CodeInvalidInput, string(c.Action), "the input cannot be read", err)
	}
	if !slices.Contains(p.c.kind.Actions, c.Action) && !strings.HasPrefix(string(c.Action), "directory.") {
		return capability.Result{}, capability.UnknownCapability(c.Member)
	}
	switch c.Action {
	case "message.read", "message.pins.list", "message.attachment.fetch":
		return p.c.read(ctx, c, in)
	case "message.search":
		return p.c.search(ctx, c, in)
	case "directory.list", "directory.lookup":
		return p.c.directory(ctx, c, in)
	}
	op := Op{
		Key: "call " + c.Invocation, Text: in.text("text"), Markdown: true, Silent: in.is("silent"), Emoji: in.text("emoji"),
		Remove: in.is("remove"),
	}
	if c.Key != "" {
		op.Key = "key " + c.Principal.ID + " " + c.Key
	}
	verb, err := p.c.aim(&op, c, in)
	if err != nil {
		return capability.Result{}, err
	}
	if op.Verb = verb; verb != VerbSend {
		id, err := p.c.send(ctx, op)
		if err != nil {
			return capability.Result{}, err
		}
		if verb == VerbEdit {
			return result(map[string]any{"messageRef": p.c.messageRef(op.Conversation, op.Message)}, id)
		}
		return result(map[string]any{"ok": true}, id)
	}
	id, err := p.c.sendAll(ctx, c, op, in["media"])
	if err != nil {
		return capability.Result{}, err
	}
	return result(map[string]any{
		"messageRef": p.c.messageRef(op.Conversation, id), "conversation": p.c.account.String() + ":" + op.Conversation,
	}, id)
}

func result(v map[string]any, id string) (capability.Result, error) {
	data, err := json.Marshal(v)
	return capability.Result{Value: data, UpstreamCall: id}, err
}

// aim sets the conversation and the message of an operation, and returns its verb.
func (c *connection) aim(op *Op, k capability.Call, in input) (Verb, error) {
	verbs := map[capability.Action]Verb{
		"message.send": VerbSend, "message.reply": VerbSend, "message.edit": VerbEdit, "message.delete": VerbDelete, "message.react": VerbReact,
		"message.pin": VerbPin,
	}
	verb := verbs[k.Action]
	if in.text("op") == "unpin" {
		verb = VerbUnpin
	}
	ref := in.text("messageRef")
	switch k.Action {
	case "message.send":
		if to := in.text("to"); to != "" {
			conversation, err := c.conversation(to)
			op.Conversation = conversation
			return verb, err
		}
		return verb, c.current(op, k.Context)
	case "message.reply":
		ref = in.text("toMessage")
		if err := c.current(op, k.Context); err != nil || ref == "" {
			return verb, err
		}
		op.Thread = cmp.Or(in.text("thread"), op.Thread)
	}
	conversation, id, ok := cutLast(ref)
	if !ok {
		return verb, badReference(k.Action, ref)
	}
	conversation, err := c.conversation(conversation)
	if err == nil && op.Conversation != "" && op.Conversation != conversation {
		err = capability.Errorf(capability.CodeInvalidInput, string(k.Action), "the message is in another conversation")
	}
	op.Conversation, op.Message = conversation, id
	return verb, err
}

func cutLast(ref string) (before, after string, ok bool) {
	i := strings.LastIndexByte(ref, '/')
	if i <= 0 || i == len(ref)-1 {
		return "", "", false
	}
	return ref[:i], ref[i+1:], true
}

func (c *connection) messageRef(conversation, id string) string {
	return c.account.String() + ":" + conversation + "/" + id
}

// conversation returns the id of a conversation from its reference, which names this account or none.
func (c *connection) conversation(to string) (string, error) {
	if id, ok := strings.CutPrefix(to, c.account.String()+":"); ok {
		to = id
	} else if kind, _, ok := strings.Cut(to, ":"); ok && slices.ContainsFunc(c.hub.cfg.Kinds, func(k Kind) bool { return k.Name == kind }) {
		return "", capability.Errorf(capability.CodeInvalidInput, "message", "%.80q belongs to another account than %s", to, c.account.Ref).
			With("other_account", "select the account with selector.account, or leave it out")
	}
	if to == "" || len(to) > 200 || c.kind.ID != nil && !c.kind.ID.MatchString(to) {
		return "", capability.Errorf(capability.CodeInvalidInput, "message", "%.80q is not the id of a conversation of %s", to, c.kind.Label).
			With("invalid_conversation", "use the id that the service shows for the conversation")
	}
	return to, nil
}

// current aims an operation at the conversation that the call comes from. It must be one of this
// account.
func (c *connection) current(op *Op, of *capability.Context) error {
	if of == nil || of.Route == nil || (Ref{of.Route.Kind, of.Route.Account}) != c.account.Ref || of.Route.Conversation == "" {
		return capability.Errorf(capability.CodeInvalidInput, "message", "the call comes from no conversation of %s", c.account.Ref).
			With("no_current_conversation", "name the target in \"to\"")
	}
	op.Conversation, op.Thread = of.Route.Conversation, of.Route.Thread
	return nil
}

// sendAll sends a text, in several messages if it is long, and files, and returns the id of the
// first message.
func (c *connection) sendAll(ctx context.Context, k capability.Call, op Op, files any) (first string, err error) {
	media, _ := files.([]any)
	if len(media) > maxMedia {
		return "", capability.Errorf(capability.CodeInvalidInput, "message", "a message has at most %d files", maxMedia)
	}
	var list []Op
	for _, piece := range Split(op.Text, c.kind.MaxText) {
		list = append(list, Op{Text: piece})
	}
	for _, ref := range media {
		name, _ := ref.(string)
		f, err := c.hub.cfg.Artifact(ctx, k.Principal, name, c.kind.MaxFile)
		if capability.CodeOf(err) == capability.CodeTooLarge {
			run, _, _ := strings.Cut(name, "/")
			list = append(list, Op{Text: fmt.Sprintf("The file %s has more than %d MiB and is not sent here. junctor runs artifacts %s lists it and saves it.",
				name, c.kind.MaxFile>>20, run)})
			continue
		}
		if err != nil {
			return "", err
		}
		list = append(list, Op{File: &f})
	}
	if len(list) == 0 {
		return "", capability.Errorf(capability.CodeInvalidInput, "message", "a message needs a text or a file")
	}
	key := op.Key
	for i, one := range list {
		op.Text, op.File = one.Text, one.File
		if op.Key = key; i > 0 {
			op.Key, op.Message = fmt.Sprintf("%s#%d", key, i), ""
		}
		id, err := c.send(ctx, op)
		if err != nil && i > 0 {
			e := *capability.AsError(err)
			if e.Code == capability.CodeUnavailable || e.Code == capability.CodeOverloaded {
				e.Code = capability.CodeFailed // a part has left
			}
			return first, e.Detail("messages_sent", i)
		}
		if err != nil {
			return "", err
		}
		if i == 0 {
			first = id
		}
	}
	return first, nil
}
