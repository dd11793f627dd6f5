package attack

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
)

// pack is a package in the making.
type pack struct {
	id, version string
	permissions []string
	network     []string
	limits      map[string]int
	env         map[string]any
	timeout     int               // of the action go, seconds
	actions     string            // further ones, as lines of YAML
	plan        string            // steps of install/plan.yaml
	files       map[string]string // beside or in place of what is made
	manifest    map[string]any    // members beside or in place of what is made
	hostile     bool              // with the hostile program as the tool of that name
}

// command is the package's: the last part of its id.
func (p pack) command() string { return "/" + p.id[strings.LastIndexByte(p.id, '.')+1:] }

// hostileProgram is the built program and its digest.
var hostileProgram = sync.OnceValues(func() ([]byte, string) {
	data, err := os.ReadFile(filepath.Join(base, "bin", "hostile"))
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(data)
	return data, hex.EncodeToString(sum[:])
})

func (p pack) tree(t testing.TB) map[string]string {
	t.Helper()
	if p.version == "" {
		p.version = "1.0.0"
	}
	m := map[string]any{
		"id": p.id, "name": p.id, "version": p.version, "description": "A test", "author": "tests", "license": "MIT",
		"platforms":            []string{"all"},
		"capabilities":         []any{map[string]any{"type": "slash_command", "name": p.command(), "description": "A test"}},
		"permissions_required": append([]string{}, p.permissions...),
		"install":              map[string]any{"mode": "agentos_managed", "plan": "install/plan.yaml"},
		"docs":                 map[string]any{"usage": "docs/USAGE.md"},
	}
	if len(p.network) > 0 {
		m["network"] = map[string]any{"allow": p.network}
	}
	if len(p.limits) > 0 {
		m["limits"] = p.limits
	}
	if len(p.env) > 0 {
		m["env"] = p.env
	}
	files := map[string]string{
		"install/plan.yaml": "id: " + p.id + "\nsteps: [" + p.plan + "]\nuninstall: {steps: []}\n", "docs/USAGE.md": "# A test\n",
	}
	actions := p.actions
	if p.hostile {
		data, sum := hostileProgram()
		files["tools/hostile"] = string(data)
		m["tools"] = []any{map[string]any{"name": "hostile", "path": "tools/hostile", "sha256": sum}}
		timeout := ""
		if p.timeout > 0 {
			timeout = ", timeout_sec: " + jsonText(p.timeout)
		}
		actions += "    - {id: go, description: Attack, runner: exec.hostile, argv: ['{args}']" + timeout +
			"}\n    - {id: fine, description: Nothing, runner: exec.hostile, argv: [fine]}\n"
	}
	files["commands/commands.yaml"] = "slash_commands:\n- name: " + p.command() + "\n  summary: A test\n  maps_to:\n    capability: " + p.id +
		"\n    actions:\n" + actions
	for name, value := range p.manifest {
		m[name] = value
	}
	files["manifest.json"] = jsonText(m)
	for name, text := range p.files {
		files[name] = text
	}
	return files
}

func jsonText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// zip is the package as it is uploaded.
func (p pack) zip(t testing.TB) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for name, text := range p.tree(t) {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		h.SetMode(0o644)
		if strings.HasPrefix(name, "tools/") {
			h.SetMode(0o755)
			h.Method = zip.Store
		}
		f, err := w.CreateHeader(h)
		if err == nil {
			_, err = f.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// folder writes the package where a person keeps it.
func (p pack) folder(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), p.id)
	for name, text := range p.tree(t) {
		at := filepath.Join(dir, name)
		mode := os.FileMode(0o644)
		if strings.HasPrefix(name, "tools/") {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil { //nolint:gosec // another user reads it
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	walkable(dir)
	return dir
}

// walkable lets every user walk to a folder of the tests.
func walkable(dir string) {
	for d := dir; strings.HasPrefix(d, base+"/tmp/"); d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755) //nolint:gosec // that is what it is for
	}
}

// install puts a package on the server and agrees to what it asks for.
func (s *server) install(ctx context.Context, c *client.Client, p pack, t testing.TB) error {
	if err := agreed(ctx, c, p.zip(t)); err != nil {
		return err
	}
	return s.enable(ctx, c, p.id)
}

// agreed installs a package, and agrees to what it does meanwhile if that is asked.
func agreed(ctx context.Context, c *client.Client, data []byte) error {
	err := c.Do(ctx, http.MethodPost, extensionsDoor+"/install", data, nil)
	if capability.CodeOf(err) != capability.CodeApprovalRequired {
		return err
	}
	hash, _ := capability.AsError(err).Details["tree_hash"].(string)
	return c.Do(ctx, http.MethodPost, extensionsDoor+"/install?agreed="+hash, data, nil)
}

func (s *server) enable(ctx context.Context, c *client.Client, id string) error {
	var shown struct {
		Screen struct {
			TreeHash string `json:"tree_hash"`
		}
	}
	if err := c.Do(ctx, http.MethodGet, extensionsDoor+"/"+id+"/screen", nil, &shown); err != nil {
		return err
	}
	return c.Do(ctx, http.MethodPost, extensionsDoor+"/"+id+"/enable", map[string]string{"tree_hash": shown.Screen.TreeHash}, nil)
}

func (s *server) uninstall(ctx context.Context, c *client.Client, id string) error {
	return c.Do(ctx, http.MethodDelete, extensionsDoor+"/"+id, nil, nil)
}

func asError(err error) *capability.Error {
	e, _ := errors.AsType[*capability.Error](err)
	return e
}

// owner is whose a file is.
func owner(info os.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// blocks is what a file occupies, in bytes.
func blocks(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks << 9
	}
	return info.Size()
}

func fakeCLISum() string {
	sum := sha256.Sum256([]byte(fakeCLI))
	return hex.EncodeToString(sum[:])
}

func countEntries(dir string) int {
	entries, _ := os.ReadDir(dir)
	return len(entries)
}

// said is what a process writes while others read it.
type said struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}
