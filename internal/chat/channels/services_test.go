package channels_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/time/rate"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/channels"
	"github.com/junctor-run/junctor/internal/chat/channels/discord"
	"github.com/junctor-run/junctor/internal/chat/channels/email"
	"github.com/junctor-run/junctor/internal/chat/channels/matrix"
	"github.com/junctor-run/junctor/internal/chat/channels/slack"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/testkit/fakechat"
)

// service is an account of a service, run by a rig.
type service struct {
	*rig
	fakechat.Service
	ref  channels.Ref
	kind channels.Kind
}

// eachService runs a test with every service of the package fakechat.
func eachService(t *testing.T, test func(t *testing.T, s *service)) {
	for name, open := range map[string]func() (fakechat.Service, channels.Kind){
		"discord": func() (fakechat.Service, channels.Kind) { return fakechat.NewDiscord(t), discord.Kind() },
		"email":   func() (fakechat.Service, channels.Kind) { return fakechat.NewEmail(t, nil, false), email.Kind() },
		"matrix":  func() (fakechat.Service, channels.Kind) { return fakechat.NewMatrix(t), matrix.Kind() },
		"slack":   func() (fakechat.Service, channels.Kind) { return fakechat.NewSlack(t), slack.Kind() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			fake, kind := open()
			kind.Pause, kind.GroupPause, kind.Rate = 0, 0, rate.Inf
			s := &service{rig: r, Service: fake, kind: kind, ref: channels.Ref{Kind: name, Account: "work"}}
			r.stop()
			r.secret = fake.Secret()
			r.cfg.Kinds = append(r.cfg.Kinds, kind)
			r.start()
			_, err := r.Add(t.Context(), admin, channels.Account{Ref: s.ref, Secret: "bot", URL: fake.URL()})
			must(t, "add", err)
			s.state(capability.StateReady)
			test(t, s)
		})
	}
}

func (s *service) state(want capability.State) {
	s.t.Helper()
	s.eventually("the account is "+string(want), func() bool {
		got, err := s.Get(s.t.Context(), s.ref)
		return err == nil && got.State.State == want
	})
}

// pairs pairs a user with a code that the user sends.
func (s *service) pairs(user string, role capability.Role) {
	s.t.Helper()
	got, err := s.Pair(s.t.Context(), admin, s.ref, role, "", "")
	must(s.t, "pair", err)
	s.Write(s.Direct(user), user, got.Send)
	s.sent("the answer to the pairing", func(m fakechat.Message) bool {
		return m.Conversation == s.Direct(user) && strings.HasPrefix(m.Text, "You are paired as ")
	})
}

// enter makes a conversation with a user in which the account may write.
func (s *service) enter(user string) {
	s.t.Helper()
	if s.Kind() == "matrix" {
		s.Write(s.Direct(user), user, "hello") // with an invitation
		s.eventually("the account entered the room", func() bool { return len(s.refusals()) > 0 })
	}
}

// slash returns what is in front of commands.
func (s *service) slash() string { return cmp.Or(s.kind.Slash, "/") }

// can reports whether the service has an action.
func (s *service) can(action string) bool {
	return slices.Contains(s.kind.Actions, capability.Action(action))
}

// sent waits for a message that the account sent.
func (s *service) sent(what string, is func(fakechat.Message) bool) (m fakechat.Message) {
	s.t.Helper()
	s.eventually(what, func() bool {
		list := s.Sent()
		i := slices.IndexFunc(list, is)
		if i >= 0 {
			m = list[i]
		}
		return i >= 0
	})
	return m
}

// call calls an action of the account's provider.
func (s *service) call(key, action string, input map[string]any) (out map[string]any, err error) {
	s.t.Helper()
	raw, err := json.Marshal(input)
	must(s.t, "encode", err)
	c := send(key, "", "")
	c.Action, c.Input = capability.Action(action), raw
	got, err := s.provider().Invoke(s.t.Context(), c)
	if err == nil {
		must(s.t, "decode", json.Unmarshal(got.Value, &out))
	}
	return out, err
}

// TestServicesDeliverOnceAndInOrder writes through interrupted connections and lost sessions.
func TestServicesDeliverOnceAndInOrder(t *testing.T) {
	t.Parallel()
	const each = 40
	eachService(t, func(t *testing.T, s *service) {
		users := []string{"71", "72"}
		for _, user := range users {
			s.pairs(user, capability.RoleAgent)
			s.Write(s.Direct(user), user, "begin") // a message from which a lost session continues
		}
		count := func() (n int) {
			for _, list := range s.chat.all() {
				n += len(list)
			}
			return n
		}
		groups := 0
		if s.Group() != "" {
			groups = 1
			s.Write(s.Group(), "71", s.Mention()+" begin")
		}
		s.eventually("the conversations began", func() bool { return count() == len(users)+groups })
		for i := range each {
			for _, user := range users {
				s.Write(s.Direct(user), user, fmt.Sprintf("%d <b> & *", i))
			}
			if groups > 0 {
				s.Write(s.Group(), "71", "not for the account")
			}
			switch i % 10 {
			case 3:
				s.Interrupt()
			case 7:
				s.Forget()
			}
		}
		if groups > 0 {
			s.Write(s.Group(), "71", s.Mention()+" in the group")
		}
		want := len(users)*(each+1) + 2*groups
		s.eventually("all messages are handled", func() bool { return count() >= want })
		if got := count(); got != want {
			t.Errorf("%s: got %d messages, want %d", s.Kind(), got, want)
		}
		for id, list := range s.chat.all() {
			if len(list) < each {
				if !slices.Equal(list, []string{"begin", "in the group"}) {
					t.Errorf("%s: got %q of the group, want only what was addressed", id, list)
				}
				continue
			}
			for i, text := range list[1:] {
				if want := fmt.Sprintf("%d <b> & *", i); text != want {
					t.Fatalf("%s: got %q as message %d, want %q", id, text, i, want)
				}
			}
		}
	})
}

// TestServicesDecideApprovals shows approvals whole and letter by letter, and takes the decision of
// the person to whom they were sent.
func TestServicesDecideApprovals(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s *service) {
		s.pairs("71", capability.RoleOperator)
		s.pairs("72", capability.RoleAgent)
		decide := func(user string, a policy.Approval, m fakechat.Message, decision string) {
			if s.kind.NoButtons {
				s.Write(s.Direct(user), user, s.slash()+"approve "+a.ID+" "+decision)
			} else {
				s.Press(m.Conversation, user, m.ID, decision)
			}
		}
		tricky := `||hidden|| **b** [x](https://example.org) <@1> & @everyone :smile: \\_ ` + "`c` > q"
		input := `{"text":"` + tricky + strings.Repeat("*", 1500) + `"}`
		a := s.ask("write", capability.EffectWrite, input)
		m := s.sent("the approval is shown", func(m fakechat.Message) bool {
			return strings.Contains(m.Text, "Input:") || strings.Contains(m.Text, "Approval "+a.ID)
		})
		if m.Conversation != s.Direct("71") {
			t.Errorf("the approval: got it in %s, want it in %s", m.Conversation, s.Direct("71"))
		}
		last := s.sent("the decisions are offered", func(m fakechat.Message) bool {
			line := "Answer with: " + s.slash() + "approve " + a.ID + " once | timed | deny"
			return slices.Contains(m.Buttons, "once "+a.ID) || strings.Contains(m.Text, line)
		})
		var whole strings.Builder
		for _, m := range s.Sent() {
			if m.Conversation == s.Direct("71") {
				whole.WriteString(m.Text)
				if m.Markdown {
					t.Errorf("a message about an approval: got Markdown %q, want a text", m.Text)
				}
			}
		}
		if text := whole.String(); !strings.Contains(text, tricky) {
			t.Errorf("the input: got %q, want it to contain %s", text, tricky)
		}
		decide("72", a, last, "once")
		s.eventually("another person's decision is refused", func() bool { return len(s.refusals()) > 0 })
		if got, _ := s.policy.Approval(t.Context(), a.ID); got.State != policy.ApprovalPending {
			t.Errorf("after another person's decision: got %s, want pending", got.State)
		}
		decide("71", a, last, "once")
		s.sent("the message shows the decision", func(m fakechat.Message) bool {
			return (m.Edits > 0 || !s.can("message.edit")) && len(m.Buttons) == 0 &&
				strings.Contains(m.Text, "Approved (once) by operator:"+s.Kind()+".work.")
		})
		if !s.kind.NoButtons {
			s.eventually("the press is acknowledged", func() bool { return len(s.Acks()) >= 2 })
		}
	})
}

// TestServicesAndLostAnswers requires that a send with a cut answer is delivered once, and reported
// where the service has no key for it.
func TestServicesAndLostAnswers(t *testing.T) {
	t.Parallel()
	method := map[string]string{"discord": "POST messages", "email": "DATA", "matrix": "send", "slack": "chat.postMessage"}
	eachService(t, func(t *testing.T, s *service) {
		s.enter("71")
		s.Fail(func(m string, n int) fakechat.Fault {
			if m != method[s.Kind()] {
				return fakechat.Fault{}
			}
			switch n % 5 {
			case 1:
				return fakechat.Fault{Cut: true}
			case 2:
				return fakechat.Fault{Drop: true}
			case 3:
				return fakechat.Fault{Status: 429, RetryAfter: 1}
			}
			return fakechat.Fault{}
		})
		unknown := 0
		for i := range 10 {
			key := "k" + strconv.Itoa(i)
			input := map[string]any{"to": s.Direct("71"), "text": "message " + key}
			_, err := s.call(key, "message.send", input)
			if err != nil {
				if e := capability.AsError(err); e.Reason != channels.ReasonDeliveryUnknown || s.kind.OnceTTL > 0 {
					t.Errorf("%s: got %v, want delivery or a service without keys", key, err)
				}
				unknown++
			}
			_, again := s.call(key, "message.send", input)
			if (again == nil) != (err == nil) {
				t.Errorf("%s again: got %v, want as before: %v", key, again, err)
			}
		}
		seen := map[string]int{}
		for _, m := range s.Sent() {
			seen[m.Text]++
		}
		for text, n := range seen {
			if n != 1 {
				t.Errorf("%q: got it %d times, want once", text, n)
			}
		}
		if len(seen)+unknown < 10 || s.kind.OnceTTL > 0 && unknown > 0 || s.kind.OnceTTL == 0 && unknown == 0 {
			t.Errorf("got %d delivered and %d unknown, want all, and unknown ones only without keys", len(seen), unknown)
		}
	})
}

// TestServicesCarryOutActions edits, deletes, marks and pins messages, and sends files and answers.
func TestServicesCarryOutActions(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s *service) {
		to := s.Direct("71")
		s.enter("71")
		out, err := s.call("1", "message.send", map[string]any{"to": to, "text": "first"})
		must(t, "send", err)
		ref, _ := out["messageRef"].(string)
		if want := s.ref.String() + ":" + to + "/"; !strings.HasPrefix(ref, want) {
			t.Fatalf("messageRef: got %q, want it to begin with %q", ref, want)
		}
		first := func() fakechat.Message { return s.Sent()[0] }
		for i, step := range []struct {
			action string
			input  map[string]any
			ok     func(m fakechat.Message) bool
		}{
			{"message.edit", map[string]any{"text": "changed"}, func(m fakechat.Message) bool { return m.Text == "changed" && m.Edits == 1 }},
			{"message.react", map[string]any{"emoji": "👍"}, func(m fakechat.Message) bool { return len(m.Reactions) == 1 }},
			{"message.react", map[string]any{"emoji": "👍", "remove": true}, func(m fakechat.Message) bool { return len(m.Reactions) == 0 }},
			{"message.pin", map[string]any{"op": "pin"}, func(m fakechat.Message) bool { return m.Pinned }},
			{"message.pin", map[string]any{"op": "unpin"}, func(m fakechat.Message) bool { return !m.Pinned }},
			{"message.delete", nil, func(m fakechat.Message) bool { return m.Deleted }},
		} {
			if !s.can(step.action) {
				continue
			}
			input := map[string]any{"messageRef": ref}
			for k, v := range step.input {
				input[k] = v
			}
			_, err := s.call(fmt.Sprint("step", i), step.action, input)
			if m := first(); err != nil || !step.ok(m) {
				t.Errorf("%s %v: got %+v, %v, want it carried out", step.action, step.input, m, err)
			}
		}
		out, err = s.call("2", "message.send", map[string]any{"to": to, "text": "with a file", "media": []string{"run_1/a.txt"}})
		must(t, "send a file", err)
		file := s.sent("the file", func(m fakechat.Message) bool { return m.File != "" })
		if file.File != "a.txt" || file.Data != "hi" || file.Conversation != to {
			t.Errorf("the file: got %+v, want a.txt with hi", file)
		}
		ref, _ = out["messageRef"].(string)
		c := send("3", "", "")
		c.Action, c.Input = "message.reply", json.RawMessage(`{"text":"an answer","toMessage":"`+ref+`"}`)
		c.Context = &capability.Context{Route: &capability.Route{Kind: s.ref.Kind, Account: s.ref.Account, Conversation: to}}
		_, err = s.provider().Invoke(t.Context(), c)
		must(t, "reply", err)
		answer := s.sent("the answer", func(m fakechat.Message) bool { return m.Text == "an answer" })
		if want := ref[strings.LastIndexByte(ref, '/')+1:]; !strings.HasPrefix(answer.Answers, want) {
			t.Errorf("the answer: got it to %q, want to %q", answer.Answers, want)
		}
	})
}

// TestServicesAndRevokedTokens requires that a refused token is reported without being shown.
func TestServicesAndRevokedTokens(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s *service) {
		s.Revoke()
		s.state(capability.StateUnauthorized)
		got, err := s.Get(t.Context(), s.ref)
		must(t, "get", err)
		for _, part := range strings.Fields(s.Secret()) {
			if strings.Contains(got.State.Reason, part) {
				t.Errorf("the reason: got %q, want it without the token", got.State.Reason)
			}
		}
		if _, err := s.call("1", "message.send", map[string]any{"to": s.Direct("71"), "text": "x"}); capability.CodeOf(err) != capability.CodeUnavailable {
			t.Errorf("a send: got %v, want unavailable", err)
		}
	})
}

// TestServicesAreRead reads messages and attachments. Another person's conversation with the account
// is not readable.
func TestServicesAreRead(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s *service) {
		s.pairs("71", capability.RoleAgent)
		to := s.Direct("71")
		out, err := s.call("1", "message.send", map[string]any{"to": to, "text": "of the account"})
		must(t, "send", err)
		sent, _ := out["messageRef"].(string)
		if s.can("message.pin") {
			_, err = s.call("2", "message.pin", map[string]any{"messageRef": sent, "op": "pin"})
			must(t, "pin", err)
		}
		s.Write(to, "71", "of <b> & the person")
		s.Attach(to, "71", "../a b.txt", "content of the file")
		s.eventually("the attachment arrives", func() bool {
			for _, list := range s.chat.all() {
				if len(list) == 2 && strings.Contains(list[1], "message.attachment.fetch") {
					return true
				}
			}
			return false
		})
		type row struct {
			MessageRef, User, Text string
			Attachments            []struct {
				Index, Size int
				Name        string
			}
		}
		read := func(action string, input map[string]any) (list []row) {
			t.Helper()
			input["conversation"] = s.ref.String() + ":" + to
			out, err := s.call("read", action, input)
			must(t, action, err)
			raw, err := json.Marshal(out["messages"])
			must(t, "encode", err)
			must(t, "decode", json.Unmarshal(raw, &list))
			return list
		}
		list := read("message.read", map[string]any{})
		own := s.Kind() != "email" // what the account sends is not in its inbox
		if len(list) < 2 || list[1].Text != "of <b> & the person" || list[1].User != s.User("71") || len(list[0].Attachments) != 1 ||
			own && (len(list) < 3 || list[2].Text != "of the account") {
			t.Fatalf("the conversation: got %+v, want a file, a message of the person and one of the account, the newest first", list)
		}
		older := read("message.read", map[string]any{"before": list[1].MessageRef, "limit": 1})
		if own && (len(older) == 0 || older[0].MessageRef != sent) || !own && len(older) != 0 {
			t.Errorf("before the person's message: got %+v, want %s", older, sent)
		}
		if s.can("message.pin") {
			if pins := read("message.pins.list", map[string]any{}); len(pins) != 1 || pins[0].MessageRef != sent {
				t.Errorf("the pinned messages: got %+v, want %s", pins, sent)
			}
		}
		got, err := s.call("4", "message.attachment.fetch", map[string]any{"messageRef": list[0].MessageRef, "index": 0})
		if err != nil || got["text"] != "content of the file" || got["artifactRef"] != "run_4/../a b.txt" {
			t.Errorf("the attachment: got %v, %v, want its content and its reference", got, err)
		}
		if _, err := s.call("5", "message.attachment.fetch", map[string]any{"messageRef": list[0].MessageRef, "index": 3}); capability.AsError(err) == nil ||
			capability.AsError(err).Reason != "no_attachment" {
			t.Errorf("another attachment: got %v, want no_attachment", err)
		}
		for form, want := range map[string]string{
			to: "not_yours", s.ref.String() + ":" + to: "not_yours", "@" + to: "invalid_conversation", to + " ": "invalid_conversation",
			to + "?": "invalid_conversation", to + "/../" + to: "invalid_conversation",
		} {
			c := send("6", "", "")
			c.Action, c.Principal = "message.read", capability.Principal{ID: "agent:x", Role: capability.RoleAgent}
			c.Input, err = json.Marshal(map[string]string{"conversation": form})
			must(t, "encode", err)
			if _, err := s.provider().Invoke(t.Context(), c); capability.AsError(err) == nil || capability.AsError(err).Reason != want {
				t.Errorf("another agent reads %q: got %v, want %s", form, err, want)
			}
		}
		must(t, "unpair", s.Unpair(t.Context(), admin, s.ref, s.User("71")))
		former := send("7", "", "")
		former.Action, former.Principal = "message.read", capability.Principal{ID: "agent:x", Role: capability.RoleAgent}
		former.Input, err = json.Marshal(map[string]string{"conversation": to})
		must(t, "encode", err)
		if _, err := s.provider().Invoke(t.Context(), former); capability.AsError(err) == nil || capability.AsError(err).Reason != "not_yours" {
			t.Errorf("another agent reads the conversation of a person who was unpaired: got %v, want not_yours", err)
		}
		c := send("7", "", "")
		c.Action, c.Principal.Role, c.Principal.Labels = "message.read", capability.RoleAgent, []string{channels.GuestLabel}
		c.Action = "directory.list"
		if _, err := s.provider().Invoke(t.Context(), c); reasonOf(err) != "not_yours" {
			t.Errorf("a guest lists who is there: got %q, want not_yours", reasonOf(err))
		}
		c.Action = "message.read"
		group := s.Group()
		for _, guest := range []struct{ from, reads, reason string }{
			{group, group, ""}, {group, to, "not_yours"}, {"another", group, "not_yours"}, {"", group, "not_yours"},
		} {
			if group == "" {
				continue // a service without groups has no guests
			}
			c.Input, err = json.Marshal(map[string]string{"conversation": guest.reads})
			must(t, "encode", err)
			c.Context.Route = &capability.Route{Kind: s.ref.Kind, Account: s.ref.Account, Conversation: guest.from}
			if _, err := s.provider().Invoke(t.Context(), c); reasonOf(err) != guest.reason {
				t.Errorf("a guest in the group %q reads %q: got %q, want %q", guest.from, guest.reads, reasonOf(err), guest.reason)
			}
		}
	})
}

// TestServicesListPlaces finds people and places by name, whose ids are targets of message.send.
func TestServicesListPlaces(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s *service) {
		s.pairs("71", capability.RoleAgent)
		find := func(action string, input map[string]any) (out []string) {
			t.Helper()
			got, err := s.call("find", action, input)
			must(t, action, err)
			for _, list := range []any{got["entries"], got["matches"]} {
				list, _ := list.([]any)
				for _, one := range list {
					one, _ := one.(map[string]any)
					out = append(out, fmt.Sprintf("%s %s", one["type"], one["id"]))
				}
			}
			return out
		}
		var groups []string
		if s.Group() != "" {
			groups = []string{"channel " + s.ref.String() + ":" + s.Group()}
		}
		person := "person " + s.ref.String() + ":" + s.Direct("71")
		if got := find("directory.lookup", map[string]any{"query": "#OPS"}); !slices.Equal(got, groups) {
			t.Errorf("look up #OPS: got %v, want %s", got, groups)
		}
		if got := find("directory.list", map[string]any{"type": "channel"}); !slices.Equal(got, groups) {
			t.Errorf("channels: got %v, want %s", got, groups)
		}
		if got := find("directory.list", map[string]any{"type": "person"}); !slices.Equal(got, []string{person}) {
			t.Errorf("people: got %v, want %s", got, person)
		}
		if got := find("directory.lookup", map[string]any{"query": "nowhere"}); got != nil {
			t.Errorf("look up nowhere: got %v, want none", got)
		}
		if !slices.Contains(s.kind.Actions, "message.search") {
			return
		}
		s.Write(s.Direct("71"), "71", "the needle")
		s.Write(s.Group(), "71", "a needle, too")
		search := func(who capability.Principal) (texts []string) {
			t.Helper()
			c := send("search", "", "")
			c.Action, c.Principal, c.Input = "message.search", who, []byte(`{"query":"needle"}`)
			got, err := s.provider().Invoke(t.Context(), c)
			must(t, "search", err)
			var out struct{ Messages []struct{ Text string } }
			must(t, "decode", json.Unmarshal(got.Value, &out))
			for _, m := range out.Messages {
				texts = append(texts, m.Text)
			}
			return texts
		}
		if got := search(admin); !slices.Equal(got, []string{"a needle, too", "the needle"}) {
			t.Errorf("search: got %q, want both messages, the newest first", got)
		}
		if got := search(capability.Principal{ID: "agent:x", Role: capability.RoleAgent}); !slices.Equal(got, []string{"a needle, too"}) {
			t.Errorf("search of another agent: got %q, want what was written in the group", got)
		}
	})
}

// TestServicesAndOversizedIDs requires that an update with an id that no service makes is left out,
// and stops none behind it.
func TestServicesAndOversizedIDs(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s *service) {
		if s.kind.NoButtons {
			return // its ids are bounded by the same code
		}
		s.pairs("71", capability.RoleAgent)
		s.Press(s.Direct("71"), "72", "1", strings.Repeat("x", 100_000))
		s.Write(s.Direct("71"), "71", "behind it")
		s.eventually("the message behind it is handled", func() bool { return len(s.chat.all()) == 1 })
		if got := s.refusals(); len(got) != 0 {
			t.Errorf("the press: got refusals %v, want it left out", got)
		}
		s.Press(s.Direct("71"), "72", "1", "once")
		s.eventually("a press of usual size is refused", func() bool { return slices.Equal(s.refusals(), []string{"unpaired"}) })
	})
}

// reasonOf returns the reason of an error, or "" for nil.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}
