package secretstore

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/secret"
)

// TestLinkedSecretsAreReadWhereTheyAre links one name to each kind of target, and back to a value.
func TestLinkedSecretsAreReadWhereTheyAre(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("vault-token\n"), 0o600); err != nil {
		t.Fatalf("write the token: got %v, want no error", err)
	}
	var requests atomic.Int32
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("X-Vault-Token") != "vault-token" || r.Header.Get("X-Vault-Namespace") != "team" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		switch r.URL.Path {
		case "/v1/secret/data/bots": // version 2
			fmt.Fprint(w, `{"data":{"data":{"telegram":"of version 2","n":1},"metadata":{"version":3}}}`)
		case "/v1/kv/bots": // version 1, where a field may be named data
			fmt.Fprint(w, `{"data":{"telegram":"of version 1","data":"a field"}}`)
		case "/v1/kv/moved":
			http.Redirect(w, r, "/v1/kv/bots", http.StatusTemporaryRedirect)
		case "/v1/kv/large":
			fmt.Fprintf(w, `{"data":{"x":"%s"}}`, strings.Repeat("x", maxVault))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(service.Close)
	dir := filepath.Join(t.TempDir(), "secrets")
	s, err := Open(dir, Further{Vault: Vault{URL: service.URL, TokenFile: file, Namespace: "team"}})
	if err != nil {
		t.Fatalf("open: got %v, want no error", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	t.Setenv("JUNCTOR_TEST_BOT", "of the environment")
	if err := s.Set("bot", secret.New("a value")); err != nil {
		t.Fatalf("set: got %v, want no error", err)
	}
	for to, want := range map[string]string{
		"env:JUNCTOR_TEST_BOT": "of the environment", "file:" + file: "vault-token", "vault:secret/data/bots#telegram": "of version 2",
		"vault:kv/bots#telegram": "of version 1", "vault:kv/bots#data": "a field",
		"env:JUNCTOR_TEST_MISSING": "link_broken", "file:" + file + ".missing": "link_broken", "vault:kv/bots#missing": "link_broken",
		"vault:kv/missing#x": "link_broken", "vault:secret/data/bots#n": "link_broken",
		"vault:kv/moved#telegram": "vault_unavailable", "vault:kv/large#x": "vault_unavailable",
	} {
		if err := s.Link("bot", to); err != nil {
			t.Fatalf("link to %s: got %v, want no error", to, err)
		}
		got, err := s.Get("bot")
		if text := got.Reveal(); text != want && (err == nil || capability.AsError(err).Reason != want) {
			t.Errorf("%s: got %q, %v, want %s", to, text, err, want)
		}
		if looked, lookErr := Look(dir, s.further, "bot"); looked.Reveal() != got.Reveal() || (lookErr == nil) != (err == nil) {
			t.Errorf("%s, looked at from outside: got %q, %v, want %q, %v", to, looked.Reveal(), lookErr, got.Reveal(), err)
		}
		if err != nil && strings.Contains(fmt.Sprint(capability.AsError(err)), "vault-token") {
			t.Errorf("%s: got %v, want an error without the token", to, err)
		}
		if list, err := s.List(); err != nil || len(list) != 1 || list[0].Link != to {
			t.Errorf("list: got %+v, %v, want bot linked to %s", list, err, to)
		}
	}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: got %v, want no error", what, err)
		}
	}
	must("link", s.Link("bot", "vault:kv/bots#telegram"))
	before := requests.Load()
	for range 5 {
		_, err := s.Get("bot")
		must("get", err)
	}
	if got := requests.Load() - before; got > 1 {
		t.Errorf("requests for five reads: got %d, want at most one", got)
	}
	service.Close()
	if _, err := s.Get("bot"); err != nil {
		t.Errorf("a value that was read before: got %v, want it for a while", err)
	}
	must("link", s.Link("bot", "vault:kv/other#telegram"))
	if _, err := s.Get("bot"); capability.CodeOf(err) != capability.CodeUnavailable || strings.Contains(err.Error(), "vault-token") {
		t.Errorf("a service that is gone: got %v, want unavailable, without the token", err)
	}
	must("set", s.Set("bot", secret.New("a value again")))
	if got, err := s.Get("bot"); err != nil || got.Reveal() != "a value again" {
		t.Errorf("after a value was set: got %q, %v, want it", got.Reveal(), err)
	}
	must("link", s.Link("bot", "env:JUNCTOR_TEST_BOT"))
	if _, err := os.Stat(filepath.Join(dir, "bot")); err == nil {
		t.Error("the earlier value of a linked secret: got its file, want none")
	}
	must("remove", s.Remove("bot"))
	if _, err := s.Get("bot"); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("a removed link: got %v, want not_found", err)
	}
}

func TestLinksThatCannotBe(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	for _, to := range []string{
		"", "env:", "env:A B", "env:1", "file:", "file:relative", "file:/a\nb", "vault:a", "vault:#b", "vault:../sys#x", "vault:a/../../sys#x",
		"vault:a//b#c",
		"vault:/a#b", "vault:a?b#c", "http://example.org", "value", "file:/" + strings.Repeat("x", 2000), "vault:a#b",
	} {
		if err := s.Link("bot", to); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%.40q: got %v, want invalid_input", to, err)
		}
	}
	if err := s.Link("a/b", "env:A"); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("a name that cannot be: got %v, want invalid_input", err)
	}
}
