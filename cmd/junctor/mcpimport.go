package main

import (
	"context"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/setup/setupserve"
)

func (a *app) mcpImportCommand() *cobra.Command {
	var dry, yes bool
	hints := trustWord("ask")
	var move []string
	c := &cobra.Command{
		Use: "import FILE", Short: "Add the MCP servers of a file, such as the mcp.json of a client", Args: cobra.ExactArgs(1),
		Long: `Add the MCP servers of a file in the form of any client that junctor setup supports:
mcpServers, servers, context_servers, mcp, or [mcp_servers.NAME] in TOML. The file stays
as it is. Credentials become named secrets, and programs are confined to the folders
that their arguments name. A server that runs behind junctor already is not added again.

You are asked whether tools that declare themselves read-only may run without approval.
With --yes they may not, unless you give --trust-hints, or later run:
junctor mcp set NAME --trust-hints

A server that names folders which its program could not use is added after a question
about them. With --yes it is not added.`,
		Example: `  junctor mcp import .mcp.json --dry-run
  junctor mcp import ~/.cursor/mcp.json --server files`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.importServers(cmd.Context(), args[0], setupserve.Import{Move: move, DryRun: dry, KeepUnreached: yes}, yes, hints)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&move, "server", nil, "`NAME` only this server of the file (repeatable)")
	f.BoolVar(&dry, "dry-run", false, "show the servers that would be added, and add none")
	f.BoolVar(&yes, "yes", false, "add them without asking")
	hints.flag(c, "`WORD` whether tools that declare to only read count as reads: ask, yes or no; with --yes, ask is no")
	return c
}

func (a *app) importServers(ctx context.Context, file string, req setupserve.Import, yes bool, hints trustWord) error {
	if !yes && !req.DryRun && (a.json || !terminal(a.stdin)) {
		return capability.Errorf(capability.CodeInvalidInput, "mcp.import", "nothing can be asked here: give --yes or --dry-run")
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return capability.Wrap(capability.CodeNotFound, "mcp.import", "the file "+file+" cannot be read", err).
			With("", "name a file you may read")
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxImportFile+1))
	if err != nil || len(text) > maxImportFile {
		return capability.Wrap(capability.CodeTooLarge, "mcp.import", file+" cannot be read, or is larger than 16 MiB", err)
	}
	req.File, req.Text = path, string(text)
	if len(req.Move) == 0 {
		req.Move = []string{"*"}
	}
	plan := req
	plan.DryRun = true
	var out setupserve.Result
	if err := a.do(ctx, http.MethodPost, "/api/v1/imports", plan, &out); err != nil {
		return err
	}
	if !a.json {
		if err := a.printImport(out); err != nil {
			return err
		}
		when := "run after the move"
		if !yes && !req.DryRun {
			when = ""
		}
		a.printUnreached(out, when)
	}
	if req.DryRun || len(out.Moved) == 0 {
		if a.json {
			return a.printObject(out)
		}
		return nil
	}
	req.TrustHints = hints == "yes"
	if !yes {
		if answer, err := a.ask(ctx, "Add them? [y/N] "); err != nil || !isYes(strings.TrimSpace(answer)) {
			return err
		}
		if req.Folders, err = a.askFolders(ctx, out); err != nil {
			return err
		}
		if hints == "ask" {
			answer, err := a.ask(ctx, "May tools that declare themselves read-only run without approval? [y/N] ")
			if err != nil {
				return err
			}
			req.TrustHints = isYes(strings.TrimSpace(answer))
		}
	}
	planned := out.Moved
	out = setupserve.Result{}
	if err := a.do(ctx, http.MethodPost, "/api/v1/imports", req, &out); err != nil {
		return err
	}
	if a.json {
		return a.printObject(out)
	}
	for _, server := range slices.Sorted(maps.Keys(planned)) {
		if upstream, ok := out.Moved[server]; ok {
			a.printf("added %s as %s\n", plainText(server), plainText(upstream))
		} else {
			a.printf("did not add %s: %s\n", plainText(server), plainText(out.Left[server]))
		}
	}
	return nil
}

// printImport prints the plan of an import.
func (a *app) printImport(out setupserve.Result) error {
	var rows [][]string
	for _, server := range slices.Sorted(maps.Keys(out.Moved)) {
		f := out.Folders[server]
		rows = append(rows, []string{server, out.Moved[server], dash(strings.Join(f.ReadWrite, " ")), dash(strings.Join(f.ReadOnly, " "))})
	}
	if err := a.table([]string{"SERVER", "NAME", "WRITES TO", "READS"}, rows, "no server of the file can be added"); err != nil {
		return err
	}
	for _, server := range slices.Sorted(maps.Keys(out.Left)) {
		a.printf("%s cannot be added: %s\n", plainText(server), plainText(out.Left[server]))
	}
	if len(out.Secrets) > 0 {
		a.printf("credentials become the secrets %s\n", plainText(strings.Join(out.Secrets, ", ")))
	}
	return nil
}
