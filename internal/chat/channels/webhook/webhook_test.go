package webhook

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/channels"
	"github.com/junctor-run/junctor/internal/platform/approvalhook"
	"github.com/junctor-run/junctor/secret"
)

var key = secret.New("whsec_MDEyMzQ1Njc4OWFiY2RlZg==")

func open(t *testing.T, url string) *channel {
	t.Helper()
	got, err := Kind().Open(channels.Settings{
		Account: channels.Account{Ref: channels.Ref{Kind: "webhook", Account: "a"}, URL: url},
		Secret:  func() (secret.Value, error) { return key, nil },
	})
	if err != nil {
		t.Fatalf("open: got %v, want no error", err)
	}
	return got.(*channel)
}

func TestOnlySignedRequestsOfNowAreReceived(t *testing.T) {
	t.Parallel()
	c := open(t, "http://127.0.0.1:1")
	var got []channels.Update
	up := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.Run(ctx, "", func(string) { close(up) }, func(_ context.Context, _ string, list []channels.Update) error {
			got = append(got, list...)
			return nil
		})
	}()
	<-up
	body := `{"type":"message","conversation":"c1","user":{"id":"u1","name":"Ann"},"text":"hello"}`
	signed := func(body string, at time.Time, k secret.Value) http.Header {
		h := http.Header{}
		approvalhook.Sign(h, k, "m1", at, []byte(body))
		return h
	}
	now := time.Now()
	forged := signed(body, now, secret.New("another key"))
	altered := signed(body, now, key)
	otherID := signed(body, now, key)
	otherID.Set("Webhook-Id", "m2")
	for _, tt := range []struct {
		name   string
		header http.Header
		body   string
		code   capability.Code
		reason string
	}{
		{"no signature", http.Header{}, body, capability.CodeDenied, "signature_wrong"},
		{"another key", forged, body, capability.CodeDenied, "signature_wrong"},
		{"another body", altered, strings.Replace(body, "hello", "delete all", 1), capability.CodeDenied, "signature_wrong"},
		{"another id", otherID, body, capability.CodeDenied, "signature_wrong"},
		{"ten minutes ago", signed(body, now.Add(-10*time.Minute), key), body, capability.CodeDenied, "stale"},
		{"in ten minutes", signed(body, now.Add(10*time.Minute), key), body, capability.CodeDenied, "stale"},
		{"what we sent ourselves", signed(`{"type":"send","conversation":"c1"}`, now, key), `{"type":"send","conversation":"c1"}`, capability.CodeInvalidInput, ""},
		{"no JSON", signed(`{`, now, key), `{`, capability.CodeInvalidInput, ""},
	} {
		err := c.Hook(t.Context(), tt.header, []byte(tt.body))
		if e := capability.AsError(err); e == nil || e.Code != tt.code || e.Reason != tt.reason {
			t.Errorf("%s: got %v, want %s, reason %q", tt.name, err, tt.code, tt.reason)
		}
	}
	if err := c.Hook(t.Context(), signed(body, now, key), []byte(body)); err != nil {
		t.Errorf("a signed request: got %v, want no error", err)
	}
	cancel()
	<-done
	if len(got) != 1 || got[0].ID != "m1" || got[0].Text != "hello" || got[0].User != "u1" || !got[0].ToMe {
		t.Errorf("received: got %+v, want the message m1", got)
	}
	if err := c.Hook(t.Context(), signed(body, now, key), []byte(body)); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("after the end: got %v, want unavailable", err)
	}
}

func TestEachAnswerOfTheReceiverHasItsMeaning(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var ids []string
	status := 200
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := r.Header
		if !approvalhook.Verify(key, h.Get("Webhook-Signature"), h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), body) {
			t.Errorf("the signature of %s is wrong", body)
		}
		var out departure
		if err := json.Unmarshal(body, &out); err != nil || out.Text != "hi" || len(out.Buttons) != 1 {
			t.Errorf("the body: got %s (%v), want the text and a button", body, err)
		}
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, h.Get("Webhook-Id"))
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"message":"m-7"}`)
	}))
	defer s.Close()
	c := open(t, s.URL)
	buttons := []channels.Button{{Label: "Once", Data: "once"}}
	op := channels.Op{Verb: channels.VerbSend, Key: "k", Conversation: "c", Text: "hi", Buttons: buttons}
	for code, want := range map[int]struct {
		code   capability.Code
		reason string
	}{
		200: {"", ""}, 429: {capability.CodeOverloaded, ""}, 503: {capability.CodeFailed, channels.ReasonDeliveryUnknown},
		302: {capability.CodeFailed, "refused_by_service"}, 410: {capability.CodeFailed, "refused_by_service"},
	} {
		mu.Lock()
		status = code
		mu.Unlock()
		id, err := c.Do(t.Context(), op)
		e := capability.AsError(err)
		switch {
		case e == nil:
			if code != 200 || id != "m-7" {
				t.Errorf("status %d: got id %q, want m-7 for status 200 only", code, id)
			}
		case e.Code != want.code || e.Reason != want.reason || code == 429 && e.RetryAfter != 7*time.Second:
			t.Errorf("status %d: got %v (%s), want %v", code, err, e.Reason, want)
		case strings.Contains(e.Error(), s.URL):
			t.Errorf("status %d: the error has the URL: %v", code, err)
		}
	}
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("the id of a repeated send: got %s, want %s", id, ids[0])
		}
	}
	s.Close()
	if _, err := c.Do(t.Context(), op); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("without a receiver: got %v, want unavailable", err)
	}
}
