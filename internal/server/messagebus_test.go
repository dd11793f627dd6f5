package server

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/secret"
)

func TestTheServersOfNATSAreToldWhomToTrust(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Home = t.TempDir()
	if _, err := NATSServerConfig(cfg); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("without a secret: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
	}
	const value = "0123456789abcdef0123456789abcdef"
	secrets, err := secretstore.Open(filepath.Join(cfg.Home, "secrets"), secretstore.Further{})
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
		t.Errorf("%v\n%s\nwant no error, text with \"auth_callout\", text without %v", err, text, value)
	}
	cfg.NATS.URL, cfg.NATS.KeySecret, cfg.Listen = "nats://127.0.0.1:1", "absent", "127.0.0.1:0"
	if _, err := New(t.Context(), cfg, Options{}); capability.CodeOf(err) != capability.CodeInvalidInput ||
		!strings.Contains(err.Error(), "absent") {
		t.Errorf("with a secret that is not there: %v; want capability.CodeOf(err) = capability.CodeInvalidInput, err.Error() "+
			`with "absent"`, err)
	}
}
