package server

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/messaging"
	"github.com/junctor-run/junctor/internal/messaging/natsbus"
	"github.com/junctor-run/junctor/internal/secretstore"
	"github.com/junctor-run/junctor/secret"
)

// TestNobodyIsLetInWithoutAGateway: the bus of a server is there from the start,
// on no port, and its door by WebSocket lets nobody in before somebody decides.
func TestNobodyIsLetInWithoutAGateway(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Home, cfg.Listen = t.TempDir(), "127.0.0.1:0"
	s, err := New(t.Context(), cfg, Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if info, err := os.Stat(filepath.Join(cfg.Home, "state", "nats")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the bus keeps its state elsewhere, or open to others: %v", err)
	}
	web := httptest.NewServer(s.nats.Handler(func(*http.Request) error { return nil }))
	defer web.Close()
	dial, err := natsbus.Dialer(web.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := dial(t.Context(), messaging.DialOptions{Name: "n1", Inbox: "_INBOX.n1", Token: secret.New("token"), ReconnectWait: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for e, err := range c.Events(t.Context()) {
		if err != nil || e.Kind == messaging.Connected {
			t.Fatalf("a session came in: %v %v", e, err)
		}
		if messaging.Is(e.Err, messaging.ReasonRefused) {
			break
		}
	}
}

func TestTheServersOfNATSAreToldWhomToTrust(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Home = t.TempDir()
	if _, err := NATSServerConfig(cfg); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("without a secret: %v", err)
	}
	const value = "0123456789abcdef0123456789abcdef"
	secrets, err := secretstore.Open(filepath.Join(cfg.Home, "secrets"))
	if err != nil {
		t.Fatal(err)
	}
	defer secrets.Close()
	if err := secrets.Set("bus", secret.New(value)); err != nil {
		t.Fatal(err)
	}
	cfg.NATS.KeySecret = "bus"
	text, err := NATSServerConfig(cfg)
	if err != nil || !strings.Contains(text, "auth_callout") || strings.Contains(text, value) {
		t.Errorf("%v\n%s", err, text)
	}
	cfg.NATS.URL, cfg.NATS.KeySecret, cfg.Listen = "nats://127.0.0.1:1", "absent", "127.0.0.1:0"
	if _, err := New(t.Context(), cfg, Options{}); capability.CodeOf(err) != capability.CodeInvalidInput || !strings.Contains(err.Error(), "absent") {
		t.Errorf("with a secret that is not there: %v", err)
	}
}
