package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// aFault is something that goes wrong for people, and what repairs it.
type aFault struct {
	name   string
	plant  func(t *testing.T, h *patient)
	check  string // the finding's name
	detail string // in what it says
	remedy string // in what it says to do
	mend   func(t *testing.T, h *patient)
}

// remedied carries out what a finding says to type.
func remedied(check string) func(*testing.T, *patient) {
	return func(t *testing.T, h *patient) {
		t.Helper()
		for _, c := range h.doctor(t) {
			if c.Name == check {
				if out, err := exec.CommandContext(t.Context(), "sh", "-c", c.Remedy).CombinedOutput(); err != nil {
					t.Errorf("%s: %v %s", c.Remedy, err, out)
				}
			}
		}
	}
}

func sqlIn(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// replaced changes a text in a file of a home.
func (h *patient) replaced(t *testing.T, name, old, by string) {
	t.Helper()
	data, err := os.ReadFile(h.path(name))
	if err != nil || !bytes.Contains(data, []byte(old)) {
		t.Fatalf("%s holds no %q (%v); want no error, data with []byte(old)", name, old, err)
	}
	h.put(t, name, strings.Replace(string(data), old, by, 1))
}

// taken is an address that no process can listen on, and one where no server answers.
func taken(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// mounted has the doctor come where something is mounted, if that may be done here.
func mounted(lines string) func(*testing.T, *patient) {
	return func(t *testing.T, h *patient) {
		if out, err := exec.CommandContext(t.Context(), "unshare", "-rm", "sh", "-c", "mount -t tmpfs none "+
			t.TempDir()).CombinedOutput(); err != nil {
			t.Skipf("nothing can be mounted here: %v %s", err, out)
		}
		h.room = lines
	}
}

func unmounted(_ *testing.T, h *patient) { h.room = "" }

// faultsWithoutServer are those that keep a server from starting, or would.
func faultsWithoutServer() []aFault {
	config := func(text string) func(*testing.T, *patient) {
		return func(t *testing.T, h *patient) { h.put(t, "config.yaml", text) }
	}
	noConfig := func(t *testing.T, h *patient) { h.remove(t, "config.yaml") }
	return []aFault{
		{"an unknown key", config("lsiten: 127.0.0.1:1\n"), "configuration", "lsiten", "junctor config docs", noConfig},
		{"broken YAML", config("log: [\n"), "configuration", "config.yaml", "junctor config docs", noConfig},
		{
			"open to the network", func(_ *testing.T, h *patient) { h.env = []string{"JUNCTOR_LISTEN=0.0.0.0:1"} }, "configuration",
			"--insecure-plain-http", "junctor config docs", func(_ *testing.T, h *patient) { h.env = nil },
		},
		{
			"a broken rule", func(t *testing.T, h *patient) { h.put(t, "policy/mine.cedar", "permit(") }, "policies", "mine.cedar",
			"policy/mine.cedar", func(t *testing.T, h *patient) { h.remove(t, "policy/mine.cedar") },
		},
		{
			"broken catalog settings", func(t *testing.T, h *patient) { h.put(t, "catalog.yaml", "nonsense: 1\n") }, "catalog settings", "nonsense",
			"catalog.yaml", func(t *testing.T, h *patient) { h.remove(t, "catalog.yaml") },
		},
		{
			"a port that is taken", func(t *testing.T, h *patient) { h.env = []string{"JUNCTOR_LISTEN=" + taken(t)} }, "address", "listen on",
			"junctor serve --listen", func(_ *testing.T, h *patient) { h.env = nil },
		},
		{
			"a killed server", func(t *testing.T, h *patient) { h.serve(t).kill(t) }, "server", "was killed", "junctor serve",
			func(t *testing.T, h *patient) { h.serve(t) },
		},
		{"a server that hangs", func(t *testing.T, h *patient) {
			s := h.serve(t)
			h.replaced(t, "run/server.json", h.url, "http://"+nobody(t))
			t.Cleanup(func() { s.kill(t) })
		}, "server", "does not answer", "kill ", nil},
		{"a changed record", func(t *testing.T, h *patient) {
			h.replaced(t, "audit/audit-00000001.jsonl", "server_started", "server_stopped")
		}, "audit chain", "is not what was written", "junctor restore FILE", func(t *testing.T, h *patient) {
			h.replaced(t, "audit/audit-00000001.jsonl", "server_stopped", "server_started")
		}},
		{
			"an anchor that was removed", func(t *testing.T, h *patient) { h.env = []string{"JUNCTOR_AUDIT_ANCHOR=" + t.TempDir() + "/gone"} },
			"audit chain", "has no checkpoint of it", "start the server", func(_ *testing.T, h *patient) { h.env = nil },
		},
		{
			"the audit's key is gone", func(t *testing.T, h *patient) { h.remove(t, "state/audit.key") }, "audit key", "is gone",
			"state/audit.key back from a backup", nil,
		},
		{"a damaged database", func(t *testing.T, h *patient) {
			f, err := os.OpenFile(h.path("state/junctor.db"), os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, 16<<10), 4<<10); err != nil {
				t.Fatal(err)
			}
		}, "database", "damaged", "junctor restore FILE", nil},
		{"a database that acts by itself", func(t *testing.T, h *patient) {
			sqlIn(t, h.path("state/junctor.db"), "CREATE TRIGGER help AFTER INSERT ON approvals BEGIN UPDATE approvals SET state = 'approved'; END")
		}, "database", "trigger help", "junctor restore FILE", func(t *testing.T, h *patient) {
			sqlIn(t, h.path("state/junctor.db"), "DROP TRIGGER help")
		}},
		{"a later database", func(t *testing.T, h *patient) {
			sqlIn(t, h.path("state/junctor.db"), "INSERT INTO schema_core (version_id, is_applied) VALUES (99, 1)")
		}, "database", "version 99", "use the junctor that wrote it", func(t *testing.T, h *patient) {
			sqlIn(t, h.path("state/junctor.db"), "DELETE FROM schema_core WHERE version_id = 99")
		}},
		{
			"a secret that is not set", config("model: {url: http://127.0.0.1:1/v1, name: m, key_secret: the-key}\n"), "secrets", "the-key",
			"junctor secrets set the-key", func(t *testing.T, h *patient) { h.put(t, "secrets/the-key", "x") },
		},
		{
			"a home that others can read", func(t *testing.T, h *patient) { h.chmod(t, ".", 0o755) }, "home is private", "755", "chmod 700 ",
			remedied("home is private"),
		},
		{
			"a token that others can read", func(t *testing.T, h *patient) { h.chmod(t, "run/admin.token", 0o644) }, "home is private",
			"admin.token", "chmod 600 ", remedied("home is private"),
		},
		{
			"a secret that others can read", func(t *testing.T, h *patient) { h.put(t, "secrets/s", "x"); h.chmod(t, "secrets/s", 0o640) },
			"home is private", "secrets/s", "chmod 600 ", remedied("home is private"),
		},
		{"a folder that is a file", func(t *testing.T, h *patient) {
			if err := os.RemoveAll(h.path("logs")); err != nil {
				t.Fatal(err)
			}
			h.put(t, "logs", "x")
		}, "home can be written", "logs", "move ", func(t *testing.T, h *patient) { h.remove(t, "logs") }},
		{
			"a root that is gone", func(_ *testing.T, h *patient) { h.env = []string{"JUNCTOR_FS_ROOTS=w=" + h.path("nowhere")} }, "configuration",
			"nowhere is not a directory", "junctor config docs", func(t *testing.T, h *patient) {
				if err := os.Mkdir(h.path("nowhere"), 0o700); err != nil {
					t.Fatal(err)
				}
			},
		},
		{"a root with the tokens of the server", func(_ *testing.T, h *patient) {
			h.env = []string{"JUNCTOR_FS_ROOTS=w=" + filepath.Dir(h.path("run"))}
		}, "configuration", "every caller could read", "junctor config docs", func(_ *testing.T, h *patient) { h.env = nil }},
		{"a Postgres that is away", func(t *testing.T, h *patient) {
			h.env = []string{"JUNCTOR_STORE_URL=postgres://u@" + nobody(t) + "/d"}
		}, "store", "does not answer", "see that it runs", func(_ *testing.T, h *patient) { h.env = nil }},
		{"NATS that is away", func(t *testing.T, h *patient) {
			h.put(t, "secrets/bus", strings.Repeat("x", 40))
			h.env = []string{"JUNCTOR_NATS_URL=nats://" + nobody(t), "JUNCTOR_NATS_KEY_SECRET=bus"}
		}, "message bus", "no server of nats.url answers", "start the NATS servers", func(_ *testing.T, h *patient) { h.env = nil }},
		{"a clock that went back", func(t *testing.T, h *patient) {
			path := h.path("audit/audit-00000001.jsonl")
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			year := time.Now().UTC().Format("2006-")
			h.put(t, "audit/audit-00000001.jsonl", strings.ReplaceAll(string(data), `"timestamp": "`+year, `"timestamp": "2999-`))
		}, "clock", "the last record is of 2999-", "timedatectl", nil},
		{
			"a disk that is read-only", mounted(`mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"`), "home can be written",
			"read-only file system", "findmnt -T ", unmounted,
		},
		{"a disk that is nearly full", mounted(`cp -a "$0" "$0.copy" && mount -t tmpfs -o size=20m,mode=700 none "$0" && cp -a "$0.copy/." "$0"`), "disk space", "MiB are free", "free space", unmounted},
		{"a home that is a file", func(t *testing.T, h *patient) {
			h.home = filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(h.home, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "home", "is not a directory", "--home", nil},
	}
}

// writeExtension makes a package that runs a program of this machine.
func writeExtension(t *testing.T, program string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tools.say")
	for name, text := range map[string]string{
		"manifest.json": fmt.Sprintf(`{"id": "tools.say", "name": "Say", "version": "1.0.0", "description": "Says things", "author": "example", "license": "MIT",
			"runtime": "declarative", "external_bins": [%q], "platforms": ["linux", "darwin"],
			"capabilities": [{"type": "slash_command", "name": "/say", "description": "Say"}],
			"permissions_required": ["exec"], "permissions": {"exec": {"reason": "runs it", "actions": ["hello"]}},
			"install": {"mode": "agentos_managed", "plan": "install/plan.yaml"}, "docs": {"usage": "docs/USAGE.md"}}`, program),
		"commands/commands.yaml": fmt.Sprintf("slash_commands:\n  - name: /say\n    summary: Say things\n    default_action: hello\n    maps_to:\n      capability: tools.say\n      actions:\n        - {id: hello, description: Say it, runner: exec.%s, argv: [\"{args}\"]}\n", program),
		"install/plan.yaml":      "id: tools.say\nsteps:\n  - {id: os, type: detect.platform}\nuninstall: {steps: []}\n",
		"docs/USAGE.md":          "# Say\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
