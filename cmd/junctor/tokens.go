package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/internal/core/policy"
)

func (a *app) tokensCommand() *cobra.Command {
	var req struct {
		Role    string   `json:"role"`
		Name    string   `json:"name,omitempty"`
		Labels  []string `json:"labels,omitempty"`
		View    string   `json:"view,omitempty"`
		Expires string   `json:"expires,omitempty"`

		Limits policy.Limits `json:"limits,omitzero"`
		Most   string        `json:"most,omitempty"`
	}
	create := &cobra.Command{
		Use: "create --role ROLE", Short: "Create a token and show it, this once", Args: cobra.NoArgs,
		Example: `  junctor tokens create --role agent --name helper --expires 720h
  junctor tokens create --role operator --name alice --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd.Context(), http.MethodPost, "/api/v1/tokens", req, decoded(func(out struct {
				policy.Token
				Value string `json:"token"`
			},
			) error {
				fmt.Fprintf(a.stderr, "token %s for %s (%s), shown this once:\n", out.ID, out.Name, out.Role)
				a.printf("%s\n", out.Value)
				return nil
			}))
		},
	}
	f := create.Flags()
	f.StringVar(&req.Role, "role", "", "`ROLE` role of the token: admin, operator, agent, node or task")
	f.StringVar(&req.Name, "name", "", "`NAME` name of the principal (default the id of the token)")
	f.StringArrayVar(&req.Labels, "label", nil, "`LABEL` label that policies and nodes may ask for (repeatable)")
	f.StringVar(&req.View, "view", "", "`VIEW` view of the catalog that the token sees unless it names another")
	f.IntVar(&req.Limits.PerMinute, "per-minute", 0, "`N` at most so many calls a minute, with those of its helpers (default no limit)")
	f.IntVar(&req.Limits.PerDay, "per-day", 0, "`N` at most so many calls a day, in UTC (default no limit)")
	f.StringVar(&req.Most, "max-effect", "", "`EFFECT` strongest effect of its calls, for the role agent: read, write or external")
	f.StringVar(&req.Expires, "expires", "", "`DURATION` lifetime, such as 8h (default until revoked)")
	_ = create.MarkFlagRequired("role")
	list := &cobra.Command{
		Use: "list", Short: "List tokens, never their values", Args: cobra.NoArgs,
		RunE: shows(a, "/api/v1/tokens", func(out struct{ Tokens []policy.Token }) error {
			var rows [][]string
			for _, t := range out.Tokens {
				rows = append(rows, []string{t.ID, t.Name, string(t.Role), when(t.Created), when(t.Used), when(t.Expires), when(t.Revoked), limits(t)})
			}
			return a.table([]string{"ID", "NAME", "ROLE", "CREATED", "USED", "EXPIRES", "REVOKED", "LIMITS"}, rows,
				"there are no tokens; create one with: junctor tokens create --role ROLE")
		}),
	}
	revoke := &cobra.Command{
		Use: "revoke ID|NAME", Short: "Revoke a token at once", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodDelete, "/api/v1/tokens/"+url.PathEscape(args[0]), nil, a.done("revoked %s\n", args[0]))
		},
	}
	return a.group("tokens", "Manage tokens: who may call, in which role", create, list, revoke)
}

// limits describes the bounds of a token.
func limits(t policy.Token) string {
	l, parts := t.Limits, []string(nil)
	if t.Most != "" {
		parts = append(parts, string(t.Most))
	}
	if l.PerMinute > 0 {
		parts = append(parts, fmt.Sprintf("%d/min", l.PerMinute))
	}
	if l.PerDay > 0 {
		parts = append(parts, fmt.Sprintf("%d/day", l.PerDay))
	}
	return dash(strings.Join(parts, " "))
}
