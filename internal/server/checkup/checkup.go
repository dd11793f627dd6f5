// Package checkup examines a home from outside of its server: it finds conditions that prevent
// a server from starting, now or next time. A running server reports its own state itself.
// Each finding has a stable name, a description and a remedy. Nothing is changed.
package checkup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// Config configures one examination. Home is required.
type Config struct {
	Home string
	// Settings is the home's configuration. If Usable is false, it could not be read, and checks
	// that depend on it are skipped.
	Settings config.Config
	Usable   bool
	// Knows holds the schema versions of this program, by owner.
	Knows map[string]int64
	// Running is true if a server runs on the home, which reports its own findings.
	Running bool
	Now     time.Time
}

// Look returns all findings, good and bad. It returns none for a home that does not exist yet.
func Look(ctx context.Context, c Config) []httpapi.Check {
	if _, err := os.Stat(c.Home); err != nil {
		return nil // created by the first start
	}
	checks := []httpapi.Check{c.policies(), c.catalog()}
	if c.Usable {
		checks = append(checks, c.secrets())
	}
	if c.Running {
		if c.Usable && c.Settings.PublicURL != "" {
			checks = append(checks, publicURL(ctx, c.Settings.PublicURL))
		}
		return checks
	}
	checks = append(checks, Private(c.Home), Disk(c.Home), c.writable(), c.database(ctx), c.chain(ctx), c.auditKey(), c.clock())
	if c.Usable {
		checks = append(checks, c.port(ctx), c.store(ctx), c.bus(ctx))
	}
	return checks
}

func (c Config) path(names ...string) string {
	return filepath.Join(append([]string{c.Home}, names...)...)
}

func good(name, format string, args ...any) httpapi.Check {
	return httpapi.Check{Name: name, OK: true, Detail: fmt.Sprintf(format, args...)}
}

func bad(name, detail, remedy string) httpapi.Check {
	return httpapi.Check{Name: name, Detail: detail, Remedy: remedy}
}

// policies checks the Cedar rules like a start. A running server checks them itself.
func (c Config) policies() httpapi.Check {
	names, err := filepath.Glob(c.path("policy", "*.cedar"))
	if err != nil {
		return bad("policies", "the folder policy cannot be read: "+err.Error(), "chmod 700 "+c.path("policy"))
	}
	slices.Sort(names)
	var docs []policy.Document
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err == nil {
			docs = append(docs, policy.Document{Name: filepath.Base(name), Text: text})
			err = policy.Check(docs)
		}
		if err != nil {
			return bad("policies", "a rule cannot be read, so the server does not start: "+said(err), "correct "+name+", or move it away")
		}
	}
	return good("policies", "files: %d", len(names))
}

func (c Config) catalog() httpapi.Check {
	var settings catalog.Settings
	err := config.ReadCatalog(c.path("catalog.yaml"), &settings)
	if err == nil {
		_, err = catalog.New(settings, 0)
	}
	if err != nil {
		return bad("catalog settings", "catalog.yaml cannot be used, so the server does not start: "+said(err),
			"correct "+c.path("catalog.yaml")+", or move it away")
	}
	return good("catalog settings", "read without a fault")
}

// said returns the text of an error for users, with its cause if that is a *capability.Error.
func said(err error) string {
	if e := capability.AsError(err); e.Code != capability.CodeInternal {
		return e.Message
	}
	return err.Error()
}
