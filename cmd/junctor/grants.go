package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
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
				rows = append(rows, []string{g.ID, g.State, g.Principal, g.Module, subject(g), g.Scope, when(g.Expires), fmt.Sprint(g.Uses)})
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
		Long: `Revokes a grant: the next call of its tool is decided by the rules alone. If one
grant only is about a tool, as after the answer "always", ID may be that tool, such as
files/write_file.`,
		Example: "  junctor grants revoke files/write_file",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := a.grantOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.call(cmd.Context(), http.MethodDelete, "/api/v1/grants/"+url.PathEscape(id), nil, a.done("revoked %s\n", id))
		},
	}
	return a.group("grants", "Manage grants: what is permitted without asking again", list, create, revoke)
}

// subject returns what a grant permits, as people name it.
func subject(g policy.Grant) string { return toolName(cmp.Or(string(g.Capability), g.Action)) }

// grantOf returns the id of the one grant in force whose subject is name, or name if none is, because it
// is an id then.
func (a *app) grantOf(ctx context.Context, name string) (string, error) {
	if !strings.ContainsAny(name, "/.") {
		return name, nil
	}
	var out struct{ Grants []policy.Grant }
	if err := a.do(ctx, http.MethodGet, "/api/v1/grants", nil, &out); err != nil {
		return "", err
	}
	var ids []string
	for _, g := range out.Grants {
		if g.State == "active" && subject(g) == toolName(name) {
			ids = append(ids, g.ID)
		}
	}
	switch len(ids) {
	case 0:
		return name, nil
	case 1:
		return ids[0], nil
	}
	return "", capability.Errorf(capability.CodeInvalidInput, "grants.revoke", "%d grants are about %s", len(ids), name).
		With("", "revoke one of: "+strings.Join(ids, ", "))
}
