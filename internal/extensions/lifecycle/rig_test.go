package lifecycle_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/internal/extensions/operator"
	"github.com/junctor-run/junctor/internal/extensions/plan"
	"github.com/junctor-run/junctor/internal/store"
)

func admin() capability.Principal {
	return capability.Principal{ID: "admin:root", Role: capability.RoleAdmin}
}

// programs does what the scripts of the test packages say: "write NAME" in the
// working folder, "link NAME" out of it, "fail", "tamper" with the package.
type programs struct{}

func (programs) Run(_ context.Context, p plan.Program) (plan.Outcome, error) {
	verb, arg, _ := strings.Cut(p.Script, " ")
	switch verb {
	case "write":
		return plan.Outcome{}, os.WriteFile(filepath.Join(p.Work, arg), []byte(p.Step), 0o600)
	case "link":
		return plan.Outcome{}, os.Symlink("/etc/hostname", filepath.Join(p.Work, arg))
	case "remove":
		return plan.Outcome{}, os.RemoveAll(filepath.Join(p.Work, arg))
	case "tamper":
		return plan.Outcome{}, os.WriteFile(filepath.Join(p.Package, "docs", "USAGE.md"), []byte("other"), 0o600)
	}
	return plan.Outcome{ExitCode: 1, Output: "it failed"}, nil
}

func (programs) Exists(_ context.Context, _, name string) (bool, error) { return name == "curl", nil }

type fetcher map[string][]byte

func (f fetcher) Fetch(_ context.Context, address string, to io.Writer, _ int64, _ func() error) error {
	data, ok := f[address]
	if !ok {
		return errors.New("not there")
	}
	_, err := to.Write(data)
	return err
}

func (fetcher) Check(context.Context, string) error { return nil }

type recorder struct {
	mu     sync.Mutex
	events []string
}

func (r *recorder) Append(_ context.Context, rec audit.Record, _ audit.Durability) (audit.Receipt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, strings.TrimSpace(string(rec.Event)+" "+rec.Extension+" "+rec.Metadata.Reason))
	return audit.Receipt{}, nil
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.events
	r.events = nil
	return out
}

type executions struct{ stopped []string }

func (e *executions) Stop(_ context.Context, id string) error {
	e.stopped = append(e.stopped, id)
	return nil
}

type rig struct {
	t    *testing.T
	home string
	db   *store.DB
	reg  *lifecycle.Registry
	log  *recorder
	runs *executions
	cfg  lifecycle.Config
	*lifecycle.Manager
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := rigIn(t, t.TempDir())
	r.open()
	return r
}

// rigIn is a rig over a home that may be in use already; it is not open yet.
func rigIn(t *testing.T, home string) *rig {
	t.Helper()
	r := &rig{t: t, home: home, log: &recorder{}, runs: &executions{}}
	var err error
	if r.db, err = store.Open(t.Context(), filepath.Join(r.home, "state", "junctor.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.db.Close() })
	// The tests ask what is left of a killed process, not of a killed machine.
	if _, err := r.db.SQL().ExecContext(t.Context(), "PRAGMA synchronous = OFF"); err != nil {
		t.Fatal(err)
	}
	if err := lifecycle.Tables().Migrate(t.Context(), r.db); err != nil {
		t.Fatal(err)
	}
	r.reg = lifecycle.NewRegistry(r.db.SQL())
	r.cfg = lifecycle.Config{
		Dir: filepath.Join(r.home, "extensions"), Registry: r.reg, Steps: &plan.Engine{Programs: programs{}, Fetcher: fetcher{}},
		Fetcher: fetcher{}, Log: r.log,
		Rules: extension.Rules{Reserved: operator.ReservedCommand}, Platform: plan.Platform{OS: "linux", Arch: "x64"}, Executions: r.runs,
		Now: func() time.Time { return time.Unix(1_700_000_000, 0) },
	}
	return r
}

// open starts again, as after a crash.
func (r *rig) open() {
	r.t.Helper()
	if r.Manager != nil {
		_ = r.Close()
	}
	m, err := lifecycle.Open(r.t.Context(), r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Manager = m
	r.t.Cleanup(func() { _ = m.Close() })
}

// files is a package: path → content.
type files map[string]string

// sample is a package that asks for exec and writes two files when installed.
func sample(version string) files {
	return files{
		"manifest.json": fmt.Sprintf(`{"id":"tools.sample","name":"Sample","version":%q,"description":"d","author":"a","license":"MIT","capabilities":[{"type":"slash_command","name":"/sample"}],
			"platforms":["linux"],"permissions_required":["exec"],"permissions":{"exec":{"reason":"runs its tool"}},"install":{"plan":"install/plan.yaml"},"docs":{"usage":"docs/USAGE.md"}}`, version),
		"commands/commands.yaml": "slash_commands: [{name: /sample, summary: s, actions: [{id: run, runner: exec.sample, agentVisible: true}, {id: look, runner: analyze.response}]}]",
		"install/plan.yaml":      "steps: [{id: one, type: exec.shell, command: write one}, {id: set, type: write.config, config_key: mode, config_value: " + version + "}, {id: two, type: exec.shell, command: write two}]\nuninstall: {steps: [{id: bye, type: exec.shell, command: remove one}]}",
		"docs/USAGE.md":          "usage of " + version,
	}
}

func (f files) with(name, old, by string) files {
	out := make(files)
	for k, v := range f {
		if k == name {
			if !strings.Contains(v, old) {
				panic(old + " is not in " + name)
			}
			v = strings.ReplaceAll(v, old, by)
		}
		out[k] = v
	}
	return out
}

func (f files) zip(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, data := range f {
		to, err := w.Create("top/" + name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = to.Write([]byte(data))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (f files) dir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range f {
		p := filepath.Join(dir, filepath.FromSlash(name))
		_ = os.MkdirAll(filepath.Dir(p), 0o755)
		if err := os.WriteFile(p, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Install installs a package of which the operator has agreed to every step, unless opts differ.
func (r *rig) Install(ctx context.Context, by capability.Principal, src lifecycle.Source, opts lifecycle.Options) (
	lifecycle.Record, error,
) {
	if opts.Agree == nil {
		opts.Agree = func(extension.Screen) bool { return true }
	}
	return r.Manager.Install(ctx, by, src, opts)
}

func (r *rig) install(f files, opts lifecycle.Options) (lifecycle.Record, error) {
	data := f.zip(r.t)
	return r.Install(r.t.Context(), admin(), lifecycle.Source{Zip: bytes.NewReader(data), Size: int64(len(data))}, opts)
}

func (r *rig) must(rec lifecycle.Record, err error) lifecycle.Record {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%v (%+v)", err, rec)
	}
	return rec
}

func (r *rig) row(id string) lifecycle.Extension {
	r.t.Helper()
	x, err := r.reg.Get(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return x
}

func (r *rig) enable(id string) {
	r.t.Helper()
	if _, err := r.Enable(r.t.Context(), admin(), id, lifecycle.Answer{TreeHash: r.row(id).TreeHash}); err != nil {
		r.t.Fatal(err)
	}
}

// state is everything that must be old or new: registry, settings, folders and the
// catalog's module.
func (r *rig) state() string {
	r.t.Helper()
	var b strings.Builder
	rows, err := r.reg.All(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, x := range rows {
		x.Generation = 0
		if string(x.Consent) != "" {
			x.Consent = json.RawMessage(`"given"`)
		}
		x.SHA256 = "" // zip files of one package differ in the order of their members
		doc, err := json.Marshal(x)
		if err != nil {
			r.t.Fatal(err)
		}
		config, err := r.reg.Config(r.t.Context(), x.ID)
		if err != nil {
			r.t.Fatal(err)
		}
		fmt.Fprintf(&b, "row %s\nconfig %s\n", doc, config)
	}
	err = filepath.WalkDir(r.cfg.Dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(r.cfg.Dir, p)
		if strings.HasSuffix(name, ".work") {
			name = ".trash/kept.work"
		} else if strings.Contains(name, ".work"+string(filepath.Separator)) {
			name = ".trash/kept.work/" + name[strings.Index(name, ".work/")+6:]
		}
		sum := ""
		if d.Type().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			h := sha256.Sum256(data)
			sum = hex.EncodeToString(h[:4])
		}
		info, err := d.Info()
		fmt.Fprintf(&b, "file %s %s %s\n", name, info.Mode(), sum)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	batch, diagnostics := r.View().Batch()
	doc, err := json.Marshal(batch.Modules)
	if err != nil {
		r.t.Fatal(err)
	}
	fmt.Fprintf(&b, "catalog %s %v\n", doc, diagnostics)
	open, err := r.reg.Open(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	fmt.Fprintf(&b, "open %d\n", len(open))
	return b.String()
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}

func has(list []string, want string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.HasPrefix(s, want) })
}
