package admission_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/nodes/admission"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

// rig is an Admission on a real store, at a time that the test says.
type rig struct {
	*admission.Admission
	*testing.T
	policy *policy.Policy
	db     *store.DB
	now    time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	r.db = db
	now := func() time.Time { return r.now }
	if r.policy, err = policy.New(t.Context(), policy.Config{
		Documents: []policy.Document{{Name: "x", Text: []byte(policy.DefaultRules())}},
		Store:     db, Now: now,
	}); err != nil {
		t.Fatal(err)
	}
	r.Admission = admission.New(admission.NewSQLStore(db), r.policy, now)
	return r
}

func (r *rig) token(role capability.Role, expires time.Duration, labels ...string) (id, value string) {
	r.Helper()
	t, v, err := r.policy.CreateToken(r.Context(), capability.Principal{ID: "admin:x", Role: capability.RoleAdmin},
		policy.TokenRequest{Role: role, Labels: labels, Expires: expires})
	if err != nil {
		r.Fatal(err)
	}
	return t.ID, v.Reveal()
}

func (r *rig) revoke(id string) {
	r.Helper()
	if _, err := r.policy.RevokeToken(r.Context(), capability.Principal{ID: "admin:x", Role: capability.RoleAdmin}, id); err != nil {
		r.Fatal(err)
	}
}

const (
	keyA = "UA5WUJ54Z23KILLCUOUNAKTPBVZWKMQVO4O6EQ5GHLAERIMLLHNCTYM5"
	keyB = "UB5WUJ54Z23KILLCUOUNAKTPBVZWKMQVO4O6EQ5GHLAERIMLLHNCTYM5"
)

func reason(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}

func TestAKeyIsEnrolledOnceAndSignsFromThenOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id, token := r.token(capability.RoleNode, time.Hour, "user:ann")
	e := wire.Enrol{NodeID: "a.1", PublicKey: keyA}
	for range 2 { // again is the same
		if reply, err := r.Enrol(t.Context(), token, e); err != nil || reply.NodeID != "a.1" ||
			!slices.Equal(reply.Labels, []string{"user:ann"}) {
			t.Fatalf(`%+v %v; want no error, reply.NodeID = "a.1", reply.Labels = []string{"user:ann"}`, reply, err)
		}
	}
	who, err := r.Authorize(t.Context(), messaging.Credential{Key: keyA, Name: "whatever"})
	if err != nil || who.ID != "a.1" || !slices.Contains(who.Subscribe, "v1.host.a=2E1.>") ||
		slices.ContainsFunc(slices.Concat(who.Publish, who.Subscribe), func(s string) bool { return !strings.Contains(s, "a=2E1") }) {
		t.Errorf("%+v %v", who, err)
	}
	// What has a key is not let in by the token any more.
	if _, err := r.Authorize(t.Context(), messaging.Credential{Token: secret.New(token), Name: "a.1"}); reason(err) != "node_taken" {
		t.Errorf(`%v; want reason(err) = "node_taken"`, err)
	}
	_, other := r.token(capability.RoleNode, 0)
	for what, tt := range map[string]struct {
		token string
		e     wire.Enrol
		want  string
	}{
		"another credential's id":        {other, e, "node_taken"},
		"another key for the id":         {token, wire.Enrol{NodeID: "a.1", PublicKey: keyB}, "node_taken"},
		"the key by another name":        {token, wire.Enrol{NodeID: "b", PublicKey: keyA}, "key_taken"},
		"a stranger":                     {"nonsense", e, "malformed_token"},
		"an id that is none":             {token, wire.Enrol{NodeID: "a b", PublicKey: keyB}, "invalid_params"},
		"an agent's token":               {func() string { _, v := r.token(capability.RoleAgent, 0); return v }(), e, "denied"},
		"nobody's key, by another token": {other, wire.Enrol{NodeID: "c", PublicKey: keyB}, ""},
	} {
		if _, err := r.Enrol(t.Context(), tt.token, tt.e); reason(err) != tt.want {
			t.Errorf("%s: %v; want reason(err) = %v", what, err, tt.want)
		}
	}
	if labels, err := r.Granted("a.1"); err != nil || !slices.Equal(labels, []string{"user:ann"}) {
		t.Errorf(`r.Granted("a.1"): err = %v, want nil; labels = %q, want []string{"user:ann"}`, err, labels)
	}
	r.now = r.now.Add(2 * time.Hour) // the token expires: admitted nodes stay, new ones are refused
	if _, err := r.Authorize(t.Context(), messaging.Credential{Key: keyA}); err != nil || r.Gone(t.Context(), "a.1") {
		t.Errorf(`%v; want no error, not r.Gone(t.Context(), "a.1")`, err)
	}
	if _, err := r.Enrol(t.Context(), token, wire.Enrol{NodeID: "d", PublicKey: keyB}); reason(err) != "invalid_token" {
		t.Errorf(`%v; want reason(err) = "invalid_token"`, err)
	}
	r.revoke(id)
	if _, err := r.Authorize(t.Context(), messaging.Credential{Key: keyA}); reason(err) != "invalid_token" || !r.Gone(t.Context(), "a.1") {
		t.Errorf(`%v; want reason(err) = "invalid_token", r.Gone(t.Context(), "a.1")`, err)
	}
	if _, err := r.Granted("a.1"); capability.CodeOf(err) != capability.CodeUnauthenticated {
		t.Error("a revoked node has labels; want capability.CodeOf(err) = capability.CodeUnauthenticated")
	}
	// With a token that is good it goes on under its own key.
	_, next := r.token(capability.RoleNode, 0)
	if _, err := r.Enrol(t.Context(), next, e); err != nil || r.Gone(t.Context(), "a.1") {
		t.Errorf(`%v; want no error, not r.Gone(t.Context(), "a.1")`, err)
	}
}

func TestANodeWithoutAKeyShowsItsToken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id, token := r.token(capability.RoleNode, time.Hour)
	come := func(token, name string) error {
		who, err := r.Authorize(t.Context(), messaging.Credential{Token: secret.New(token), Name: name})
		if err == nil && who.ID != name {
			t.Errorf("%s is %s; want not (err == nil && who.ID != name)", name, who.ID)
		}
		return err
	}
	for _, name := range []string{"a", "b", "a"} { // one token may be several devices'
		if err := come(token, name); err != nil {
			t.Error(err)
		}
	}
	_, other := r.token(capability.RoleNode, 0)
	if err := come(other, "a"); reason(err) != "node_taken" {
		t.Errorf(`%v; want reason(err) = "node_taken"`, err)
	}
	if err := r.TokenNode(t.Context(), token, "a"); err != nil {
		t.Error(err)
	}
	if err := r.TokenNode(t.Context(), other, "a"); reason(err) != "denied" {
		t.Errorf(`%v; want reason(err) = "denied"`, err)
	}
	if _, err := r.Key(t.Context(), "a"); reason(err) != "unknown_key" {
		t.Errorf(`%v; want reason(err) = "unknown_key"`, err)
	}
	if err := r.Remove(t.Context(), "b"); err != nil || !r.Gone(t.Context(), "b") {
		t.Errorf(`%v; want no error, r.Gone(t.Context(), "b")`, err)
	}
	if err := r.Remove(t.Context(), "b"); reason(err) != "node_not_found" {
		t.Errorf(`%v; want reason(err) = "node_not_found"`, err)
	}
	if err := come(other, "b"); err != nil { // the id is free again
		t.Error(err)
	}
	r.now = r.now.Add(2 * time.Hour)
	if err := come(token, "a"); reason(err) != "invalid_token" || !r.Gone(t.Context(), "a") {
		t.Errorf(`%v; want reason(err) = "invalid_token", r.Gone(t.Context(), "a")`, err)
	}
	r.revoke(id)
	if err := come(token, "a"); err == nil {
		t.Error("a revoked token lets in; want an error")
	}
	if all, err := r.List(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("r.List(t.Context()): err = %v, want nil; len(all) = %v, want 2; all = %+v", err, len(all), all)
	}
}

// crowded is a store in which claims meet.
type crowded struct {
	admission.Store
	mu            sync.Mutex
	writing, most int
	claims        int
}

func (c *crowded) ClaimNode(ctx context.Context, n admission.Node) (admission.Node, error) {
	c.mu.Lock()
	c.claims++
	c.writing++
	c.most = max(c.most, c.writing)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.writing--
		c.mu.Unlock()
	}()
	return c.Store.ClaimNode(ctx, n)
}

func (c *crowded) Node(ctx context.Context, id string) (admission.Node, bool, error) {
	if id == "lost" {
		return admission.Node{}, false, context.DeadlineExceeded
	}
	return c.Store.Node(ctx, id)
}

func TestManyThatComeAtOnceAreWrittenOneByOneAndOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, token := r.token(capability.RoleNode, 0)
	c := &crowded{Store: admission.NewSQLStore(r.db)}
	a := admission.New(c, r.policy, time.Now)
	for range 2 { // the second time they come back
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if _, err := a.Authorize(t.Context(), messaging.Credential{Token: secret.New(token), Name: fmt.Sprint("n", i)}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	if ended, err := a.Ended(t.Context()); err != nil || ended("n7") || !ended("stranger") {
		t.Errorf(`who is still let in %v; want no error, not ended("n7"), ended("stranger")`, err)
	}
	if err := a.Remove(t.Context(), "n7"); err != nil {
		t.Error(err)
	}
	if ended, err := a.Ended(t.Context()); err != nil || !ended("n7") || ended("n8") {
		t.Errorf(`who is not any more %v; want no error, ended("n7"), not ended("n8")`, err)
	}
	if c.claims != 50 || c.most != 1 {
		t.Errorf("%d claims, %d at once; want c.claims = 50, c.most = 1", c.claims, c.most)
	}
	if _, err := a.Granted("lost"); err == nil || capability.CodeOf(err) == capability.CodeUnauthenticated {
		t.Errorf("a store that cannot tell: %v; want an error, capability.CodeOf(err) other than capability.CodeUnauthenticated", err)
	}
}

// TestATokenOfAnotherGatewayIsLookedFor: the gateway that decides about a node need not be
// the one that has made its token, and learns of that a moment later.
func TestATokenOfAnotherGatewayIsLookedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other, err := policy.New(t.Context(), policy.Config{
		Documents: []policy.Document{{Name: "x", Text: []byte(policy.DefaultRules())}},
		Store:     r.db, Now: func() time.Time { return r.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	late := admission.New(admission.NewSQLStore(r.db), other, func() time.Time { return r.now })
	id, token := r.token(capability.RoleNode, 0, "gpu")
	if _, err := r.Enrol(t.Context(), token, wire.Enrol{NodeID: "a", PublicKey: keyA}); err != nil {
		t.Fatal(err)
	}
	if late.Gone(t.Context(), "a") {
		t.Error("a node is gone whose token is new")
	}
	if _, err := late.Authorize(t.Context(), messaging.Credential{Key: keyA}); err != nil {
		t.Error(err)
	}
	if labels, err := late.Granted("a"); err != nil || !slices.Equal(labels, []string{"gpu"}) {
		t.Errorf(`late.Granted("a"): err = %v, want nil; labels = %q, want []string{"gpu"}`, err, labels)
	}
	r.revoke(id)
	if err := other.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := late.Granted("a"); capability.CodeOf(err) != capability.CodeUnauthenticated || !late.Gone(t.Context(), "a") {
		t.Errorf("a node is let in whose token has ended %v; want capability.CodeOf(err) = capability.CodeUnauthenticated, "+
			`late.Gone(t.Context(), "a")`, err)
	}
}

// counting counts how often all tokens are read.
type counting struct {
	*policy.Policy
	n int
}

func (c *counting) Refresh(ctx context.Context) error {
	c.n++
	return c.Policy.Refresh(ctx)
}

func TestADeviceWhoseTokenHasEndedDoesNotHaveAllReadEachTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := &counting{Policy: r.policy}
	a := admission.New(admission.NewSQLStore(r.db), c, func() time.Time { return r.now })
	id, token := r.token(capability.RoleNode, 0)
	if _, err := a.Enrol(t.Context(), token, wire.Enrol{NodeID: "a", PublicKey: keyA}); err != nil {
		t.Fatal(err)
	}
	r.revoke(id)
	r.now = r.now.Add(time.Hour)
	for range 2 {
		for range 50 {
			if _, err := a.Authorize(t.Context(), messaging.Credential{Key: keyA}); capability.CodeOf(err) != capability.CodeUnauthenticated {
				t.Fatalf("%v; want capability.CodeOf(err) = capability.CodeUnauthenticated", err)
			}
		}
		r.now = r.now.Add(2 * time.Second)
	}
	if c.n != 2 {
		t.Errorf("all tokens were read %d times; want c.n = 2", c.n)
	}
}
