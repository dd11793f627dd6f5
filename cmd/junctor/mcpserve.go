package main

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/serve/stdiobridge"
	"github.com/junctor-run/junctor/internal/setup/clients"
)

// mcpBridge holds the flags of the bridge.
type mcpBridge struct{ view, client string }

func (b *mcpBridge) flags(c *cobra.Command) {
	c.Flags().StringVar(&b.client, "client", "", "`NAME` show the token that junctor setup created for this client")
	c.Flags().StringVar(&b.view, "view", "", "`VIEW` view of the catalog")
}

func (a *app) mcpServeCommand() *cobra.Command {
	var bridge mcpBridge
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve MCP on standard input and output, bridged to the running server",
		Long: `Serve MCP on standard input and output, bridged to the running server; none is
started. It shows the home's agent token unless --token or JUNCTOR_TOKEN is given.
Give it to an agent as the command of an MCP server, such as:

  claude mcp add junctor -- junctor mcp serve`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runBridge(cmd.Context(), bridge) },
	}
	bridge.flags(c)
	return c
}

func (a *app) runBridge(ctx context.Context, b mcpBridge) error {
	token := filepath.Join("run", "agent.token")
	if b.client != "" {
		found, err := clients.Find(b.client)
		if err != nil {
			return err
		}
		token = filepath.Join("clients", found.Name+".token")
	}
	url, bearer, err := a.connectionWith(token)
	if b.client != "" && capability.CodeOf(err) == capability.CodeUnauthenticated {
		return capability.AsError(err).With("", "it is not connected, or was undone; connect it with: junctor setup --client "+b.client+
			", or remove the entry junctor from its configuration and restart it")
	}
	if err != nil {
		return err
	}
	return stdiobridge.Run(ctx, stdiobridge.Config{In: a.stdin, Out: a.stdout, Err: a.stderr, URL: url, Token: bearer, View: b.view})
}
