package checkup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
)

// The files of a home that was never started are not a fault.
func TestANewHomeHasNoFindings(t *testing.T) {
	t.Parallel()
	home := filepath.Join(t.TempDir(), "home")
	look := func() {
		t.Helper()
		for _, c := range Look(t.Context(), Config{Home: home, Settings: config.Config{Listen: "127.0.0.1:0"}, Usable: true, Now: time.Now()}) {
			if !c.OK || c.Remedy != "" {
				t.Errorf(`%+v; want c.OK = true, c.Remedy = ""`, c)
			}
		}
	}
	look()
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	look()
}

func TestADiskThatIsNearlyFullIsFound(t *testing.T) {
	t.Parallel()
	for free, ok := range map[int64]bool{0: false, lowDisk - 1: false, lowDisk: true, 1 << 40: true} {
		if c := disk(free); c.OK != ok || !ok && (c.Remedy == "" || !strings.Contains(c.Detail, "MiB are free")) {
			t.Errorf(`%d bytes: %+v; want c.OK = %v, not (!ok && (c.Remedy == "" || !strings.Contains(c.Detail, "MiB are free")))`,
				free, c, ok)
		}
	}
}

// The check ends in bounded time: a log that is too long to read in time is not called broken.
func TestALogTooLongToVerifyIsNoFault(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c := Chain(ctx, "", func(ctx context.Context) (audit.VerifyReport, error) { return audit.VerifyReport{}, ctx.Err() }); !c.OK {
		t.Errorf("%+v; want c.OK = true", c)
	}
	if c := Chain(t.Context(), "", func(context.Context) (audit.VerifyReport, error) { return audit.VerifyReport{}, errors.New("no") }); c.OK ||
		c.Remedy == "" {
		t.Errorf(`%+v; want c.OK = false, c.Remedy other than ""`, c)
	}
}

func TestAnchorThatDoesNotFitTheLogIsFound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, anchor string
		report       audit.VerifyReport
		want         string // part of the finding, "" for a good one
	}{
		{"no anchor", "", audit.VerifyReport{Records: 9}, ""},
		{"it agrees", "/disk/anchor", audit.VerifyReport{Records: 9, Anchors: 1}, ""},
		{"it cannot be read back", "syslog", audit.VerifyReport{Records: 9}, ""},
		{"it is empty", "/disk/anchor", audit.VerifyReport{Records: 9}, "has no checkpoint of it"},
		{"lines were forged", "/disk/anchor", audit.VerifyReport{Records: 9, Anchors: 1, AnchorsSkipped: 2}, "2 lines"},
		{"records are missing", "/disk/anchor", audit.VerifyReport{FirstBad: &audit.BadRecord{Reason: audit.BadTail}}, "tail_missing"},
	} {
		c := Chain(t.Context(), tt.anchor, func(context.Context) (audit.VerifyReport, error) { return tt.report, nil })
		if c.OK != (tt.want == "") || !strings.Contains(c.Detail, tt.want) || c.OK != (c.Remedy == "") {
			t.Errorf("%s: Chain = %+v, want a finding with %q", tt.name, c, tt.want)
		}
	}
}

func TestLinkedSecretsAreLookedAtWhereTheyAre(t *testing.T) {
	t.Parallel()
	home, there := t.TempDir(), filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(there, []byte("value"), 0o600); err != nil {
		t.Fatalf("write the secret: got %v, want no error", err)
	}
	s, err := secretstore.Open(filepath.Join(home, "secrets"), secretstore.Further{})
	if err != nil {
		t.Fatalf("open the secrets: got %v, want no error", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	cfg := Config{Home: home, Usable: true, Settings: config.Config{
		Model: config.Model{URL: "http://127.0.0.1:1", Name: "m", KeySecret: "key"},
	}}
	if c := cfg.secrets(); c.OK {
		t.Errorf("a secret that is not set: got %+v, want a finding", c)
	}
	for to, ok := range map[string]bool{"file:" + there: true, "file:" + there + ".missing": false, "env:JUNCTOR_OF_THE_SERVER": true} {
		if err := s.Link("key", to); err != nil {
			t.Fatalf("link to %s: got %v, want no error", to, err)
		}
		if c := cfg.secrets(); c.OK != ok || !ok && !strings.Contains(c.Remedy, "junctor secrets link key") {
			t.Errorf("linked to %s: got %+v, want OK to be %t, with the link as remedy if not", to, c, ok)
		}
	}
}
