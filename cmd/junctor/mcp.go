package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/internal/serve/stdiobridge"
	"github.com/junctor-run/junctor/internal/setup/clients"
)

func (a *app) mcpCommand() *cobra.Command {
	var view, client string
	c := &cobra.Command{
		Use:   "mcp",
		Short: "Serve MCP on standard input and output, bridged to the running server",
		Long: `Serve MCP on standard input and output, bridged to the running server; none is
started. It shows the home's agent token unless --token or JUNCTOR_TOKEN is given.
Give it to an agent as the command of an MCP server, such as:

  claude mcp add junctor -- junctor mcp`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token := filepath.Join("run", "agent.token")
			if client != "" {
				found, err := clients.Find(client)
				if err != nil {
					return err
				}
				token = filepath.Join("clients", found.Name+".token")
			}
			url, bearer, err := a.connectionWith(token)
			if err != nil {
				return err
			}
			return stdiobridge.Run(cmd.Context(), stdiobridge.Config{
				In: a.stdin, Out: a.stdout, Err: a.stderr, URL: url, Token: bearer, View: view,
			})
		},
	}
	c.Flags().StringVar(&client, "client", "", "`NAME` show the token that junctor setup created for this client")
	c.Flags().StringVar(&view, "view", "", "`VIEW` view of the catalog")
	return c
}
