package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
)

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
					return capability.Wrap(capability.CodeNotFound, "", "the file "+file+" cannot be read", err).With("",
						"name a file you may read, or - for standard input")
				}
				defer f.Close()
				in = f
			} else if terminal(a.stdin) {
				fmt.Fprintln(a.stderr, "type the value, then Ctrl-D:")
			}
			value, err := io.ReadAll(io.LimitReader(in, limit+1))
			if err != nil {
				return capability.Wrap(capability.CodeFailed, "", "the secret cannot be read", err)
			}
			if len(value) > limit {
				return capability.Errorf(capability.CodeTooLarge, "", "a secret is at most %d bytes", limit)
			}
			value = []byte(strings.TrimRight(string(value), "\r\n"))
			return a.call(cmd.Context(), http.MethodPut, "/api/v1/secrets/"+url.PathEscape(args[0]), value, a.done("kept %s\n", args[0]))
		},
	}
	set.Flags().StringVar(&file, "from-file", "", "`FILE` file to read the value from; - is standard input (default -)")
	list := &cobra.Command{
		Use: "list", Short: "List the names of secrets, never their values", Args: cobra.NoArgs,
		RunE: shows(a, "/api/v1/secrets", func(out struct {
			Secrets []struct {
				Name, Link string
				Updated    time.Time
			}
		},
		) error {
			var rows [][]string
			for _, s := range out.Secrets {
				rows = append(rows, []string{s.Name, when(s.Updated), cmp.Or(plainText(s.Link), "kept in this home")})
			}
			return a.table([]string{"NAME", "UPDATED", "VALUE COMES FROM"}, rows, "there are no secrets; store one with: junctor secrets set NAME")
		}),
	}
	link := &cobra.Command{
		Use: "link NAME TARGET", Short: "Read a secret elsewhere each time it is needed", Args: cobra.ExactArgs(2),
		Long: `Read a secret elsewhere each time it is needed.

TARGET is env:VARIABLE of the server's environment, file:PATH on its machine (absolute,
such as a mounted secret), or vault:PATH#FIELD of the service that vault.url names.`,
		Example: `  junctor secrets link bot file:/run/secrets/bot
  junctor secrets link bot vault:secret/data/bots#telegram`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/api/v1/secrets/" + url.PathEscape(args[0]) + "/link"
			return a.call(cmd.Context(), http.MethodPut, path, map[string]string{"to": args[1]}, a.done("%s is read at %s\n", args[0], args[1]))
		},
	}
	remove := &cobra.Command{
		Use: "remove NAME", Short: "Remove a secret", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodDelete, "/api/v1/secrets/"+url.PathEscape(args[0]), nil, a.done("removed %s\n", args[0]))
		},
	}
	return a.group("secrets", "Manage secrets: values that others refer to by name, never shown", set, link, list, remove)
}
