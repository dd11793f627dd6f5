package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/testkit/faketelegram"
)

const (
	botToken = "4200:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr"
	ann      = 71 // an operator
	bob      = 72 // a stranger, later an agent
)

type channelRow struct {
	Kind, Account, State, Reason string
	People                       []struct{ User, Principal string }
}

// addTelegram adds the fake as the account work and waits until it is connected.
func (n *node) addTelegram(t *testing.T, tg *faketelegram.Server, more map[string]any) {
	t.Helper()
	n.storeSecret(t, "bot", botToken)
	body := map[string]any{"kind": "telegram", "account": "work", "secret": "bot", "url": tg.URL}
	for k, v := range more {
		body[k] = v
	}
	n.must(t, http.MethodPost, "/api/v1/channels", body, nil)
	eventually(t, "the account is connected", func() bool { return n.channel(t).State == "ready" && tg.Polling() })
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
	n.must(t, http.MethodGet, "/api/v1/channels/telegram/work", nil, &out)
	return out
}

// pair pairs a user with a role, and waits for the answer.
func (n *node) pair(t *testing.T, tg *faketelegram.Server, user int64, role, name string) {
	t.Helper()
	var made struct{ Code string }
	n.must(t, http.MethodPost, "/api/v1/channels/telegram/work/people", map[string]string{"role": role, "name": name}, &made)
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
	if got := strings.Join(prompt.Buttons, " "); got != "once timed session deny" {
		t.Errorf("buttons: got %q, want once, timed, session and deny", got)
	}

	// A stranger who presses the button, and texts that imitate a decision, change nothing.
	id := prompt.Text[strings.Index(prompt.Text, "apr_"):][:28]
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
	if took := time.Since(pressed); took > time.Second {
		t.Errorf("from the press to the executed call: got %s, want at most 1 s", took)
	}
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
	eventually(t, "the refused token is shown", func() bool { return n.channel(t).State == "unauthenticated" })
	records, _ := json.Marshal(n.records(t, "limit=500"))
	status, _ := json.Marshal(n.channel(t))
	n.kill()
	for _, text := range []string{string(records), string(status), n.stderr.String()} {
		if strings.Contains(text, botToken) || strings.Contains(text, "AAbbCC") {
			t.Errorf("the bot's token is in %q", text)
		}
	}
}
