package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/reference"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
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

// endpointRow is one endpoint as the server lists it.
type endpointRow struct {
	ID, BaseURL, Provider, State, Reason string
	Modules, Families                    []string
	Primary, HasToken, Persisted         bool
	Since, Synced                        time.Time
	AllowedModuleIDs                     []string
	TrustDecisions                       []router.TrustDecision
}

func (a *app) endpointsCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "Every endpoint and its state", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd.Context(), http.MethodGet, "/api/capability-router/endpoints", nil, func(raw json.RawMessage) error {
				out, err := decode[struct{ Endpoints []endpointRow }](raw)
				if err != nil {
					return err
				}
				var rows [][]string
				for _, e := range out.Endpoints {
					rows = append(rows, []string{e.ID, e.BaseURL, e.State, fmt.Sprint(len(e.Modules)), dash(strings.Join(e.Families, ",")), dash(e.Reason)})
				}
				return table(a.stdout, []string{"ID", "URL", "STATE", "MODULES", "FAMILIES", "REASON"}, rows)
			})
		},
	}
	show := &cobra.Command{
		Use: "show ID", Short: "One endpoint", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodGet, "/api/capability-router/endpoints/"+url.PathEscape(args[0]), nil, func(raw json.RawMessage) error {
				e, err := decode[endpointRow](raw)
				if err != nil {
					return err
				}
				rows := [][]string{
					{"id", e.ID},
					{"url", e.BaseURL},
					{"provider", e.Provider},
					{"state", e.State},
					{"reason", dash(e.Reason)},
					{"since", when(e.Since)},
					{"synced", when(e.Synced)},
					{"modules", dash(strings.Join(e.Modules, ", "))},
					{"families", dash(strings.Join(e.Families, ", "))},
					{"primary", fmt.Sprint(e.Primary)},
					{"has token", fmt.Sprint(e.HasToken)},
					{"persisted", fmt.Sprint(e.Persisted)},
					{"allowed modules", dash(strings.Join(e.AllowedModuleIDs, ", "))},
				}
				for _, d := range e.TrustDecisions {
					rows = append(rows, []string{"trust " + d.ModuleID, strings.TrimSpace(d.Reason + " " + d.Detail)})
				}
				return table(a.stdout, []string{"FIELD", "VALUE"}, rows)
			})
		},
	}
	sync := &cobra.Command{
		Use: "sync [ID]", Short: "Read the manifest again, of one endpoint or of all in parallel", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/api/capability-router/sync"
			if len(args) == 1 {
				path = "/api/capability-router/endpoints/" + url.PathEscape(args[0]) + "/sync"
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if err := c.Do(cmd.Context(), http.MethodPost, path, nil, &raw); err != nil {
				return err
			}
			out, err := decode[struct {
				Endpoints []struct {
					ID    string
					Error *capability.Error
					Sync  struct{ Registered, Reloaded, Unloaded, Skipped []string }
				}
			}](raw)
			if err != nil {
				return err
			}
			failed := false
			var rows [][]string
			for _, e := range out.Endpoints {
				state := fmt.Sprintf("%d new, %d reloaded, %d gone, %d unchanged or skipped", len(e.Sync.Registered), len(e.Sync.Reloaded), len(e.Sync.Unloaded), len(e.Sync.Skipped))
				if e.Error != nil {
					failed, state = true, e.Error.Message
				}
				rows = append(rows, []string{e.ID, state})
			}
			if a.json {
				err = a.printJSON(raw)
			} else {
				err = table(a.stdout, []string{"ENDPOINT", "RESULT"}, rows)
			}
			if err == nil && failed {
				return exitStatus(capability.CodeUnavailable.Row().Exit)
			}
			return err
		},
	}
	return a.group("endpoints", "Remote endpoints", list, show, sync)
}

func (a *app) endpointCommand() *cobra.Command {
	return a.group("endpoint", "Be an endpoint", a.endpointServeCommand())
}

// endpointServeCommand runs the reference endpoint: two modules that together
// offer every surface of the protocol.
func (a *app) endpointServeCommand() *cobra.Command {
	var listen, token, tokenFile, bundle, readyFile, root string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the reference endpoint, which offers every surface of the router protocol",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if tokenFile != "" {
				value, err := a.readSecretFile(tokenFile)
				if err != nil {
					return err
				}
				token = value.Reveal()
			}
			if token == "" && !loopbackAddress(listen) {
				return capability.Errorf(capability.CodeInvalidInput, "", "%s is not a loopback address: an endpoint that others can reach needs --endpoint-token-file", listen)
			}
			if root == "" {
				dir, err := os.MkdirTemp("", "junctor-endpoint-")
				if err != nil {
					return err
				}
				defer os.RemoveAll(dir)
				root = dir
			}
			ep, err := reference.New(reference.Config{Root: root, BundleFile: bundle})
			if err != nil {
				return err
			}
			defer ep.Close()
			listener, err := net.Listen("tcp", listen)
			if err != nil {
				return capability.Wrap(capability.CodeConflict, "", "the address "+listen+" cannot be listened on", err).With("address_in_use", "choose another one with --listen")
			}
			web := &http.Server{
				Handler:           router.Handler(router.RequireToken(secret.New(token), ep), router.HandlerOptions{OpenAssets: token == ""}),
				ReadHeaderTimeout: 10 * time.Second,
			}
			stopped := make(chan error, 1)
			go func() { stopped <- web.Serve(listener) }()
			if err := a.endpointReady(ep, "http://"+listener.Addr().String(), readyFile); err != nil {
				web.Close()
				return err
			}
			select {
			case err := <-stopped:
				return err
			case <-cmd.Context().Done():
			}
			web.Close()
			if err := <-stopped; !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:0", "address to listen on; port 0 picks a free one")
	f.StringVar(&token, "endpoint-token", "", "token callers must send (seen by other processes; prefer the file)")
	f.StringVar(&tokenFile, "endpoint-token-file", "", "file that holds the token")
	f.StringVar(&bundle, "bundle-file", "", "serve this file as the view bundle")
	f.StringVar(&readyFile, "ready-file", "", "write the ready line to this file too")
	f.StringVar(&root, "root", "", "directory its fs.* works under (default a temporary one)")
	return c
}

func loopbackAddress(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || (ip != nil && ip.IsLoopback()))
}

// endpointReady prints the ready line of decision R7: both url and baseUrl, and
// no token.
func (a *app) endpointReady(ep *reference.Endpoint, url, file string) error {
	data, err := json.Marshal(map[string]any{
		"url": url, "baseUrl": url, "pid": os.Getpid(), "moduleIds": ep.ModuleIDs(), "bundlePath": reference.BundlePath,
	})
	if err != nil {
		return err
	}
	if file != "" {
		if err := replaceFile(file, append(data, '\n')); err != nil {
			return err
		}
	}
	return a.printJSON(data)
}
