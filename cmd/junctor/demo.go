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

// serveDemo runs a server on a home of its own with a reference endpoint as a
// second process, connected with its token, and says what to try.
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
	if err := writeDemoFiles(root, filepath.Join(home, "demo", "endpoint-files")); err != nil {
		return err
	}
	flags["fs.roots"] = []any{map[string]any{"id": "demo", "path": root}}
	cfg, err := a.loadConfig(home, "", flags)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var endpoint *exec.Cmd
	err = a.serve(ctx, cfg, readyFile, func(line server.ReadyLine) error {
		if err := a.printReady(line); err != nil {
			return err
		}
		// In the background: the server answers already, and connecting is a
		// request to it like any other.
		var err error
		if endpoint, err = a.startDemoEndpoint(ctx, home); err != nil {
			return err
		}
		go func() {
			if err := a.connectDemo(ctx, home, line); err != nil && ctx.Err() == nil {
				fmt.Fprintf(a.stderr, "junctor: the demo endpoint could not be connected: %s\n", err)
				cancel()
				return
			}
			a.banner(home)
		}()
		return nil
	})
	if endpoint != nil {
		cancel()
		_ = endpoint.Wait() // ended by the context; its status says only that
	}
	return err
}

func writeDemoFiles(root, endpointRoot string) error {
	for name, text := range map[string]string{
		filepath.Join(root, "hello.txt"):         "hello from this machine\n",
		filepath.Join(endpointRoot, "hello.txt"): "hello from the endpoint, another process\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func demoTokenFile(home string) string { return filepath.Join(home, "demo", "endpoint.token") }
func demoReadyFile(home string) string { return filepath.Join(home, "demo", "endpoint.json") }

func (a *app) startDemoEndpoint(ctx context.Context, home string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(demoTokenFile(home), []byte(secret.NewToken('e')+"\n"), 0o600); err != nil {
		return nil, err
	}
	_ = os.Remove(demoReadyFile(home)) // of an earlier run
	cmd := exec.CommandContext(ctx, self, "endpoint", "serve", "--listen", "127.0.0.1:0",
		"--endpoint-token-file", demoTokenFile(home), "--ready-file", demoReadyFile(home), "--root", filepath.Join(home, "demo", "endpoint-files"))
	cmd.Stderr = a.stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches it through us, in order
	if err := cmd.Start(); err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "demo", "the demo endpoint cannot be started", err)
	}
	return cmd, nil
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
	admin, err := a.readSecretFile(line.TokenFile)
	if err != nil {
		return err
	}
	token, err := a.readSecretFile(demoTokenFile(home))
	if err != nil {
		return err
	}
	c, err := client.New(client.Config{URL: line.URL, Token: admin})
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
	fmt.Fprint(a.stderr, strings.NewReplacer("J", j, "CONFIG", string(config)).Replace(`
Running: the server, and the endpoint "demo" as another process.
Try in another terminal:

  J invoke fs.list '{"path":"."}'
  J invoke fs.readText '{"path":"hello.txt"}' --select endpoint=demo
  J invoke device-tools:action:DEVICE_PING '{"text":"hello"}'
  J catalog explain fs.readText
  J audit query --limit 5

For an agent that speaks MCP:

CONFIG

Ctrl-C stops everything.
`))
}
