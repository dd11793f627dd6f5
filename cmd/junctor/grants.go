package main

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/internal/core/policy"
)

func (a *app) grantsCommand() *cobra.Command {
	var req struct {
		Principal   string   `json:"principal,omitempty"`
		Role        string   `json:"role,omitempty"`
		Module      string   `json:"module,omitempty"`
		Action      string   `json:"action,omitempty"`
		Permissions []string `json:"permissions,omitempty"`
		ContentHash string   `json:"content_hash,omitempty"`
		Scope       string   `json:"scope,omitempty"`
		ScopeID     string   `json:"scope_id,omitempty"`
		Expires     string   `json:"expires,omitempty"`
		MaxUses     int      `json:"max_uses,omitempty"`
		Effect      string   `json:"effect,omitempty"`
	}
	list := &cobra.Command{
		Use: "list", Short: "List grants", Args: cobra.NoArgs,
		RunE: shows(a, "/api/v1/grants", func(out struct{ Grants []policy.Grant }) error {
			var rows [][]string
			for _, g := range out.Grants {
				what := g.Action
				if g.Capability != "" {
					what = string(g.Capability)
				}
				rows = append(rows, []string{g.ID, g.State, g.Principal, g.Module, toolName(what), g.Scope, when(g.Expires), fmt.Sprint(g.Uses)})
			}
			return a.table([]string{"ID", "STATE", "PRINCIPAL", "MODULE", "WHAT", "+SCOPE", "EXPIRES", "USES"}, rows,
				"there are no grants; create one with: junctor grants create --principal PRINCIPAL --action ACTION")
		}),
	}
	create := &cobra.Command{
		Use: "create", Short: "Create a grant", Args: cobra.NoArgs,
		Example: `  junctor grants create --principal agent:local-agent --action fs.writeText --expires 8h
  junctor grants create --module tools.say --action say.hello
  junctor grants create --module tools.say --permission exec`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd.Context(), http.MethodPost, "/api/v1/grants", req, decoded(func(g struct {
				policy.Grant
				Warnings []string
			},
			) error {
				a.printf("grant %s made\n", g.ID)
				for _, w := range g.Warnings {
					a.warnf("%s", plainText(w))
				}
				return nil
			}))
		},
	}
	f := create.Flags()
	f.StringVar(&req.Principal, "principal", "", "`PRINCIPAL` only this principal, such as agent:local-agent (default any)")
	f.StringVar(&req.Role, "role", "", "`ROLE` only this role: admin, operator, agent, node or task (default any)")
	f.StringVar(&req.Module, "module", "", "`MODULE` only this module (default any)")
	f.StringVar(&req.Action, "action", "", "`ACTION` only this SERVER/TOOL, canonical action, or COMMAND.ACTION of an extension (default any)")
	f.StringArrayVar(&req.Permissions, "permission", nil, "`PERMISSION` permission that the deployment mode keeps from the extension; * is all (repeatable)")
	f.StringVar(&req.ContentHash, "content-hash", "", "`HASH` only this content of the module (default of an extension: what is installed)")
	f.StringVar(&req.Scope, "scope", "", "`SCOPE` how far it reaches: global, user or session (default global)")
	f.StringVar(&req.ScopeID, "scope-id", "", "`ID` principal or session that --scope means")
	f.StringVar(&req.Expires, "expires", "", "`DURATION` lifetime, such as 8h (default until revoked)")
	f.IntVar(&req.MaxUses, "max-uses", 0, "end after so many uses (default never)")
	f.StringVar(&req.Effect, "effect", "", "`EFFECT` admin: it is meant for an action that administers, such as device.skill.install")
	revoke := &cobra.Command{
		Use: "revoke ID", Short: "Revoke a grant at once", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodDelete, "/api/v1/grants/"+url.PathEscape(args[0]), nil, a.done("revoked %s\n", args[0]))
		},
	}
	return a.group("grants", "Manage grants: what is permitted without asking again", list, create, revoke)
}
