package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
)

// upstreamRow is one upstream as the server shows it.
type upstreamRow struct {
	Name, Kind, URL, Dir, State, Reason, Isolation string
	Trust, Sampling                                string
	Keys                                           []json.RawMessage
	Command                                        []string
	ChangedPin                                     string `json:"changed_pin"`
	HintsTrusted                                   bool   `json:"hints_trusted"`
	OwnCredentials                                 bool   `json:"own_credentials"`
	Failed, Disabled                               bool
	Connections                                    int
	Added, Since, Synced                           time.Time
	Server                                         *struct{ Version, Name, Release, Instructions string }
	Counts                                         struct{ Tools, Prompts, Resources, Held, Quarantined, Dropped int }
	Lists                                          map[string]string
	Definitions                                    []struct {
		Kind, Name, State, Description string
		Advice                         []string
	}
	Dropped []struct{ Kind, Name, Reason string }
	Login   *struct {
		Issuer  string
		Scopes  []string
		Expires time.Time
		Renewed bool
	}
	Stderr string
}

// target is the address, or the command.
func (u *upstreamRow) target() string {
	if u.URL != "" {
		return u.URL
	}
	return strings.Join(u.Command, " ")
}

func (u *upstreamRow) counted() string {
	c := u.Counts
	return fmt.Sprintf("%d %s, %d %s, %d %s", c.Tools, counted(c.Tools, "tool", "tools"), c.Prompts, counted(c.Prompts, "prompt", "prompts"), c.Resources, counted(c.Resources, "resource", "resources"))
}

// waiting is how many definitions wait for an approval, "" for none.
func (u *upstreamRow) waiting() string {
	var parts []string
	if n := u.Counts.Held; n > 0 {
		parts = append(parts, fmt.Sprintf("%d held", n))
	}
	if n := u.Counts.Quarantined; n > 0 {
		parts = append(parts, fmt.Sprintf("%d in quarantine", n))
	}
	return strings.Join(parts, ", ")
}

const upstreamsPath = "/api/v1/upstreams"

func upstreamPath(name, verb string) string {
	return upstreamsPath + "/" + url.PathEscape(name) + verb
}

func (a *app) upstreamsCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "Every upstream and its state", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd.Context(), http.MethodGet, upstreamsPath, nil, func(raw json.RawMessage) error {
				out, err := decode[struct{ Upstreams []upstreamRow }](raw)
				if err != nil {
					return err
				}
				var rows [][]string
				for _, u := range out.Upstreams {
					rows = append(rows, []string{u.Name, u.State, fmt.Sprint(u.Counts.Tools), fmt.Sprint(u.Counts.Prompts), fmt.Sprint(u.Counts.Resources), dash(u.waiting()), u.target(), dash(u.Reason)})
				}
				return table(a.stdout, []string{"NAME", "STATE", "TOOLS", "PROMPTS", "RESOURCES", "WAITING", "TARGET", "REASON"}, rows)
			})
		},
	}
	show := &cobra.Command{
		Use: "show NAME", Short: "One upstream: its state, its definitions, what was dropped and why, its last errors", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodGet, upstreamPath(args[0], ""), nil, a.printUpstream)
		},
	}
	remove := &cobra.Command{
		Use: "remove NAME", Short: "End its connections and forget it, with what was approved", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodDelete, upstreamPath(args[0], ""), nil, func(json.RawMessage) error {
				a.printf("removed %s\n", plainText(args[0]))
				return nil
			})
		},
	}
	restart := &cobra.Command{
		Use: "restart NAME", Short: "Connect it anew, also one that was given up", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodPost, upstreamPath(args[0], "/restart"), nil, func(raw json.RawMessage) error {
				u, err := decode[upstreamRow](raw)
				if err != nil {
					return err
				}
				a.printf("%s is %s: %s\n", plainText(u.Name), u.State, u.counted())
				return nil
			})
		},
	}
	return a.group("upstreams", "MCP servers and A2A agents as providers: what agents see of them is pinned", a.upstreamsAddCommand(), list, show, remove, a.upstreamsLoginCommand(), a.upstreamsDiffCommand(), a.upstreamsApproveCommand(), restart)
}

// upstreamFlags are those of upstreams add.
type upstreamFlags struct {
	url, dir, bearer, isolation, sampling, changed string
	env, secretEnv, header, secretHeader, roots    []string
	keys                                           []string
	a2a, sse, quarantine, trust, hints, local, own bool
	timeout, idle                                  time.Duration
	oauth                                          oauthFlags
}

func (a *app) upstreamsAddCommand() *cobra.Command {
	var o upstreamFlags
	c := &cobra.Command{
		Use:   "add NAME [-- COMMAND ARGS…]",
		Short: "Connect an MCP server or an A2A agent and offer what it declares: all of it, or nothing is kept",
		Long: `Connect an MCP server, a program or a URL, and offer its tools, prompts and
resources; or, with --a2a, an A2A agent by the URL of its card, and offer each of
its skills as a tool agent_NAME_SKILL. What it declares now is shown to agents at once, because you add it;
with --quarantine each definition waits for your approval first. What it changes
later is held until you have looked: see upstreams diff and upstreams approve.

A program gets a folder of its own in the home and an environment of a few
harmless variables (PATH, HOME, LANG, TMPDIR and the like) besides what you give
it. Credentials are named, never written: store them with junctor secrets set.`,
		Example: `  junctor upstreams add files -- npx -y @modelcontextprotocol/server-filesystem /srv/docs
  junctor upstreams add tracker --url https://mcp.example.org/mcp --bearer tracker-token
  junctor upstreams add notes --url https://notes.example.org/mcp --oauth && junctor upstreams login notes
  junctor upstreams add planner --a2a --url https://agent.example.org/.well-known/agent-card.json --key planner.jwks
  junctor upstreams add local --url http://127.0.0.1:3000/mcp --local --quarantine`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := o.record(cmd, args)
			if err != nil {
				return err
			}
			return a.call(cmd.Context(), http.MethodPost, upstreamsPath, body, a.printAdded)
		},
	}
	f := c.Flags()
	f.StringVar(&o.url, "url", "", "address of the server, in place of a command")
	f.BoolVar(&o.a2a, "a2a", false, "the URL is that of an A2A agent's card")
	f.StringArrayVar(&o.keys, "key", nil, "file with public keys (JWK or JWKS), one of which must have signed the agent's card (repeatable)")
	f.BoolVar(&o.sse, "sse", false, "the URL speaks the older HTTP+SSE transport")
	f.BoolVar(&o.local, "local", false, "the URL may lead to this machine or its network, over plain http too")
	f.StringVar(&o.bearer, "bearer", "", "name of the secret that is sent as bearer token")
	o.oauth.add(c)
	f.StringArrayVar(&o.header, "header", nil, "header to send, NAME=VALUE (repeatable)")
	f.StringArrayVar(&o.secretHeader, "secret-header", nil, "header to send, NAME=SECRET, the name of a secret (repeatable)")
	f.StringArrayVar(&o.env, "env", nil, "variable of the program, NAME=VALUE (repeatable)")
	f.StringArrayVar(&o.secretEnv, "secret-env", nil, "variable of the program, NAME=SECRET, the name of a secret (repeatable)")
	f.StringVar(&o.dir, "dir", "", "folder the program works in (default: one of its own in the home)")
	f.StringArrayVar(&o.roots, "root", nil, "folder that the server is told of when it asks for roots (repeatable)")
	f.StringVar(&o.isolation, "isolation", "", "whose connections they are: shared (default), principal or client-session")
	f.BoolVar(&o.own, "own-credentials", false, "each principal shows secrets of its own, such as own.NAME.agent.ann in place of NAME")
	f.BoolVar(&o.quarantine, "quarantine", false, "hold every definition until it is approved")
	f.BoolVar(&o.trust, "trust", false, "show what it declares at once (the default)")
	f.BoolVar(&o.hints, "trust-hints", false, "believe it which tools only read")
	f.StringVar(&o.changed, "changed", "", "what becomes of definitions that change: hold (default), warn or follow")
	f.StringVar(&o.sampling, "sampling", "", "whether it may use the caller's model: deny (default) or forward")
	f.DurationVar(&o.timeout, "timeout", 0, "deadline of one call")
	f.DurationVar(&o.idle, "idle-timeout", 0, "longest silence of one call without progress (default 1m, of A2A agents 5m)")
	return c
}

// record is the body of the request. What is wrong with it the server says, but for
// what it could not see.
func (o *upstreamFlags) record(cmd *cobra.Command, args []string) (map[string]any, error) {
	dash := cmd.ArgsLenAtDash()
	switch {
	case dash < 0 && len(args) > 1 || dash > 1 || dash == 0:
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "%s needs one name, and the command after --", cmd.CommandPath()).
			With("", "write: junctor upstreams add NAME -- COMMAND ARGS…")
	case o.quarantine && o.trust:
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "give --quarantine or --trust, not both")
	}
	body := map[string]any{"name": args[0]}
	if len(args) > 1 {
		body["command"] = args[1:]
	}
	for name, text := range map[string]string{
		"url": o.url, "bearer_secret": o.bearer, "isolation": o.isolation, "changed_pin": o.changed, "sampling": o.sampling,
	} {
		setText(body, name, text)
	}
	for name, list := range map[string][]string{"env": o.env, "env_secrets": o.secretEnv, "headers": o.header, "header_secrets": o.secretHeader} {
		values, err := pairs(strings.ReplaceAll(name, "_secrets", ""), list)
		if err != nil {
			return nil, err
		}
		if len(values) > 0 {
			body[name] = values
		}
	}
	for name, on := range map[string]bool{"sse": o.sse, "private_network": o.local, "hints_trusted": o.hints, "own_credentials": o.own} {
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
	if len(o.keys) > 0 {
		keys, err := keysOf(o.keys)
		if err != nil {
			return nil, err
		}
		body["keys"] = keys
	}
	if o.quarantine {
		body["trust"] = "untrusted"
	}
	for name, d := range map[string]time.Duration{"timeout_ms": o.timeout, "idle_timeout_ms": o.idle} {
		if d != 0 {
			body[name] = d.Milliseconds()
		}
	}
	if o.dir != "" { // the server's folder is another one
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

// keysOf are the public keys in files of JWK or JWKS.
func keysOf(files []string) (keys []json.RawMessage, err error) {
	for _, file := range files {
		bad := func(text string) error {
			return capability.Errorf(capability.CodeInvalidInput, "", "%s %s", file, text).With("invalid_key", "give a file with a public JWK, or with a JWKS")
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, bad("cannot be read")
		}
		var set struct {
			Keys []json.RawMessage `json:"keys"`
		}
		if json.Unmarshal(data, &set) != nil {
			return nil, bad("is no JSON")
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

func (a *app) printAdded(raw json.RawMessage) error {
	u, err := decode[upstreamRow](raw)
	if err != nil {
		return err
	}
	if u.Login != nil && u.State == "unauthenticated" {
		a.printf("added %s; it offers nothing before you log in: junctor upstreams login %s\n", plainText(u.Name), plainText(u.Name))
		return nil
	}
	a.printf("added %s: %s\n", plainText(u.Name), u.counted())
	if n := u.Counts.Dropped; n > 0 {
		a.warnf("%d %s dropped; see: junctor upstreams show %s", n, counted(n, "definition was", "definitions were"), u.Name)
	}
	if u.Counts.Quarantined > 0 {
		a.printf("all wait for your approval; look at them with: junctor upstreams diff %s, then: junctor upstreams approve %s\n", u.Name, u.Name)
	}
	return nil
}

func (a *app) printUpstream(raw json.RawMessage) error {
	u, err := decode[upstreamRow](raw)
	if err != nil {
		return err
	}
	rows := [][]string{
		{"name", u.Name},
		{"target", u.target()},
		{"state", u.State},
		{"reason", dash(u.Reason)},
		{"since", when(u.Since)},
		{"added", when(u.Added)},
		{"lists read", when(u.Synced)},
		{"declares", u.counted()},
		{"waiting", dash(u.waiting())},
		{"trust", u.Trust},
		{"changed definitions", u.ChangedPin},
		{"hints believed", fmt.Sprint(u.HintsTrusted)},
		{"isolation", u.Isolation},
		{"own credentials", fmt.Sprint(u.OwnCredentials)},
		{"sampling", u.Sampling},
		{"connections", fmt.Sprint(u.Connections)},
	}
	if s := u.Server; s != nil {
		rows = append(rows, []string{"server", strings.TrimSpace(s.Name + " " + s.Release + ", " + strings.ToUpper(u.Kind) + " " + s.Version)})
	}
	if n := len(u.Keys); n > 0 {
		rows = append(rows, []string{"keys of its card", fmt.Sprint(n)})
	}
	if l := u.Login; l != nil {
		rows = append(rows, []string{"tokens from", dash(l.Issuer)}, []string{"scopes", dash(strings.Join(l.Scopes, " "))}, []string{"token ends", when(l.Expires)}, []string{"renewed by itself", fmt.Sprint(l.Renewed)})
	}
	for _, d := range u.Definitions {
		rows = append(rows, []string{d.Kind + " " + d.Name, strings.Join(append([]string{d.State}, d.Advice...), "; ")})
	}
	for _, d := range u.Dropped {
		rows = append(rows, []string{"dropped " + d.Kind, fmt.Sprintf("%q: %s", d.Name, d.Reason)})
	}
	for _, kind := range slices.Sorted(maps.Keys(u.Lists)) {
		rows = append(rows, []string{"list of " + kind + "s", u.Lists[kind]})
	}
	if err := table(a.stdout, []string{"FIELD", "VALUE"}, rows); err != nil {
		return err
	}
	if u.Stderr != "" {
		a.printf("\nits last errors:\n")
		for line := range strings.Lines(u.Stderr) {
			a.printf("  %s\n", plainText(strings.TrimRight(line, "\r\n")))
		}
	}
	return nil
}

func (a *app) upstreamsDiffCommand() *cobra.Command {
	return &cobra.Command{
		Use: "diff NAME", Short: "What waits for an approval: what has changed, and what is new", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodGet, upstreamPath(args[0], "/diff"), nil, func(raw json.RawMessage) error {
				out, err := decode[struct {
					Definitions []struct {
						Kind, Name, State string
						Changes           []struct{ Path, Old, New string }
						Advice            []string
						More              int
					}
				}](raw)
				if err != nil {
					return err
				}
				for _, d := range out.Definitions {
					a.printf("%s %s (%s)\n", plainText(d.Kind), plainText(d.Name), d.State)
					for _, c := range d.Changes {
						if c.Old != "" {
							a.printf("- %s: %s\n", plainText(c.Path), plainText(c.Old))
						}
						if c.New != "" {
							a.printf("+ %s: %s\n", plainText(c.Path), plainText(c.New))
						}
					}
					if d.More > 0 {
						a.printf("  and %d more\n", d.More)
					}
					for _, text := range d.Advice {
						a.printf("! %s\n", plainText(text))
					}
				}
				if len(out.Definitions) == 0 {
					a.printf("nothing waits\n")
				}
				return nil
			})
		},
	}
}

func (a *app) upstreamsApproveCommand() *cobra.Command {
	var kind, pin string
	c := &cobra.Command{
		Use: "approve NAME [TOOL]", Short: "Offer what waits, as it is now: one definition, or all", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := make(map[string]any)
			setText(body, "kind", kind)
			setText(body, "pin", pin)
			if len(args) == 2 {
				body["name"] = args[1]
			}
			return a.call(cmd.Context(), http.MethodPost, upstreamPath(args[0], "/approve"), body, func(raw json.RawMessage) error {
				out, err := decode[struct {
					Approved []struct{ Kind, Name, Was string }
				}](raw)
				if err != nil {
					return err
				}
				for _, d := range out.Approved {
					a.printf("approved %s %s, which was %s\n", plainText(d.Kind), plainText(d.Name), d.Was)
				}
				if len(out.Approved) == 0 {
					a.printf("nothing waits\n")
				}
				return nil
			})
		},
	}
	c.Flags().StringVar(&kind, "kind", "", "only definitions of this kind: tool, prompt, resource or resource-template")
	c.Flags().StringVar(&pin, "pin", "", "only if it is still the one with this pin, as diff --json shows it")
	return c
}
