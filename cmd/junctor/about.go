package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/serve/a2aserve"
	"github.com/junctor-run/junctor/internal/server"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// buildVersion and buildCommit are set by the linker in make build.
var (
	buildVersion = "0.1.0-dev"
	buildCommit  = ""
)

func version() string { return buildVersion }

// commit returns the commit that the binary was built from and its Go version, as far as they are
// known.
func commit() (commit, goVersion string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return buildCommit, ""
	}
	commit = buildCommit
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && commit == "" {
			commit = s.Value
		}
	}
	return commit, info.GoVersion
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version and the protocols spoken", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			rev, goVersion := commit()
			if !a.json {
				a.printf("junctor %s %s\n", version(), rev)
				return nil
			}
			data, err := json.Marshal(map[string]any{
				"version": version(), "commit": rev, "go": goVersion,
				"protocols": map[string]any{"capability-router": "1", "mcp": mcpwire.Versions(), "a2a": a2aserve.Versions(), "cmp": payload.Version},
			})
			if err != nil {
				return err
			}
			return a.printJSON(data)
		},
	}
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check this installation and say what to do about each fault", Args: cobra.NoArgs,
		Long: "Check this installation and say what to do about each fault. The exit status is 1 if\nthere is one.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks := a.doctorChecks(cmd.Context())
			bad := false
			for _, c := range checks {
				bad = bad || !c.OK
			}
			if err := a.printChecks(checks); err != nil {
				return err
			}
			if bad {
				return exitStatus(1)
			}
			return nil
		},
	}
}

// printChecks prints the results of the doctor, with the remedy of each failed check.
func (a *app) printChecks(checks []httpapi.Check) error {
	if a.json {
		return a.printObject(map[string]any{"checks": checks})
	}
	for _, c := range checks {
		mark := "ok  "
		if !c.OK {
			mark = "FAIL"
		}
		a.printf("%s  %s: %s\n", mark, plainText(c.Name), plainText(c.Detail))
		if c.Remedy != "" {
			a.printf("      remedy: %s\n", plainText(c.Remedy))
		}
	}
	return nil
}

func failedCheck(name string, err error) httpapi.Check {
	e := capability.AsError(err)
	return httpapi.Check{Name: name, Detail: e.Message, Remedy: e.Hint}
}

func (a *app) configCommand() *cobra.Command {
	var file string
	load := func() (config.Config, string, error) {
		home, err := a.findHome()
		if err != nil {
			return config.Config{}, "", err
		}
		name := file
		name = cmp.Or(name, filepath.Join(home, "config.yaml"))
		cfg, err := a.loadConfig(home, file, nil)
		return cfg, name, err
	}
	show := &cobra.Command{
		Example: "  junctor config show --json",
		Use:     "show", Short: "Show the configuration in force, with all layers merged", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, _, err := load()
			if err != nil {
				return err
			}
			values := config.Values(cfg)
			if a.json {
				return a.printObject(values)
			}
			text, err := yaml.Marshal(values)
			if err != nil {
				return err
			}
			a.printf("%s", text)
			return nil
		},
	}
	check := &cobra.Command{
		Use: "check", Short: "Check the configuration and name the first fault", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, name, err := load()
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(json.RawMessage(`{"ok":true}`))
			}
			if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
				a.printf("there is no %s, so the defaults and the environment are in force; they are fine\n", name)
				return nil
			}
			a.printf("%s is fine\n", name)
			return nil
		},
	}
	docs := a.configDocsCommand()
	nats := &cobra.Command{
		Use: "nats", Short: "Print what the NATS servers of nats.url must be configured with", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, _, err := load()
			if err != nil {
				return err
			}
			text, err := server.NATSServerConfig(cfg)
			if err != nil {
				return err
			}
			if a.json {
				return a.printObject(map[string]any{"config": text})
			}
			a.printf("%s", text)
			return nil
		},
	}
	c := a.group("config", "Show, check and explain the configuration", show, check, docs, nats)
	c.PersistentFlags().StringVar(&file, "config", "", "`FILE` configuration file (default config.yaml in the home)")
	return c
}
