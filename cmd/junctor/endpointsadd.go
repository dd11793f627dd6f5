package main

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
)

// connectFlags holds the flags of the command connect.
type connectFlags struct {
	id, provider, token, tokenFile, policyFile string
	allowed                                    []string
	noPersist, keepMissing                     bool
	timeoutMS                                  int64

	cloud                                               bool
	cloudBase, cloudName, cloudAuthToken, cloudAuthFile string
	cloudBio                                            []string
	cloudTimeoutMS, cloudPollMS                         int64
}

func (a *app) connectCommand() *cobra.Command {
	var o connectFlags
	c := &cobra.Command{
		Use:   "connect [URL]",
		Short: "Connect a remote endpoint: all of it, or nothing",
		Long: `Connect a remote endpoint of the capability-router protocol. Its manifest is read
and checked, and either all of it is let in or nothing. It is remembered over
restarts unless --no-persist is given.

With --cloud and no URL a cloud is asked to make the endpoint; what was made is
taken away again when it cannot be connected.`,
		Example: `  junctor connect http://127.0.0.1:31337 --id tools
  junctor connect https://tools.example.org --endpoint-token-file token --allowed-module notes
  junctor connect --cloud --cloud-name helper --cloud-auth-token-file cloud.key`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := a.connectBody(cmd, args, &o)
			if err != nil {
				return err
			}
			return a.call(cmd.Context(), http.MethodPost, "/api/capability-router/connect", body, func(raw json.RawMessage) error {
				return a.printConnected(cmd, raw)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&o.id, "id", "", "`ID` id of the endpoint (default default, numbered when taken)")
	f.StringVar(&o.provider, "provider", "", "`KIND` kind of endpoint: direct, e2b, home-machine, mobile-companion or desktop-companion (default direct)")
	f.StringVar(&o.token, "endpoint-token", "", "`TOKEN` token of the endpoint; other processes can see it, so prefer --endpoint-token-file")
	f.StringVar(&o.tokenFile, "endpoint-token-file", "", "`FILE` file with the token of the endpoint")
	f.StringSliceVar(&o.allowed, "allowed-module", nil, "`MODULE` let in only this module (repeatable)")
	f.StringVar(&o.policyFile, "trust-policy", "", "`FILE` JSON file with the trust policy of the endpoint (docs/endpoints.md)")
	f.BoolVar(&o.noPersist, "no-persist", false, "forget the endpoint when the server stops")
	f.BoolVar(&o.keepMissing, "keep-missing", false, "keep modules that the endpoint no longer lists")
	f.Int64Var(&o.timeoutMS, "request-timeout-ms", 0, "`MS` deadline of one call, in milliseconds")
	f.BoolVar(&o.cloud, "cloud", false, "ask a cloud to make the endpoint")
	f.StringVar(&o.cloudName, "cloud-name", "", "`NAME` name of the agent that the cloud makes")
	f.StringVar(&o.cloudBase, "cloud-api-base", "", "`URL` URL of the cloud's API (default $ELIZAOS_CLOUD_BASE_URL or "+cloudAPIBase+")")
	f.StringVar(&o.cloudAuthToken, "cloud-auth-token", "", "`TOKEN` your token at the cloud; other processes can see it, so prefer --cloud-auth-token-file (default $ELIZAOS_CLOUD_API_KEY)")
	f.StringVar(&o.cloudAuthFile, "cloud-auth-token-file", "", "`FILE` file with your token at the cloud")
	f.StringArrayVar(&o.cloudBio, "cloud-bio", nil, "`TEXT` line of the agent's description (repeatable)")
	f.Int64Var(&o.cloudTimeoutMS, "cloud-timeout-ms", 0, "`MS` how long the cloud may take, in milliseconds (default 120000)")
	f.Int64Var(&o.cloudPollMS, "cloud-poll-interval-ms", 0, "`MS` how often the cloud is asked whether it is done, in milliseconds (default 2000)")
	return c
}

// cloudAPIBase is the default URL of the cloud's API, as in elizaOS.
const cloudAPIBase = "https://api.elizacloud.ai"

// connectBody returns the body of a request to connect an endpoint.
func (a *app) connectBody(cmd *cobra.Command, args []string, o *connectFlags) (map[string]any, error) {
	switch {
	case len(args) == 0 && !o.cloud:
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "%s needs the URL of an endpoint, or --cloud to have one made",
			cmd.CommandPath())
	case len(args) == 1 && o.cloud:
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "give a URL or --cloud, not both")
	case o.cloud && o.provider != "":
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "--provider belongs to a URL, not to --cloud")
	}
	token, err := a.secretFlag("--endpoint-token", o.token, o.tokenFile)
	if err != nil {
		return nil, err
	}
	body := make(map[string]any)
	if o.cloud {
		if body["cloud"], err = a.cloudBody(o, token); err != nil {
			return nil, err
		}
	} else {
		for _, name := range []string{
			"cloud-name", "cloud-api-base", "cloud-auth-token", "cloud-auth-token-file", "cloud-bio",
			"cloud-timeout-ms", "cloud-poll-interval-ms",
		} {
			if cmd.Flags().Changed(name) {
				return nil, capability.Errorf(capability.CodeInvalidInput, "", "--%s is of use with --cloud only", name)
			}
		}
		endpoint := map[string]any{"baseUrl": args[0]}
		setText(endpoint, "id", o.id)
		setText(endpoint, "token", token)
		body["endpoint"] = endpoint
		setText(body, "provider", o.provider)
	}
	if o.noPersist {
		body["persist"] = false
	}
	if o.keepMissing {
		body["unloadMissing"] = false
	}
	if o.timeoutMS != 0 {
		body["requestTimeoutMs"] = o.timeoutMS
	}
	if cmd.Flags().Changed("allowed-module") {
		body["allowedModuleIds"] = o.allowed
	}
	if o.policyFile != "" {
		policy, err := os.ReadFile(o.policyFile)
		if err != nil {
			return nil, capability.Wrap(capability.CodeNotFound, "", "the trust policy "+o.policyFile+" cannot be read", err).With("",
				"name a JSON file that you may read")
		}
		if !json.Valid(policy) {
			return nil, capability.Errorf(capability.CodeInvalidInput, "", "the trust policy %s is not JSON", o.policyFile).With("",
				"docs/endpoints.md shows one")
		}
		body["trustPolicy"] = json.RawMessage(policy)
	}
	return body, nil
}

// cloudBody returns the member cloud of the body.
func (a *app) cloudBody(o *connectFlags, token string) (map[string]any, error) {
	auth, err := a.secretFlag("--cloud-auth-token", o.cloudAuthToken, o.cloudAuthFile)
	if err != nil {
		return nil, err
	}
	auth = cmp.Or(auth, a.env("ELIZAOS_CLOUD_API_KEY"))
	base := o.cloudBase
	if base == "" {
		// The variable may contain the API's version, which the connect API adds itself.
		base = strings.TrimSuffix(strings.TrimRight(a.env("ELIZAOS_CLOUD_BASE_URL"), "/"), "/api/v1")
	}
	base = cmp.Or(base, cloudAPIBase)
	switch {
	case auth == "":
		return nil, capability.Errorf(capability.CodeInvalidInput, "",
			"--cloud needs your token at the cloud: give --cloud-auth-token-file or set ELIZAOS_CLOUD_API_KEY")
	case o.cloudName == "":
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "--cloud needs --cloud-name, the name of the agent to make")
	}
	out := map[string]any{"cloudApiBase": base, "authToken": auth, "name": o.cloudName}
	setText(out, "endpointId", o.id)
	setText(out, "token", token)
	if len(o.cloudBio) > 0 {
		out["bio"] = o.cloudBio
	}
	if o.cloudTimeoutMS != 0 {
		out["timeoutMs"] = o.cloudTimeoutMS
	}
	if o.cloudPollMS != 0 {
		out["pollIntervalMs"] = o.cloudPollMS
	}
	return out, nil
}

func setText(to map[string]any, name, text string) {
	if text != "" {
		to[name] = text
	}
}

// secretFlag returns a secret that is given as a flag's value or in a file. It fails if both are
// given.
func (a *app) secretFlag(flag, open, file string) (string, error) {
	if file == "" {
		return open, nil
	}
	if open != "" {
		return "", capability.Errorf(capability.CodeInvalidInput, "", "give %s or %s-file, not both", flag, flag)
	}
	value, err := a.readSecretFile(file)
	return value.Reveal(), err
}

func (a *app) printConnected(cmd *cobra.Command, raw json.RawMessage) error {
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
	var now endpointRow // the answer, whose form is given by elizaOS, lacks the modules
	err = a.do(cmd.Context(), http.MethodGet, "/api/capability-router/endpoints/"+url.PathEscape(out.Endpoint.ID), nil, &now)
	if e := capability.AsError(err); e != nil && e.Code == capability.CodeFailed && e.Op == "client" { // of elizaOS, which has no such path
		a.printf("  registered %s\n", dash(plainText(strings.Join(out.Sync.Registered, ", "))))
		return nil
	}
	if err != nil {
		return err
	}
	a.printf("  families %s\n", dash(plainText(strings.Join(now.Families, ", "))))
	a.printf("  modules  %s\n", dash(plainText(strings.Join(now.Modules, ", "))))
	if len(now.Modules) == 0 {
		a.note("no module was let in; see why with: junctor endpoints show " + out.Endpoint.ID)
	}
	for _, w := range out.Warnings {
		a.printf("  warning  %s\n", plainText(w))
	}
	if len(out.Sync.Skipped) > 0 {
		a.printf("  skipped  %s\n", plainText(strings.Join(out.Sync.Skipped, ", ")))
	}
	return nil
}

func (a *app) disconnectCommand() *cobra.Command {
	return &cobra.Command{
		Use: "disconnect ID", Short: "Disconnect an endpoint and withdraw everything it offers", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodDelete, "/api/capability-router/endpoints/"+url.PathEscape(args[0]), nil,
				a.done("disconnected %s\n", args[0]))
		},
	}
}
