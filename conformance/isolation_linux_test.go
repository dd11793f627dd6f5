package conformance_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/conformance"
	"github.com/junctor-run/junctor/conformance/livereport"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// unprivileged is the unprivileged user of that name on every Linux.
const unprivileged = 65534

// TestAnIsolatedEndpointConforms builds an endpoint of two modules from source in
// a folder of its own, with a browser bundle compiled there, and runs it with
// nothing: no environment, no other user's rights, no files but its own, no view
// of other processes. Both modules are let in by name and driven through every
// surface.
func TestAnIsolatedEndpointConforms(t *testing.T) {
	t.Parallel()
	cell := buildIsolated(t)
	url, cmd := startIsolated(t, cell)
	opts := conformance.Options{EndpointID: "home-machine", BaseURL: url, Token: secret.New(token)}
	report, err := conformance.Run(t.Context(), opts)
	if err != nil {
		t.Fatalf("\n%v", err)
	}
	client, err := router.NewClient(router.ClientConfig{ID: "home-machine", BaseURL: url, Token: secret.New(token)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdle()
	looksAround(t, client, cmd.SysProcAttr)

	modules, err := client.Modules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	both := router.TrustPolicy{AllowedModuleIDs: []string{"world-clock", "office-clock"}, RequireEndpointID: true}
	one := router.TrustPolicy{AllowedModuleIDs: []string{"world-clock"}}
	live := livereport.Report{
		Kind: "provider", Provider: "home-machine", EndpointID: "home-machine", EndpointURL: url, ObservedAt: time.Now(),
		Conformance: report, Modules: modules,
	}
	for i := range modules {
		m := &modules[i]
		decision := both.Decide(m, client.ID())
		if !decision.Trusted {
			t.Errorf("%s: %+v; want decision.Trusted = true", m.ID, decision)
		}
		live.Decisions = append(live.Decisions, decision)
		if d := one.Decide(m, client.ID()); d.Trusted != (m.ID == "world-clock") {
			t.Errorf(`with one of them allowed, %s: %+v; want d.Trusted = (m.ID == "world-clock")`, m.ID, d)
		}
		everySurfaceOf(t, opts, m.ID)
		asset, err := client.Asset(t.Context(), m.ID, m.Views[0].BundlePath)
		if err != nil || !bytes.Contains(asset.Body, []byte("Africa/Nairobi")) || bytes.Contains(asset.Body, []byte("import ")) {
			t.Errorf("%s does not serve the compiled bundle: %v\n%s\nwant no error, asset.Body with []byte(\"Africa/Nairobi\"), "+
				`asset.Body without []byte("import ")`, m.ID, err, asset.Body)
		}
	}
	if path, err := livereport.Write(t.TempDir(), live); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

// buildIsolated makes the folder that becomes the endpoint's world: a program, its
// token, nothing else.
func buildIsolated(t *testing.T) string {
	t.Helper()
	source, cell := t.TempDir(), filepath.Join(t.TempDir(), "cell")
	const example = "../examples/endpoint-go"
	for _, dir := range []string{example, "testdata/isolated"} {
		if err := os.CopyFS(filepath.Join(source, filepath.Base(dir)), os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	}
	// The example without its main, the test's main, and the view compiled again.
	from, at := filepath.Join(source, filepath.Base(example)), filepath.Join(source, "isolated")
	for _, name := range []string{"module.go", "clock.go", "go.mod", "go.sum"} {
		if err := os.Rename(filepath.Join(from, name), filepath.Join(at, name)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(cell, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"mod", "edit", "-replace", "github.com/junctor-run/junctor=" + root},
		{"run", "./compile", "browser/clocks.js", "view.js"},
		{"build", "-trimpath", "-o", filepath.Join(cell, "endpoint"), "."},
	} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = at
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0") // static: its world has no libraries
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(cell, "token"), []byte(token), 0o400); err != nil {
		t.Fatal(err)
	}
	return cell
}

// startIsolated runs the endpoint with as much isolation as this machine grants;
// an empty environment is always granted.
func startIsolated(t *testing.T, cell string) (url string, cmd *exec.Cmd) {
	t.Helper()
	const namespaces = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
	ways := []*syscall.SysProcAttr{nil}
	if os.Getuid() == 0 {
		if err := os.Chown(filepath.Join(cell, "token"), unprivileged, unprivileged); err != nil {
			t.Fatal(err)
		}
		// The folders of tests are their owner's alone: the test's, and the one of
		// all its folders.
		for _, dir := range []string{filepath.Dir(cell), filepath.Dir(filepath.Dir(cell))} {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		user := &syscall.Credential{Uid: unprivileged, Gid: unprivileged}
		ways = []*syscall.SysProcAttr{
			{Credential: user, Chroot: cell, Cloneflags: namespaces},
			{Credential: user, Chroot: cell}, // inside a container that may not unshare
		}
	} else {
		self := func(id int) []syscall.SysProcIDMap {
			return []syscall.SysProcIDMap{{ContainerID: unprivileged, HostID: id, Size: 1}}
		}
		ways = slices.Insert(ways, 0, &syscall.SysProcAttr{
			Cloneflags: namespaces | syscall.CLONE_NEWUSER, UidMappings: self(os.Getuid()), GidMappings: self(os.Getgid()),
		})
	}
	for _, way := range ways {
		program, file := filepath.Join(cell, "endpoint"), filepath.Join(cell, "token")
		if way != nil && way.Chroot != "" {
			program, file = "/endpoint", "/token"
		}
		cmd = exec.CommandContext(t.Context(), program, file)
		cmd.Env, cmd.SysProcAttr = []string{}, way
		if way != nil && way.Chroot != "" {
			cmd.Dir = "/"
		}
		started, err := start(t, cmd)
		if err == nil {
			return started, cmd
		}
		if !errors.Is(err, os.ErrPermission) && !errors.Is(err, syscall.EINVAL) {
			t.Fatalf("%v; want not (!errors.Is(err, os.ErrPermission) && !errors.Is(err, syscall.EINVAL))", err)
		}
		t.Logf("this machine does not grant %+v: %v", way, err)
	}
	t.Fatal("the endpoint could not be started in any way")
	return "", nil
}

// looksAround asks the endpoint what it can see.
func looksAround(t *testing.T, client *router.Client, way *syscall.SysProcAttr) {
	t.Helper()
	raw, err := client.Invoke(t.Context(), "plugin.action.invoke", json.RawMessage(`{"moduleId":"world-clock","action":"LOOK_AROUND"}`))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Data struct {
			UID, GID, PID, Environment int
			Files                      []string
		}
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if got.Data.Environment != 0 {
		t.Errorf("it sees %d variables; want got.Data.Environment = 0", got.Data.Environment)
	}
	if way == nil {
		return
	}
	if way.Chroot != "" {
		if diff := cmp.Diff([]string{"endpoint", "token"}, got.Data.Files); diff != "" {
			t.Errorf(`it sees other files: %s; want diff = ""`, diff)
		}
	}
	if got.Data.UID != unprivileged || got.Data.GID != unprivileged {
		t.Errorf("it is user %d of group %d; want got.Data.UID = %v, got.Data.GID = %v",
			got.Data.UID, got.Data.GID, unprivileged, unprivileged)
	}
	if way.Cloneflags&syscall.CLONE_NEWPID != 0 && got.Data.PID != 1 {
		t.Errorf("it is process %d among others; want not (way.Cloneflags&syscall.CLONE_NEWPID != 0 && got.Data.PID != 1)",
			got.Data.PID)
	}
}

// everySurfaceOf drives all surfaces on one module by hiding the others.
func everySurfaceOf(t *testing.T, opts conformance.Options, module string) {
	t.Helper()
	transport := router.DefaultTransport()
	defer transport.CloseIdleConnections()
	opts.Transport, opts.OnlyOriginal = only{transport, module}, true
	report, err := conformance.Run(t.Context(), opts)
	if err != nil {
		t.Errorf("%s alone:\n%v", module, err)
	}
	for _, surface := range conformance.Surfaces() {
		if !strings.HasPrefix(report.Exercised[surface], module+":") {
			t.Errorf(`%s was not driven through %s; want report.Exercised[surface] beginning with module + ":"`, module, surface)
		}
	}
}

// only leaves one module in the list that an endpoint gives.
type only struct {
	http.RoundTripper
	module string
}

func (o only) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.RoundTripper.RoundTrip(r)
	if err != nil || r.URL.Path != router.PathInvoke {
		return resp, err
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	var envelope struct {
		OK     bool
		Result struct{ Modules []map[string]any }
	}
	if json.Unmarshal(text, &envelope) == nil && len(envelope.Result.Modules) > 0 {
		kept := slices.DeleteFunc(envelope.Result.Modules, func(m map[string]any) bool { return m["id"] != o.module })
		if text, err = json.Marshal(map[string]any{"ok": true, "result": map[string]any{"modules": kept}}); err != nil {
			return nil, err
		}
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	resp.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return resp, nil
}
