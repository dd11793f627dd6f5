package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/server"
	"github.com/junctor-run/junctor/secret"
)

// serveDemo runs a server on a home of its own, with a reference endpoint that is
// connected and a device that has joined as processes of their own, and says what to
// try.
func (a *app) serveDemo(ctx context.Context, flags map[string]any, readyFile string) error {
	home := a.home
	if home == "" {
		home = a.env("JUNCTOR_HOME")
	}
	if home == "" {
		dir, err := os.MkdirTemp("", "junctor-demo-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		home = dir
	}
	home, err := filepath.Abs(home)
	if err != nil {
		return err
	}
	root := filepath.Join(home, "demo", "files")
	if err := writeDemoFiles(filepath.Join(home, "demo")); err != nil {
		return err
	}
	flags["fs.roots"] = []any{map[string]any{"id": "demo", "path": root}}
	cfg, err := a.loadConfig(home, "", flags)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var others []*exec.Cmd
	err = a.serve(ctx, cfg, readyFile, func(line server.ReadyLine) error {
		if err := a.printReady(line); err != nil {
			return err
		}
		// In the background: the server answers already, and connecting is a
		// request to it like any other.
		endpoint, err := a.startDemoEndpoint(ctx, home)
		if err != nil {
			return err
		}
		others = append(others, endpoint)
		device, err := a.startDemoDevice(ctx, home, line)
		if err != nil {
			return err
		}
		others = append(others, device)
		go func() {
			err := a.connectDemo(ctx, home, line)
			if err == nil {
				err = a.awaitDemoDevice(ctx, line)
			}
			if err != nil && ctx.Err() == nil {
				fmt.Fprintf(a.stderr, "junctor: the demo is not complete: %s\n", err)
				cancel()
				return
			}
			a.banner(home)
		}()
		return nil
	})
	cancel()
	for _, p := range others {
		_ = p.Wait() // ended by the context; its status says only that
	}
	return err
}

// demoDevice is the id of the demo's device; the skill in the demo's folder is bound to
// the action that the device has.
const demoDevice = "demo-device"

func writeDemoFiles(dir string) error {
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
		name := filepath.Join(dir, f.name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(f.text), f.mode); err != nil {
			return err
		}
	}
	return nil
}

// startDemoDevice lets a device in and starts it.
func (a *app) startDemoDevice(ctx context.Context, home string, line server.ReadyLine) (*exec.Cmd, error) {
	c, err := a.demoClient(line)
	if err != nil {
		return nil, err
	}
	var made struct{ Token string }
	if err := c.Do(ctx, "POST", "/api/v1/tokens", map[string]any{"role": "node", "expires": "10m"}, &made); err != nil {
		return nil, err
	}
	file := filepath.Join(home, "demo", "node.token")
	if err := os.WriteFile(file, []byte(made.Token+"\n"), 0o600); err != nil {
		return nil, err
	}
	return a.spawnDemo(ctx, "device", "--home", filepath.Join(home, "demo", "device"), "node", "join", line.URL, "--id", demoDevice, "--node-token-file", file)
}

// awaitDemoDevice returns when the catalog has the device.
func (a *app) awaitDemoDevice(ctx context.Context, line server.ReadyLine) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c, err := a.demoClient(line)
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

func (a *app) demoClient(line server.ReadyLine) (*client.Client, error) {
	admin, err := a.readSecretFile(line.TokenFile)
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{URL: line.URL, Token: admin})
}

// spawnDemo starts this program once more.
func (a *app) spawnDemo(ctx context.Context, what string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = a.stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second
	cmd.SysProcAttr = ownGroup() // Ctrl-C reaches it through us, in order
	if err := cmd.Start(); err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "demo", "the demo "+what+" cannot be started", err)
	}
	return cmd, nil
}

func demoTokenFile(home string) string { return filepath.Join(home, "demo", "endpoint.token") }
func demoReadyFile(home string) string { return filepath.Join(home, "demo", "endpoint.json") }

func (a *app) startDemoEndpoint(ctx context.Context, home string) (*exec.Cmd, error) {
	if err := os.WriteFile(demoTokenFile(home), []byte(secret.NewToken('e')+"\n"), 0o600); err != nil {
		return nil, err
	}
	_ = os.Remove(demoReadyFile(home)) // of an earlier run
	return a.spawnDemo(ctx, "endpoint", "endpoint", "serve", "--listen", "127.0.0.1:0",
		"--endpoint-token-file", demoTokenFile(home), "--ready-file", demoReadyFile(home), "--root", filepath.Join(home, "demo", "endpoint-files"))
}

func (a *app) connectDemo(ctx context.Context, home string, line server.ReadyLine) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var ready struct {
		BaseURL string `json:"baseUrl"`
	}
	for {
		data, err := os.ReadFile(demoReadyFile(home))
		if err == nil && json.Unmarshal(data, &ready) == nil {
			break
		}
		select {
		case <-ctx.Done():
			return errors.New("it did not become ready within 10 s")
		case <-time.After(20 * time.Millisecond):
		}
	}
	token, err := a.readSecretFile(demoTokenFile(home))
	if err != nil {
		return err
	}
	c, err := a.demoClient(line)
	if err != nil {
		return err
	}
	body := map[string]any{
		"endpoint": map[string]any{"id": "demo", "baseUrl": ready.BaseURL, "token": token.Reveal()}, "persist": false,
	}
	return c.Do(ctx, "POST", "/api/capability-router/connect", body, nil)
}

// shellWord quotes s where a shell would read more than a word into it.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("/._-+=:@%,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// banner says what to try; every line works when pasted into another terminal.
func (a *app) banner(home string) {
	self := os.Args[0]
	if abs, err := os.Executable(); err == nil {
		self = abs
	}
	j := shellWord(self) + " --home " + shellWord(home)
	type entry struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}
	config, _ := json.MarshalIndent(map[string]any{"mcpServers": map[string]any{
		"junctor": entry{self, []string{"--home", home, "mcp"}},
	}}, "", "  ")
	fmt.Fprint(a.stderr, strings.NewReplacer("J", j, "CONFIG", string(config), "SKILL", shellWord(filepath.Join(home, "demo", "skill"))).Replace(`
Running: the server, the endpoint "demo" and the device "demo-device", each a process.
Try in another terminal:

  J invoke fs.list '{"path":"."}'
  J invoke fs.readText '{"path":"hello.txt"}' --select endpoint=demo
  J skill install demo-device SKILL
  J call demo-device demo.hello
  J audit query --limit 5

For an agent that speaks MCP:

CONFIG

Ctrl-C stops everything.
`))
}
