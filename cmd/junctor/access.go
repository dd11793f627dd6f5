package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/policy"
)

func (a *app) tokensCommand() *cobra.Command {
	var req struct {
		Role    string   `json:"role"`
		Name    string   `json:"name,omitempty"`
		Labels  []string `json:"labels,omitempty"`
		View    string   `json:"view,omitempty"`
		Expires string   `json:"expires,omitempty"`
	}
	create := &cobra.Command{
		Use: "create --role ROLE", Short: "Create a token and show it, this once", Args: cobra.NoArgs,
		Example: `  junctor tokens create --role agent --name helper --expires 720h
  junctor tokens create --role operator --name alice --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd.Context(), http.MethodPost, "/api/v1/tokens", req, func(raw json.RawMessage) error {
				out, err := decode[struct {
					policy.Token
					Value string `json:"token"`
				}](raw)
				if err != nil {
					return err
				}
				fmt.Fprintf(a.stderr, "token %s for %s (%s), shown this once:\n", out.ID, out.Name, out.Role)
				a.printf("%s\n", out.Value)
				return nil
			})
		},
	}
	f := create.Flags()
	f.StringVar(&req.Role, "role", "", "role of the token: admin, operator, agent, node or task")
	f.StringVar(&req.Name, "name", "", "name of the principal (default the id of the token)")
	f.StringArrayVar(&req.Labels, "label", nil, "label that policies and nodes may ask for (repeatable)")
	f.StringVar(&req.View, "view", "", "view of the catalog that the token sees unless it names another")
	f.StringVar(&req.Expires, "expires", "", "lifetime, such as 8h (default until revoked)")
	_ = create.MarkFlagRequired("role")
	list := &cobra.Command{
		Use: "list", Short: "List tokens, never their values", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd.Context(), http.MethodGet, "/api/v1/tokens", nil, func(raw json.RawMessage) error {
				out, err := decode[struct{ Tokens []policy.Token }](raw)
				if err != nil {
					return err
				}
				var rows [][]string
				for _, t := range out.Tokens {
					rows = append(rows, []string{t.ID, t.Name, string(t.Role), when(t.Created), when(t.Expires), when(t.Revoked)})
				}
				return a.table([]string{"ID", "NAME", "ROLE", "CREATED", "EXPIRES", "REVOKED"}, rows, "there are no tokens; create one with: junctor tokens create --role ROLE")
			})
		},
	}
	revoke := &cobra.Command{
		Use: "revoke ID|NAME", Short: "Revoke a token at once", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodDelete, "/api/v1/tokens/"+url.PathEscape(args[0]), nil, func(json.RawMessage) error {
				a.printf("revoked %s\n", args[0])
				return nil
			})
		},
	}
	return a.group("tokens", "Manage tokens: who may call, in which role", create, list, revoke)
}

func (a *app) confirmationsCommand() *cobra.Command {
	var state string
	list := &cobra.Command{
		Use: "list", Short: "List what was asked and what was answered", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := "/api/v1/confirmations"
			if state != "" {
				path += "?state=" + url.QueryEscape(state)
			}
			return a.call(cmd.Context(), http.MethodGet, path, nil, func(raw json.RawMessage) error {
				out, err := decode[struct{ Confirmations []policy.Approval }](raw)
				if err != nil {
					return err
				}
				var rows [][]string
				for _, c := range out.Confirmations {
					rows = append(rows, []string{c.ID, string(c.State), string(c.Effect), when(c.Asked), when(c.Expires), c.Summary})
				}
				return a.table([]string{"ID", "STATE", "EFFECT", "CREATED", "EXPIRES", "WHAT"}, rows, "nothing waits for an approval here; what asks for one is listed until it is answered")
			})
		},
	}
	list.Flags().StringVar(&state, "state", "", "only this state: pending, approved, denied, expired or superseded")
	var decision string
	approve := &cobra.Command{
		Use: "approve ID", Short: "Approve what is asked, this once or for longer", Args: cobra.ExactArgs(1),
		Example: `  junctor confirmations list --state pending
  junctor confirmations approve cnf_0123456789abcdef01234567
  junctor confirmations approve cnf_0123456789abcdef01234567 --decision always`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.decide(cmd, args[0], decision) },
	}
	approve.Flags().StringVar(&decision, "decision", "once", "how long it counts: once (this very call, within 15 minutes), timed (15 minutes), session or always")
	deny := &cobra.Command{
		Use: "deny ID", Short: "Deny what is asked", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.decide(cmd, args[0], "deny") },
	}
	return a.group("confirmations", "Answer what waits for an approval", list, approve, deny)
}

func (a *app) decide(cmd *cobra.Command, id, decision string) error {
	body := map[string]string{"decision": decision}
	return a.call(cmd.Context(), http.MethodPost, "/api/v1/confirmations/"+url.PathEscape(id), body, func(raw json.RawMessage) error {
		out, err := decode[struct {
			Confirmation policy.Approval
			Grant        *policy.Grant
		}](raw)
		if err != nil {
			return err
		}
		a.printf("%s is %s: %s\n", out.Confirmation.ID, out.Confirmation.State, plainText(out.Confirmation.Summary))
		if out.Grant != nil {
			a.printf("grant %s made, revoke it with: junctor grants revoke %s\n", out.Grant.ID, out.Grant.ID)
		}
		return nil
	})
}

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
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd.Context(), http.MethodGet, "/api/v1/grants", nil, func(raw json.RawMessage) error {
				out, err := decode[struct{ Grants []policy.Grant }](raw)
				if err != nil {
					return err
				}
				var rows [][]string
				for _, g := range out.Grants {
					what := g.Action
					if g.Capability != "" {
						what = string(g.Capability)
					}
					rows = append(rows, []string{g.ID, g.State, g.Principal, g.Module, what, g.Scope, when(g.Expires), fmt.Sprint(g.Uses)})
				}
				return a.table([]string{"ID", "STATE", "PRINCIPAL", "MODULE", "WHAT", "SCOPE", "EXPIRES", "USES"}, rows, "there are no grants; create one with: junctor grants create --principal PRINCIPAL --action ACTION")
			})
		},
	}
	create := &cobra.Command{
		Use: "create", Short: "Create a grant", Args: cobra.NoArgs,
		Example: `  junctor grants create --principal agent:local-agent --action fs.writeText --expires 8h
  junctor grants create --module tools.say --action say.hello
  junctor grants create --module tools.say --permission exec`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd.Context(), http.MethodPost, "/api/v1/grants", req, func(raw json.RawMessage) error {
				g, err := decode[struct {
					policy.Grant
					Warnings []string
				}](raw)
				if err != nil {
					return err
				}
				a.printf("grant %s made\n", g.ID)
				for _, w := range g.Warnings {
					a.warnf("%s", plainText(w))
				}
				return nil
			})
		},
	}
	f := create.Flags()
	f.StringVar(&req.Principal, "principal", "", "only this principal, such as agent:local-agent (default any)")
	f.StringVar(&req.Role, "role", "", "only this role: admin, operator, agent, node or task (default any)")
	f.StringVar(&req.Module, "module", "", "only this module (default any)")
	f.StringVar(&req.Action, "action", "", "only this canonical action, or COMMAND.ACTION of an extension (default any)")
	f.StringArrayVar(&req.Permissions, "permission", nil, "permission that the deployment mode keeps from the extension; * is all (repeatable)")
	f.StringVar(&req.ContentHash, "content-hash", "", "only this content of the module (default of an extension: what is installed)")
	f.StringVar(&req.Scope, "scope", "", "how far it reaches: global, user or session (default global)")
	f.StringVar(&req.ScopeID, "scope-id", "", "principal or session that --scope means")
	f.StringVar(&req.Expires, "expires", "", "lifetime, such as 8h (default until revoked)")
	f.IntVar(&req.MaxUses, "max-uses", 0, "end after so many uses (default never)")
	f.StringVar(&req.Effect, "effect", "", "admin: it is meant for an action that administers, such as device.skill.install")
	revoke := &cobra.Command{
		Use: "revoke ID", Short: "Revoke a grant at once", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodDelete, "/api/v1/grants/"+url.PathEscape(args[0]), nil, func(json.RawMessage) error {
				a.printf("revoked %s\n", args[0])
				return nil
			})
		},
	}
	return a.group("grants", "Manage grants: what is permitted without asking again", list, create, revoke)
}

func (a *app) secretsCommand() *cobra.Command {
	var file string
	set := &cobra.Command{
		Use: "set NAME", Short: "Store a secret, read from a file or standard input", Args: cobra.ExactArgs(1),
		Example: `  junctor secrets set forge-token --from-file token
  printf %s "$TOKEN" | junctor secrets set forge-token`,
		RunE: func(cmd *cobra.Command, args []string) error {
			const limit = 64 << 10
			in := a.stdin
			if file != "" && file != "-" {
				f, err := os.Open(file)
				if err != nil {
					return capability.Wrap(capability.CodeNotFound, "", "the file "+file+" cannot be read", err).With("", "name a file you may read, or - for standard input")
				}
				defer f.Close()
				in = f
			} else if terminal(a.stdin) {
				fmt.Fprintln(a.stderr, "type the value, then Ctrl-D:")
			}
			value, err := io.ReadAll(io.LimitReader(in, limit+1))
			if err != nil || len(value) > limit {
				return capability.Errorf(capability.CodeTooLarge, "", "a secret is at most %d bytes", limit)
			}
			value = []byte(strings.TrimRight(string(value), "\r\n"))
			return a.call(cmd.Context(), http.MethodPut, "/api/v1/secrets/"+url.PathEscape(args[0]), value, func(json.RawMessage) error {
				a.printf("kept %s\n", args[0])
				return nil
			})
		},
	}
	set.Flags().StringVar(&file, "from-file", "", "file to read the value from; - is standard input (default -)")
	list := &cobra.Command{
		Use: "list", Short: "List the names of secrets, never their values", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd.Context(), http.MethodGet, "/api/v1/secrets", nil, func(raw json.RawMessage) error {
				out, err := decode[struct {
					Secrets []struct {
						Name    string
						Updated time.Time
					}
				}](raw)
				if err != nil {
					return err
				}
				var rows [][]string
				for _, s := range out.Secrets {
					rows = append(rows, []string{s.Name, when(s.Updated)})
				}
				return a.table([]string{"NAME", "UPDATED"}, rows, "there are no secrets; store one with: junctor secrets set NAME")
			})
		},
	}
	remove := &cobra.Command{
		Use: "remove NAME", Short: "Remove a secret", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodDelete, "/api/v1/secrets/"+url.PathEscape(args[0]), nil, func(json.RawMessage) error {
				a.printf("removed %s\n", args[0])
				return nil
			})
		},
	}
	return a.group("secrets", "Manage secrets: values that others refer to by name, never shown", set, list, remove)
}
