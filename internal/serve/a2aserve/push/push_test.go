package push_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/serve/a2aserve/push"
	"github.com/junctor-run/junctor/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a sender, a receiver that answers what it is told to, and tasks.
type rig struct {
	*push.Sender
	t     *testing.T
	db    *store.DB
	url   string
	mu    sync.Mutex
	tasks map[string]tasks.Task
	fail  int // requests to refuse first
	got   []received
	some  chan struct{}
}

type received struct{ event, body, token, auth, kind, version string }

func newRig(t *testing.T, ranges ...string) *rig {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, db: db, tasks: make(map[string]tasks.Task), some: make(chan struct{}, 1000)}
	receiver := httptest.NewServer(r)
	t.Cleanup(func() {
		receiver.Close()
		_ = db.Close()
	})
	r.url = receiver.URL
	r.open(ranges...)
	return r
}

// open creates the sender again, as a restart does.
func (r *rig) open(ranges ...string) {
	r.t.Helper()
	var addresses []netip.Prefix
	for _, s := range ranges {
		addresses = append(addresses, netip.MustParsePrefix(s))
	}
	var err error
	r.Sender, err = push.Open(r.t.Context(), push.Options{
		Database: r.db, Addresses: addresses, Pause: func(context.Context, int) error { return nil },
		Bodies: func(before, now *tasks.Task, legacy bool) [][]byte {
			return [][]byte{fmt.Appendf(nil, `{"state":%q,"first":%v,"legacy":%v}`, now.State, before == nil, legacy)}
		},
		Task: func(_ context.Context, id string) (tasks.Task, bool, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			t, ok := r.tasks[id]
			return t, ok, nil
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// run delivers for the rest of the test, or until the function that it returns.
func (r *rig) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	over := make(chan struct{})
	sender := r.Sender
	go func() {
		defer close(over)
		_ = sender.Run(ctx)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-over })
	r.t.Cleanup(stop)
	return stop
}

func (r *rig) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	h := req.Header
	r.got = append(r.got, received{
		h.Get("X-A2A-Event-Id"), string(body), h.Get("X-A2A-Notification-Token"), h.Get("Authorization"),
		h.Get("Content-Type"), h.Get("A2A-Version"),
	})
	if r.fail > 0 {
		r.fail--
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	r.some <- struct{}{}
}

func (r *rig) await(n int) []received {
	r.t.Helper()
	for range n {
		select {
		case <-r.some:
		case <-time.After(time.Minute):
			r.t.Fatal("nothing came within a minute")
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

func (r *rig) change(id string, version int64, state tasks.State) tasks.Task {
	return r.changeOf("agent:a", id, version, state)
}

func (r *rig) changeOf(owner, id string, version int64, state tasks.State) tasks.Task {
	t := tasks.Task{ID: id, Owner: owner, Version: version, State: state}
	r.mu.Lock()
	r.tasks[id] = t
	r.mu.Unlock()
	r.Changed(t)
	return t
}

func (r *rig) set(t tasks.Task, c push.Config) {
	r.t.Helper()
	c.URL = r.url
	if err := r.Set(r.t.Context(), c, &t); err != nil {
		r.t.Fatal(err)
	}
}

func TestChangesAreToldInOrderAndTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, "127.0.0.0/8")
	r.run()
	r.fail = 2
	r.set(r.change("tsk_1", 1, tasks.Submitted), push.Config{ID: "p", Token: "tok", Scheme: "Bearer", Credentials: "secret"})
	r.change("tsk_1", 2, tasks.Working)
	r.change("tsk_1", 3, tasks.Completed)
	got := r.await(4)
	var events []string
	for _, one := range got {
		events = append(events, one.event)
		if one.token != "tok" || one.auth != "Bearer secret" || one.kind != "application/a2a+json" || one.version != "1.0" {
			t.Errorf(`%+v; want one.token = "tok", one.auth = "Bearer secret", one.kind = "application/a2a+json", one.version = "1.0"`,
				one)
		}
	}
	if strings.Join(events, " ") != "tsk_1-2-0 tsk_1-2-0 tsk_1-2-0 tsk_1-3-0" || !strings.Contains(got[2].body, `"first":true`) ||
		!strings.Contains(got[3].body, `"first":false`) {
		t.Errorf(`%+v; want strings.Join(events, " ") = "tsk_1-2-0 tsk_1-2-0 tsk_1-2-0 tsk_1-3-0", got[2].body with `+
			`"\"first\":true", got[3].body with "\"first\":false"`, got)
	}
}

func TestAReceiverThatNeverAnswersIsGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, "127.0.0.0/8")
	r.run()
	r.fail = push.Attempts
	r.set(r.change("tsk_1", 1, tasks.Submitted), push.Config{ID: "p", Legacy: true})
	r.change("tsk_1", 2, tasks.Working)
	r.change("tsk_1", 3, tasks.Completed)
	got := r.await(push.Attempts + 1)
	if last := got[push.Attempts]; last.event != "tsk_1-3-0" || last.version != "0.3" || !strings.Contains(last.body, `"legacy":true`) {
		t.Errorf(`%+v; want last.event = "tsk_1-3-0", last.version = "0.3", last.body with "\"legacy\":true"`, got)
	}
}

// TestReceiversThatDoNotAnswerHoldUpTheirOwnerOnly holds that an agent with many silent receivers does not delay
// the pushes of others.
func TestReceiversThatDoNotAnswerHoldUpTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, "127.0.0.0/8")
	asked, done := make(chan struct{}, 1000), make(chan struct{})
	var open, most atomic.Int64
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		most.Store(max(most.Load(), open.Add(1)))
		defer open.Add(-1)
		asked <- struct{}{}
		select {
		case <-done:
		case <-req.Context().Done():
		}
	}))
	defer silent.Close()
	defer close(done)
	for i := range 100 {
		id := fmt.Sprintf("tsk_silent%d", i)
		task := r.changeOf("agent:silent", id, 1, tasks.Submitted)
		if err := r.Set(t.Context(), push.Config{ID: "p", URL: silent.URL}, &task); err != nil {
			t.Fatalf("Set: %v, want no error", err)
		}
		r.changeOf("agent:silent", id, 2, tasks.Working)
	}
	defer r.run()()
	for range 8 { // as many requests as one owner may have
		select {
		case <-asked:
		case <-time.After(time.Minute):
			t.Fatal("the silent receiver was not asked within a minute")
		}
	}
	r.set(r.change("tsk_1", 1, tasks.Submitted), push.Config{ID: "p"})
	r.change("tsk_1", 2, tasks.Completed)
	if got := r.await(1); got[0].event != "tsk_1-2-0" {
		t.Errorf("got the event %s, want tsk_1-2-0", got[0].event)
	}
	if n := most.Load(); n > 8 {
		t.Errorf("the silent receiver had %d requests at once, want at most its owner's 8", n)
	}
}

func TestARestartTellsWhatWasMissed(t *testing.T) {
	t.Parallel()
	r := newRig(t, "127.0.0.0/8")
	stop := r.run()
	r.set(r.change("tsk_1", 1, tasks.Submitted), push.Config{ID: "p"})
	r.change("tsk_1", 2, tasks.Working)
	r.await(1)
	stop()
	r.mu.Lock()
	r.tasks["tsk_1"] = tasks.Task{ID: "tsk_1", Owner: "agent:a", Version: 4, State: tasks.Completed}
	r.tasks["tsk_2"] = tasks.Task{ID: "tsk_2", Owner: "agent:a", Version: 1}
	r.mu.Unlock()
	r.set(tasks.Task{ID: "tsk_2", Owner: "agent:a", Version: 1}, push.Config{ID: "p"}) // which has received every change
	r.open("127.0.0.0/8")
	r.run()
	got := r.await(1)
	if last := got[len(got)-1]; last.event != "tsk_1-4-0" || !strings.Contains(last.body, "completed") {
		t.Errorf(`%+v; want last.event = "tsk_1-4-0", last.body with "completed"`, got)
	}
}

func TestWhoIsNotTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, url := range []string{
		"http://example.com/", "https://127.0.0.1/", "https://[::1]/", "https://10.1.2.3/", "https://169.254.169.254/latest",
		"https://[fd00::1]/", "https://[::ffff:127.0.0.1]/",
		"ftp://example.com/", "https://user:pw@example.com/", "https:///x", "https://example.com/#f",
		"https://example.com/" + strings.Repeat("x", push.MaxURL), "", "\x00",
	} {
		if err := r.Check(&push.Config{URL: url}); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%.40q: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", url, err)
		}
	}
	for _, c := range []push.Config{
		{Token: "a\r\nb: c"},
		{Scheme: "x\n"},
		{Token: strings.Repeat("x", push.MaxSecret+1)},
		{ID: strings.Repeat("x", 129)},
	} {
		c.URL = "https://example.com/"
		if err := r.Check(&c); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%+v: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", c, err)
		}
	}
	if err := r.Check(&push.Config{URL: "https://example.com:8443/hook?x=1"}); err != nil {
		t.Error(err)
	}
	// A name that leads inside is refused when it is dialled, and not tried again.
	r.run()
	task := r.change("tsk_1", 1, tasks.Submitted)
	_, port, _ := strings.Cut(strings.TrimPrefix(r.url, "http://"), ":")
	if err := r.Set(t.Context(), push.Config{ID: "p", URL: "https://localhost:" + port + "/"}, &task); err != nil {
		t.Fatal(err)
	}
	r.change("tsk_1", 2, tasks.Completed)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for ctx.Err() == nil { // until it was given up
		var delivered int64
		if err := r.db.SQL().QueryRowContext(ctx, `SELECT delivered FROM a2a_push WHERE task = 'tsk_1'`).Scan(&delivered); err != nil {
			t.Fatal(err)
		}
		if delivered == 2 {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got) != 0 || ctx.Err() != nil {
		t.Errorf("%+v; want len(r.got) = 0, ctx.Err() = nil", r.got)
	}
}

func TestAddressesAreTheirOwners(t *testing.T) {
	t.Parallel()
	r := newRig(t, "127.0.0.0/8")
	one := r.change("tsk_1", 1, tasks.Submitted)
	for i := range push.MaxPerTask {
		r.set(one, push.Config{ID: fmt.Sprint("p", i)})
	}
	r.set(one, push.Config{ID: "p0", Token: "new"}) // in place of the old one
	if err := r.Set(t.Context(), push.Config{ID: "more", URL: r.url}, &one); capability.CodeOf(err) != capability.CodeOverloaded {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeOverloaded", err)
	}
	if list, err := r.List(t.Context(), "agent:b", "tsk_1"); err != nil || len(list) != 0 {
		t.Errorf(`r.List(t.Context(), "agent:b", "tsk_1") = %v, err = %v, want err == nil && len(list) == 0`, list, err)
	}
	if err := r.Delete(t.Context(), "agent:b", "tsk_1", "p0"); err != nil {
		t.Fatal(err)
	}
	c, ok, err := r.Get(t.Context(), "agent:a", "tsk_1", "p0")
	if err != nil || !ok || c.Token != "new" {
		t.Errorf(`c = %v, ok = %v, err = %v, want err == nil && ok && c.Token == "new"`, c, ok, err)
	}
	if err := r.Delete(t.Context(), "agent:a", "tsk_1", "p0"); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := r.Get(t.Context(), "agent:a", "tsk_1", "p0"); err != nil || ok {
		t.Errorf("ok = %v, err = %v, want err == nil && !ok", ok, err)
	}
}
