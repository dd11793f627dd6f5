package webpush

import (
	"crypto/ecdh"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/bus"
	"github.com/junctor-run/junctor/internal/core/policy"
)

func TestNoticeIsEncryptedForTheBrowserAndSigned(t *testing.T) {
	t.Parallel()
	r, v := newRig(t, loopback), newService(t)
	b := newBrowser(t, v.URL+"/send/1", "ann")
	r.add(b)
	a := pending("apr_1")
	a.Principal, a.Expires = "agent:\u202eco\x1bdex", time.Now().Add(10*time.Minute)
	r.asks(a)
	req := v.next()
	want := shown{"approval", "apr_1", "Approval needed", `agent:\u202eco\x1bdex wants to call mcp.files/write_file (write)`}
	if got := b.read(t, req); got != want {
		t.Errorf("notice %+v, want %+v", got, want)
	}
	h := req.Header
	var ttl int
	if _, err := fmt.Sscan(h.Get("TTL"), &ttl); err != nil || ttl < 500 || ttl > 600 {
		t.Errorf("TTL %q, want what the approval has left, below 600", h.Get("TTL"))
	}
	if h.Get("Urgency") != "high" || len(h.Get("Topic")) != 32 || h.Get("Content-Encoding") != "aes128gcm" || req.URL.Path != "/send/1" {
		t.Errorf("%s with urgency %q, topic %q, encoding %q; want /send/1, high, 32 characters, aes128gcm",
			req.URL, h.Get("Urgency"), h.Get("Topic"), h.Get("Content-Encoding"))
	}
	key, err := r.PublicKey()
	must(t, "PublicKey", err)
	claims := verifyVAPID(t, h.Get("Authorization"), key)
	if claims.Aud != v.URL || claims.Sub != "https://gate.example.org" || time.Until(time.Unix(claims.Exp, 0)) > 24*time.Hour {
		t.Errorf("claims %+v, want audience %s, the contact, and at most 24 hours", claims, v.URL)
	}
	if fault := r.settled(); fault != "" || len(r.Checks()) != 0 {
		t.Errorf("fault %q, checks %v, want none", fault, r.Checks())
	}
}

// TestTestsDecryptAsTheStandardDoes tries what the tests decrypt with on the example of RFC 8291.
func TestTestsDecryptAsTheStandardDoes(t *testing.T) {
	t.Parallel()
	raw := func(s string) []byte {
		t.Helper()
		b, err := decode(s)
		must(t, "base64url", err)
		return b
	}
	key, err := ecdh.P256().NewPrivateKey(raw("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"))
	must(t, "NewPrivateKey", err)
	b := browser{key: key, auth: raw("BTBZMqHH6r4Tts7J_aSIgg")}
	got := b.decrypt(t, raw("DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_y"+
		"l95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"))
	if want := "When I grow up, I want to be a watermelon"; string(got) != want {
		t.Errorf("decrypted %q, want %q", got, want)
	}
}

func TestGoneSubscriptionIsRemoved(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusNotFound, http.StatusGone} {
		r, v := newRig(t, loopback), newService(t)
		r.add(newBrowser(t, v.URL+"/1", "ann"))
		v.answer(status)
		r.asks(pending("apr_1"))
		if fault := r.settled(); fault != "" || len(r.List("operator:ann")) != 0 || len(r.queues) != 0 {
			t.Errorf("%d: fault %q, %d subscriptions, %d queues, want none", status, fault, len(r.List("operator:ann")), len(r.queues))
		}
		want := []string{"push_subscribed operator:ann", "push_unsubscribed operator:ann: the browser does not receive notifications any more"}
		if got := r.world.recorded(); !slices.Equal(got, want) {
			t.Errorf("%d: records %q, want %q", status, got, want)
		}
	}
}

func TestBusyPushServiceIsTriedAgainAFewTimes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		answers []int
		after   string // Retry-After of the first
		waits   []time.Duration
		got     int
		fault   string
	}{
		{"Retry-After is kept", []int{429, 503}, "7", []time.Duration{7 * time.Second, 5 * time.Second}, 3, ""},
		{"at most four attempts", []int{500, 500, 500, 500, 500}, "", []time.Duration{time.Second, 5 * time.Second, 25 * time.Second}, 4, "answered 500"},
		{"a long Retry-After ends it", []int{429}, "86400", nil, 1, "answered 429"},
		{"a refusal is final", []int{400}, "", nil, 1, "answered 400"},
		{"the key is refused", []int{403}, "", nil, 1, "refuses the key of this server"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, v := newRig(t, loopback), newService(t)
			r.add(newBrowser(t, v.URL+"/secret-path", "ann"))
			for i, status := range tt.answers {
				if i == 0 && tt.after != "" {
					v.answer(status, "Retry-After", tt.after)
				} else {
					v.answer(status)
				}
			}
			r.asks(pending("apr_1"))
			fault := r.settled()
			if len(v.got) != tt.got || !slices.Equal(r.waits, tt.waits) {
				t.Errorf("%d attempts with the pauses %v, want %d with %v", len(v.got), r.waits, tt.got, tt.waits)
			}
			if !strings.Contains(fault, tt.fault) || tt.fault == "" && fault != "" || strings.Contains(fault, "secret-path") {
				t.Errorf("fault %q, want %q and not the endpoint", fault, tt.fault)
			}
			if c := r.Checks(); (len(c) == 1) != (tt.fault != "") {
				t.Errorf("checks %+v, want one if the fault is %q", c, tt.fault)
			}
		})
	}
}

func TestHangingPushServiceDelaysNothingElse(t *testing.T) {
	t.Parallel()
	r, slow, good := newRig(t, loopback), newService(t), newService(t)
	for i := range maxPerPrincipal {
		r.add(newBrowser(t, fmt.Sprintf("%s/%d", slow.URL, i), "slow"))
		slow.answers <- func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }
	}
	b := newBrowser(t, good.URL+"/1", "ann")
	r.add(b)
	r.asks(pending("apr_1"))
	for range maxPerPrincipal {
		slow.next()
	}
	if got := b.read(t, good.next()); got.ID != "apr_1" {
		t.Errorf("notice about %s, want apr_1", got.ID)
	}
	// More notices than a queue holds: the oldest are dropped.
	for i := range maxWaiting + 3 {
		r.asks(pending(fmt.Sprintf("apr_2%02d", i)))
	}
	r.Service.mu.Lock()
	q := r.queues[r.list[0].ID]
	if len(q.waiting) != maxWaiting || q.waiting[0].ID != "apr_203" {
		t.Errorf("%d notices wait, the first about %s; want %d and apr_203", len(q.waiting), q.waiting[0].ID, maxWaiting)
	}
	r.Service.mu.Unlock()
	r.stop() // before the service, which waits for its requests
}

func TestPushServiceCannotLeadElsewhere(t *testing.T) {
	t.Parallel()
	r, v, inner := newRig(t, loopback), newService(t), newService(t)
	r.add(newBrowser(t, v.URL+"/1", "ann"))
	v.answer(http.StatusTemporaryRedirect, "Location", inner.URL+"/admin")
	r.asks(pending("apr_1"))
	if fault := r.settled(); !strings.HasSuffix(fault, "redirects") || len(inner.got) != 0 || len(v.got) != 1 {
		t.Errorf("fault %q, %d requests there and %d here; want a redirect that is not followed", fault, len(inner.got), len(v.got))
	}
}

func TestHugeAnswerIsNotRead(t *testing.T) {
	t.Parallel()
	r, v := newRig(t, loopback), newService(t)
	r.add(newBrowser(t, v.URL+"/1", "ann"))
	sent := make(chan int, 1)
	v.answers <- func(w http.ResponseWriter, _ *http.Request) {
		n := 0
		for n < 1<<30 {
			m, err := w.Write(make([]byte, 1<<20))
			n += m
			if err != nil {
				break
			}
		}
		sent <- n
	}
	r.asks(pending("apr_1"))
	if fault := r.settled(); fault != "" {
		t.Errorf("fault %q, want none: the status was read", fault)
	}
	if n := <-sent; n >= 1<<30 {
		t.Errorf("%d bytes of an answer were taken, want few", n)
	}
}

func TestPrivateAddressIsNeverDialled(t *testing.T) {
	t.Parallel()
	r, v := newRig(t, nil), newService(t)
	for _, host := range []string{"127.0.0.1", "[::1]", "10.0.0.1", "169.254.169.254", "[fe80::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "192.168.1.1", "[fd00::1]"} {
		if _, err := r.Add(t.Context(), newBrowser(t, "https://"+host+"/x", "ann").Subscription); reason(err) != "subscription_refused" {
			t.Errorf("%s: %v, want reason subscription_refused", host, err)
		}
	}
	// A name is resolved when it is dialled, and the address that was checked is dialled.
	r.add(newBrowser(t, strings.Replace(v.URL, "127.0.0.1", "localhost", 1)+"/x", "ann"))
	r.asks(pending("apr_1"))
	if fault := r.settled(); !strings.Contains(fault, "is not allowed") || len(v.got) != 0 || len(r.waits) != 0 {
		t.Errorf("fault %q, %d requests, pauses %v; want a refusal at once", fault, len(v.got), r.waits)
	}
}

func TestMalformedSubscriptionIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	const endpoint = "https://push.example.org/x"
	for name, change := range map[string]func(b *Subscription){
		"plain http":             func(b *Subscription) { b.Endpoint = "http://push.example.org/x" },
		"a file":                 func(b *Subscription) { b.Endpoint = "file:///etc/passwd" },
		"no host":                func(b *Subscription) { b.Endpoint = "https:///x" },
		"a password":             func(b *Subscription) { b.Endpoint = "https://a:b@push.example.org/x" },
		"a fragment":             func(b *Subscription) { b.Endpoint = endpoint + "#x" },
		"a long endpoint":        func(b *Subscription) { b.Endpoint = endpoint + strings.Repeat("x", 1024) },
		"an empty endpoint":      func(b *Subscription) { b.Endpoint = "" },
		"a point off the curve":  func(b *Subscription) { b.P256dh = encode(append([]byte{4}, make([]byte, 64)...)) },
		"a short key":            func(b *Subscription) { b.P256dh = "AAAA" },
		"a long secret":          func(b *Subscription) { b.Auth = encode(make([]byte, 17)) },
		"a key with line breaks": func(b *Subscription) { b.P256dh += strings.Repeat("\n", 1<<16) },
		"a secret of other text": func(b *Subscription) { b.Auth = "!!!!" },
	} {
		b := newBrowser(t, endpoint, "ann").Subscription
		change(&b)
		if _, err := r.Add(t.Context(), b); reason(err) != "subscription_refused" {
			t.Errorf("%s: %v, want reason subscription_refused", name, err)
		}
	}
	if list := r.List("operator:ann"); len(list) != 0 {
		t.Errorf("%d subscriptions, want 0", len(list))
	}
}

func TestNumberOfSubscriptionsIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for i := range maxPerPrincipal {
		r.add(newBrowser(t, fmt.Sprintf("https://push.example.org/%d", i), "ann"))
	}
	more := newBrowser(t, "https://push.example.org/more", "ann").Subscription
	if _, err := r.Add(t.Context(), more); reason(err) != "subscription_limit" || capability.CodeOf(err) != capability.CodeOverloaded {
		t.Errorf("one more of a principal: %v, want overloaded, subscription_limit", err)
	}
	// The same browser again is a renewal, which another principal may take over.
	again := newBrowser(t, "https://push.example.org/0", "ann")
	again.Name = strings.Repeat("n\u202e", 200)
	one := r.add(again)
	if n := len(r.List("operator:ann")); len(one.Name) > 600 || strings.Contains(one.Name, "\u202e") || n != maxPerPrincipal {
		t.Errorf("renewed as %q, one of %d, want a short visible name, one of %d", one.Name, n, maxPerPrincipal)
	}
	r.add(newBrowser(t, "https://push.example.org/0", "bob"))
	if a, b := len(r.List("operator:ann")), len(r.List("operator:bob")); a != maxPerPrincipal-1 || b != 1 {
		t.Errorf("%d and %d subscriptions after a browser changed hands, want %d and 1", a, b, maxPerPrincipal-1)
	}
	r.Service.mu.Lock()
	for len(r.list) < maxSubscriptions {
		r.list = append(r.list, Subscription{ID: fmt.Sprint(len(r.list))})
	}
	r.Service.mu.Unlock()
	if _, err := r.Add(t.Context(), newBrowser(t, "https://push.example.org/last", "cid").Subscription); reason(err) != "subscription_limit" {
		t.Errorf("one more of all: %v, want subscription_limit", err)
	}
}

func TestSubscriptionEndsWithItsToken(t *testing.T) {
	t.Parallel()
	r, v := newRig(t, loopback), newService(t)
	for _, name := range []string{"revoked", "demoted", "ann"} {
		r.add(newBrowser(t, v.URL+"/"+name, name))
	}
	foreign := newBrowser(t, v.URL+"/foreign", "foreign")
	foreign.Token = "tok_ann"
	r.add(foreign)
	r.world.mu.Lock()
	r.world.revoked["tok_revoked"], r.world.roles["tok_demoted"] = true, capability.RoleAgent
	r.world.mu.Unlock()
	r.asks(pending("apr_1"))
	if fault := r.settled(); fault != "" || len(v.got) != 1 {
		t.Errorf("fault %q, %d notices; want one, to ann", fault, len(v.got))
	}
	if path := v.next().URL.Path; path != "/ann" {
		t.Errorf("notified %s, want /ann", path)
	}
	for name, want := range map[string]int{"revoked": 0, "demoted": 0, "foreign": 0, "ann": 1} {
		if got := len(r.List("operator:" + name)); got != want {
			t.Errorf("%s has %d subscriptions, want %d", name, got, want)
		}
	}
}

func TestSubscriptionEndsWithTheSignOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a, b := newBrowser(t, "https://push.example.org/a", "ann"), newBrowser(t, "https://push.example.org/b", "ann")
	a.Session, b.Session = "ses_1", "ses_2"
	r.add(a)
	kept := r.add(b)
	r.EndSession(t.Context(), "ses_1")
	if list := r.List("operator:ann"); len(list) != 1 || list[0] != kept {
		t.Errorf("subscriptions %+v, want %+v alone", list, kept)
	}
	if err := r.Remove(t.Context(), "operator:bob", kept.ID); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("Remove of another's: %v, want not_found", err)
	}
	must(t, "Remove", r.Remove(t.Context(), "operator:ann", kept.ID))
	want := []string{
		"push_subscribed operator:ann", "push_subscribed operator:ann", "push_unsubscribed operator:ann: the browser was signed out",
		"push_unsubscribed operator:ann",
	}
	if got := r.world.recorded(); !slices.Equal(got, want) {
		t.Errorf("records %q, want %q", got, want)
	}
}

func TestSubscriptionsSurviveARestartUnlessTheKeyIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	dir := r.cfg.Dir
	one := r.add(newBrowser(t, "https://push.example.org/a", "ann"))
	key, err := r.PublicKey()
	must(t, "PublicKey", err)
	r.stop()
	for _, name := range []string{"push.json", "push.key"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want mode 0600", name, info, err)
		}
	}
	r.open(dir, nil)
	if got, err := r.PublicKey(); err != nil || got != key || !slices.Equal(r.List("operator:ann"), []Subscription{one}) {
		t.Errorf("after a restart: key %s, %v, subscriptions %+v; want %s and %+v", got, err, r.List("operator:ann"), key, one)
	}
	r.stop()
	must(t, "Remove", os.Remove(filepath.Join(dir, "push.key")))
	r.open(dir, nil)
	if got, err := r.PublicKey(); err != nil || got == key || len(r.List("operator:ann")) != 0 {
		t.Errorf("without the key: key %s, %v, %d subscriptions; want a new key and none", got, err, len(r.List("operator:ann")))
	}
	r.stop()
	for _, name := range []string{"push.json", "push.key"} {
		r.add(newBrowser(t, "https://push.example.org/b", "ann"))
		must(t, "WriteFile", os.WriteFile(filepath.Join(dir, name), []byte("{"), 0o600))
		if _, err := New(r.cfg); reason(err) != "subscriptions_unreadable" {
			t.Errorf("a broken %s: %v, want reason subscriptions_unreadable", name, err)
		}
	}
}

func TestWhoIsNotified(t *testing.T) {
	t.Parallel()
	r, v := newRig(t, loopback), newService(t)
	for _, name := range []string{"ann", "bob"} {
		r.add(newBrowser(t, v.URL+"/"+name, name))
	}
	change := func(f func(a *policy.Approval)) policy.Approval {
		a := pending("apr_1")
		f(&a)
		return a
	}
	both := []string{"/ann", "/bob"}
	for _, tt := range []struct {
		name string
		a    policy.Approval
		task string
		want []string
	}{
		{"an approval", pending("apr_1"), "", both},
		{"a decided one", change(func(a *policy.Approval) { a.State = policy.ApprovalApproved }), "", nil},
		{"one of the client channel", change(func(a *policy.Approval) { a.Channel = policy.ChannelClient }), "", nil},
		{"a program's question", change(func(a *policy.Approval) { a.Channel, a.Kind = policy.ChannelClient, policy.KindQuestion }), "", both},
		{"one's own call", change(func(a *policy.Approval) { a.Principal = "operator:ann" }), "", []string{"/bob"}},
		{"one on behalf of a person who may not answer", change(func(a *policy.Approval) { a.Barred = "operator:bob" }), "", []string{"/ann"}},
		{"a task", policy.Approval{}, `{"thread_id":"thr_1","owner":"operator:bob","title":"t","status":"done","text":"very-secret"}`, []string{"/bob"}},
		{"a task of an agent", policy.Approval{}, `{"thread_id":"thr_1","owner":"agent:codex","title":"t"}`, nil},
		{"a malformed message", policy.Approval{}, `{"thread_id":7}`, nil},
	} {
		if tt.task != "" {
			r.task(r.ctx, []byte(tt.task))
		} else {
			r.asks(tt.a)
		}
		r.settled()
		var got []string
		for len(v.got) > 0 {
			got = append(got, v.next().URL.Path)
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: notified %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestTaskNoticeHasItsOutcomeAndNoText(t *testing.T) {
	t.Parallel()
	r, v := newRig(t, loopback), newService(t)
	b := newBrowser(t, v.URL+"/1", "ann")
	r.add(b)
	for _, tt := range []struct{ message, title, urgency string }{
		{`"session_id":"s_1","status":"active"`, "A task waits for you", "high"},
		{`"session_id":"","status":"done"`, "A task is done", "normal"},
		{`"session_id":"","status":"failed"`, "A task has failed", "normal"},
		{`"session_id":"","status":"interrupted"`, "A task has ended", "normal"},
	} {
		r.task(r.ctx, []byte(`{"thread_id":"thr_1","owner":"operator:ann","title":"Add a\nhealth check","text":"very-secret",`+tt.message+`}`))
		req := v.next()
		want := shown{"task", "thr_1", tt.title, `Add a\nhealth check`}
		if got := b.read(t, req); got != want || req.Header.Get("Urgency") != tt.urgency {
			t.Errorf("notice %+v with urgency %s, want %+v with %s", got, req.Header.Get("Urgency"), want, tt.urgency)
		}
	}
}

func TestDecidedApprovalIsNotSentLate(t *testing.T) {
	t.Parallel()
	r, v := newRig(t, loopback), newService(t)
	r.add(newBrowser(t, v.URL+"/1", "ann"))
	a := pending("apr_1")
	v.answers <- func(w http.ResponseWriter, _ *http.Request) {
		a.State = policy.ApprovalApproved
		r.world.set(a)
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	r.asks(a)
	if fault := r.settled(); fault != "" || len(v.got) != 1 {
		t.Errorf("fault %q, %d attempts; want one, because the approval was decided before the second", fault, len(v.got))
	}
	late := pending("apr_2")
	late.Expires = time.Now().Add(-time.Second)
	r.asks(late)
	if r.settled(); len(v.got) != 1 {
		t.Errorf("%d attempts, want none about an approval that has expired", len(v.got))
	}
}

// counter is a transport that answers 201 and counts requests.
type counter struct{ n atomic.Int32 }

func (c *counter) RoundTrip(*http.Request) (*http.Response, error) {
	c.n.Add(1)
	return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody}, nil
}

func TestNoticesFollowTheBusAtABoundedPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, c := newRig(t, nil), &counter{}
		r.client.Transport = c
		r.add(newBrowser(t, "https://push.example.org/1", "ann"))
		old := pending("apr_old")
		old.Asked = time.Now().Add(-time.Hour)
		r.world.set(old)
		r.world.set(pending("apr_1"))
		synctest.Wait()
		for i, tt := range []struct {
			event, data string
			want        int32
		}{
			{policy.EventApprovalAsked, `{"approval":"apr_1"}`, 1},
			{policy.EventApprovalAsked, `{"approval":"apr_unknown"}`, 1},
			{policy.EventApprovalAsked, `7`, 1},
			{policy.EventApprovalDecided, `{"approval":"apr_1"}`, 1},
			{"agent.message", `{"thread_id":"thr_1","owner":"operator:ann"}`, 2},
			{"agent.message", `[]`, 2},
			{bus.Resync, `{}`, 3}, // of the two pending ones, one is new
		} {
			r.bus.Publish(tt.event, json.RawMessage(tt.data))
			synctest.Wait()
			if got := c.n.Load(); got != tt.want {
				t.Errorf("%d. %s: %d notices in all, want %d", i, tt.event, got, tt.want)
			}
		}
		for range maxBurst + 2 {
			r.bus.Publish(policy.EventApprovalAsked, json.RawMessage(`{"approval":"apr_1"}`))
		}
		synctest.Wait()
		if got := c.n.Load(); got != maxBurst {
			t.Errorf("%d notices at once, want %d", got, maxBurst)
		}
		time.Sleep(noticeInterval)
		synctest.Wait()
		if got := c.n.Load(); got != maxBurst+1 {
			t.Errorf("%d notices after the interval, want %d", got, maxBurst+1)
		}
		r.stop()
	})
}
