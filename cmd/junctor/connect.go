package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
)

func (a *app) connectCommand() *cobra.Command {
	var id, provider, token, tokenFile, policyFile string
	var allowed []string
	var noPersist bool
	var timeoutMS int64
	c := &cobra.Command{
		Use:   "connect URL",
		Short: "Connect a remote endpoint: all of it, or nothing",
		Long: `Connect a remote endpoint of the capability-router protocol. Its manifest is read
and checked, and either all of it is let in or nothing. It is remembered over
restarts unless --no-persist is given.`,
		Example: `  junctor connect http://127.0.0.1:31337 --id tools
  junctor connect https://tools.example.org --endpoint-token-file token --allowed-module notes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			endpoint := map[string]any{"baseUrl": args[0]}
			if id != "" {
				endpoint["id"] = id
			}
			if tokenFile != "" {
				if token != "" {
					return capability.Errorf(capability.CodeInvalidInput, "", "give --endpoint-token or --endpoint-token-file, not both")
				}
				value, err := a.readSecretFile(tokenFile)
				if err != nil {
					return err
				}
				token = value.Reveal()
			}
			if token != "" {
				endpoint["token"] = token
			}
			body := map[string]any{"endpoint": endpoint}
			if provider != "" {
				body["provider"] = provider
			}
			if noPersist {
				body["persist"] = false
			}
			if timeoutMS != 0 {
				body["requestTimeoutMs"] = timeoutMS
			}
			if cmd.Flags().Changed("allowed-module") {
				body["allowedModuleIds"] = allowed
			}
			if policyFile != "" {
				policy, err := os.ReadFile(policyFile)
				if err != nil {
					return capability.Wrap(capability.CodeNotFound, "", "the trust policy "+policyFile+" cannot be read", err)
				}
				if !json.Valid(policy) {
					return capability.Errorf(capability.CodeInvalidInput, "", "the trust policy %s is not JSON", policyFile)
				}
				body["trustPolicy"] = json.RawMessage(policy)
			}
			return a.call(cmd.Context(), http.MethodPost, "/api/capability-router/connect", body, func(raw json.RawMessage) error {
				out, err := decode[struct {
					Endpoint struct{ ID, BaseURL string }
					Warnings []string
					Sync     struct {
						Registered, Reloaded, Unloaded, Skipped []string
					}
				}](raw)
				if err != nil {
					return err
				}
				a.printf("connected %s at %s\n", plainText(out.Endpoint.ID), plainText(out.Endpoint.BaseURL))
				c, err := a.client()
				if err != nil {
					return err
				}
				var now endpointRow // what it offers is not in the answer, whose form is the original's
				if err := c.Do(cmd.Context(), http.MethodGet, "/api/capability-router/endpoints/"+url.PathEscape(out.Endpoint.ID), nil, &now); err != nil {
					return err
				}
				a.printf("  families %s\n", dash(plainText(strings.Join(now.Families, ", "))))
				a.printf("  modules  %s\n", dash(plainText(strings.Join(now.Modules, ", "))))
				for _, w := range out.Warnings {
					a.printf("  warning  %s\n", plainText(w))
				}
				if len(out.Sync.Skipped) > 0 {
					a.printf("  skipped  %s\n", plainText(strings.Join(out.Sync.Skipped, ", ")))
				}
				return nil
			})
		},
	}
	f := c.Flags()
	f.StringVar(&id, "id", "", "name of the endpoint here (default \"default\", numbered when taken)")
	f.StringVar(&provider, "provider", "", "kind of endpoint: direct, e2b, home-machine, mobile-companion or desktop-companion")
	f.StringVar(&token, "endpoint-token", "", "the endpoint's own token (seen by other processes; prefer the file)")
	f.StringVar(&tokenFile, "endpoint-token-file", "", "file that holds the endpoint's own token")
	f.StringSliceVar(&allowed, "allowed-module", nil, "let in only this module (repeatable)")
	f.StringVar(&policyFile, "trust-policy", "", "JSON file with the endpoint's trust policy: signatures, issuers, keys, names")
	f.BoolVar(&noPersist, "no-persist", false, "forget the endpoint when the server stops")
	f.Int64Var(&timeoutMS, "request-timeout-ms", 0, "deadline of one call to it")
	return c
}

func (a *app) disconnectCommand() *cobra.Command {
	return &cobra.Command{
		Use: "disconnect ID", Short: "Withdraw an endpoint and everything it offers", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodDelete, "/api/capability-router/endpoints/"+url.PathEscape(args[0]), nil, func(json.RawMessage) error {
				a.printf("disconnected %s\n", args[0])
				return nil
			})
		},
	}
}
