package approvalhook

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/junctor-run/junctor/internal/base/bus"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/secret"
)

// hookReceiver answers each request with the next status, the last one again and again.
type hookReceiver struct {
	statuses []int
	bodies   []string
	headers  []http.Header
}

func (r *hookReceiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	r.bodies, r.headers = append(r.bodies, string(body)), append(r.headers, req.Header)
	status := r.statuses[min(len(r.bodies), len(r.statuses))-1]
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(""))}, nil
}

// hooked runs a hook in a bubble, publishes the events, and returns the hook after all deliveries.
func hooked(t *testing.T, r *hookReceiver, channel policy.Channel, events ...string) *Hook {
	t.Helper()
	return hookedOn(t, r, nil, channel, events...)
}

// hookedOn is hooked with a desktop.
func hookedOn(t *testing.T, r *hookReceiver, desktop *Desktop, channel policy.Channel, events ...string) *Hook {
	t.Helper()
	key := secret.New("a key of thirty-two characters..")
	h := &Hook{
		url: "https://hooks.example.org/x", console: "https://gate.example.org/console/#/approvals/", http: r, desktop: desktop,
		key: func() (secret.Value, error) { return key, nil }, logger: slog.New(slog.DiscardHandler),
		get: func(_ context.Context, id string) (policy.Approval, error) {
			return policy.Approval{
				ID: id, Kind: "call", Channel: channel, Summary: "writes very-secret", Input: []byte("very-secret"),
				Binding: policy.Binding{Principal: "agent:a"}, State: policy.ApprovalPending,
			}, nil
		},
	}
	synctest.Test(t, func(t *testing.T) {
		b := bus.New(bus.Config{}) // made in the bubble, so that the hook can wait for it durably
		h.bus = b
		done := make(chan struct{})
		go func() { h.Run(t.Context()); close(done) }()
		synctest.Wait()
		for _, e := range events {
			b.Publish(e, json.RawMessage(`{"approval":"apr_1"}`))
		}
		synctest.Wait()
		b.Close()
		<-done
	})
	return h
}

func TestWebhookNoticeIsSignedAndHasNoValueOfTheCall(t *testing.T) {
	r := &hookReceiver{statuses: []int{204}}
	h := hooked(t, r, policy.ChannelOperator, policy.EventApprovalAsked, "catalog.changed", policy.EventApprovalDecided)
	if len(r.bodies) != 2 || h.fault != "" {
		t.Fatalf("delivered %d notices (%q), want 2 and no fault", len(r.bodies), h.fault)
	}
	key, _ := h.key()
	for i, id := range []string{"apr_1.asked", "apr_1.decided"} {
		head := r.headers[i]
		want := signature(key, id, head.Get("Webhook-Timestamp"), []byte(r.bodies[i]))
		if got := head.Get("Webhook-Signature"); got != want || head.Get("Webhook-Id") != id {
			t.Errorf("notice %d: id %q, signature %q; want %q, %q", i, head.Get("Webhook-Id"), got, id, want)
		}
	}
	if got := r.bodies[0]; strings.Contains(got, "very-secret") || !strings.Contains(got, `/console/#/approvals/apr_1"`) {
		t.Errorf("body %s, want a link and no value of the call", got)
	}
}

// TestWebhookSignatureIsThatOfTheSpecification has the example of the Standard Webhooks specification.
func TestWebhookSignatureIsThatOfTheSpecification(t *testing.T) {
	key := secret.New("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	got := signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signature = %q, want %q", got, want)
	}
}

func TestWebhookRetriesAreBounded(t *testing.T) {
	for _, test := range []struct {
		statuses []int
		attempts int
		fault    bool
	}{
		{[]int{503, 503, 204}, 3, false},
		{[]int{500}, maxHookAttempts, true},
		{[]int{302}, 1, true}, // no redirect is followed
		{[]int{401}, 1, true},
	} {
		r := &hookReceiver{statuses: test.statuses}
		h := hooked(t, r, policy.ChannelOperator, policy.EventApprovalAsked)
		if len(r.bodies) != test.attempts || (h.fault != "") != test.fault {
			t.Errorf("answers %v: %d attempts, fault %q; want %d, fault %v", test.statuses, len(r.bodies), h.fault, test.attempts, test.fault)
		}
		if c := h.Checks(); len(c) != 1 || c[0].OK == test.fault {
			t.Errorf("answers %v: checks %+v, want OK %v", test.statuses, c, !test.fault)
		}
	}
}

func TestWebhookOmitsApprovalsOfTheCaller(t *testing.T) {
	r := &hookReceiver{statuses: []int{204}}
	if hooked(t, r, policy.ChannelClient, policy.EventApprovalAsked); len(r.bodies) != 0 {
		t.Errorf("delivered %q, want nothing", r.bodies)
	}
}
