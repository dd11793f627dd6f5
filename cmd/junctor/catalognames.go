package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
)

const namingPath = "/api/v1/catalog/naming"

func (a *app) catalogNamesCommand() *cobra.Command {
	var dry, yes bool
	c := &cobra.Command{
		Use: "names [always|needed]", Short: "Show or change how tools of MCP servers are named", Args: cobra.MaximumNArgs(1),
		Long: `Show or change how tools of MCP servers are named in lists of tools. With always, each
name begins with the server (files__read_file), so that adding a server never renames a
tool of another one. With needed, it does so only while two tools have one name.

A change is shown before it is made. A call by the old name reaches the same tool for 30
days, unless the tool has changed or another one has the name.`,
		Example: `  junctor catalog names always --dry-run
  junctor catalog names always`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.call(cmd.Context(), http.MethodGet, namingPath, nil, decoded(a.printNaming))
			}
			body := map[string]any{"upstreams": args[0], "dry_run": true}
			if dry {
				return a.call(cmd.Context(), http.MethodPost, namingPath, body, func(raw json.RawMessage) error {
					_, err := a.printRenames(raw, "would be renamed")
					return err
				})
			}
			var raw json.RawMessage
			if err := a.do(cmd.Context(), http.MethodPost, namingPath, body, &raw); err != nil {
				return err
			}
			if !a.json {
				if _, err := a.printRenames(raw, "are renamed"); err != nil {
					return err
				}
			}
			if !yes && !terminal(a.stdin) {
				return capability.Errorf(capability.CodeInvalidInput, "", "the names were not changed").
					With("", "look at them with --dry-run, then give --yes")
			}
			if !yes {
				fmt.Fprint(a.stderr, "Go on? [y/N] ")
				if !a.agrees(cmd.Context()) {
					return capability.Errorf(capability.CodeDenied, "naming", "the names were not changed").With("", "")
				}
			}
			delete(body, "dry_run")
			return a.call(cmd.Context(), http.MethodPost, namingPath, body, func(raw json.RawMessage) error {
				out, err := decode[struct{ Upstreams string }](raw)
				if err == nil {
					a.printf("names of tools begin with their server: %s\n", out.Upstreams)
				}
				return err
			})
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "show the names that would change, and change nothing")
	c.Flags().BoolVar(&yes, "yes", false, "change them without being asked at the terminal")
	return c
}

func (a *app) printNaming(out struct {
	Upstreams string
	Fixed     bool
	Former    []struct {
		Name, Action string
		Until        time.Time
	}
},
) error {
	where := ""
	if out.Fixed {
		where = " (set in catalog.yaml)"
	}
	a.printf("names of tools begin with their server: %s%s\n", out.Upstreams, where)
	var rows [][]string
	for _, f := range out.Former {
		rows = append(rows, []string{f.Name, toolName(f.Action), when(f.Until)})
	}
	return a.table([]string{"FORMER NAME", "TOOL", "UNTIL"}, rows, "")
}

// printRenames prints the tools that a change renames, and returns their number.
func (a *app) printRenames(raw json.RawMessage, what string) (int, error) {
	out, err := decode[struct {
		Renames []struct{ Action, Old, New string }
		Until   time.Time
	}](raw)
	if err != nil {
		return 0, err
	}
	var rows [][]string
	for _, r := range out.Renames {
		rows = append(rows, []string{r.Old, r.New})
	}
	if err := a.table([]string{"NOW", "THEN"}, rows, "no tool has another name then"); err != nil || len(rows) == 0 {
		return 0, err
	}
	a.printf("%d %s %s; calls by the old names work until %s\n", len(rows), counted(len(rows), "tool", "tools"), what, when(out.Until))
	return len(rows), nil
}
