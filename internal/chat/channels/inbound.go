package channels

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/pause"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/chat/engine"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

const (
	reasonUnpaired = "unpaired"
	reasonUnproved = "sender_unproved"
)

// receive stores updates, and handles those that are new.
func (c *connection) receive(ctx context.Context, cursor string, list []Update) error {
	for i := range list {
		list[i].Text = text.ValidBytes(list[i].Text, maxText)
		if rest, ok := strings.CutPrefix(list[i].Text, c.kind.Slash); ok && c.kind.Slash != "" {
			list[i].Text = "/" + rest
		}
		list[i].UserName = text.CutBytes(text.Visible(list[i].UserName), 128)
		list[i].Files = list[i].Files[:min(len(list[i].Files), maxFiles)]
		for j := range list[i].Files {
			list[i].Files[j].Name = text.ValidBytes(list[i].Files[j].Name, maxID)
			list[i].Files[j].ID = text.ValidBytes(list[i].Files[j].ID, maxID)
		}
	}
	list = slices.DeleteFunc(list, func(u Update) bool { // no service has such ids
		ids := []string{u.ID, u.Conversation, u.Thread, u.Message, u.User, u.Data}
		return len(u.Press) > maxPress || slices.ContainsFunc(ids, func(id string) bool { return len(id) > maxID })
	})
	fresh, err := c.hub.cfg.Store.Receive(ctx, c.account.Ref, cursor, list, c.hub.cfg.Now())
	if err != nil {
		return err
	}
	for _, r := range fresh {
		if err := c.admit(ctx, r); err != nil {
			return err
		}
	}
	if cursor == "" && len(fresh) < len(list) { // a service that is polled repeats what was not acknowledged
		return c.refuse(ctx, Received{Ref: c.account.Ref, Update: Update{ID: list[0].ID, User: list[0].User}},
			refusal("replayed", "the update was delivered before"))
	}
	return nil
}

// Hooked is a channel to which the service sends requests. A request is authentic if its error is
// nil or not denied.
type Hooked interface {
	Hook(ctx context.Context, header http.Header, body []byte) error
}

// Hook passes a request to the channel of an account. Errors: not_found; denied for a request that
// is not authentic; those of storing it.
func (h *Hub) Hook(ctx context.Context, r Ref, header http.Header, body []byte) error {
	c := h.connection(r)
	if c == nil {
		return NotFound(r)
	}
	hooked, ok := c.channel.(Hooked)
	if !ok {
		return NotFound(r)
	}
	err := hooked.Hook(ctx, header, body)
	if capability.CodeOf(err) == capability.CodeDenied {
		_ = c.refuse(ctx, Received{Ref: r, Update: Update{ID: text.CutBytes(text.Visible(header.Get("Webhook-Id")), 100)}}, err)
	}
	return err
}

// admit handles an update in the order of its conversation. Decisions and control
// words wait for no command, there or elsewhere. admit blocks while maxWaiting updates wait.
func (c *connection) admit(ctx context.Context, r Received) error {
	select {
	case c.room <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	to := c.inbound
	if word, _ := control(r.Update.Text); r.Update.Kind == Pressed || word != "" {
		to = c.urgent
	}
	c.mu.Lock()
	ctx = c.life // a request ends before its update is handled
	c.mu.Unlock()
	to.add(r.Update.Conversation+" "+r.Update.Thread, func() {
		defer func() { <-c.room }()
		for delay := firstDelay; ; delay = min(2*delay, backoffDelay) {
			err := c.handle(ctx, r)
			if ctx.Err() != nil {
				return // the next process handles it
			}
			if err != nil {
				c.hub.cfg.Logger.Error("a message of a channel was not handled", "channel", c.account.String(), "err", err)
			}
			if capability.CodeOf(err) != capability.CodeUnavailable {
				break
			}
			_ = pause.For(ctx, delay)
			r.Again = true
		}
		if err := c.hub.cfg.Store.Handled(ctx, r.Seq); err != nil && ctx.Err() == nil {
			c.hub.cfg.Logger.Error("a message of a channel may be handled again", "channel", c.account.String(), "err", err)
		}
	})
	return nil
}

// control returns the word of a message that never reaches the model nor waits, and its arguments.
func control(s string) (word string, args []string) {
	fields := strings.Fields(s)
	if len(fields) == 0 {
		return "", nil
	}
	first, _, _ := strings.Cut(strings.ToLower(fields[0]), "@") // Telegram adds the name of the bot
	switch first {
	case "/pair", "/approve", "/tasks", "/stop", "/start":
		return first, fields[1:]
	}
	return "", nil
}

// handle handles one update.
func (c *connection) handle(ctx context.Context, r Received) error {
	u := r.Update
	group := u.ConversationKind != "dm"
	if u.Kind == Wrote && group && !u.ToMe {
		return nil
	}
	word, args := control(u.Text)
	if u.Forwarded {
		word = ""
	}
	if word == "/pair" && !group && u.Kind == Wrote {
		if _, err := c.hub.cfg.Store.Person(ctx, c.account.Ref, u.User); u.Unproved && capability.CodeOf(err) != capability.CodeNotFound {
			return c.refuse(ctx, r, refusal(reasonUnproved, "a person is paired with this address. Answer a mail of the account, or ask for unpairing"))
		}
		return c.hub.pair(ctx, c, r, args)
	}
	person, who, err := c.sender(ctx, u.User)
	if err != nil {
		if capability.CodeOf(err) != capability.CodeDenied {
			return err
		}
		unpaired := capability.AsError(err).Reason == reasonUnpaired
		if unpaired && group && u.Kind == Wrote && !u.Unproved && slices.Contains(c.account.Guests, u.Conversation) {
			return c.guest(ctx, r)
		}
		return c.refuse(ctx, r, err)
	}
	if u.Unproved {
		return c.refuse(ctx, r, refusal(reasonUnproved, "your message does not prove that you wrote it. Send it as an answer to this one"))
	}
	if u.Kind == Pressed {
		return c.hub.pressed(ctx, c, r, person, who)
	}
	switch word {
	case "/approve":
		if group {
			return c.refuse(ctx, r, refusal("group", "decisions are taken in a conversation with the account alone"))
		}
		return c.answer(ctx, r, c.hub.approve(ctx, c, person, who, args))
	case "/tasks":
		return c.answer(ctx, r, c.hub.tasksOf(ctx, who))
	case "/start":
		return c.answer(ctx, r, "You are "+who.ID+" here. Write to the agent, or "+c.kind.command("help")+" for the commands.")
	}
	said, err := c.words(ctx, r)
	if err != nil || said == "" {
		return err
	}
	return c.converse(ctx, r, who, said)
}

// words returns the text of a message with a line for each attachment.
func (c *connection) words(ctx context.Context, r Received) (string, error) {
	said := r.Update.Text
	if r.Update.Forwarded {
		said = "[forwarded] " + said // a command of another person runs nothing
	}
	_, readable := c.channel.(Fetcher)
	for i, f := range r.Update.Files {
		name := text.Quote(text.CutBytes(f.Name, 100))
		if f.Size > MaxFile {
			e := refusal("attachment_too_large", fmt.Sprintf("the attachment %s has %d bytes; at most %d MiB are taken", name, f.Size, MaxFile>>20))
			return "", c.refuse(ctx, r, e)
		}
		if !readable {
			said += fmt.Sprintf("\n[attachment %s, %d bytes, not read]", name, f.Size)
			continue
		}
		id := r.Update.Message
		if f.ID != "" {
			id += FileMark + f.ID
		}
		said += fmt.Sprintf("\n[attachment %s, %d bytes; message.attachment.fetch with messageRef %s and index %d reads it]", name, f.Size,
			c.messageRef(r.Update.Conversation, id), i)
	}
	return strings.TrimSpace(said), nil
}

// converse passes a message to the agent, whose reply leaves with [Hub.Replied], or runs a command.
func (c *connection) converse(ctx context.Context, r Received, who capability.Principal, said string) error {
	u := r.Update
	command := strings.HasPrefix(said, "/")
	if command {
		if r.Begun {
			return c.answer(ctx, r, "The server was restarted while this command ran; its outcome is unknown: "+text.Line(said, 60))
		}
		if err := c.hub.cfg.Store.Begun(ctx, r.Seq); err != nil {
			return err
		}
	}
	route := &capability.Route{
		Kind: c.account.Kind, Account: c.account.Account, Conversation: u.Conversation, ConversationKind: u.ConversationKind, Thread: u.Thread,
	}
	reply, err := c.hub.cfg.Chat.Say(ctx, engine.Message{
		Principal: who, Session: sessionOf(route), Text: said, Client: "channel " + c.account.String(), Route: route, Foreign: u.Forwarded,
		Key: c.account.String() + " " + u.ID, Again: r.Again, Detached: true,
	}, nil)
	if err != nil {
		if ctx.Err() != nil || capability.CodeOf(err) == capability.CodeUnavailable {
			return err
		}
		return c.answer(ctx, r, capability.AsError(err).Message)
	}
	return c.answer(ctx, r, reply.Message.Text) // empty if the agent works on it
}

// sessionOf returns the session of a conversation.
func sessionOf(r *capability.Route) string {
	id := r.Ref()
	if r.Thread != "" {
		id += ":" + r.Thread
	}
	if session.ValidID(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return r.Kind + ":" + r.Account + ":" + hex.EncodeToString(sum[:16])
}

// answer sends a text back the way that an update came. It does nothing for "".
func (c *connection) answer(ctx context.Context, r Received, said string) error {
	if said == "" {
		return nil
	}
	u := r.Update
	return c.hub.queue(ctx, c.account.Ref, Op{
		Verb: VerbSend, Key: "answer " + u.ID, Conversation: u.Conversation, Thread: u.Thread, Text: said,
	}, "")
}

// Replied sends the reply of a run that began in a channel, once.
func (h *Hub) Replied(ctx context.Context, route capability.Route, run, said string) error {
	return h.queue(ctx, Ref{route.Kind, route.Account}, Op{
		Verb: VerbSend, Key: "reply " + run, Conversation: route.Conversation, Thread: route.Thread, Text: said, Markdown: true,
	}, "")
}

// Waits notifies a conversation that its run waits for approvals.
func (h *Hub) Waits(ctx context.Context, route capability.Route, run string, approvals []string) error {
	list := strings.Join(approvals, ", ")
	return h.queue(ctx, Ref{route.Kind, route.Account}, Op{
		Verb: VerbSend, Key: "waits " + run + " " + list, Conversation: route.Conversation,
		Thread: route.Thread, Text: "This needs an approval (" + list + "). I go on when an operator has decided.",
	}, "")
}

// sender returns a paired person and its principal. The error is denied for all others.
func (c *connection) sender(ctx context.Context, user string) (Person, capability.Principal, error) {
	h, r := c.hub, c.account.Ref
	p, err := h.cfg.Store.Person(ctx, r, user)
	if capability.CodeOf(err) == capability.CodeNotFound {
		return p, capability.Principal{}, refusal(reasonUnpaired, "this account talks to paired people only. An operator makes a code with: junctor channels pair "+
			r.String()+"; then send "+c.kind.command("pair")+" CODE")
	}
	if err != nil {
		return p, capability.Principal{}, err
	}
	who, ok := h.cfg.Policy.Find(p.Principal)
	if !ok || who.Role != p.Role {
		return p, who, refusal("access_ended", "your access has ended; an operator can pair you again")
	}
	return p, who, nil
}

// refusal returns the error of an update that changes nothing.
func refusal(reason, why string) *capability.Error {
	return capability.Errorf(capability.CodeDenied, "channel", "%s", why).With(reason, "")
}

// refusals counts refusals of one account since a time. It is guarded by the connection's mutex.
type refusals struct {
	since time.Time
	count int
	users map[string]bool
}

// refuse records an update that is not handled, and notifies the operator and, if the account
// greets strangers or the person is paired, the sender: each once in refusalTTL.
func (c *connection) refuse(ctx context.Context, r Received, why error) error {
	e, u := capability.AsError(why), r.Update
	now := c.hub.cfg.Now()
	c.mu.Lock()
	if now.Sub(c.noted.since) > refusalTTL {
		c.noted = refusals{since: now, users: make(map[string]bool)}
	}
	c.noted.count++
	count := c.noted.count
	said := u.User + " " + e.Reason
	first := !c.noted.users[said] && len(c.noted.users) < maxRefusals
	if first {
		c.noted.users[said] = true
	}
	c.mu.Unlock()
	if count <= maxRefusals {
		c.hub.record(ctx, audit.ChannelRefused, c.account.Ref, u.User, e, audit.Attr{Key: "update", Value: u.ID},
			audit.Attr{Key: "conversation", Value: u.Conversation}, audit.Attr{Key: "update_kind", Value: string(u.Kind)})
	}
	if first {
		c.hub.cfg.Logger.Warn("a message of a channel was refused", "channel", c.account.String(), "user", u.User, "reason", e.Reason)
		c.hub.cfg.Publish("channel.refused", map[string]any{"channel": c.account.String(), "user": u.User, "reason": e.Reason})
	}
	if u.Kind == Pressed {
		c.ack(ctx, u, "This button is not yours.")
		return nil
	}
	answers := e.Reason != reasonUnpaired && (!u.Unproved || e.Reason == reasonUnproved) // not to an address that anyone wrote
	if first && u.ConversationKind == "dm" && (c.account.Greet || answers) {
		return c.answer(ctx, r, strings.ToUpper(e.Message[:1])+e.Message[1:]+".")
	}
	return nil
}

// ack acknowledges a press, so that the service shows it as done. A failure has no effect.
func (c *connection) ack(ctx context.Context, u Update, said string) {
	if u.Press != "" {
		_, _ = c.channel.Do(ctx, Op{Verb: VerbAck, Press: u.Press, Text: said})
	}
}

// tasksOf lists the tasks of a principal that have not ended, and the last ones that have.
func (h *Hub) tasksOf(ctx context.Context, who capability.Principal) string {
	page, err := h.cfg.Tasks(ctx, tasks.Query{Owner: who.ID, Limit: maxTasks})
	if err != nil {
		return capability.AsError(err).Message
	}
	if len(page.Tasks) == 0 {
		return "You have no tasks."
	}
	var b strings.Builder
	for _, t := range page.Tasks {
		fmt.Fprintf(&b, "%s  %s  %s\n", t.ID, t.State, text.Line(t.Status, 80))
	}
	return b.String()
}
