package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/server"
)

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
				a.printf("%s does not exist, so the defaults and the environment are in force; they are fine\n", name)
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
