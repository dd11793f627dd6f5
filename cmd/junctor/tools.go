package main

import (
	"cmp"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

func (a *app) toolsCommand() *cobra.Command {
	var as string
	list := &cobra.Command{
		Use: "list", Short: "List every tool with what an agent may do with it", Args: cobra.NoArgs,
		Long: `Lists every tool of the catalog: its name, the name under which an agent's tools/list
shows it, and whether a call is allowed, needs an approval (ask) or is refused (deny),
with the rule that decides.`,
		Example: "  junctor tools list --as agent:local-agent",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd.Context(), http.MethodGet, "/api/v1/tools?as="+url.QueryEscape(as), nil, decoded(func(out struct {
				Listed, Deferred int
				Tools            []struct {
					Name, Tool, Provider, Decision, Because string
					Rules                                   []policyRow
				}
			},
			) error {
				var rows [][]string
				for _, t := range out.Tools {
					rows = append(rows, []string{t.Tool, cmp.Or(t.Name, "not listed"), t.Decision, reasonOf(t.Rules, t.Because)})
				}
				if err := a.table([]string{"TOOL", "LISTED AS", "DECISION", "BECAUSE"}, rows, "no provider offers a tool"); err != nil {
					return err
				}
				a.printf("\n%d of %d tools are in the agent's tools/list\n", out.Listed, len(out.Tools))
				if out.Deferred > 0 {
					a.printf("%d more are found with catalog_search; mcp.exposure in config.yaml changes this\n", out.Deferred)
				}
				return nil
			}))
		},
	}
	list.Flags().StringVar(&as, "as", "", "`PRINCIPAL` whose list and decisions to show, such as agent:local-agent; yours if not given")
	return a.group("tools", "See the tools and what an agent may do with them", list)
}
