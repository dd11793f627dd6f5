package server_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

type pushList struct {
	PublicKey     string `json:"public_key"`
	Subscriptions []struct{ ID, Name string }
}

// subscription returns the body that a browser sends to receive notifications.
func subscription(t *testing.T, endpoint string) map[string]any {
	t.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatalf("GenerateKey: %v", err)
	}
	text := base64.RawURLEncoding.EncodeToString
	return map[string]any{
		"name": "Firefox on Linux", "endpoint": endpoint,
		"keys": map[string]string{"p256dh": text(key.PublicKey().Bytes()), "auth": text(make([]byte, 16))},
	}
}

func TestOnlyPeopleSubscribeToNotifications(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	const path = "/api/v1/console/push"
	body := subscription(t, "https://push.example.org/send/very-secret")
	for method, path := range map[string]string{"POST": path, "GET": path, "DELETE": path + "/psh_1"} {
		if err := n.agent.Do(t.Context(), method, path, body, nil); capability.CodeOf(err) != capability.CodeDenied {
			t.Errorf("%s by an agent: %v, want denied", method, err)
		}
	}
	if a := n.request(t, "POST", path, "", "{}"); a.status != http.StatusUnauthorized {
		t.Errorf("without a token: status %d, want 401", a.status)
	}

	b := n.signIn(t)
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	var made struct{ ID string }
	if status := b.send("POST", path, string(raw), &made); status != http.StatusCreated || !strings.HasPrefix(made.ID, "psh_") {
		t.Fatalf("a browser: status %d, id %q, want 201", status, made.ID)
	}
	var f failed
	if status := b.send("POST", path, `{"endpoint":"https://10.0.0.1/x"}`, &f); status != http.StatusBadRequest || f.Error.Reason != "subscription_refused" {
		t.Errorf("a private endpoint: status %d, %+v, want 400, subscription_refused", status, f)
	}
	// A token may subscribe too; each principal sees and removes its own.
	var token struct{ Token string }
	if err := n.admin.Do(t.Context(), "POST", "/api/v1/tokens", map[string]string{"role": "operator", "name": "ann"}, &token); err != nil {
		t.Fatalf("POST /api/v1/tokens: %v", err)
	}
	ann := n.client(t, token.Token)
	if err := ann.Do(t.Context(), "DELETE", path+"/"+made.ID, nil, nil); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("Remove of another's subscription: %v, want not_found", err)
	}
	if err := ann.Do(t.Context(), "POST", path, subscription(t, "https://push.example.org/ann"), nil); err != nil {
		t.Errorf("an operator's token: %v, want a subscription", err)
	}
	list := func() (out pushList) {
		t.Helper()
		var whole json.RawMessage
		if err := n.admin.Do(t.Context(), "GET", path, nil, &whole); err != nil {
			t.Fatalf("GET %s: %v", path, err)
		}
		if strings.Contains(string(whole), "very-secret") {
			t.Errorf("the list %s has the endpoint", whole)
		}
		if err := json.Unmarshal(whole, &out); err != nil {
			t.Fatalf("the list %s: %v", whole, err)
		}
		return out
	}
	if got := list(); len(got.PublicKey) != 87 || len(got.Subscriptions) != 1 || got.Subscriptions[0].Name != "Firefox on Linux" {
		t.Errorf("list %+v, want the public key and the browser of the admin", got)
	}
	if status := b.send("DELETE", "/console/session", "", nil); status != http.StatusNoContent {
		t.Errorf("sign-out: status %d, want 204", status)
	}
	if got := list(); len(got.Subscriptions) != 0 {
		t.Errorf("after the sign-out: %+v, want no subscription", got.Subscriptions)
	}
	var page struct{ Records []struct{ Event string } }
	if err := n.admin.Do(t.Context(), "GET", "/api/v1/audit?limit=100", nil, &page); err != nil {
		t.Fatalf("GET /api/v1/audit: %v", err)
	}
	count := map[string]int{}
	for _, r := range page.Records {
		count[r.Event]++
	}
	if count["push_subscribed"] != 2 || count["push_unsubscribed"] != 1 {
		t.Errorf("records %v, want two push_subscribed and one push_unsubscribed", count)
	}
}
