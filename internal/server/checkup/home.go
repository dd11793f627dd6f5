package checkup

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
)

// Further returns where a server finds secrets besides its home.
func Further(cfg config.Config) secretstore.Further {
	return secretstore.Further{Dir: cfg.SecretsDir, Vault: secretstore.Vault(cfg.Vault)}
}

// secrets finds names that the configuration refers to and that have no value.
func (c Config) secrets() httpapi.Check {
	s, count := c.Settings, 0
	type reference struct {
		key, name string
		used      bool
	}
	references := []reference{
		{"store.password_secret", s.Store.PasswordSecret, s.Store.URL != ""},
		{"oidc.client_secret", s.OIDC.ClientSecret, s.OIDC.Issuer != ""},
		{"nats.key_secret", s.NATS.KeySecret, s.NATS.URL != ""},
		{"agents.opencode_key_secret", s.Agents.OpenCodeKeySecret, s.Agents.OpenCodeURL != ""},
	}
	for _, r := range s.Model.All() {
		references = append(references, reference{"model", r.KeySecret, true})
	}
	for _, ref := range references {
		if ref.name == "" || !ref.used {
			continue
		}
		count++
		if err := secretstore.Check(c.path("secrets"), Further(s), ref.name); err != nil {
			remedy := "junctor secrets set " + ref.name
			if !c.Running {
				remedy = "(umask 077; cat > " + c.path("secrets", ref.name) + "), type it, then Ctrl-D; while a server runs: " + remedy
			}
			return bad("secrets", fmt.Sprintf("%s names the secret %s, which cannot be read: %s", ref.key, ref.name, said(err)),
				cmp.Or(capability.AsError(err).Hint, remedy))
		}
	}
	return good("secrets", "%d are named by the configuration, and are there", count)
}

// Private finds parts of a home that other users of this machine could read or change.
func Private(home string) httpapi.Check {
	want := map[string]fs.FileMode{".": 0o700, "run": 0o700, "secrets": 0o700, "state": 0o700, "audit": 0o700}
	for _, pattern := range []string{"login.json", "run/*.token", "secrets/*", "state/*.key", "state/junctor.db*"} {
		names, _ := filepath.Glob(filepath.Join(home, pattern))
		for _, name := range names {
			if rel, err := filepath.Rel(home, name); err == nil {
				want[rel] = 0o600
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		path := filepath.Join(home, name)
		info, err := os.Stat(path)
		if err == nil && info.Mode().Perm()&^want[name] != 0 {
			// Not with -R: programs of extensions read their packages as another user.
			return bad("home is private", fmt.Sprintf("others can read or change a part of the home (%s is %o)", name, info.Mode().Perm()),
				fmt.Sprintf("chmod %o %s", want[name], path))
		}
	}
	return good("home is private", "directories 0700, tokens and secrets 0600")
}

// lowDisk is the free space below which the doctor warns, because without space the audit log
// rejects calls that write.
const lowDisk = 256 << 20

// Disk finds a disk that is nearly full.
func Disk(home string) httpapi.Check {
	free, err := hostfs.Free(home)
	if err != nil {
		return good("disk space", "unknown")
	}
	return disk(free)
}

func disk(free int64) httpapi.Check {
	if free < lowDisk {
		return bad("disk space", fmt.Sprintf("%d MiB are free: writes stop when the audit log cannot grow", free>>20),
			"free space, at least "+fmt.Sprint(lowDisk>>20)+" MiB; audit.retention removes old records")
	}
	return good("disk space", "%d MiB free", free>>20)
}

// writable finds a home on a disk that is mounted read-only, or that another user owns.
func (c Config) writable() httpapi.Check {
	for _, dir := range []string{".", "run", "state", "audit", "logs", "secrets"} {
		path := c.path(dir)
		info, err := os.Stat(path)
		switch {
		case err != nil:
			continue // created by the next start
		case !info.IsDir():
			return bad("home can be written", dir+" of the home is not a directory, so the server does not start", "move "+path+" away")
		}
		if err := hostfs.Writable(path); err != nil {
			return bad("home can be written", fmt.Sprintf("%s cannot be written by this user, so the server does not start: %v", path, err),
				"see who owns it (ls -ld "+path+") and how the disk is mounted (findmnt -T "+path+")")
		}
	}
	return good("home can be written", "by this user")
}
