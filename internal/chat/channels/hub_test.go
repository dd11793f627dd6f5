package channels_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/bus"
	"github.com/junctor-run/junctor/internal/chat/channels"
	"github.com/junctor-run/junctor/internal/chat/channels/channelsql"
	"github.com/junctor-run/junctor/internal/chat/channels/telegram"
	"github.com/junctor-run/junctor/internal/chat/channels/webhook"
	"github.com/junctor-run/junctor/internal/chat/engine"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/internal/testkit/faketelegram"
	"github.com/junctor-run/junctor/secret"
)

const token = "4200:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr"

// recorder is a chat that records each message, once for each key, and answers if reply is set.
type recorder struct {
	mu    sync.Mutex
	keys  map[string]bool
	texts map[string][]string // by session
	reply func(m engine.Message) string
}

func (h *recorder) Say(_ context.Context, m engine.Message, _ engine.Stream) (engine.Reply, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keys[m.Key] {
		if !m.Again {
			return engine.Reply{}, fmt.Errorf("the key %s was said before", m.Key)
		}
		return engine.Reply{Type: engine.TypeAccepted}, nil
	}
	h.keys[m.Key] = true
	h.texts[m.Session] = append(h.texts[m.Session], m.Text)
	out := engine.Reply{Type: engine.TypeAccepted}
	if h.reply != nil {
		out.Message = session.Message{Text: h.reply(m)}
	}
	return out, nil
}

func (h *recorder) all() map[string][]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[string][]string)
	for k, v := range h.texts {
		out[k] = slices.Clone(v)
	}
	return out
}

// codes are those that a person would read on a terminal.
type codes struct{ want atomic.Value }

func (c *codes) Ask(string, string) { c.want.Store("123456") }

func (c *codes) Check(_, _, code string) error {
	if code != c.want.Load() {
		return capability.Errorf(capability.CodeDenied, "verify", "the code is wrong")
	}
	return nil
}

type rig struct {
	*channels.Hub
	t      testing.TB
	db     *store.DB
	policy *policy.Policy
	log    *audit.Log
	chat   *recorder
	codes  *codes
	tg     *faketelegram.Server
	cfg    channels.Config
	now    atomic.Int64 // an offset
	secret string       // of all accounts
	stop   func()
}

var admin = capability.Principal{ID: "admin:root", Role: capability.RoleAdmin}

func must(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: got %v, want no error", what, err)
	}
}

func newRig(t testing.TB) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{
		t: t, chat: &recorder{keys: map[string]bool{}, texts: map[string][]string{}}, codes: &codes{},
		tg: faketelegram.New(t, token), secret: token,
	}
	var err error
	r.db, err = store.Open(t.Context(), filepath.Join(dir, "junctor.db"))
	must(t, "open the store", err)
	segments, err := segment.Open(filepath.Join(dir, "audit"), segment.Config{})
	must(t, "open the segments", err)
	r.log, err = audit.Open(t.Context(), audit.Config{Segments: segments, Key: make([]byte, 32)})
	must(t, "open the log", err)
	b := bus.New(bus.Config{})
	publish := func(event string, data any) {
		raw, err := json.Marshal(data)
		if err != nil {
			t.Errorf("publish %s: got %v, want no error", event, err)
		}
		b.Publish(event, raw)
	}
	now := func() time.Time { return time.Now().Add(time.Duration(r.now.Load())) }
	r.policy, err = policy.New(t.Context(), policy.Config{
		Documents: []policy.Document{{Name: "default.cedar", Text: []byte(policy.DefaultRules())}}, Store: r.db, Log: r.log, Publish: publish,
		Now: now,
	})
	must(t, "open the policy", err)
	kept, err := channelsql.Open(t.Context(), r.db)
	must(t, "open the channels", err)
	r.cfg = channels.Config{
		Kinds: []channels.Kind{telegram.Kind(), webhook.Kind()}, Store: kept, Chat: r.chat, Policy: r.policy, Verify: r.codes,
		Secrets: func(name string) (secret.Value, error) {
			if name == "none" {
				return secret.Value{}, fmt.Errorf("no secret %s", name)
			}
			return secret.New(r.secret), nil
		},
		Tasks: func(context.Context, tasks.Query) (tasks.Page, error) { return tasks.Page{}, nil },
		Artifact: func(_ context.Context, _ capability.Principal, ref string, _ int) (channels.File, error) {
			if ref == "run_1/big.iso" {
				return channels.File{}, capability.Errorf(capability.CodeTooLarge, "message", "the artifact is too large")
			}
			return channels.File{Name: "a.txt", Size: 2, Data: []byte("hi")}, nil
		},
		Keep: func(_ context.Context, _ capability.Principal, run string, f channels.File) (string, error) {
			return run + "/" + f.Name, nil
		},
		Destructive: func(id capability.ID) bool { return strings.Contains(string(id), "destroy") },
		Log:         r.log, Bus: b, Publish: publish, Gateway: "g", Logger: slog.New(slog.DiscardHandler), Now: now,
	}
	r.start()
	t.Cleanup(func() {
		r.stop()
		_ = r.log.Close()
		_ = r.db.Close()
	})
	return r
}

// start opens a hub on the store and runs it until stop.
func (r *rig) start() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	hub, err := channels.New(ctx, r.cfg)
	must(r.t, "open the hub", err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		hub.Run(ctx)
	}()
	r.Hub = hub
	r.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within a minute: %s", what)
		}
	}
}

var work = channels.Ref{Kind: "telegram", Account: "work"}

func (r *rig) add(more func(*channels.Account)) {
	r.t.Helper()
	a := channels.Account{Ref: work, Secret: "bot", URL: r.tg.URL}
	if more != nil {
		more(&a)
	}
	_, err := r.Add(r.t.Context(), admin, a)
	must(r.t, "add", err)
	r.ready()
}

func (r *rig) ready() {
	r.t.Helper()
	r.eventually("the account is connected", func() bool {
		got, err := r.Get(r.t.Context(), work)
		return err == nil && got.State.State == capability.StateReady
	})
}

func (r *rig) pair(user int64, role capability.Role) {
	r.t.Helper()
	_, err := r.Pair(r.t.Context(), admin, work, role, "", strconv.FormatInt(user, 10))
	must(r.t, "pair", err)
}

// provider returns the first of providers.
func (r *rig) provider() capability.Provider {
	r.t.Helper()
	return r.providers()[0]
}

// providers returns the providers of the accounts, from the batch that the source publishes.
func (r *rig) providers() (list []capability.Provider) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	_ = channels.Source{Hub: r.Hub}.Run(ctx, func(b capability.Batch) error {
		list = b.Providers
		cancel()
		return nil
	})
	return list
}

func send(key, to, text string) capability.Call {
	input, _ := json.Marshal(map[string]any{"to": to, "text": text})
	return capability.Call{
		Invocation: "run_" + key, Key: key, Action: "message.send", Input: input, Context: &capability.Context{}, Principal: admin,
		Progress: func(capability.Chunk) {},
	}
}

func (r *rig) refusals() (reasons []string) {
	r.t.Helper()
	lines, err := r.log.Query(r.t.Context(), audit.Query{Limit: 10_000})
	must(r.t, "read the log", err)
	for _, line := range lines {
		var rec struct {
			Event    string
			Metadata struct{ Reason string }
		}
		must(r.t, "read a record", json.Unmarshal(line, &rec))
		if rec.Event == string(audit.ChannelRefused) {
			reasons = append(reasons, rec.Metadata.Reason)
		}
	}
	slices.Sort(reasons)
	return reasons
}

// ask opens an approval.
func (r *rig) ask(name string, effect capability.Effect, input string, edits ...func(*policy.Approval)) policy.Approval {
	r.t.Helper()
	now := r.cfg.Now().UTC()
	a := policy.Approval{
		ID: policy.NewApprovalID(now), Kind: policy.KindCall, Module: "m", Effect: effect, Summary: name, Channel: policy.ChannelOperator,
		State: policy.ApprovalPending, Asked: now, Expires: now.Add(time.Hour), Input: []byte(input),
		Binding: policy.Binding{Principal: "agent:x", Capability: capability.ID("m/" + name + "#x@y"), ContentHash: "c", InputDigest: name},
	}
	for _, edit := range edits {
		edit(&a)
	}
	_, _, err := r.db.AskApproval(r.t.Context(), a, 100)
	must(r.t, "ask", err)
	r.cfg.Publish(policy.EventApprovalAsked, map[string]string{"approval": a.ID})
	return a
}

// TestEachMessageIsHandledOnceAndInOrder sends messages of many chats through lost connections, rate
// limits, shuffled and repeated batches, and restarts.
func TestEachMessageIsHandledOnceAndInOrder(t *testing.T) {
	t.Parallel()
	deliverThroughFaults(t, 40)
}

// deliverThroughFaults writes each messages in each of 50 chats.
func deliverThroughFaults(t *testing.T, each int) {
	t.Helper()
	const chats = 50
	r := newRig(t)
	r.add(nil)
	for user := range chats {
		r.pair(int64(user+1), capability.RoleAgent)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	r.tg.Fail(func(method string, n int) faketelegram.Fault {
		switch {
		case method != "getUpdates":
			return faketelegram.Fault{}
		case n%13 == 5:
			return faketelegram.Fault{Drop: true}
		case n%17 == 7:
			return faketelegram.Fault{Status: 502}
		}
		return faketelegram.Fault{}
	})
	var old []json.RawMessage
	r.tg.Shuffle(func(list []json.RawMessage) []json.RawMessage {
		if len(list) == 0 {
			return list
		}
		out := slices.Concat(list, old, list[:1]) // some twice, and some again
		old = list
		rnd.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		return out
	})
	edits := 0
	for i := range each {
		for user := range int64(chats) {
			id := r.tg.Write(user+1, user+1, strconv.Itoa(i))
			if i%10 == 3 { // an edit of it, which is not a new message
				edits++
				r.tg.Deliver(map[string]any{"edited_message": map[string]any{
					"message_id": id, "date": 1, "edit_date": 2, "chat": map[string]any{"id": user + 1, "type": "private"},
					"from": faketelegram.User(user + 1), "text": "edited",
				}})
			}
		}
		if i == each/3 || i == each/2 {
			r.stop()
			r.start()
			r.ready()
		}
	}
	r.eventually("all messages are handled", func() bool {
		n := 0
		for _, list := range r.chat.all() {
			n += len(list)
		}
		return n >= chats*each
	})
	for id, list := range r.chat.all() {
		for i, text := range list {
			if text != strconv.Itoa(i) || len(list) != each {
				t.Fatalf("the conversation %s: got %v, want 0 to %d in order", id, list, each-1)
			}
		}
	}
}

// TestALostAnswerIsReportedAndNeverRepeated sends messages through faults: each is delivered once, or
// reported, and a second call with its key changes nothing.
func TestALostAnswerIsReportedAndNeverRepeated(t *testing.T) {
	t.Parallel()
	const calls = 60
	r := newRig(t)
	r.add(nil)
	r.tg.Fail(func(method string, n int) faketelegram.Fault {
		switch {
		case method != "sendMessage":
			return faketelegram.Fault{}
		case n%10 == 3:
			return faketelegram.Fault{Cut: true}
		case n%20 == 7:
			return faketelegram.Fault{Drop: true}
		case n == 15 || n == 16:
			return faketelegram.Fault{Status: 429, RetryAfter: 1}
		case n%30 == 11:
			return faketelegram.Fault{Status: 403}
		}
		return faketelegram.Fault{}
	})
	p := r.provider()
	outcomes := make([]error, calls)
	var work sync.WaitGroup
	for i := range calls {
		work.Go(func() {
			_, outcomes[i] = p.Invoke(t.Context(), send(fmt.Sprintf("k%d", i), strconv.Itoa(100+i), fmt.Sprintf("text %d", i)))
		})
	}
	work.Wait()
	count := func() map[string]int {
		seen := make(map[string]int)
		for _, m := range r.tg.Sent() {
			seen[m.Text]++
		}
		return seen
	}
	before, unknown := count(), 0
	for i, err := range outcomes {
		n, e := before[fmt.Sprintf("text %d", i)], capability.AsError(err)
		switch {
		case err == nil && n != 1, n > 1:
			t.Errorf("call %d: got %v and %d messages, want one message", i, err, n)
		case err != nil && e.Reason == channels.ReasonDeliveryUnknown:
			unknown++
		case err != nil && (e.Code != capability.CodeFailed || e.Reason != "refused_by_service" || n != 0):
			t.Errorf("call %d: got %v (%s) and %d messages, want delivery_unknown or a refusal", i, err, e.Code, n)
		}
	}
	if unknown == 0 || unknown > 15 {
		t.Errorf("unknown deliveries: got %d, want those that the faults cut", unknown)
	}
	r.tg.Fail(nil)
	for i := range calls {
		_, err := p.Invoke(t.Context(), send(fmt.Sprintf("k%d", i), strconv.Itoa(100+i), fmt.Sprintf("text %d", i)))
		if (err == nil) != (outcomes[i] == nil) || err != nil && capability.AsError(err).Reason != capability.AsError(outcomes[i]).Reason {
			t.Errorf("call %d again: got %v, want %v", i, err, outcomes[i])
		}
	}
	if after := count(); !maps.Equal(after, before) {
		t.Errorf("messages after the repeated calls: got %d, want %d", len(after), len(before))
	}
}

func TestPairingCodesAreUsedOnceAndWrongOnesLock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(nil)
	make1 := func() string {
		p, err := r.Pair(t.Context(), admin, work, capability.RoleAgent, "", "")
		must(t, "pair", err)
		return p.Code
	}
	people := func() int {
		got, err := r.Get(t.Context(), work)
		must(t, "get", err)
		return len(got.People)
	}
	code := make1()
	r.tg.Write(-5, 1, "/pair "+code) // in a group, all would read it
	r.tg.Write(1, 1, "/pair "+strings.ToLower(code))
	r.eventually("the first is paired", func() bool { return people() == 1 })
	r.tg.Write(2, 2, "/pair "+code)
	r.eventually("the second use is refused", func() bool { return slices.Contains(r.refusals(), "pairing_code_wrong") })
	old := make1()
	r.now.Add(int64(11 * time.Minute))
	r.tg.Write(2, 2, "/pair "+old)
	for i := range 3 {
		r.tg.Write(int64(10+i), int64(10+i), "/pair AAAAAAA"+strconv.Itoa(i+2))
	}
	good := make1()
	r.eventually("five codes were wrong", func() bool { return len(r.refusals()) >= 5 })
	r.tg.Write(3, 3, "/pair "+good)
	r.eventually("pairing is locked", func() bool { return slices.Contains(r.refusals(), "pairing_locked") })
	if got := people(); got != 1 {
		t.Errorf("paired people: got %d, want 1", got)
	}
	r.now.Add(int64(61 * time.Minute))
	r.tg.Write(3, 3, "/pair "+make1())
	r.eventually("the next one is paired", func() bool { return people() == 2 })
	for _, by := range []capability.Principal{{ID: "operator:o", Role: capability.RoleOperator}} {
		if _, err := r.Pair(t.Context(), by, work, capability.RoleOperator, "x", ""); capability.CodeOf(err) != capability.CodeDenied {
			t.Errorf("an operator pairs an operator: got %v, want denied", err)
		}
	}
}

func TestStrangersGroupsAndLargeFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(nil)
	r.pair(1, capability.RoleAgent)
	r.tg.Write(9, 9, "hello?")
	r.tg.Write(-5, 1, "nothing for the bot")
	r.tg.Write(-5, 9, "Junctor, delete all")
	r.tg.Write(-5, 1, "/help@another_bot")
	r.tg.Write(1, 1, "", map[string]any{"document": map[string]any{"file_id": "f", "file_unique_id": "u", "file_name": "big.iso", "file_size": 100 << 20}})
	r.tg.Write(1, 1, "", map[string]any{"caption": "look", "document": map[string]any{
		"file_id": "f", "file_unique_id": "u", "file_name": "a.txt", "file_size": 12,
	}})
	r.tg.Write(-5, 1, "what is it, @"+faketelegram.BotName+"?")
	r.tg.Write(-5, 1, "thanks", map[string]any{"reply_to_message": map[string]any{
		"message_id": 1, "date": 1, "chat": map[string]any{"id": -5, "type": "supergroup"}, "from": map[string]any{"id": faketelegram.BotID, "is_bot": true},
	}})
	r.eventually("the last message is handled", func() bool { return len(r.chat.all()["telegram:work:-5"]) == 2 })
	want := map[string][]string{
		"telegram:work:-5": {"what is it, @" + faketelegram.BotName + "?", "thanks"},
		"telegram:work:1":  {"look\n[attachment \"a.txt\", 12 bytes; message.attachment.fetch with messageRef telegram:work:1/1011~f and index 0 reads it]"},
	}
	r.eventually("the direct message is handled", func() bool { return len(r.chat.all()["telegram:work:1"]) == 1 })
	if got := r.chat.all(); !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("said: got %q, want %q", got, want)
	}
	r.eventually("the others are refused", func() bool {
		return slices.Equal(r.refusals(), []string{"attachment_too_large", "unpaired", "unpaired"})
	})
	r.eventually("the sender learns of the limit", func() bool { return len(r.tg.Sent()) == 1 })
	if m := r.tg.Sent()[0]; m.Chat != 1 || !strings.Contains(m.Text, "20 MiB") {
		t.Errorf("sent: got %+v, want only the limit of attachments, to 1", m)
	}
}

// TestTheEndOfAccess requires that a revoked token and the end of a pairing end the access at once.
func TestTheEndOfAccess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(nil)
	r.pair(1, capability.RoleAgent)
	r.pair(2, capability.RoleAgent)
	_, err := r.policy.RevokeToken(t.Context(), admin, "telegram.work.1")
	must(t, "revoke", err)
	must(t, "unpair", r.Unpair(t.Context(), admin, work, "2"))
	r.tg.Write(1, 1, "hello")
	r.tg.Write(2, 2, "hello")
	r.eventually("both are refused", func() bool { return slices.Equal(r.refusals(), []string{"access_ended", "unpaired"}) })
	if _, ok := r.policy.Find("agent:telegram.work.2"); ok {
		t.Errorf("the token of the second person: got it live, want it revoked")
	}
	must(t, "remove", r.Remove(t.Context(), admin, work))
	if _, err := r.Get(t.Context(), work); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("the removed account: got %v, want not_found", err)
	}
}

func TestDecisionsDoNotWaitForCommandsOfOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(nil)
	released, begun := make(chan struct{}), make(chan struct{}, 1)
	defer close(released)
	r.chat.mu.Lock()
	r.chat.reply = func(engine.Message) string {
		select {
		case begun <- struct{}{}:
		default:
		}
		<-released
		return ""
	}
	r.chat.mu.Unlock()
	const people = 20 // more than are handled at the same time
	for i := range int64(people) {
		r.pair(i+1, capability.RoleAgent)
	}
	for i := range int64(people) {
		r.tg.Write(i+1, i+1, "/slow")
	}
	<-begun
	r.tg.Write(1, 1, "/tasks")
	r.eventually("the control word is answered", func() bool {
		return slices.ContainsFunc(r.tg.Sent(), func(m faketelegram.Message) bool { return m.Text == "You have no tasks." })
	})
}

// TestAPressProvesThatItsMessageArrived cuts the answer to the message of an approval: the service shows
// it, and the hub has no id of the message. Only its own button counts.
func TestAPressProvesThatItsMessageArrived(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(nil)
	r.pair(1, capability.RoleOperator)
	r.pair(2, capability.RoleOperator)
	r.tg.Fail(func(method string, _ int) faketelegram.Fault {
		return faketelegram.Fault{Cut: method == "sendMessage"}
	})
	a := r.ask("write", capability.EffectWrite, `{"text":"x"}`)
	prompt := func(chat int64) (m faketelegram.Message) {
		t.Helper()
		r.eventually("the approval is shown", func() bool {
			i := slices.IndexFunc(r.tg.Sent(), func(m faketelegram.Message) bool { return m.Chat == chat && len(m.Buttons) > 0 })
			if i >= 0 {
				m = r.tg.Sent()[i]
			}
			return i >= 0
		})
		return m
	}
	m, others := prompt(1), prompt(2)
	r.eventually("both outcomes are unknown", func() bool {
		list, err := r.cfg.Store.Shown(t.Context(), a.ID)
		return err == nil && len(list) == 2 && list[0].State == channels.SendUnknown && list[1].State == channels.SendUnknown
	})
	r.tg.Fail(nil)
	for i, press := range []struct {
		user int64
		data string
	}{{1, "once"}, {1, "once apr_0123456789abcdef01234567"}, {2, "once " + a.ID}} {
		chat, message := int64(1), m.ID
		r.tg.Press(chat, press.user, message, press.data)
		r.eventually(fmt.Sprintf("press %d is refused", i), func() bool { return len(r.refusals()) == i+1 })
	}
	r.tg.Press(1, 1, m.ID, m.Buttons[0])
	r.eventually("the approval is given", func() bool {
		got, err := r.policy.Approval(t.Context(), a.ID)
		return err == nil && got.State == policy.ApprovalApproved && got.DecidedBy == "operator:telegram.work.1"
	})
	r.tg.Press(2, 2, others.ID, others.Buttons[0])
	r.eventually("a later press is answered", func() bool {
		return slices.ContainsFunc(r.tg.Acks(), func(s string) bool { return strings.Contains(s, "Approved") })
	})
}

// TestDecisionsByMessage covers long inputs, codes, choices of programs, and expired approvals.
func TestDecisionsByMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(nil)
	r.pair(1, capability.RoleOperator)
	r.pair(2, capability.RoleAgent)
	ask := r.ask
	shown := func(id string) (m faketelegram.Message) {
		t.Helper()
		r.eventually("the approval is shown", func() bool {
			i := slices.IndexFunc(r.tg.Sent(), func(m faketelegram.Message) bool { return strings.Contains(m.Text, id) && len(m.Buttons) > 0 })
			if i >= 0 {
				m = r.tg.Sent()[i]
			}
			return i >= 0
		})
		return m
	}
	state := func(id string) policy.ApprovalState {
		a, err := r.policy.Approval(t.Context(), id)
		must(t, "approval", err)
		return a.State
	}
	said := func(text string) {
		t.Helper()
		r.eventually("it is answered: "+text, func() bool {
			return slices.ContainsFunc(r.tg.Sent(), func(m faketelegram.Message) bool { return strings.Contains(m.Text, text) })
		})
	}

	long := ask("write", capability.EffectWrite, `{"text":"`+strings.Repeat("x", 5000)+`"}`)
	m := shown(long.ID)
	if file := r.tg.Sent()[0]; !strings.Contains(m.Text, "SHA-256") || file.File != long.ID+".json" || file.Data != string(long.Input) {
		t.Errorf("a long input: got %q and %q, want its digest and the input as a file", m.Text, file.File)
	}
	unseen := ask("unseen", capability.EffectWrite, `{"text":"`+strings.Repeat("\u200b", 800)+`"}`) // a letter is shown as six
	if text := shown(unseen.ID).Text; !strings.Contains(text, "SHA-256") {
		t.Errorf("an input that is long when it is shown: got %q, want its digest", text)
	}
	r.tg.Press(1, 1, m.ID, "timed")
	said("Approved (timed) by operator:telegram.work.1.")

	danger := ask("destroy", capability.EffectExternal, `{}`)
	m = shown(danger.ID)
	r.tg.Press(1, 1, m.ID, "once")
	said("needs the code")
	r.tg.Write(2, 2, "/approve "+danger.ID+" once 123456")
	said("Only operators decide")
	if got := state(danger.ID); got != policy.ApprovalPending {
		t.Errorf("without a code: got %s, want pending", got)
	}
	for i := range 5 {
		r.tg.Write(1, 1, fmt.Sprintf("/approve %s once 00000%d", danger.ID, i))
	}
	r.eventually("five codes were wrong", func() bool { return len(r.refusals()) >= 6 })
	r.tg.Write(1, 1, "/approve "+danger.ID+" once 123456")
	said("after 5 wrong codes")
	r.now.Add(int64(61 * time.Minute))
	if got := state(danger.ID); got != policy.ApprovalExpired {
		t.Errorf("after an hour: got %s, want expired", got)
	}
	said("Expired before it was decided.")
	r.tg.Press(1, 1, m.ID, "once")
	said("This is over: Expired")

	// What was not shown whole cannot be approved here.
	huge := ask("huge", capability.EffectWrite, `{"text":"`+strings.Repeat("x", 2<<20)+`"}`)
	if m = shown(huge.ID); strings.Join(m.Buttons, ",") != "deny "+huge.ID {
		t.Errorf("buttons of an input that is too long: got %q, want deny with the approval", m.Buttons)
	}
	r.tg.Write(1, 1, "/approve "+huge.ID+" once")
	said("is not shown here whole")
	if got := state(huge.ID); got != policy.ApprovalPending {
		t.Errorf("an input that is too long: got %s, want pending", got)
	}

	// A code would be taken as the answer to a program, so such an answer is not given here.
	program := ask("trust", capability.EffectAdmin, ``, func(a *policy.Approval) { a.Kind = policy.KindQuestion })
	r.eventually("the question is shown", func() bool {
		return slices.ContainsFunc(r.tg.Sent(), func(m faketelegram.Message) bool { return strings.Contains(m.Text, program.ID) })
	})
	r.tg.Write(1, 1, "/approve "+program.ID+" yes")
	said("This answer needs a code, so give it in the console")
	r.tg.Write(1, 1, "/approve "+program.ID+" 123456")
	r.eventually("the second answer is refused", func() bool {
		refused := 0
		for _, m := range r.tg.Sent() {
			if strings.Contains(m.Text, "This answer needs a code") {
				refused++
			}
		}
		return refused == 2
	})
	if got := state(program.ID); got != policy.ApprovalPending {
		t.Errorf("a question that needs a code: got %s, want pending", got)
	}

	// However a choice that lasts is spelled, as a program understands it.
	lasting := ask("lasting", capability.EffectWrite, ``, func(a *policy.Approval) {
		a.Kind = policy.KindQuestion
		a.Shown.Choices = []policy.ShownChoice{
			{N: 1, Label: "Yes", Effect: "once"}, {N: 2, Label: "Yes, and don't ask again", Effect: "always"}, {N: 3, Label: "No", Effect: "deny"},
		}
	})
	shown(lasting.ID)
	for i, spelled := range []string{"2", "2.", "02", "+2", "always", "Yes, and don't", "yes, and don't ask again"} {
		r.tg.Write(1, 1, "/approve "+lasting.ID+" "+spelled)
		r.eventually("the answer "+spelled+" is refused", func() bool {
			refused := 0
			for _, m := range r.tg.Sent() {
				if strings.Contains(m.Text, "This answer needs a code") {
					refused++
				}
			}
			return refused == 3+i
		})
	}

	harmless := ask("deny", capability.EffectAdmin, `{}`)
	r.tg.Press(1, 1, shown(harmless.ID).ID, "deny") // needs no code
	said("Denied by operator:telegram.work.1.")
	if got := state(long.ID); got != policy.ApprovalApproved {
		t.Errorf("the first approval: got %s, want approved", got)
	}
}

// The text about an approval may need several messages, of which the last one has the buttons.
func TestAnApprovalIsGivenOnlyIfEachOfItsMessagesArrived(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"all arrived": false, "the first was refused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.add(nil)
			r.pair(1, capability.RoleOperator)
			var sends atomic.Int64
			r.tg.Fail(func(method string, _ int) faketelegram.Fault {
				if lost && method == "sendMessage" && sends.Add(1) == 1 {
					return faketelegram.Fault{Status: 400}
				}
				return faketelegram.Fault{}
			})
			now := r.cfg.Now().UTC()
			a := policy.Approval{
				ID: policy.NewApprovalID(now), Kind: policy.KindCall, Module: "m", Effect: capability.EffectWrite, Summary: "write",
				Channel: policy.ChannelOperator, State: policy.ApprovalPending, Asked: now, Expires: now.Add(time.Hour), Input: []byte(`{}`),
				Binding: policy.Binding{Principal: "agent:x", Capability: "m/write#x@y", ContentHash: "c", InputDigest: "w"},
			}
			for range 50 {
				a.Shown.Argv = append(a.Shown.Argv, policy.ShownValue{Value: strings.Repeat("x", 150)})
			}
			_, _, err := r.db.AskApproval(t.Context(), a, 100)
			must(t, "ask", err)
			r.cfg.Publish(policy.EventApprovalAsked, map[string]string{"approval": a.ID})
			var m faketelegram.Message
			r.eventually("the last message arrives", func() bool {
				i := slices.IndexFunc(r.tg.Sent(), func(m faketelegram.Message) bool { return len(m.Buttons) > 0 })
				if i >= 0 {
					m = r.tg.Sent()[i]
				}
				return i >= 0
			})
			if strings.Contains(m.Text, a.ID) {
				t.Fatalf("the last message: got the beginning too, want only the end: %q", m.Text)
			}
			r.tg.Press(1, 1, m.ID, "once")
			text, want := "Approved (once)", policy.ApprovalApproved
			if lost {
				text, want = "is not shown here whole", policy.ApprovalPending
			}
			r.eventually("it is answered", func() bool {
				return slices.ContainsFunc(r.tg.Sent(), func(m faketelegram.Message) bool { return strings.Contains(m.Text, text) })
			})
			if got, err := r.policy.Approval(t.Context(), a.ID); err != nil || got.State != want {
				t.Errorf("the approval: got %s, %v; want %s", got.State, err, want)
			}
		})
	}
}

func TestSplitKeepsEveryCharacter(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "short", strings.Repeat("line of text\n", 40), strings.Repeat("😀", 30), "bad \xff bytes " + strings.Repeat("y", 50)} {
		pieces := channels.Split(text, 20)
		if got := strings.Join(pieces, ""); got != text {
			t.Errorf("split %q: got %q, want the same text", text, got)
		}
		for _, p := range pieces {
			if n := len([]rune(p)) + strings.Count(p, "😀"); n > 20 {
				t.Errorf("a piece has %d units, want at most 20", n)
			}
		}
	}
}
