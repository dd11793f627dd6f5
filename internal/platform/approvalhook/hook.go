// Package approvalhook sends signed notices of approvals to a URL, and shows them and ends of tasks on the desktop.
package approvalhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/bus"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/secret"
)

const hookPrefix = "whsec_"

// Hook sends a signed notice of each approval for an operator to the URL approvals.webhook. The
// headers and the signature are those of the Standard Webhooks specification. It follows the
// bus, so that a receiver that is slow or down never delays a call.
type Hook struct {
	url     string
	console string // beginning of the link to an approval
	key     func() (secret.Value, error)
	get     func(ctx context.Context, id string) (policy.Approval, error)
	pending func(ctx context.Context) ([]policy.Approval, error)
	bus     *bus.Bus
	desktop *Desktop // nil: none
	http    http.RoundTripper
	logger  *slog.Logger

	mu    sync.Mutex
	fault string // why the last notice was not delivered, or ""
}

// hookNotice is the body of one request. It contains no value of the call, because the receiver
// may be a chat service.
type hookNotice struct {
	Type      string     `json:"type"`
	Timestamp time.Time  `json:"timestamp"`
	Data      hookDetail `json:"data"`
	id        string
}

type hookDetail struct {
	Approval   string               `json:"approval"`
	Kind       string               `json:"kind"`
	Principal  string               `json:"principal"`
	Capability capability.ID        `json:"capability"`
	Module     string               `json:"module,omitempty"`
	Effect     capability.Effect    `json:"effect"`
	State      policy.ApprovalState `json:"state"`
	Decision   policy.Decision      `json:"decision,omitempty"`
	DecidedBy  string               `json:"decided_by,omitempty"`
	Asked      time.Time            `json:"asked"`
	Expires    time.Time            `json:"expires"`
	Link       string               `json:"link"`
}

// New returns a hook that sends to url with the key, unless url is empty, and shows approvals on the
// desktop, unless that is nil. It is nil if it would do neither. console is the base URL of the console.
func New(url, console string, desktop *Desktop, key func() (secret.Value, error), p *policy.Policy, b *bus.Bus, logger *slog.Logger) *Hook {
	if url == "" && desktop == nil {
		return nil
	}
	return &Hook{
		url: url, console: strings.TrimSuffix(console, "/") + "/console/#/approvals/", key: key, get: p.Approval, bus: b, desktop: desktop,
		http: http.DefaultTransport, logger: logger,
		pending: func(ctx context.Context) ([]policy.Approval, error) {
			return p.Approvals(ctx, policy.ApprovalPending, "", maxHookQueue)
		},
	}
}

// Run delivers notices until ctx ends or the bus closes. A nil hook does nothing.
func (h *Hook) Run(ctx context.Context) {
	if h == nil {
		return
	}
	queue := make(chan hookNotice, maxHookQueue)
	var delivering sync.WaitGroup
	delivering.Go(func() {
		for n := range queue {
			h.deliver(ctx, n)
		}
	})
	screen := make(chan toast, maxDesktopQueue)
	delivering.Go(func() {
		for n := range screen {
			if err := h.desktop.show(ctx, n); err != nil {
				h.logger.Debug("a notification of the desktop was not shown", "err", err)
			}
			select {
			case <-time.After(desktopInterval):
			case <-ctx.Done():
			}
		}
	})
	defer delivering.Wait()
	defer close(screen)
	defer close(queue)
	show := func(n toast) {
		select {
		case screen <- n:
		default: // it is one of many
		}
	}
	add := func(event string, at time.Time, a policy.Approval) {
		if a.Channel == policy.ChannelClient { // the person before the agent answers it
			return
		}
		if h.desktop != nil && event == policy.EventApprovalAsked {
			show(approvalToast(a))
		}
		if h.url == "" {
			return
		}
		select {
		case queue <- h.notice(event, at, a):
		default:
			h.failed(fmt.Sprintf("%d notices wait, so the one about %s was dropped", maxHookQueue, a.ID))
		}
	}
	for ev, err := range h.bus.Subscribe(ctx, h.bus.Latest()) {
		switch {
		case err != nil:
			return
		case ev.Type == bus.Resync: // receivers detect repetitions by the id
			list, err := h.pending(ctx)
			if err != nil {
				h.failed("the pending approvals cannot be read")
			}
			for _, a := range list {
				add(policy.EventApprovalAsked, ev.At, a)
			}
		case ev.Type == "agent.message" && h.desktop != nil:
			if n, ok := taskToast(ev.Data); ok {
				show(n)
			}
		case ev.Type == policy.EventApprovalAsked || ev.Type == policy.EventApprovalDecided || ev.Type == policy.EventApprovalExpired:
			var about struct{ Approval string }
			if json.Unmarshal(ev.Data, &about) != nil || about.Approval == "" {
				continue
			}
			a, err := h.get(ctx, about.Approval)
			if err != nil {
				h.failed("the approval " + about.Approval + " cannot be read")
				continue
			}
			add(ev.Type, ev.At, a)
		}
	}
}

func (h *Hook) notice(event string, at time.Time, a policy.Approval) hookNotice {
	return hookNotice{Type: event, Timestamp: at, id: a.ID + "." + strings.TrimPrefix(event, "approval."), Data: hookDetail{
		Approval: a.ID, Kind: a.Kind, Principal: a.Principal, Capability: a.Capability, Module: a.Module, Effect: a.Effect, State: a.State,
		Decision: a.Decision, DecidedBy: a.DecidedBy, Asked: a.Asked, Expires: a.Expires, Link: h.console + a.ID,
	}}
}

// deliver tries a notice until it is accepted, cannot be, or maxHookAttempts were made.
func (h *Hook) deliver(ctx context.Context, n hookNotice) {
	body, err := json.Marshal(n)
	if err != nil {
		h.failed(err.Error())
		return
	}
	delay := hookRetryDelay
	for attempt := 1; ctx.Err() == nil; attempt++ {
		again, err := h.send(ctx, n.id, body)
		if err == nil {
			h.mu.Lock()
			h.fault = ""
			h.mu.Unlock()
			return
		}
		if !again || attempt == maxHookAttempts {
			h.failed(fmt.Sprintf("%s was not delivered after %d attempts: %s", n.id, attempt, err))
			return
		}
		select {
		case <-time.After(delay):
			delay *= 5
		case <-ctx.Done():
		}
	}
}

// send makes one attempt. again reports whether a later one may succeed. The error does not
// contain the URL, which may hold a credential.
func (h *Hook) send(ctx context.Context, id string, body []byte) (again bool, err error) {
	key, err := h.key()
	if err != nil {
		return false, fmt.Errorf("the secret of approvals.webhook_secret cannot be read")
	}
	ctx, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("the URL cannot be used")
	}
	req.Header.Set("Content-Type", "application/json")
	Sign(req.Header, key, id, time.Now(), body)
	res, err := h.http.RoundTrip(req) // follows no redirect
	if err != nil {
		return true, fmt.Errorf("the receiver cannot be reached")
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxHookAnswer))
	if res.StatusCode/100 == 2 {
		return false, nil
	}
	again = res.StatusCode >= 500 || res.StatusCode == http.StatusRequestTimeout || res.StatusCode == http.StatusTooManyRequests
	return again, fmt.Errorf("the receiver answered %d", res.StatusCode)
}

// signature returns the signature of a request: HMAC-SHA256 over id, timestamp and body. The key is
// the secret itself or, after whsec_, its base64 form.
func signature(key secret.Value, id, timestamp string, body []byte) string {
	raw := []byte(key.Reveal())
	if text, ok := strings.CutPrefix(key.Reveal(), hookPrefix); ok {
		if decoded, err := base64.StdEncoding.DecodeString(text); err == nil {
			raw = decoded
		}
	}
	mac := hmac.New(sha256.New, raw)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Sign sets the id, the time and the signature of a request in its headers.
func Sign(header http.Header, key secret.Value, id string, now time.Time, body []byte) {
	stamp := strconv.FormatInt(now.Unix(), 10)
	header.Set("Webhook-Id", id)
	header.Set("Webhook-Timestamp", stamp)
	header.Set("Webhook-Signature", signature(key, id, stamp, body))
}

// Verify reports whether one of the signatures in a header is that of a request. The caller checks
// the time.
func Verify(key secret.Value, signatures, id, timestamp string, body []byte) bool {
	want := []byte(signature(key, id, timestamp, body))
	for one := range strings.FieldsSeq(signatures) {
		if hmac.Equal([]byte(one), want) {
			return true
		}
	}
	return false
}

func (h *Hook) failed(why string) {
	h.logger.Warn("a notice of an approval is lost", "cause", why)
	h.mu.Lock()
	h.fault = why
	h.mu.Unlock()
}

// Checks returns the finding of the doctor about the URL; none without one.
func (h *Hook) Checks() []httpapi.Check {
	if h == nil || h.url == "" {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c := httpapi.Check{Name: "approvals.webhook", OK: h.fault == "", Detail: "notices of approvals are delivered"}
	if _, err := h.key(); err != nil {
		c.OK, c.Detail = false, "the secret of approvals.webhook_secret is not stored"
		c.Remedy = "junctor secrets set NAME, with the name in approvals.webhook_secret"
	} else if !c.OK {
		c.Detail, c.Remedy = h.fault, "see that the receiver runs and answers with a status 2xx; the next notice is tried by itself"
	}
	return []httpapi.Check{c}
}
