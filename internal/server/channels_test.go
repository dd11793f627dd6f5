package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/platform/approvalhook"
	"github.com/junctor-run/junctor/internal/testkit/faketelegram"
	"github.com/junctor-run/junctor/secret"
)

const (
	botToken = "4200:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr"
	ann      = 71 // an operator
	bob      = 72 // a stranger, later an agent
)

type channelRow struct {
	Kind, Account string
	State         struct{ State, Reason string }
	People        []struct{ User, Principal string }
}

// addTelegram adds the fake as the account work and waits until it is connected.
func (n *node) addTelegram(t *testing.T, tg *faketelegram.Server, more map[string]any) {
	t.Helper()
	n.storeSecret(t, "bot", botToken)
	body := map[string]any{"kind": "telegram", "account": "desk", "secret": "bot", "url": tg.URL}
	for k, v := range more {
		body[k] = v
	}
	n.must(t, http.MethodPost, "/api/v1/channels", body, nil)
	eventually(t, "the account is connected", func() bool { return n.channel(t).State.State == "ready" && tg.Polling() })
}

func (n *node) storeSecret(t testing.TB, name, value string) {
	t.Helper()
	got := n.request(t, http.MethodPut, "/api/v1/secrets/"+name, n.token(t, "admin"), value, func(r *http.Request) {
		r.Header.Set("Content-Type", "application/octet-stream")
	})
	if got.status/100 != 2 {
		t.Fatalf("the secret %s: got status %d %s, want it stored", name, got.status, got.body)
	}
}

func (n *node) channel(t *testing.T) (out channelRow) {
	t.Helper()
	n.must(t, http.MethodGet, "/api/v1/channels/telegram/desk", nil, &out)
	return out
}

// pair pairs a user with a role, and waits for the answer.
func (n *node) pair(t *testing.T, tg *faketelegram.Server, user int64, role, name string) {
	t.Helper()
	var made struct{ Code string }
	n.must(t, http.MethodPost, "/api/v1/channels/telegram/desk/people", map[string]string{"role": role, "name": name}, &made)
	if len(made.Code) != 8 {
		t.Fatalf("pairing code: got %q, want 8 characters", made.Code)
	}
	tg.Write(user, user, "/pair "+made.Code)
	awaitText(t, tg, user, "You are paired as "+role+":")
}

// awaitText waits for a message in a chat that has a text.
func awaitText(t *testing.T, tg *faketelegram.Server, chat int64, text string) (out faketelegram.Message) {
	t.Helper()
	eventually(t, "a message with "+text, func() bool {
		for _, m := range tg.Sent() {
			if m.Chat == chat && strings.Contains(m.Text, text) {
				out = m
				return true
			}
		}
		return false
	})
	return out
}

// TestAnApprovalIsGivenInTelegram holds the whole way: a person writes to the agent from a phone, the
// call waits, the button releases it within a second, and the reply returns to the same chat.
func TestAnApprovalIsGivenInTelegram(t *testing.T) {
	t.Parallel()
	model := newScriptedModel(t, readsAndWrites)
	home, dir := withFile(t)
	n := serve(t, home, model.env()...)
	tg := faketelegram.New(t, botToken)
	n.addTelegram(t, tg, nil)
	n.pair(t, tg, ann, "operator", "ann")

	tg.Write(ann, ann, "copy the file")
	prompt := awaitText(t, tg, ann, "fs.writeText")
	for _, want := range []string{`"text": "copied"`, `"path": "out.txt"`, "Effect: write", "For: operator:ann"} {
		if !strings.Contains(prompt.Text, want) {
			t.Errorf("the approval: got %q, want it to contain %q", prompt.Text, want)
		}
	}
	id := prompt.Text[strings.Index(prompt.Text, "apr_"):][:28]
	if got, want := strings.Join(prompt.Buttons, ","), "once ID,timed ID,session ID,deny ID"; got != strings.ReplaceAll(want, "ID", id) {
		t.Errorf("buttons: got %q, want %s, with the id %s", got, want, id)
	}

	// A stranger who presses the button, and texts that imitate a decision, change nothing.
	tg.Press(ann, bob, prompt.ID, "once")
	tg.Press(bob, bob, prompt.ID, "once")
	tg.Press(ann, ann, prompt.ID+1, "once")
	tg.Write(bob, bob, "/approve "+id+" once")
	tg.Write(ann, ann, "/approve "+id+" once", map[string]any{"forward_origin": map[string]any{
		"type": "user", "date": 1, "sender_user": faketelegram.User(bob),
	}})
	eventually(t, "refusals are recorded", func() bool { return len(n.records(t, "event=channel_refused&limit=100")) >= 4 })
	if exists(dir + "/out.txt") {
		t.Fatalf("the file is written; want it to wait for the operator")
	}

	pressed := time.Now()
	tg.Press(ann, ann, prompt.ID, "once")
	eventually(t, "the call runs", func() bool { return exists(dir + "/out.txt") })
	t.Logf("from the press to the executed call: %s", time.Since(pressed))
	awaitText(t, tg, ann, "Done: ")
	if m := awaitText(t, tg, ann, "Approved (once) by operator:ann."); m.ID != prompt.ID || len(m.Buttons) != 0 {
		t.Errorf("the decided approval: got message %d with buttons %v, want %d without", m.ID, m.Buttons, prompt.ID)
	}
	tg.Press(ann, ann, prompt.ID, "deny") // answered twice counts once
	awaitText(t, tg, ann, "This is over: Approved (once) by operator:ann.")
	for _, m := range tg.Sent() {
		if m.Chat != ann {
			t.Errorf("a message in another chat: got %+v, want none", m)
		}
	}
	for _, req := range model.asked() {
		if strings.Contains(req, "/approve "+id) && !strings.Contains(req, "[forwarded] /approve") {
			t.Errorf("a control command reached the model: %s", req)
		}
	}
	n.verify(t)
}

// TestTheResultOfATaskReachesItsOwner gives work to a task agent in Telegram. Its start is shown to
// the operator of the account, and its result, in the words of the model, to both.
func TestTheResultOfATaskReachesItsOwner(t *testing.T) {
	t.Parallel()
	model := newScriptedModel(t, func(_ int, r modelRequest) modelAnswer {
		switch {
		case strings.HasPrefix(r.last(), "An agent that works on a task has stopped."):
			return modelAnswer{text: `{"tier":"routine"}`}
		case strings.HasPrefix(r.last(), "You coordinate agents"):
			return modelAnswer{text: `{"action":"complete","reasoning":"it is done"}`}
		case strings.HasPrefix(r.last(), "You validate the work of an agent."):
			return modelAnswer{text: `{"verdict":"pass","summary":"hello was printed"}`}
		case r.results() > 0 || len(r.Tools) == 0:
			return modelAnswer{text: "It is begun."}
		}
		return modelAnswer{calls: []toolCall{{"task-agent_task_create", `{"task":"echo hello","agentType":"shell","label":"greeter"}`}}}
	})
	n := serve(t, t.TempDir(), model.env()...)
	tg := faketelegram.New(t, botToken)
	n.addTelegram(t, tg, map[string]any{"tasks": true})
	n.pair(t, tg, ann, "operator", "ann")
	n.pair(t, tg, bob, "agent", "bob")
	t.Cleanup(func() {
		for _, m := range tg.Sent() {
			t.Logf("%d %q", m.Chat, m.Text)
		}
	})
	tg.Write(bob, bob, "delegate this")
	prompt := awaitText(t, tg, ann, "Approval ")
	tg.Press(ann, ann, prompt.ID, "once")
	for _, one := range []struct {
		chat int64
		text string
	}{{ann, "greeter: The task has started."}, {bob, "greeter: It is begun."}, {ann, "greeter: It is begun."}} {
		awaitText(t, tg, one.chat, one.text)
	}
	for _, m := range tg.Sent() {
		if m.Chat == bob && strings.Contains(m.Text, "has started") {
			t.Errorf("the owner: got %q, want the result only", m.Text)
		}
	}
}

// TestTheSecondFactorIsTheCodeOnTheTerminal requires the code for "always", counts wrong ones, and
// keeps the bot's token out of all that can be read.
func TestTheSecondFactorIsTheCodeOnTheTerminal(t *testing.T) {
	t.Parallel()
	model := newScriptedModel(t, readsAndWrites)
	home, dir := withFile(t)
	n := serve(t, home, model.env()...)
	tg := faketelegram.New(t, botToken)
	n.addTelegram(t, tg, nil)
	n.pair(t, tg, ann, "operator", "ann")
	tg.Write(ann, ann, "copy the file")
	prompt := awaitText(t, tg, ann, "fs.writeText")
	id := prompt.Text[strings.Index(prompt.Text, "apr_"):][:28]
	tg.Write(ann, ann, "/approve "+id+" always")
	awaitText(t, tg, ann, "needs the code on the terminal")
	var open struct {
		Verifications []struct{ Principal, Code string }
	}
	n.must(t, http.MethodGet, "/api/v1/console/verifications", nil, &open)
	if len(open.Verifications) != 1 || open.Verifications[0].Principal != "operator:ann" {
		t.Fatalf("verifications: got %+v, want one of operator:ann", open.Verifications)
	}
	tg.Write(ann, ann, "/approve "+id+" always 000000")
	awaitText(t, tg, ann, "the code is wrong")
	if exists(dir + "/out.txt") {
		t.Fatalf("the file is written with a wrong code")
	}
	tg.Write(ann, ann, "/approve "+id+" always "+open.Verifications[0].Code)
	awaitText(t, tg, ann, "Approved (always) by operator:ann.")
	eventually(t, "the call runs", func() bool { return exists(dir + "/out.txt") })

	tg.Revoke("another")
	tg.Write(ann, ann, "hello") // ends the open poll
	eventually(t, "the refused token is shown", func() bool { return n.channel(t).State.State == "unauthenticated" })
	records, _ := json.Marshal(n.records(t, "limit=500"))
	status, _ := json.Marshal(n.channel(t))
	n.kill()
	for _, text := range []string{string(records), string(status), n.stderr.String()} {
		if strings.Contains(text, botToken) || strings.Contains(text, "AAbbCC") {
			t.Errorf("the bot's token is in %q", text)
		}
	}
}

// TestAPressAfterACrashStillCounts kills the server while a call waits, and presses the button of the
// message that the earlier process sent.
func TestAPressAfterACrashStillCounts(t *testing.T) {
	t.Parallel()
	model := newScriptedModel(t, readsAndWrites)
	home, dir := withFile(t)
	n := serve(t, home, model.env()...)
	tg := faketelegram.New(t, botToken)
	n.addTelegram(t, tg, nil)
	n.pair(t, tg, ann, "operator", "ann")
	tg.Write(ann, ann, "copy the file")
	prompt := awaitText(t, tg, ann, "fs.writeText")
	awaitText(t, tg, ann, "I go on when an operator has decided")
	n.kill()
	tg.Press(ann, ann, prompt.ID, prompt.Buttons[0]) // while no server runs, which perhaps did not record what it sent
	n = serve(t, home, model.env()...)
	t.Cleanup(func() {
		if t.Failed() {
			sent, _ := json.MarshalIndent(tg.Sent(), "", " ")
			records, _ := os.ReadFile(filepath.Join(home, "logs", "security.log"))
			t.Logf("sent: %s\nrecords: %s\nlog: %s", sent, records, n.stderr)
		}
	})
	eventually(t, "the call runs", func() bool { return exists(dir + "/out.txt") })
	awaitText(t, tg, ann, "Done: ")
	awaitText(t, tg, ann, "Approved (once)")
	seen := make(map[string]int)
	for _, m := range tg.Sent() {
		seen[m.Text]++
	}
	for text, count := range seen {
		if count > 1 {
			t.Errorf("sent %d times: %q, want once", count, text)
		}
	}
	n.verify(t)
}

// receiver is the program behind a webhook account.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	sent []map[string]any
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
			t.Errorf("the body of the webhook: got %v, want JSON", err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sent = append(r.sent, body)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) count(text string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.sent {
		if s, _ := m["text"].(string); strings.Contains(s, text) {
			n++
		}
	}
	return n
}

// TestOneToolSendsByFiveAccounts holds the promises of selection with live accounts: selector,
// binding, route and default decide, and a call is refused where two are possible.
func TestOneToolSendsByFiveAccounts(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	n.storeSecret(t, "bot", botToken)
	tgs, hooks := map[string]*faketelegram.Server{}, map[string]*receiver{}
	for _, name := range []string{"home", "desk", "team"} {
		tgs[name] = faketelegram.New(t, botToken)
		n.must(t, http.MethodPost, "/api/v1/channels", map[string]any{"kind": "telegram", "account": name, "secret": "bot", "url": tgs[name].URL}, nil)
	}
	for _, name := range []string{"a", "b"} {
		hooks[name] = newReceiver(t)
		n.must(t, http.MethodPost, "/api/v1/channels", map[string]any{"kind": "webhook", "account": name, "secret": "bot", "url": hooks[name].URL}, nil)
	}
	eventually(t, "all are connected", func() bool {
		var out struct{ Channels []channelRow }
		n.must(t, http.MethodGet, "/api/v1/channels", nil, &out)
		up := 0
		for _, c := range out.Channels {
			if c.State.State == "ready" {
				up++
			}
		}
		return up == 5
	})
	send := func(text, to string, sel map[string]string, c *capability.Context) (client.Invoked, error) {
		input, _ := json.Marshal(map[string]string{"to": to, "text": text})
		if to == "" {
			input, _ = json.Marshal(map[string]string{"text": text})
		}
		var out client.Invoked
		err := n.admin.Invoke(t.Context(), client.Invocation{Target: "message.send", Input: input, Select: sel, Context: c}, &out)
		return out, err
	}
	eventually(t, "the catalog has them", func() bool { // it follows the connections
		_, err := send("selected", "71", map[string]string{"channel": "telegram", "account": "desk"}, nil)
		return err == nil
	})
	if _, err := send("ambiguous", "71", nil, nil); capability.CodeOf(err) != capability.CodeSelectionRequired {
		t.Errorf("without a selector: got %v, want selection_required", err)
	}
	if _, err := send("ambiguous", "71", map[string]string{"channel": "webhook"}, nil); capability.CodeOf(err) != capability.CodeSelectionRequired {
		t.Errorf("two accounts of one kind: got %v, want selection_required", err)
	}
	bound := &capability.Context{Bindings: []capability.Binding{{Actions: "message.*", Provider: "messaging:telegram:team"}}}
	if _, err := send("bound", "71", nil, bound); err != nil {
		t.Errorf("with a binding: got %v, want no error", err)
	}
	from := &capability.Context{Route: &capability.Route{Kind: "webhook", Account: "b", Conversation: "c9", ConversationKind: "dm"}}
	if _, err := send("routed", "", nil, from); err != nil {
		t.Errorf("from a conversation: got %v, want no error", err)
	}
	if _, err := send("elsewhere", "telegram:home:71", nil, from); capability.AsError(err).Reason != "other_account" {
		t.Errorf("a target of another account than the route's: got %v, want other_account", err)
	}
	n.must(t, http.MethodDelete, "/api/v1/channels/webhook/b", nil, nil)
	eventually(t, "the account has left the catalog", func() bool {
		_, err := send("gone", "", map[string]string{"channel": "webhook", "account": "b"}, nil)
		return capability.CodeOf(err) == capability.CodeNotFound
	})
	for name, want := range map[string]string{"desk": "selected", "team": "bound", "home": ""} {
		for _, m := range tgs[name].Sent() {
			if want == "" || m.Text != want {
				t.Errorf("by telegram:%s: got %q, want %q", name, m.Text, want)
			}
		}
	}
	if hooks["a"].count("") != 0 || hooks["b"].count("") != 1 || hooks["b"].count("routed") != 1 {
		t.Errorf("by the webhooks: got %v and %v, want only routed by b", hooks["a"].sent, hooks["b"].sent)
	}
	var static struct{ Rows []struct{ ID string } }
	n.must(t, http.MethodGet, "/api/v1/catalog/static/channels", nil, &static)
	if len(static.Rows) != 6 {
		t.Errorf("channels that can be set up: got %+v, want discord, email, matrix, slack, telegram and webhook", static.Rows)
	}
}

// TestAWebhookTalksToTheAgent holds the way of signed JSON, and that a replay and a forgery are
// refused and recorded.
func TestAWebhookTalksToTheAgent(t *testing.T) {
	t.Parallel()
	model := newScriptedModel(t, func(int, modelRequest) modelAnswer { return modelAnswer{text: "Hello Ann."} })
	n := serve(t, t.TempDir(), model.env()...)
	n.storeSecret(t, "pager-key", "a key of 32 bytes that both know")
	hook := newReceiver(t)
	n.must(t, http.MethodPost, "/api/v1/channels", map[string]any{"kind": "webhook", "account": "pager", "secret": "pager-key", "url": hook.URL}, nil)
	n.must(t, http.MethodPost, "/api/v1/channels/webhook/pager/people", map[string]string{"role": "agent", "user": "ann"}, nil)
	post := func(id, text, key string) int {
		t.Helper()
		body := `{"type":"message","conversation":"ann","user":{"id":"ann"},"text":"` + text + `"}`
		to := n.url + "/api/v1/channels/webhook/pager/messages"
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to, strings.NewReader(body))
		if err != nil {
			t.Fatalf("request: got %v, want no error", err)
		}
		approvalhook.Sign(req.Header, secret.New(key), id, time.Now(), []byte(body))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("post: got %v, want no error", err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	const key = "a key of 32 bytes that both know"
	eventually(t, "the account runs", func() bool { return post("m1", "hello", key) == http.StatusOK })
	if got := post("m1", "hello", key); got != http.StatusOK {
		t.Errorf("the replay: got status %d, want 200, so that a sender does not try again", got)
	}
	if got := post("m2", "delete all", "another key"); got != http.StatusForbidden {
		t.Errorf("the forgery: got status %d, want 403", got)
	}
	eventually(t, "the reply leaves", func() bool { return hook.count("Hello Ann.") == 1 })
	eventually(t, "both are recorded", func() bool { return len(n.records(t, "event=channel_refused&limit=10")) == 2 })
	if got := len(model.asked()); got != 1 {
		t.Errorf("requests to the model: got %d, want 1", got)
	}
}
