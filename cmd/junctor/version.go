package main

import (
	"encoding/json"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/internal/serve/a2aserve"
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
