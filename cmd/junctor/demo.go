package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/server"
)

// serveDemo runs a server with an example of each kind of provider, each in its own process, and
// prints commands to try. Unless --home is given, the home is a temporary folder, which is removed
// at the end. Environment variables with another home, server or token are ignored.
func (a *app) serveDemo(ctx context.Context, file string, flags map[string]any, readyFile string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	home := a.home
	if home == "" {
		dir, err := os.MkdirTemp("", "junctor-demo-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		home = dir
	}
	if home, err = filepath.Abs(home); err != nil {
		return err
	}
	d := &demo{app: a, self: self, home: home}
	if err := d.writeFiles(); err != nil {
		return err
	}
	flags["fs.roots"] = []any{map[string]any{"id": "demo", "path": d.dir("files")}}
	cfg, err := a.loadConfig(home, file, flags)
	if err != nil {
		return err
	}
	if cfg.Store.URL != "" || cfg.NATS.URL != "" {
		return capability.Errorf(capability.CodeInvalidInput, "demo", "a demo would be seen by other gateways: store.url or nats.url is set").
			With("", "unset JUNCTOR_STORE_URL and JUNCTOR_NATS_URL, and name a home or a configuration file without these keys")
	}
	if _, named := flags["listen"]; !named && cfg.Listen == config.Default().Listen {
		cfg.Listen = "127.0.0.1:0" // the default port is for a permanent server
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var furnishing sync.WaitGroup
	err = a.serve(ctx, cfg, readyFile, func(line server.ReadyLine) error {
		d.line = line
		if err := a.printReady(line); err != nil {
			return err
		}
		if err := d.start(ctx); err != nil {
			return err
		}
		// This runs in the background, because it sends requests to the running server.
		furnishing.Go(func() {
			err := d.furnish(ctx)
			switch {
			case ctx.Err() != nil:
			case err != nil:
				fmt.Fprintf(a.stderr, "junctor: the demo is not complete: %s\n", err)
				cancel()
			default:
				d.banner(ctx)
			}
		})
		return nil
	})
	cancel()
	d.wait()
	furnishing.Wait()
	return err
}

// banner prints the address of the console and commands to try. The commands work in any other terminal, also if its environment names
// another server.
func (d *demo) banner(ctx context.Context) {
	j := text.ShellWord(d.self) + " --home " + text.ShellWord(d.home)
	env := map[string]string{}
	for _, name := range []string{"JUNCTOR_TOKEN", "JUNCTOR_URL"} {
		if d.env(name) != "" {
			j = name + "= " + j
			env[name] = ""
		}
	}
	type entry struct {
		Command string            `json:"command"`
		Args    []string          `json:"args"`
		Env     map[string]string `json:"env,omitempty"`
	}
	open := "JUNCTOR console prints a link to the web console."
	var link struct {
		URL   string `json:"url"`
		Built bool   `json:"built"`
	}
	if c, err := d.client(); err == nil && c.Do(ctx, http.MethodPost, "/api/v1/console/codes", nil, &link) == nil && link.Built {
		open = "Open the web console (the link works once, for five minutes; JUNCTOR console prints another):\n\n  " + link.URL
	}
	config, _ := json.MarshalIndent(map[string]any{"mcpServers": map[string]any{
		"junctor": entry{d.self, []string{"--home", d.home, "mcp"}, env},
	}}, "", "  ")
	fmt.Fprint(d.stderr, strings.NewReplacer("JUNCTOR", j, "CONFIG", string(config), "OPEN", strings.ReplaceAll(open, "JUNCTOR", j)).Replace(`
Running, each a process of its own:

  server          this one
  endpoint        demo: two modules and some files, on another port
  device          demo-device: it joined, and a skill was installed on it
  MCP server      units: agents can call its tools here
  extensions      tools.machine and tools.words: enabled, a process for each run
  task agent      clock: a shell that works on a task

OPEN

Try in another terminal: which provider would read a file, and why; the endpoint reads it; the device
answers; a program of an extension runs in the sandbox; and the record shows all calls.

  JUNCTOR catalog explain fs.readText
  JUNCTOR invoke fs.readText '{"path":"hello.txt"}' --select endpoint=demo
  JUNCTOR nodes call demo-device demo.hello
  JUNCTOR extensions run '/machine kernel'
  JUNCTOR audit query --limit 5

For the configuration of an agent that speaks MCP:

CONFIG

Ctrl-C stops everything.
`))
}
