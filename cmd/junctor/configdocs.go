package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/internal/config"
)

// configDocsCommand returns the command that prints the reference of the configuration, as text, as
// JSON, or as the page docs/configuration.md.
func (a *app) configDocsCommand() *cobra.Command {
	var markdown bool
	c := &cobra.Command{
		Use: "docs", Short: "List every key with its type, default and meaning", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			switch {
			case markdown:
				a.printf("%s", configPage())
				return nil
			case a.json:
				return a.printObject(config.Keys())
			}
			for _, k := range config.Keys() {
				a.printf("%s (%s, default %s)\n    %s\n    variable: %s\n", k.Path, k.Type, dash(k.Default), k.Doc, k.Env)
				if k.Runtime {
					a.printf("    can also be set while the server runs\n")
				}
			}
			a.printf("\nVariables of an elizaOS agent that are read too (a key is the one that is set):\n")
			for _, alias := range config.Aliases() {
				a.printf("%s\n    %s\n", alias.Name, alias.Doc)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&markdown, "markdown", false, "print the page docs/configuration.md")
	return c
}

// configPage returns the page docs/configuration.md; a test compares it with the file.
func configPage() string {
	var b strings.Builder
	b.WriteString(`# Configuration

Everything has a default. The first of these that sets a key counts: flags, ` + "`JUNCTOR_*`" + ` variables, variables of an
elizaOS agent (below), the file, the files of an elizaOS agent, the default. The file is ` + "`config.yaml`" + ` in the home, or
that of ` + "`--config`" + `:

` + "```yaml" + `
listen: 127.0.0.1:7777
fs:
  roots:
    - {id: work, path: /srv/work}
` + "```" + `

Unknown keys and values of a wrong type are refused with their line. ` + "`junctor config check`" + ` checks the file,
` + "`junctor config show`" + ` prints the values in force. Changes count from the next start; *live* keys can also be set while the
server runs. ` + "`JUNCTOR_HOME`, `JUNCTOR_URL`, `JUNCTOR_TOKEN` and `JUNCTOR_GATEWAY`" + ` are not keys but variables of the command
line. ` + "`junctor config docs --markdown`" + ` prints this page.

Below each key is its variable. A key without a default has its type in that column, and means off or none unless noted.
Durations are written 30s, 5m or 1h30m, sizes 512KiB, 4MiB or in bytes; lists in variables are
comma-separated unless noted. A ` + "`…_secret`" + ` key names a stored secret (` + "`junctor secrets set NAME`" + `).
`)
	section := "-"
	for _, k := range config.Keys() {
		of, _, nested := strings.Cut(k.Path, ".")
		if !nested {
			of = ""
		}
		if of != section {
			section = of
			title := "The server"
			if of != "" {
				title = "`" + of + "`"
			}
			fmt.Fprintf(&b, "\n## %s\n\n| key | default | meaning |\n|---|---|---|\n", title)
		}
		live, def := "", k.Type
		if k.Runtime {
			live = " *live*"
		}
		if k.Default != "" {
			def = "`" + k.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s`%s<br>`%s` | %s | %s |\n", k.Path, live, k.Env, def, cell(k.Doc))
	}
	b.WriteString("\n## Variables of an elizaOS agent\n\nA variable whose meaning is a key sets that key.\n\n| variable | meaning |\n|---|---|\n")
	for _, alias := range config.Aliases() {
		name := "`" + alias.Name + "`"
		if alias.Fallback != "" {
			name += "<br>or `" + alias.Fallback + "`"
		}
		fmt.Fprintf(&b, "| %s | %s |\n", name, cell(alias.Doc))
	}
	return b.String()
}

// cell escapes a text for a cell of a Markdown table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;").Replace(text)
}
