package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/examples"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/server"
	"github.com/junctor-run/junctor/secret"
)

// demoDevice is the id of the demo's device; the skill in the demo's folder is bound to
// the action that the device has.
const demoDevice = "demo-device"

// demo starts the examples of "serve --demo" as processes and connects them to the server.
type demo struct {
	*app
	self  string // path of this binary
	home  string
	line  server.ReadyLine
	procs []*exec.Cmd
}

func (d *demo) dir(elem ...string) string {
	return filepath.Join(append([]string{d.home, "demo"}, elem...)...)
}

// writeFiles writes the files of the examples to the home.
func (d *demo) writeFiles() error {
	for _, f := range []struct {
		name, text string
		mode       os.FileMode
	}{
		{"files/hello.txt", "hello from this machine\n", 0o600},
		{"endpoint-files/hello.txt", "hello from the endpoint, another process\n", 0o600},
		{"device/node/actions/hello.sh", "#!/bin/sh\necho hello from the device, another process: $$\n", 0o700},
		{"device/node/actions/hello.sh.action.json", `{"name":"hello","description":"Says hello.","output":"text"}`, 0o600},
		{"skill/skill.md", "---\nname: greeter\nnamespace: demo\ncapabilities:\n  hello:\n    metadata:\n      device_action: hello\n---\nWhat the demo's device can say.\n", 0o600},
	} {
		name := d.dir(f.name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(f.text), f.mode); err != nil {
			return err
		}
	}
	packages, err := examples.Extensions()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(d.dir("extensions")); err != nil { // of an earlier run
		return err
	}
	return os.CopyFS(d.dir("extensions"), packages)
}

// start starts the endpoint and the device.
func (d *demo) start(ctx context.Context) error {
	if err := os.WriteFile(d.endpointToken(), []byte(secret.NewToken('e')+"\n"), 0o600); err != nil {
		return err
	}
	_ = os.Remove(d.endpointReady()) // of an earlier run
	if err := d.spawn(ctx, "endpoint", "endpoint", "serve", "--listen", "127.0.0.1:0",
		"--endpoint-token-file", d.endpointToken(), "--ready-file", d.endpointReady(), "--root", d.dir("endpoint-files")); err != nil {
		return err
	}
	c, err := d.client()
	if err != nil {
		return err
	}
	// A device of an earlier run is removed, so that it can join at the new address.
	if err := c.Do(ctx, "DELETE", "/api/v1/nodes/"+demoDevice+"?forget=true", nil, nil); err != nil &&
		capability.CodeOf(err) != capability.CodeNotFound {
		return err
	}
	var made struct{ Token string }
	if err := c.Do(ctx, "POST", "/api/v1/tokens", map[string]any{"role": "node", "expires": "10m"}, &made); err != nil {
		return err
	}
	file := d.dir("node.token")
	if err := os.WriteFile(file, []byte(made.Token+"\n"), 0o600); err != nil {
		return err
	}
	return d.spawn(ctx, "device", "--home", d.dir("device"), "node", "join", d.line.URL, "--id", demoDevice, "--node-token-file", file)
}

// furnish connects the endpoint, adds the MCP server, installs the extensions and the skill, and
// creates a task, with the commands that a user would run.
func (d *demo) furnish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := d.connect(ctx); err != nil {
		return fmt.Errorf("the endpoint is not connected: %w", err)
	}
	if err := d.addUpstream(ctx); err != nil {
		return err
	}
	packages, err := fs.Glob(os.DirFS(d.dir("extensions")), "*")
	if err != nil {
		return err
	}
	for _, name := range packages {
		if err := d.run(ctx, "extensions", "install", d.dir("extensions", name)); err != nil {
			return err
		}
		if err := d.run(ctx, "extensions", "enable", "tools."+name, "--yes"); err != nil {
			return err
		}
	}
	if err := d.awaitDevice(ctx); err != nil {
		return err
	}
	if err := d.run(ctx, "skill", "install", demoDevice, d.dir("skill")); err != nil {
		return err
	}
	return d.run(ctx, "tasks", "create", "while date; do sleep 5; done", "--agent", "shell", "--label", "clock", "--scratch")
}

// demoUpstream is the name of the demo's MCP server.
const demoUpstream = "units"

// addUpstream adds the demo's MCP server, which is another process of this binary. If the home has
// one from an earlier run with another path of the binary, it is replaced.
func (d *demo) addUpstream(ctx context.Context) error {
	c, err := d.client()
	if err != nil {
		return err
	}
	sample := []string{"upstreams", "sample"}
	var there upstreamRow
	switch err := c.Do(ctx, http.MethodGet, upstreamPath(demoUpstream, ""), nil, &there); {
	case capability.CodeOf(err) == capability.CodeNotFound:
	case err != nil:
		return err
	case len(there.Command) == 0 || there.Command[0] == d.self || !slices.Equal(there.Command[1:], sample):
		return nil // up to date, or an upstream of the user with that name
	default:
		if err := d.run(ctx, "upstreams", "remove", demoUpstream); err != nil {
			return err
		}
	}
	add := []string{"upstreams", "add", demoUpstream, "--trust-hints"}
	if sandbox.New(sandbox.Config{}).Facts().Tier < sandbox.T2 { // this binary is trusted already; lists mark it
		add = append(add, "--unconfined")
	}
	return d.run(ctx, slices.Concat(add, []string{"--", d.self}, sample)...)
}

// command returns a command of this binary, without environment variables that name another
// server.
func (d *demo) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.self, args...)
	cmd.WaitDelay = 3 * time.Second
	cmd.Env = slices.DeleteFunc(slices.Clone(d.environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{"JUNCTOR_HOME", "JUNCTOR_URL", "JUNCTOR_TOKEN", "JUNCTOR_GATEWAY"}, name)
	})
	return cmd
}

// run runs a command of this binary on the demo's home. Its error contains the command's output.
func (d *demo) run(ctx context.Context, args ...string) error {
	out, err := d.command(ctx, append([]string{"--home", d.home}, args...)...).CombinedOutput()
	if err != nil {
		return capability.Errorf(capability.CodeFailed, "demo", "junctor %s: %.500s", strings.Join(args[:2], " "), strings.TrimSpace(string(out)))
	}
	return nil
}

// awaitDevice waits at most 20 s until the device is in the catalog.
func (d *demo) awaitDevice(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c, err := d.client()
	if err != nil {
		return err
	}
	plan := client.Invocation{Target: "device.status.get", Select: map[string]string{"node": demoDevice}, DryRun: true}
	for {
		var out struct{ OK bool }
		if err := c.Invoke(ctx, plan, &out); err == nil && out.OK {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("the device did not join within 20 s")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (d *demo) client() (*client.Client, error) {
	admin, err := d.readSecretFile(d.line.TokenFile)
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{URL: d.line.URL, Token: admin})
}

// spawn starts another process of this binary, which is terminated when ctx ends.
func (d *demo) spawn(ctx context.Context, what string, args ...string) error {
	cmd := d.command(ctx, args...)
	cmd.Stderr = d.stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = ownGroup() // so that Ctrl-C does not reach it directly
	if err := cmd.Start(); err != nil {
		return capability.Wrap(capability.CodeFailed, "demo", "the demo "+what+" cannot be started", err)
	}
	d.procs = append(d.procs, cmd)
	return nil
}

// wait waits for the end of the processes, whose context must have ended.
func (d *demo) wait() {
	for _, p := range d.procs {
		_ = p.Wait() // the status only shows that it was terminated
	}
}

func (d *demo) endpointToken() string { return d.dir("endpoint.token") }
func (d *demo) endpointReady() string { return d.dir("endpoint.json") }

// connect waits at most 10 s until the endpoint is ready and connects it, without storing it.
func (d *demo) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var ready struct {
		BaseURL string `json:"baseUrl"`
	}
	for {
		data, err := os.ReadFile(d.endpointReady())
		if err == nil && json.Unmarshal(data, &ready) == nil {
			break
		}
		select {
		case <-ctx.Done():
			return errors.New("it did not become ready within 10 s")
		case <-time.After(20 * time.Millisecond):
		}
	}
	token, err := d.readSecretFile(d.endpointToken())
	if err != nil {
		return err
	}
	c, err := d.client()
	if err != nil {
		return err
	}
	body := map[string]any{
		"endpoint": map[string]any{"id": "demo", "baseUrl": ready.BaseURL, "token": token.Reveal()}, "persist": false,
	}
	return c.Do(ctx, "POST", "/api/capability-router/connect", body, nil)
}
