package webpush

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	lib "github.com/SherClockHolmes/webpush-go"
	"golang.org/x/time/rate"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/bus"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
)

// notice is one notification. It contains no value of a call and no text of a task, because a
// phone shows it before it is unlocked.
type notice struct {
	Kind     string `json:"kind"` // approval or task
	ID       string `json:"id"`
	Title    string `json:"title"`
	Text     string `json:"text"`
	urgent   bool
	expires  time.Time
	isNeeded func(ctx context.Context) bool // nil: always
}

// queue holds the notices of one subscription, which are sent in order, one at a time. So a push
// service that is slow delays its own browsers only.
type queue struct {
	waiting []notice
	busy    bool
	pace    *rate.Limiter
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Run sends notifications about what happens from now on, until ctx ends or the bus closes.
func (s *Service) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer s.work.Wait()
	defer cancel()
	last := time.Now()
	for ev, err := range s.cfg.Bus.Subscribe(ctx, s.cfg.Bus.Latest()) {
		if err != nil {
			return
		}
		switch ev.Type {
		case bus.Resync:
			list, err := s.cfg.Policy.Approvals(ctx, policy.ApprovalPending, "", maxMissed)
			if err != nil {
				s.cfg.Logger.Warn("pending approvals cannot be read for notifications", "err", err)
			}
			for _, a := range slices.Backward(list) {
				if a.Asked.After(last.Add(-missedGrace)) {
					s.approval(ctx, a)
				}
			}
		case policy.EventApprovalAsked:
			var about struct{ Approval string }
			if json.Unmarshal(ev.Data, &about) != nil || about.Approval == "" {
				continue
			}
			if a, err := s.cfg.Policy.Approval(ctx, about.Approval); err == nil {
				s.approval(ctx, a)
			}
		case "agent.message":
			s.task(ctx, ev.Data)
		}
		last = ev.At
	}
}

// approval notifies everyone who may decide a. The person before the agent answers those of the
// client channel.
func (s *Service) approval(ctx context.Context, a policy.Approval) {
	if a.State != policy.ApprovalPending || a.Channel == policy.ChannelClient && !a.Waits() {
		return
	}
	n := notice{Kind: "approval", ID: a.ID, Title: "Approval needed", urgent: true, expires: a.Expires}
	n.isNeeded = func(ctx context.Context) bool {
		now, err := s.cfg.Policy.Approval(ctx, a.ID)
		return err != nil || now.State == policy.ApprovalPending
	}
	actor := a.Principal
	if a.OnBehalfOf != "" {
		actor += " for " + a.OnBehalfOf
	}
	tool, _, _ := strings.Cut(string(a.Capability), "#")
	n.Text = fmt.Sprintf("%s wants to call %s (%s)", actor, tool, a.Effect)
	if a.Waits() {
		n.Title, n.Text = "A program asks", actor+" waits for an answer"
	}
	s.notify(ctx, n, func(one Subscription) bool {
		return one.Principal != a.Barred && (one.Principal != a.Principal || a.Waits())
	})
}

// task notifies the owner of a task about a message: a session asks something, or the task ended.
func (s *Service) task(ctx context.Context, data []byte) {
	var m struct {
		Thread  string `json:"thread_id"`
		Session string `json:"session_id"`
		Owner   string `json:"owner"`
		Title   string `json:"title"`
		Status  string `json:"status"`
	}
	if json.Unmarshal(data, &m) != nil || m.Thread == "" || m.Owner == "" {
		return
	}
	n := notice{Kind: "task", ID: m.Thread, Title: "A task has ended", Text: m.Title}
	switch {
	case m.Session != "":
		n.Title, n.urgent = "A task waits for you", true
	case m.Status == "failed":
		n.Title = "A task has failed"
	case m.Status == "done":
		n.Title = "A task is done"
	}
	s.notify(ctx, n, func(one Subscription) bool { return one.Principal == m.Owner })
}

// notify queues n for the subscriptions that match. It does not block.
func (s *Service) notify(ctx context.Context, n notice, match func(one Subscription) bool) {
	n.Title, n.Text = text.Line(text.Visible(n.Title), maxTitle), text.Line(text.Visible(n.Text), maxText)
	if latest := time.Now().Add(maxNoticeTTL); n.expires.IsZero() || n.expires.After(latest) {
		n.expires = latest
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.list {
		if !match(one) {
			continue
		}
		q := s.queues[one.ID]
		if q == nil {
			q = &queue{pace: rate.NewLimiter(rate.Every(noticeInterval), maxBurst)}
			s.queues[one.ID] = q
		}
		if len(q.waiting) >= maxWaiting {
			s.cfg.Logger.Warn("a notification is dropped, because too many wait", "subscription", one.ID, "about", q.waiting[0].ID)
			q.waiting = slices.Delete(q.waiting, 0, 1)
		}
		q.waiting = append(q.waiting, n)
		if !q.busy {
			q.busy = true
			s.work.Go(func() { s.drain(ctx, q, one.ID) })
		}
	}
}

// drain sends the notices of a subscription until none waits.
func (s *Service) drain(ctx context.Context, q *queue, id string) {
	for {
		n, ok := s.next(ctx, q, id)
		if !ok {
			return
		}
		s.deliver(ctx, q, id, n)
	}
}

// next takes the next notice of a subscription. If ok is false, the queue is not busy any more.
func (s *Service) next(ctx context.Context, q *queue, id string) (n notice, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.list, func(one Subscription) bool { return one.ID == id }) {
		q.waiting = nil
		delete(s.queues, id)
	}
	if len(q.waiting) == 0 || ctx.Err() != nil {
		q.busy = false
		return notice{}, false
	}
	n = q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	return n, true
}

// deliver tries a notice until it is accepted, cannot be, or maxAttempts were made.
func (s *Service) deliver(ctx context.Context, q *queue, id string, n notice) {
	if q.pace.Wait(ctx) != nil {
		return
	}
	delay := retryDelay
	for attempt := 1; time.Now().Before(n.expires); attempt++ {
		one, ok := s.receiver(ctx, id)
		if !ok || n.isNeeded != nil && !n.isNeeded(ctx) {
			return
		}
		again, after, fault := s.send(ctx, one, n)
		if ctx.Err() != nil {
			return
		}
		if fault == "" || !again || attempt == maxAttempts || after > maxRetryDelay {
			if fault != "" {
				s.cfg.Logger.Warn("a notification is not delivered", "subscription", id, "about", n.ID, "attempts", attempt, "cause", fault)
			}
			s.mu.Lock()
			s.fault = fault
			s.mu.Unlock()
			return
		}
		if !s.pause(ctx, max(after, delay)) {
			return
		}
		delay *= 5
	}
}

// receiver returns a subscription whose token still stands, and removes one whose token does not.
func (s *Service) receiver(ctx context.Context, id string) (one Subscription, ok bool) {
	s.mu.Lock()
	i := slices.IndexFunc(s.list, func(one Subscription) bool { return one.ID == id })
	if i >= 0 {
		one = s.list[i]
	}
	s.mu.Unlock()
	if i < 0 {
		return one, false
	}
	t, ok := s.cfg.Policy.StandingToken(one.Token)
	if ok && (t.Role == capability.RoleAdmin || t.Role == capability.RoleOperator) && t.Principal().ID == one.Principal {
		return one, true
	}
	s.forget(ctx, one, "its token is not valid any more")
	return one, false
}

// forget removes a subscription, unless its browser renewed it meanwhile.
func (s *Service) forget(ctx context.Context, was Subscription, cause string) {
	if _, err := s.remove(ctx, cause, func(one Subscription) bool { return one == was }); err != nil {
		s.cfg.Logger.Error("a subscription is not removed", "subscription", was.ID, "err", err)
	}
}

// send makes one attempt. It returns whether a later one may succeed, how long the push service
// wants to be left alone, and a description of the failure, or "". The description does not
// contain the endpoint, which is a credential.
func (s *Service) send(ctx context.Context, one Subscription, n notice) (again bool, after time.Duration, fault string) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	u, err := url.Parse(one.Endpoint)
	body, bodyErr := json.Marshal(n)
	if err != nil || bodyErr != nil {
		return false, 0, "the notification cannot be encoded"
	}
	sum := sha256.Sum256([]byte(n.Kind + " " + n.ID))
	o := &lib.Options{
		HTTPClient: s.client, RecordSize: maxRecord, Subscriber: s.cfg.Contact, VAPIDPublicKey: s.public, VAPIDPrivateKey: s.private,
		TTL: max(1, int(time.Until(n.expires).Seconds())), Urgency: lib.UrgencyNormal,
		Topic: encode(sum[:24]), // an undelivered notice about the same approval or task is replaced
	}
	if n.urgent {
		o.Urgency = lib.UrgencyHigh
	}
	res, err := lib.SendNotificationWithContext(ctx, body, &lib.Subscription{
		Endpoint: one.Endpoint, Keys: lib.Keys{P256dh: one.P256dh, Auth: one.Auth},
	}, o)
	if reason, denied := egress.Denied(err); denied {
		return false, 0, "the address of the push service " + u.Host + " is not allowed: " + reason
	}
	switch {
	case errors.Is(err, egress.ErrRedirect):
		return false, 0, "the push service " + u.Host + " redirects"
	case err != nil:
		return true, 0, "the push service " + u.Host + " cannot be reached"
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	switch code := res.StatusCode; {
	case code/100 == 2:
		return false, 0, ""
	case code == http.StatusNotFound || code == http.StatusGone:
		s.forget(ctx, one, "the browser does not receive notifications any more")
		return false, 0, ""
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return false, 0, fmt.Sprintf("the push service %s refuses the key of this server with status %d", u.Host, code)
	default:
		again = code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout
		return again, retryAfter(res.Header.Get("Retry-After")), fmt.Sprintf("the push service %s answered %d", u.Host, code)
	}
}

// retryAfter returns the duration in a Retry-After header, or 0.
func retryAfter(value string) time.Duration {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
