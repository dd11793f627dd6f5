package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const channelsPath = "/api/v1/channels"

type channelRow struct {
	Kind, Account, Gateway, Name, Secret, URL, Verify string
	State                                             struct{ State, Reason string }
	Guests                                            []string
	Added                                             time.Time
	People                                            []channelPerson
}

type channelPerson struct {
	User, Name, Principal, Role string
	Paired                      time.Time
}

// channelPath returns the path of an account, KIND or KIND:ACCOUNT.
func channelPath(ref string) string {
	kind, account, ok := strings.Cut(ref, ":")
	if !ok {
		account = "default"
	}
	return channelsPath + "/" + url.PathEscape(kind) + "/" + url.PathEscape(account)
}

// channelsCommand returns the commands about accounts of chat services.
func (a *app) channelsCommand() *cobra.Command {
	var in struct {
		Kind    string   `json:"kind"`
		Account string   `json:"account,omitempty"`
		Secret  string   `json:"secret"`
		URL     string   `json:"url,omitempty"`
		Greet   bool     `json:"greet,omitempty"`
		Tasks   bool     `json:"tasks,omitempty"`
		Guests  []string `json:"guests,omitempty"`
		Verify  string   `json:"verify,omitempty"`
	}
	add := &cobra.Command{
		Use: "add KIND --token-secret NAME", Args: cobra.ExactArgs(1),
		Short: "Add an account: discord, email, matrix, slack, telegram or webhook",
		Example: `  junctor channels add telegram --token-secret bot
  junctor channels add email --token-secret mail --api-url 'imaps://imap.example.org?smtp=smtps://smtp.example.org'
  junctor channels add webhook --account pager --token-secret pager-key --api-url https://example.org/in`,
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Kind = args[0]
			return a.call(cmd.Context(), http.MethodPost, channelsPath, in, decoded(func(c channelRow) error {
				a.printf("added %s:%s; pair yourself with: junctor channels pair %s:%s --role operator\n", c.Kind, c.Account, c.Kind, c.Account)
				return nil
			}))
		},
	}
	f := add.Flags()
	f.StringVar(&in.Account, "account", "", "`NAME` name of the account here (default default)")
	f.StringVar(&in.Secret, "token-secret", "", "`NAME` stored secret with the token, or with the key of a webhook")
	f.StringVar(&in.URL, "api-url", "", "`URL` another server of the service, or the receiver of a webhook")
	f.BoolVar(&in.Tasks, "tasks", false, "send operators the starts, questions and results of all tasks (default each person's own results)")
	f.BoolVar(&in.Greet, "greet", false, "answer people who are not paired with one line (default nothing)")
	f.StringArrayVar(&in.Guests, "guests", nil, "`GROUP` group in which people who are not paired may talk to the agent, which only reads for them (repeatable)")
	f.StringVar(&in.Verify, "verify", "", "`off` to let buttons approve dangerous calls too, without a code")
	_ = add.MarkFlagRequired("token-secret")
	list := &cobra.Command{
		Use: "list", Short: "List the accounts of chat services", Args: cobra.NoArgs,
		RunE: shows(a, channelsPath, func(out struct{ Channels []channelRow }) error {
			var rows [][]string
			for _, c := range out.Channels {
				rows = append(rows, []string{c.Kind + ":" + c.Account, dash(c.State.State), dash(c.Name), fmt.Sprint(len(c.People)), dash(plainText(c.State.Reason))})
			}
			return a.table([]string{"ACCOUNT", "STATE", "NAME", "PEOPLE", "REASON"}, rows,
				"no account of a chat service is set up; add one with: junctor channels add telegram --token-secret NAME")
		}),
	}
	show := &cobra.Command{
		Use: "show ACCOUNT", Short: "Show an account and its people", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodGet, channelPath(args[0]), nil, decoded(func(c channelRow) error {
				rows := [][]string{
					{"account", c.Kind + ":" + c.Account},
					{"state", dash(c.State.State)},
					{"reason", dash(plainText(c.State.Reason))},
					{"name", dash(plainText(c.Name))},
					{"secret", c.Secret},
					{"url", dash(c.URL)},
					{"verify", cmp.Or(c.Verify, "code")},
					{"guests", dash(plainText(strings.Join(c.Guests, " ")))},
					{"server", c.Gateway},
					{"added", when(c.Added)},
				}
				for _, p := range c.People {
					rows = append(rows, []string{"user " + plainText(p.User), p.Principal + " " + plainText(p.Name)})
				}
				return a.fields(rows)
			}))
		},
	}
	remove := &cobra.Command{
		Use: "remove ACCOUNT", Short: "Remove an account, and the access of its people", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodDelete, channelPath(args[0]), nil, a.done("removed %s\n", args[0]))
		},
	}
	unpair := &cobra.Command{
		Use: "unpair ACCOUNT USER", Short: "End the access of a person", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := channelPath(args[0]) + "/people/" + url.PathEscape(args[1])
			return a.call(cmd.Context(), http.MethodDelete, path, nil, a.done("%s has no access\n", args[1]))
		},
	}
	return a.group("channels", "Talk to the agent, and approve calls, in chat services", add, list, show, remove, a.pairCommand(), unpair)
}

func (a *app) pairCommand() *cobra.Command {
	var in struct {
		Role string `json:"role"`
		Name string `json:"name,omitempty"`
		User string `json:"user,omitempty"`
	}
	c := &cobra.Command{
		Use: "pair ACCOUNT --role ROLE", Short: "Make a code that pairs one person within ten minutes", Args: cobra.ExactArgs(1),
		Example: `  junctor channels pair telegram --role operator --name ann`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodPost, channelPath(args[0])+"/people", in, decoded(func(out struct {
				Send   string
				Person *channelPerson
			},
			) error {
				if out.Person != nil {
					a.printf("%s is %s\n", plainText(out.Person.User), out.Person.Principal)
					return nil
				}
				fmt.Fprintln(a.stderr, "send this to the account, in a conversation with it alone, within ten minutes:")
				a.printf("%s\n", plainText(out.Send))
				return nil
			}))
		},
	}
	f := c.Flags()
	f.StringVar(&in.Role, "role", "", "`ROLE` operator, who decides approvals, or agent")
	f.StringVar(&in.Name, "name", "", "`NAME` name of the principal (default one from the account and the user)")
	f.StringVar(&in.User, "user", "", "`ID` pair this user of the service at once, without a code")
	_ = c.MarkFlagRequired("role")
	return c
}
