// Package webhook is a chat service over signed JSON: messages leave as requests to a URL, and
// arrive as requests of a program that has the same key. The headers and the signature are those
// of the Standard Webhooks specification.
package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/chat/channels"
	"github.com/junctor-run/junctor/internal/platform/approvalhook"
	"github.com/junctor-run/junctor/secret"
)

const (
	sendTimeout = 15 * time.Second
	// clockGrace is how far the time of a request may be from ours.
	clockGrace = 5 * time.Minute
	maxAnswer  = 64 << 10
	maxName    = 128 // bytes of an id or name
)

// Kind describes the service.
func Kind() channels.Kind {
	return channels.Kind{
		Name: "webhook", Label: "Webhook",
		Blurb:   "Any program: signed JSON to a URL of yours, and signed JSON from it.",
		Actions: []capability.Action{"message.send", "message.reply", "message.edit", "message.delete"},
		OnceTTL: math.MaxInt64, MaxText: 60_000, MaxFile: 1 << 20, Rate: 20, NeedsURL: true,
		Group: func(string) bool { return false },
		Open: func(s channels.Settings) (channels.Channel, error) {
			return &channel{settings: s, http: http.DefaultTransport, now: time.Now}, nil
		},
	}
}

// channel is one account.
type channel struct {
	settings channels.Settings
	http     http.RoundTripper
	now      func() time.Time

	mu      sync.Mutex
	receive channels.Receive // nil: it does not run
}

// Run implements [channels.Channel]: requests arrive with Hook.
func (c *channel) Run(ctx context.Context, _ string, connected func(string), receive channels.Receive) error {
	if _, err := c.settings.Secret(); err != nil {
		return capability.Wrap(capability.CodeUnauthenticated, "webhook", "the key of "+c.settings.Account.String()+" is not stored", err)
	}
	set := func(r channels.Receive) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.receive = r
	}
	set(receive)
	defer set(nil)
	connected(c.settings.Account.String())
	<-ctx.Done()
	return ctx.Err()
}

// arrival is the body of a request to us.
type arrival struct {
	Type         string `json:"type"` // message or press
	Conversation string `json:"conversation"`
	Group        bool   `json:"group"`
	Thread       string `json:"thread"`
	Message      string `json:"message"`
	User         struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"user"`
	Text    string `json:"text"`
	Mention bool   `json:"mention"` // in a group: the account is meant
	Button  string `json:"button"`
	Files   []struct {
		Name string `json:"name"`
		Size int64  `json:"size"`
	} `json:"files"`
}

func refused(reason, why string) error {
	return capability.Errorf(capability.CodeDenied, "webhook", "%s", why).With(reason, "sign the request with the key of the account")
}

// Hook implements [channels.Hooked].
func (c *channel) Hook(ctx context.Context, header http.Header, body []byte) error {
	c.mu.Lock()
	receive := c.receive
	c.mu.Unlock()
	key, err := c.settings.Secret()
	if receive == nil || err != nil {
		return capability.Errorf(capability.CodeUnavailable, "webhook", "the account does not run")
	}
	id, stamp := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	if id == "" || len(id) > maxName || !approvalhook.Verify(key, header.Get("Webhook-Signature"), id, stamp, body) {
		return refused("signature_wrong", "the signature is wrong")
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if age := c.now().Sub(time.Unix(seconds, 0)); err != nil || age > clockGrace || age < -clockGrace {
		return refused("stale", "the time of the request is not now")
	}
	var in arrival
	if err := jsonx.Unmarshal(body, &in); err != nil {
		return capability.Wrap(capability.CodeInvalidInput, "webhook", "the body cannot be read", err)
	}
	u := channels.Update{
		ID: id, Kind: channels.UpdateKind(in.Type), Conversation: in.Conversation, ConversationKind: "dm", Thread: in.Thread, Message: in.Message,
		User: in.User.ID, UserName: in.User.Name, Text: in.Text, ToMe: !in.Group || in.Mention, Data: in.Button,
	}
	if in.Group {
		u.ConversationKind = "group"
	}
	for _, f := range in.Files {
		u.Files = append(u.Files, channels.File{Name: f.Name, Size: f.Size})
	}
	for _, s := range []string{u.Conversation, u.Thread, u.Message, u.User, u.UserName, u.Data} {
		if len(s) > maxName {
			return capability.Errorf(capability.CodeInvalidInput, "webhook", "an id or name has more than %d bytes", maxName)
		}
	}
	if u.Kind != channels.Wrote && u.Kind != channels.Pressed || u.Conversation == "" || u.User == "" || len(u.Files) > 10 {
		return capability.Errorf(capability.CodeInvalidInput, "webhook", "a message needs a type (message or press), a conversation and a user")
	}
	return receive(ctx, "", []channels.Update{u})
}

// departure is the body of a request to the receiver.
type departure struct {
	Type         string   `json:"type"` // send, edit or delete
	Conversation string   `json:"conversation"`
	Thread       string   `json:"thread,omitempty"`
	Message      string   `json:"message,omitempty"` // that is answered, edited or deleted
	Text         string   `json:"text,omitempty"`
	Buttons      []button `json:"buttons,omitempty"`
	File         *file    `json:"file,omitempty"`
}

type button struct {
	Label string `json:"label"`
	Data  string `json:"data"`
}

type file struct {
	Name string `json:"name"`
	Data []byte `json:"data"` // base64
}

// Do implements [channels.Channel]. A repeated operation has the same Webhook-Id.
func (c *channel) Do(ctx context.Context, op channels.Op) (string, error) {
	if op.Verb == channels.VerbAck {
		return "", nil // the receiver needs none
	}
	out := departure{Type: string(op.Verb), Conversation: op.Conversation, Thread: op.Thread, Message: op.Message, Text: op.Text}
	for _, b := range op.Buttons {
		out.Buttons = append(out.Buttons, button(b))
	}
	if op.File != nil {
		out.File = &file{op.File.Name, op.File.Data}
	}
	body, err := json.Marshal(out)
	if err != nil {
		return "", err
	}
	key, err := c.settings.Secret()
	if err != nil {
		return "", capability.Wrap(capability.CodeUnavailable, "webhook", "the key of the account is not stored", err)
	}
	sum := sha256.Sum256([]byte(c.settings.Account.String() + " " + op.Key))
	return c.post(ctx, "msg_"+hex.EncodeToString(sum[:12]), key, body)
}

// post makes one request. Its errors never contain the URL, which may hold a credential.
func (c *channel) post(ctx context.Context, id string, key secret.Value, body []byte) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.settings.Account.URL, bytes.NewReader(body))
	if err != nil {
		return "", capability.Errorf(capability.CodeFailed, "webhook", "the URL of the account cannot be used")
	}
	req.Header.Set("Content-Type", "application/json")
	approvalhook.Sign(req.Header, key, id, c.now(), body)
	res, err := c.http.RoundTrip(req) // follows no redirect
	if err != nil {
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			return "", capability.Errorf(capability.CodeUnavailable, "webhook", "the receiver cannot be reached")
		}
		return "", channels.DeliveryUnknown(nil)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	switch {
	case res.StatusCode == http.StatusTooManyRequests:
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		e := capability.Errorf(capability.CodeOverloaded, "webhook", "the receiver takes no more messages now")
		e.RetryAfter = time.Duration(max(1, seconds)) * time.Second
		return "", e
	case res.StatusCode >= 500 || res.StatusCode == http.StatusRequestTimeout || err != nil:
		return "", channels.DeliveryUnknown(nil)
	case res.StatusCode/100 != 2:
		return "", capability.Errorf(capability.CodeFailed, "webhook", "the receiver refused the message with status %d", res.StatusCode).
			With("refused_by_service", "")
	}
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(answer, &said) == nil && said.Message != "" && len(said.Message) <= maxName {
		return said.Message, nil
	}
	return id, nil
}
