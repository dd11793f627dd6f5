package channels

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/bus"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// follow shows pending approvals to operators, and their decisions, and messages about tasks, until
// ctx ends.
func (h *Hub) follow(ctx context.Context) {
	after := h.cfg.Bus.Latest()
	h.promptAll(ctx)
	for ev, err := range h.cfg.Bus.Subscribe(ctx, after) {
		if err != nil {
			return
		}
		var about struct{ Approval string }
		switch ev.Type {
		case bus.Resync:
			h.promptAll(ctx)
		case "agent.message", "agent.task_started":
			h.notify(ctx, ev.Data, ev.Type == "agent.message")
		case policy.EventApprovalAsked, policy.EventApprovalDecided, policy.EventApprovalExpired:
			if json.Unmarshal(ev.Data, &about) != nil || about.Approval == "" {
				continue
			}
			if ev.Type != policy.EventApprovalAsked {
				h.settle(ctx, about.Approval)
			} else if a, err := h.cfg.Policy.Approval(ctx, about.Approval); err == nil {
				h.prompt(ctx, a)
			}
		}
	}
}

// notify sends a message about the work of task agents to the paired person who owns it, if owner is
// set, and to the operators of accounts that show all tasks. It goes to conversations with one
// person only: the one that the task came from may be named by anyone.
func (h *Hub) notify(ctx context.Context, data []byte, owner bool) {
	var m struct {
		ID, Owner, Title, Text string
		Room                   string `json:"room_id"`
	}
	people, err := h.cfg.Store.People(ctx, Ref{})
	if err != nil || json.Unmarshal(data, &m) != nil || m.ID == "" {
		return
	}
	own := -1
	for i, p := range people {
		if p.Principal == m.Owner && h.connection(p.Ref) != nil && (own < 0 || p.Conversation == m.Room) {
			own = i
		}
	}
	for i, p := range people {
		c := h.connection(p.Ref)
		if c == nil || !(owner && i == own) && !(c.account.Tasks && p.Role == capability.RoleOperator) {
			continue
		}
		if _, ok := h.cfg.Policy.Find(p.Principal); !ok {
			continue
		}
		err := h.queue(ctx, p.Ref, Op{
			Verb: VerbSend, Key: "task " + m.ID + " " + p.User, Conversation: p.Conversation, Text: text.Line(m.Title, 120) + ": " + m.Text,
		}, "")
		if err != nil {
			h.cfg.Logger.Warn("a message about a task is not sent", "channel", p.String(), "err", err)
		}
	}
}

// promptAll shows all pending approvals that are not shown yet.
func (h *Hub) promptAll(ctx context.Context) {
	list, err := h.cfg.Policy.Approvals(ctx, policy.ApprovalPending, "", pageSize)
	if err != nil && ctx.Err() == nil {
		h.cfg.Logger.Warn("pending approvals cannot be read", "err", err)
	}
	for _, a := range slices.Backward(list) {
		h.prompt(ctx, a)
	}
}

// prompt sends an approval to each operator who is paired with an account of this server.
func (h *Hub) prompt(ctx context.Context, a policy.Approval) {
	if a.State != policy.ApprovalPending || a.Channel == policy.ChannelClient && !a.Waits() {
		return // the person before the agent answers it
	}
	people, err := h.cfg.Store.People(ctx, Ref{})
	var input []byte
	if err == nil {
		input, err = h.cfg.Policy.ApprovalInput(ctx, a.ID)
	}
	if err != nil {
		if ctx.Err() == nil {
			h.cfg.Logger.Warn("an approval is not shown in channels", "approval", a.ID, "err", err)
		}
		return
	}
	for _, p := range people {
		c := h.connection(p.Ref)
		if p.Role != capability.RoleOperator || c == nil {
			continue
		}
		if _, ok := h.cfg.Policy.Find(p.Principal); !ok {
			continue
		}
		said, file := approvalMessage(a, input, c.kind.command("approve"), c.kind.NoButtons)
		op := Op{Verb: VerbSend, Conversation: p.Conversation}
		list := buttons(a)
		if file != nil && len(file.Data) > min(maxAttached, c.kind.MaxFile) {
			list = slices.DeleteFunc(list, func(b Button) bool { return b.Data != string(policy.DecideDeny) })
		} else if file != nil {
			op.Key, op.File = inputKey(a.ID, p.User), file
			if err := h.queue(ctx, p.Ref, op, a.ID); err != nil {
				h.cfg.Logger.Warn("an approval is not shown", "approval", a.ID, "channel", p.String(), "err", err)
				continue
			}
		}
		if c.kind.NoButtons && !a.Waits() {
			said, list = said+"\n"+decideLine(a.ID, c.kind.command("approve"), list), nil
		}
		for i := range list {
			list[i].Data += " " + a.ID
		}
		op.Key, op.File, op.Text, op.Buttons = promptKey(a.ID, p.User), nil, said, list
		if err := h.queue(ctx, p.Ref, op, a.ID); err != nil {
			h.cfg.Logger.Warn("an approval is not shown", "approval", a.ID, "channel", p.String(), "err", err)
		}
	}
}

func promptKey(approval, user string) string { return "prompt " + approval + " " + user }
func inputKey(approval, user string) string  { return "input " + approval + " " + user }

// shownWhole reports whether all messages about an approval, and the file with its input if they do
// not hold it, have reached a person.
func (h *Hub) shownWhole(ctx context.Context, p Person, a policy.Approval) bool {
	input, err := h.cfg.Policy.ApprovalInput(ctx, a.ID)
	if err != nil {
		return false
	}
	list, err := h.cfg.Store.Shown(ctx, a.ID)
	arrived := func(key string) (last bool) {
		for _, s := range list {
			if s.Ref != p.Ref || s.Op.Key != key && !(s.Op.More && strings.HasPrefix(s.Op.Key, key+"#")) {
				continue
			}
			if s.State != SendDone {
				return false
			}
			last = last || !s.Op.More
		}
		return last
	}
	_, file := approvalMessage(a, input, "", false)
	return err == nil && arrived(promptKey(a.ID, p.User)) && (file == nil || arrived(inputKey(a.ID, p.User)))
}

// approvalMessage returns the text that shows an approval. A long input is a file, of which the text
// has the size, digest and members; an input that is not JSON is left out. approve is the
// command, which is named if the service lacks buttons (typed).
func approvalMessage(a policy.Approval, input []byte, approve string, typed bool) (message string, file *File) {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, text.Visible(value))
		}
	}
	fmt.Fprintf(&b, "Approval %s\n", a.ID)
	switch a.Kind {
	case policy.KindTerminal, policy.KindQuestion:
		line("A program waits", a.Summary)
	default:
		line("Call", string(a.Capability))
	}
	line("By", a.Principal)
	line("For", a.OnBehalfOf)
	line("Effect", string(a.Effect))
	line("Permissions", strings.Join(a.Permissions, ", "))
	if !a.Expires.IsZero() {
		line("Open until", a.Expires.UTC().Format("2006-01-02 15:04 MST"))
	}
	for _, v := range a.Shown.Argv {
		b.WriteString("runs " + v.String() + "\n")
	}
	for _, v := range a.Shown.Details {
		b.WriteString(v.String() + "\n")
	}
	for _, q := range a.Shown.Questions {
		fmt.Fprintf(&b, "%s: %s\n", text.Visible(q.ID), text.Visible(q.Text))
	}
	for _, ch := range a.Shown.Choices {
		fmt.Fprintf(&b, "%d. %s %s\n", ch.N, text.Visible(ch.Label), text.Visible(ch.Description))
	}
	if a.Waits() && (len(a.Shown.Choices) == 0 || typed) {
		fmt.Fprintf(&b, "Answer with: %s %s TEXT\n", approve, a.ID)
	}
	var whole bytes.Buffer
	if len(input) == 0 || json.Indent(&whole, input, "", " ") != nil {
		return b.String(), nil
	}
	if shown := text.VisibleLines(whole.String()); len(shown) <= maxInline {
		return b.String() + "Input:\n" + shown, nil
	}
	fmt.Fprintf(&b, "Input: %d bytes, SHA-256 %x", len(input), sha256.Sum256(input))
	if len(input) > maxAttached {
		fmt.Fprintf(&b, ", too long for a message: junctor approvals show %s\n", a.ID)
	} else {
		fmt.Fprintf(&b, ", in the file %s.json\n", a.ID)
	}
	for _, v := range a.Shown.Members {
		b.WriteString(v.String() + "\n")
	}
	return b.String(), &File{Name: a.ID + ".json", Size: int64(len(input)), Data: input}
}

// buttons returns the buttons of an approval. Their data name a decision; the id of the approval
// follows in what is sent.
func buttons(a policy.Approval) (list []Button) {
	if a.Waits() {
		for _, ch := range a.Shown.Choices {
			list = append(list, Button{text.ShortenRunes(text.Visible(ch.Label), 40), "choice:" + strconv.Itoa(ch.N)})
		}
		return list
	}
	list = []Button{{"Once", string(policy.DecideOnce)}, {"1 hour", string(policy.DecideTimed)}}
	if a.Session != "" {
		list = append(list, Button{"This session", string(policy.DecideSession)})
	}
	return append(list, Button{"Deny", string(policy.DecideDeny)})
}

// decideLine returns the line that names the decisions which buttons would offer.
func decideLine(id, approve string, list []Button) string {
	names := make([]string, len(list))
	for i, b := range list {
		names[i] = b.Data
	}
	return fmt.Sprintf("Answer with: %s %s %s", approve, id, strings.Join(names, " | "))
}

// settle shows the decision of an approval in the messages about it. A pending one stays as it is.
func (h *Hub) settle(ctx context.Context, approval string) {
	list, err := h.cfg.Store.Shown(ctx, approval)
	if err != nil || len(list) == 0 {
		return
	}
	a, err := h.cfg.Policy.Approval(ctx, approval)
	if err != nil || a.State == policy.ApprovalPending {
		return
	}
	for _, s := range list {
		if s.State != SendDone || s.Op.Text == "" || s.Op.More {
			continue
		}
		err := h.queue(ctx, s.Ref, Op{
			Verb: VerbEdit, Key: fmt.Sprintf("settled %d", s.ID), Conversation: s.Op.Conversation, Message: s.ServiceID,
			Text: s.Op.Text + "\n\n" + outcome(a),
		}, "")
		if err != nil {
			h.cfg.Logger.Warn("the decision of an approval is not shown", "approval", approval, "channel", s.String(), "err", err)
		}
	}
	if err := h.cfg.Store.Settled(ctx, approval); err != nil {
		h.cfg.Logger.Warn("the texts of an approval stay stored", "approval", approval, "err", err)
	}
}

// outcome describes how an approval ended.
func outcome(a policy.Approval) string {
	switch a.State {
	case policy.ApprovalApproved:
		return fmt.Sprintf("Approved (%s) by %s.", a.Decision, a.DecidedBy)
	case policy.ApprovalDenied:
		return "Denied by " + a.DecidedBy + "."
	case policy.ApprovalExpired:
		return "Expired before it was decided."
	}
	return "Not needed any more."
}

// pressed handles a press of a button. It counts only from the person to whom the message was sent.
func (h *Hub) pressed(ctx context.Context, c *connection, r Received, p Person, who capability.Principal) error {
	u := r.Update
	data, approval, named := strings.Cut(u.Data, " ") // buttons of earlier versions name no approval
	s, err := h.cfg.Store.ShownAs(ctx, c.account.Ref, u.Conversation, u.Message)
	if capability.CodeOf(err) == capability.CodeNotFound { // a press may be faster than the record of the message
		c.flushed(ctx, u.Conversation)
		s, err = h.cfg.Store.ShownAs(ctx, c.account.Ref, u.Conversation, u.Message)
	}
	if capability.CodeOf(err) == capability.CodeNotFound && named {
		s, err = h.provedByPress(ctx, c, u, approval)
	}
	if capability.CodeOf(err) == capability.CodeNotFound || err == nil && named && approval != s.About {
		return c.refuse(ctx, r, refusal("unknown_button", "this button belongs to no approval"))
	}
	if err != nil {
		return err
	}
	if s.Op.Key != promptKey(s.About, u.User) {
		return c.refuse(ctx, r, refusal("not_yours", "this button was sent to another person"))
	}
	reply := policy.Reply{Decision: policy.Decision(data)}
	if n, ok := strings.CutPrefix(data, "choice:"); ok {
		reply = policy.Reply{Text: n}
	}
	said, done := h.decide(ctx, c, p, who, s.About, reply, "")
	c.ack(ctx, u, text.ShortenRunes(said, 150))
	if done {
		return nil // the message shows it
	}
	return c.answer(ctx, r, said)
}

// provedByPress returns the send of an approval to a person whose outcome is unknown, because a
// process ended while it sent. The person's press proves that it arrived, and as which message.
func (h *Hub) provedByPress(ctx context.Context, c *connection, u Update, approval string) (Send, error) {
	list, err := h.cfg.Store.Shown(ctx, approval)
	if err != nil {
		return Send{}, err
	}
	for _, s := range list {
		if s.Ref != c.account.Ref || s.State != SendUnknown || s.Op.Conversation != u.Conversation || s.Op.Key != promptKey(approval, u.User) {
			continue
		}
		s.State, s.ServiceID, s.Error = SendDone, u.Message, nil
		return s, h.cfg.Store.SaveSend(ctx, s, h.cfg.Now())
	}
	return Send{}, capability.Errorf(capability.CodeNotFound, "channels", "no message shows the approval %.64q", approval)
}

// approve handles /approve ID DECISION [CODE], and lists what waits without an id. For a program
// that waits, all behind the id is its answer.
func (h *Hub) approve(ctx context.Context, c *connection, p Person, who capability.Principal, args []string) string {
	if len(args) < 2 {
		return h.waiting(ctx, c, p)
	}
	a, err := h.cfg.Policy.Approval(ctx, args[0])
	reply, code := policy.Reply{Decision: policy.Decision(strings.ToLower(args[1]))}, ""
	switch {
	case p.Role != capability.RoleOperator || err != nil:
	case a.Waits() && reply.Decision != policy.DecideDeny:
		reply = policy.Reply{Text: strings.Join(args[1:], " ")}
	case len(args) > 2:
		code = args[2]
	}
	said, _ := h.decide(ctx, c, p, who, args[0], reply, code)
	return said
}

// waiting lists the approvals that wait.
func (h *Hub) waiting(ctx context.Context, c *connection, p Person) string {
	if p.Role != capability.RoleOperator {
		return "Only operators decide approvals."
	}
	list, err := h.cfg.Policy.Approvals(ctx, policy.ApprovalPending, "", maxOpen)
	if err != nil {
		return capability.AsError(err).Message
	}
	said := "Nothing waits for an approval."
	for i, a := range list {
		if i == 0 {
			said = c.kind.command("approve") + " ID once, timed, session, always or deny decides:"
		}
		said += "\n" + a.ID + "  " + text.Line(text.Visible(a.Summary), 120)
	}
	return said
}

// decide carries out a decision, and returns the answer for the person. done is false if nothing was
// decided.
func (h *Hub) decide(ctx context.Context, c *connection, p Person, who capability.Principal, id string, reply policy.Reply, code string,
) (said string, done bool) {
	if p.Role != capability.RoleOperator {
		e := refusal("not_operator", "the person is not an operator")
		h.record(ctx, audit.ChannelRefused, p.Ref, p.User, e, audit.Attr{Key: "approval", Value: id})
		return "Only operators decide approvals.", false
	}
	a, err := h.cfg.Policy.Approval(ctx, id)
	if err != nil {
		return capability.AsError(err).Message, false
	}
	if a.State != policy.ApprovalPending {
		h.settle(ctx, id)
		return "This is over: " + outcome(a), false
	}
	shown := reply.Decision == policy.DecideDeny || h.shownWhole(ctx, p, a)
	if !shown { // a decision may be faster than the record of the message
		c.flushed(ctx, p.Conversation)
		shown = h.shownWhole(ctx, p, a)
	}
	if !shown {
		return "Its input is not shown here whole. Decide in the console, or see it with: junctor approvals show " + id, false
	}
	if h.needsCode(a, reply) && c.account.Verify != "off" {
		if a.Waits() { // a code here would be an answer
			return "This answer needs a code, so give it in the console or with: junctor tasks answer. A choice that does not last is taken here by its number", false
		}
		what := fmt.Sprintf("%s %s%s of %s", id, reply.Decision, reply.Text, text.Visible(a.Principal))
		if err := h.verified(who.ID, what, code); err != nil {
			e := capability.AsError(err)
			h.record(ctx, audit.ChannelRefused, p.Ref, p.User, e, audit.Attr{Key: "approval", Value: id})
			return fmt.Sprintf("%s. Then send: %s %s %s CODE", e.Message, c.kind.command("approve"), id, reply.Decision), false
		}
	}
	if a, _, err = h.cfg.Policy.Reply(ctx, who, id, reply); err != nil {
		return capability.AsError(err).Message, false
	}
	return outcome(a), true
}

// needsCode reports whether a button is not enough for a decision.
func (h *Hub) needsCode(a policy.Approval, reply policy.Reply) bool {
	if reply.Decision == policy.DecideDeny {
		return false
	}
	if a.Waits() {
		lasts := func(ch policy.ShownChoice) bool { return ch.Effect == "always" }
		// A program takes an answer in many spellings, so beside a lasting choice another one is named exactly.
		other := func(ch policy.ShownChoice) bool {
			return !lasts(ch) && (reply.Text == strconv.Itoa(ch.N) || strings.EqualFold(reply.Text, ch.Label))
		}
		return a.Effect.AtLeast(capability.EffectAdmin) || reply.Decision == policy.DecideAlways ||
			slices.ContainsFunc(a.Shown.Choices, lasts) && !slices.ContainsFunc(a.Shown.Choices, other)
	}
	return a.Effect.AtLeast(capability.EffectAdmin) || reply.Decision == policy.DecideAlways || h.cfg.Destructive(a.Capability)
}

// tries counts wrong codes of principals. The zero value is ready.
type tries struct {
	mu    sync.Mutex
	wrong map[string][]time.Time
}

// verified checks the code of a decision. Without a code it requests one. The error is denied.
func (h *Hub) verified(principal, what, code string) error {
	t, now := &h.tries, h.cfg.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wrong == nil {
		t.wrong = make(map[string][]time.Time)
	}
	recent := slices.DeleteFunc(t.wrong[principal], func(at time.Time) bool { return now.Sub(at) > LockTTL })
	t.wrong[principal] = recent
	switch {
	case len(recent) >= maxWrong:
		return refusal("codes_locked", fmt.Sprintf("after %d wrong codes this needs the console or the command line for an hour", maxWrong))
	case code == "":
		h.cfg.Verify.Ask(principal, what)
		return refusal("code_required", "This needs the code on the terminal of junctor serve (or: junctor console code)")
	}
	err := h.cfg.Verify.Check(principal, what, code)
	if err != nil {
		t.wrong[principal] = append(recent, now)
	}
	return err
}
