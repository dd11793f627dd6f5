package main

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/telemetry"
	"github.com/junctor-run/junctor/internal/server"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

func (a *app) serveCommand() *cobra.Command {
	var file, readyFile string
	var demo bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the server: every surface on one HTTP listener",
		Long: `Run the server: every surface on one HTTP listener. One home is served by one server.

At a terminal it prints its address and a link to the console, and then a line for
each provider that connects or is lost, each refusal and each approval. Elsewhere,
and with --json or --log-format json, it prints one JSON line with its URL when it
answers.

With --demo it also starts an example of everything, each a process of its own, and
prints commands to try. Unless --home and --listen name others, it takes a new folder,
which is removed at the end, and a free port.`,
		Example: `  junctor serve
  junctor serve --demo
  junctor serve --listen 127.0.0.1:0 --ready-file ready.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set := make(map[string]any)
			for name, key := range map[string]string{
				"listen": "listen", "insecure-plain-http": "insecure_plain_http", "log-level": "log.level", "log-format": "log.format",
			} {
				if cmd.Flags().Changed(name) {
					set[key] = cmd.Flags().Lookup(name).Value.String()
				}
			}
			if demo {
				return a.serveDemo(cmd.Context(), file, set, readyFile)
			}
			home, err := a.findHome()
			if err != nil {
				return err
			}
			cfg, err := a.loadConfig(home, file, set)
			if err != nil {
				return err
			}
			if a.json || !terminal(a.stdout) || cfg.Log.Format == "json" {
				return a.serve(cmd.Context(), cfg, readyFile, func(line server.ReadyLine) error { return a.printReady(line) })
			}
			if cfg.Log.Level == "info" && !cmd.Flags().Changed("log-level") {
				cfg.Log.Level = "warn" // the lines below take the place of the others
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			var watching sync.WaitGroup
			defer func() {
				cancel()
				watching.Wait()
			}()
			return a.serve(ctx, cfg, readyFile, func(line server.ReadyLine) error {
				watching.Go(func() { a.watchServer(ctx, line) })
				return nil
			})
		},
	}
	f := c.Flags()
	f.String("listen", "", "`ADDRESS` address to listen on; port 0 picks a free one (default 127.0.0.1:7777)")
	f.StringVar(&file, "config", "", "`FILE` configuration file (default config.yaml in the home)")
	f.StringVar(&readyFile, "ready-file", "", "`FILE` also write the ready line to this file")
	f.Bool("insecure-plain-http", false, "allow a listen address that is not loopback without TLS")
	f.String("log-level", "", "`LEVEL` lowest level that is logged: debug, info, warn or error (default info)")
	f.String("log-format", "", "`FORMAT` form of the log: text or json (default text)")
	f.BoolVar(&demo, "demo", false, "also start an example of everything, and say what to try")
	return c
}

// loadConfig merges the layers of the configuration. Faults are invalid_input.
func (a *app) loadConfig(home, file string, flags map[string]any) (config.Config, error) {
	required := file != ""
	file = cmp.Or(file, filepath.Join(home, "config.yaml"))
	cfg, err := config.Load(home, file, required, a.environ, flags, programs.Configurable())
	if err != nil {
		return cfg, capability.Errorf(capability.CodeInvalidInput, "config", "%w", err).With("",
			"correct it where it is set: in "+file+", a variable or a flag; junctor config docs lists every key")
	}
	return cfg, nil
}

// serve runs a server until ctx ends. When it is ready, it writes readyFile, if given, and calls
// onReady.
func (a *app) serve(ctx context.Context, cfg config.Config, readyFile string, onReady func(server.ReadyLine) error) error {
	logger, err := telemetry.NewLogger(a.stderr, cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		return err
	}
	survive()
	opts := server.Options{Version: version(), Logger: logger}
	if terminal(a.stderr) {
		opts.Print = func(line string) { a.warnf("%s\n", line) }
	}
	s, err := server.New(ctx, cfg, opts)
	if err != nil {
		return err
	}
	return s.Run(ctx, func(line server.ReadyLine) error {
		if readyFile != "" {
			data, err := json.Marshal(line)
			if err != nil {
				return err
			}
			if err := replaceFile(readyFile, append(data, '\n')); err != nil {
				return err
			}
		}
		return onReady(line)
	})
}

func (a *app) printReady(line server.ReadyLine) error {
	return a.printObject(line)
}

// replaceFile replaces a file by a rename, so that other processes never read an incomplete file.
func replaceFile(name string, data []byte) error {
	if err := hostfs.WriteFile(name, data); err != nil {
		return capability.Wrap(capability.CodeInvalidInput, "", "the file "+name+" cannot be written", err).With("",
			"name a file in a folder that is there and that you may write to")
	}
	return nil
}
