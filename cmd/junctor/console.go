package main

import (
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) consoleCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "console", Short: "Print a link that opens the web console", Args: cobra.NoArgs,
		Long: `Prints a link that opens the web console and signs the browser in, with the rights of
the token that the command line uses. The link works once, for five minutes.

The console shows what waits for a decision, what runs and what was done. Dangerous
decisions there ask for a code: it is printed on the terminal of "junctor serve", and by
"junctor console code".`,
		Example: `  junctor console
  junctor console code
  junctor console sessions`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd.Context(), http.MethodPost, "/api/v1/console/codes", nil, decoded(func(link struct {
				URL   string `json:"url"`
				Built bool   `json:"built"`
			},
			) error {
				a.printf("%s\n", link.URL)
				if !link.Built {
					a.note("This build has no page, because npm was missing when it was made: install Node.js and run make build.")
				}
				return nil
			}))
		},
	}
	c.AddCommand(a.consoleCodeCommand(), a.consoleSessionsCommand(), a.consoleEndCommand(), a.consolePasskeysCommand())
	return c
}

func (a *app) consoleCodeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "code", Short: "Show the codes that confirm decisions in the console", Args: cobra.NoArgs,
		Long: `Shows the decisions that were made in the web console with your token and wait for a
code. Type a code into the console only if the decision beside it is yours.`,
		RunE: shows(a, "/api/v1/console/verifications", func(body struct {
			Verifications []struct {
				Code, What string
				Expires    time.Time
			}
		},
		) error {
			var rows [][]string
			for _, v := range body.Verifications {
				rows = append(rows, []string{v.Code, v.What, time.Until(v.Expires).Round(time.Second).String()})
			}
			return a.table([]string{"CODE", "CONFIRMS", "FOR"}, rows, "No decision in the console waits for a code.")
		}),
	}
}

func (a *app) consoleSessionsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "sessions", Short: "List the browsers that are signed in", Args: cobra.NoArgs,
		RunE: shows(a, "/api/v1/console/sessions", func(body struct {
			Sessions []struct {
				ID, Principal          string
				Created, Used, Expires time.Time
			}
		},
		) error {
			var rows [][]string
			for _, s := range body.Sessions {
				rows = append(rows, []string{s.ID, s.Principal, s.Used.Local().Format(time.DateTime), s.Expires.Local().Format(time.DateTime)})
			}
			return a.table([]string{"ID", "PRINCIPAL", "LAST USED", "ENDS"}, rows, "No browser is signed in.")
		}),
	}
}

func (a *app) consoleEndCommand() *cobra.Command {
	return &cobra.Command{
		Use: "end ID", Short: "Sign a browser out", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodDelete, "/api/v1/console/sessions/"+args[0], nil, a.done("%s is signed out\n", args[0]))
		},
	}
}

func (a *app) consolePasskeysCommand() *cobra.Command {
	var gone string
	const path = "/api/v1/console/passkeys"
	show := shows(a, path, func(body struct {
		Passkeys []struct {
			ID, Name, Principal string
			Created, Used       time.Time
		}
	},
	) error {
		var rows [][]string
		for _, p := range body.Passkeys {
			rows = append(rows, []string{p.ID, dash(plainText(p.Name)), p.Principal, when(p.Created), when(p.Used)})
		}
		return a.table([]string{"ID", "NAME", "PRINCIPAL", "ADDED", "USED"}, rows, "No passkey was added: see the page Access of the console.")
	})
	c := &cobra.Command{
		Use: "passkeys", Short: "List or remove the passkeys that confirm decisions in the console", Args: cobra.NoArgs,
		Long: `Lists your passkeys, or with a token of role admin those of all people. A person who has
one confirms dangerous decisions in the console with it, and with no code. Passkeys are
added in the console, on the page Access. Remove one that was lost.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if gone == "" {
				return show(cmd, args)
			}
			return a.call(cmd.Context(), http.MethodDelete, path+"/"+url.PathEscape(gone), nil, a.done("removed %s\n", plainText(gone)))
		},
	}
	c.Flags().StringVar(&gone, "remove", "", "`ID` passkey to remove")
	return c
}
