package main

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
)

// upstreamFlags holds the flags of "upstreams add".
type upstreamFlags struct {
	url, dir, bearer, isolation, sampling, changed string
	openapi, graphql, secret                       string
	env, secretEnv, header, secretHeader, roots    []string
	keys                                           []string
	a2a, sse, quarantine, trust, local, own        bool
	hints                                          trustWord
	unconfined                                     bool
	folders                                        folderFlags
	timeout, idle, connect                         time.Duration
	oauth                                          oauthFlags
	registry                                       registryFlags
}

func (a *app) upstreamsAddCommand() *cobra.Command {
	var o upstreamFlags
	c := &cobra.Command{
		Use:   "add NAME [flags] [-- COMMAND ARG...]",
		Short: "Add an MCP server, an API or an A2A agent: all it declares, or nothing",
		Long: `Add an MCP server (a program, a URL, or an entry of the MCP registry), an HTTP API by its
OpenAPI document, or an A2A agent by its card, and offer what it declares: all or nothing.
Agents see it at once, because you add it; with --quarantine, and from the registry, each
definition waits for you. What changes later is held: see junctor mcp diff and approve.

A program is confined: it sees the system, a folder of its own, and the folders that you
name with --ro and --rw; with --unconfined it may do all that the server's user may.
Credentials are named, never written: store them with junctor secrets set NAME.`,
		Example: `  junctor mcp add files --rw /srv/docs -- npx -y @modelcontextprotocol/server-filesystem /srv/docs
  junctor mcp add tracker --url https://mcp.example.org/mcp --bearer tracker-token
  junctor mcp add notes --url https://notes.example.org/mcp --oauth && junctor mcp login notes
  junctor mcp add --registry io.github.someone/weather@1.2.0 --secret-input API_KEY=weather-key
  junctor mcp add shop --openapi https://shop.example.org/openapi.json --secret shop-key
  junctor mcp add planner --a2a --url https://agent.example.org/.well-known/agent-card.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.registry.entry != "" {
				return cobra.MaximumNArgs(1)(cmd, args)
			}
			return cobra.MinimumNArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.registry.entry != "" {
				return a.addFromRegistry(cmd, o, args)
			}
			body, err := o.record(cmd, args)
			if err != nil {
				return err
			}
			return a.addUpstream(cmd.Context(), body, o.hints)
		},
	}
	f := c.Flags()
	f.StringVar(&o.url, "url", "", "`URL` URL of the server, in place of a command")
	f.BoolVar(&o.a2a, "a2a", false, "the URL is that of an A2A agent's card")
	f.StringVar(&o.openapi, "openapi", "", "`DOCUMENT` URL or file of the OpenAPI document of an API; --url is then the API, if it is elsewhere")
	f.StringVar(&o.graphql, "graphql", "", "`URL` URL of a GraphQL API, which must answer introspection")
	f.StringVar(&o.secret, "secret", "", "`SECRET` secret for the security scheme that the OpenAPI document declares; for GraphQL a bearer token")
	f.StringArrayVar(&o.keys, "key", nil, "`FILE` file with public keys (JWK or JWKS), one of which must have signed the agent's card (repeatable)")
	f.BoolVar(&o.sse, "sse", false, "the URL speaks the older HTTP+SSE transport")
	f.BoolVar(&o.local, "local", false, "the URL may lead to this machine or its network, over plain http too")
	f.StringVar(&o.bearer, "bearer", "", "`SECRET` secret to send as bearer token")
	o.oauth.add(c)
	o.registry.add(c)
	f.StringArrayVar(&o.header, "header", nil, "`NAME=VALUE` header to send (repeatable)")
	f.StringArrayVar(&o.secretHeader, "secret-header", nil, "`NAME=SECRET` header to send, with the value of a secret (repeatable)")
	f.StringArrayVar(&o.env, "env", nil, "`NAME=VALUE` variable of the program (repeatable)")
	f.StringArrayVar(&o.secretEnv, "secret-env", nil, "`NAME=SECRET` variable of the program, with the value of a secret (repeatable)")
	f.StringVar(&o.dir, "dir", "", "`DIR` folder the program works in (default one of its own in the home)")
	o.folders.add(c)
	f.BoolVar(&o.unconfined, "unconfined", false, "run the program as the server's user, with all that the user may do")
	f.StringArrayVar(&o.roots, "root", nil, "`DIR` folder that the server is told of when it asks for roots (repeatable)")
	f.StringVar(&o.isolation, "isolation", "", "`ISOLATION` whose connections they are: shared, principal or client-session (default shared)")
	f.BoolVar(&o.own, "own-credentials", false, "each principal shows secrets of its own, such as own.NAME.agent.ann in place of NAME")
	f.BoolVar(&o.quarantine, "quarantine", false, "hold every definition until it is approved")
	f.BoolVar(&o.trust, "trust", false, "show what it declares at once, which is the default")
	o.hints = "ask"
	o.hints.flag(c, "`WORD` whether a tool that declares to only read counts as a read")
	f.StringVar(&o.changed, "changed", "", "`CHANGED` what becomes of definitions that change: hold, warn or follow (default hold)")
	f.StringVar(&o.sampling, "sampling", "", "`SAMPLING` whether it may use the caller's model: deny or forward (default deny)")
	f.DurationVar(&o.timeout, "timeout", 0, "`DURATION` deadline of one call, such as 30s")
	f.DurationVar(&o.connect, "connect-timeout", 0, "`DURATION` how long connecting may take (default upstreams.connect_timeout, 1m)")
	f.DurationVar(&o.idle, "idle-timeout", 0, "longest silence of one call (default 1m, for A2A agents 5m)")
	rare(c, "key", "sse", "client-credentials", "exchange", "exchange-type", "client-id", "client-secret", "client-metadata", "issuer",
		"scope", "package", "input", "dir", "root", "isolation", "own-credentials", "trust", "changed", "sampling", "connect-timeout",
		"idle-timeout")
	return c
}

// record returns the body of the request. The server validates it, except for flags and files that
// it cannot see.
func (o *upstreamFlags) record(cmd *cobra.Command, args []string) (map[string]any, error) {
	dash := cmd.ArgsLenAtDash()
	switch {
	case dash < 0 && len(args) > 1 || dash > 1 || dash == 0:
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "%s needs one name, and the command after --", cmd.CommandPath()).
			With("", "write: junctor mcp add NAME -- COMMAND ARG...")
	case o.unconfined && o.folders.given():
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "--ro, --rw and --net are for a confined program, not with --unconfined")
	case o.quarantine && o.trust:
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "give --quarantine or --trust, not both")
	}
	body := map[string]any{"name": args[0]}
	if len(args) > 1 {
		body["command"] = args[1:]
	}
	for name, text := range map[string]string{
		"url": o.url, "api_secret": o.secret, "bearer_secret": o.bearer,
		"isolation": o.isolation, "changed_pin": o.changed, "sampling": o.sampling,
	} {
		setText(body, name, text)
	}
	for name, list := range map[string][]string{
		"env": o.env, "env_secrets": o.secretEnv, "headers": o.header,
		"header_secrets": o.secretHeader,
	} {
		values, err := pairs(strings.ReplaceAll(name, "_secrets", ""), list)
		if err != nil {
			return nil, err
		}
		if len(values) > 0 {
			body[name] = values
		}
	}
	for name, on := range map[string]bool{
		"sse": o.sse, "private_network": o.local, "hints_trusted": o.hints == "yes", "own_credentials": o.own,
	} {
		if on {
			body[name] = true
		}
	}
	if oauth := o.oauth.record(); oauth != nil {
		body["oauth"] = oauth
	}
	if o.a2a {
		body["kind"] = "a2a"
	}
	if o.graphql != "" {
		body["kind"], body["url"] = "graphql", o.graphql
	}
	if o.openapi != "" {
		if err := o.api(body); err != nil {
			return nil, err
		}
	}
	if len(o.keys) > 0 {
		keys, err := keysOf(o.keys)
		if err != nil {
			return nil, err
		}
		body["keys"] = keys
	}
	if o.unconfined {
		body["confinement"] = "none"
	}
	if err := o.folders.record(body); err != nil {
		return nil, err
	}
	if o.quarantine {
		body["trust"] = "untrusted"
	}
	for name, d := range map[string]time.Duration{"timeout_ms": o.timeout, "idle_timeout_ms": o.idle, "connect_timeout_ms": o.connect} {
		if d != 0 {
			body[name] = d.Milliseconds()
		}
	}
	if o.dir != "" { // the server may have another working directory
		dir, err := filepath.Abs(o.dir)
		if err != nil {
			return nil, err
		}
		body["dir"] = dir
	}
	if len(o.roots) > 0 {
		roots := slices.Clone(o.roots)
		for i := range roots {
			var err error
			if roots[i], err = filepath.Abs(roots[i]); err != nil {
				return nil, err
			}
		}
		body["roots"] = roots
	}
	return body, nil
}

// api adds the document of an API to the body.
func (o *upstreamFlags) api(body map[string]any) error {
	body["kind"], body["document"] = "openapi", o.openapi
	if strings.HasPrefix(o.openapi, "https://") || strings.HasPrefix(o.openapi, "http://") {
		setText(body, "url", cmp.Or(o.url, o.openapi))
		return nil
	}
	if o.url == "" {
		return capability.Errorf(capability.CodeInvalidInput, "", "a document in a file does not prove whose API it describes").
			With("", "add the address of the API: --url https://api.example.org")
	}
	path, err := filepath.Abs(o.openapi) // the server may have another working directory
	body["document"] = path
	return err
}

// keysOf returns the public keys in files with a JWK or JWKS.
func keysOf(files []string) (keys []json.RawMessage, err error) {
	for _, file := range files {
		bad := func(text string) error {
			return capability.Errorf(capability.CodeInvalidInput, "", "%s %s", file, text).With("invalid_key",
				"give a file with a public JWK, or with a JWKS")
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, bad("cannot be read")
		}
		var set struct {
			Keys []json.RawMessage `json:"keys"`
		}
		if json.Unmarshal(data, &set) != nil {
			return nil, bad("is not JSON")
		}
		if set.Keys == nil {
			set.Keys = []json.RawMessage{data}
		}
		for _, key := range set.Keys {
			var of struct{ D, K *string }
			if json.Unmarshal(key, &of) != nil || of.D != nil || of.K != nil {
				return nil, bad("holds a key that is not a public one")
			}
		}
		keys = append(keys, set.Keys...)
	}
	return keys, nil
}

// printAdded prints an upstream that was added, without its tools.
func (a *app) printAdded(u *upstreamRow) {
	if (u.Login != nil || u.OAuth != nil) && u.State == "unauthenticated" {
		a.printf("added %s; it offers nothing before you log in: junctor mcp login %s\n", plainText(u.Name), plainText(u.Name))
		return
	}
	a.printf("added %s: %s\n", plainText(u.Name), u.counted())
	if u.Confinement == "none" {
		a.warnf("%s is not confined: it may do all that the server's user may", u.Name)
	}
	for _, path := range u.Unseen {
		a.warnf("%s cannot see %s; if it may: junctor mcp confine %s --ro DIR or --rw DIR", u.Name, plainText(path), u.Name)
	}
	if n := u.Counts.Dropped; n > 0 {
		a.warnf("%d %s dropped; see: junctor mcp show %s", n, counted(n, "definition was", "definitions were"), u.Name)
	}
	if u.Counts.Quarantined > 0 {
		a.printf("all wait for your approval; look at them with: junctor mcp diff %s, then: junctor mcp approve %s\n", u.Name, u.Name)
	}
}
