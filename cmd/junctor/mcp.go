package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/internal/upstreams/samplemcp"
)

// upstreamRow is one upstream in the server's answers.
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
	Definitions                                    []upstreamDefinition
	Dropped                                        []struct{ Kind, Name, Reason string }
	Login                                          *struct {
		Issuer  string
		Scopes  []string
		Expires time.Time
		Renewed bool
	}
	Logins []struct {
		Principal, Issuer string
		Since, Expires    time.Time
		Lists             bool
	}
	OAuth                    *struct{ Login string }
	Stderr                   string
	Confinement, Tier, Limit string
	ReadOnly                 []string `json:"read_only"`
	ReadWrite                []string `json:"read_write"`
	Network, Unseen          []string
	Registry                 *struct{ Name, Version, Package string }
	Managed                  *managedRow
}

// upstreamDefinition is one definition of an upstream.
type upstreamDefinition struct {
	Kind, Name, State, Description string
	Declares                       string
	Advice                         []string
}

// details returns the state of a definition and what it declares about its effect.
func (d *upstreamDefinition) details() []string {
	list := []string{d.State}
	if d.Kind == "tool" {
		list = append(list, "declares "+claimOf(d.Declares))
	}
	return list
}

// confined returns how the program is confined: its tier and network, "unconfined", "container", or
// "" for a URL.
func (u *upstreamRow) confined() string {
	switch u.Confinement {
	case "sandbox":
		tier := u.Tier
		tier = cmp.Or(tier, "confined")
		return tier + ", network " + strings.Join(u.Network, ",")
	case "none":
		return "unconfined"
	}
	return u.Confinement
}

// target returns the URL or the command.
func (u *upstreamRow) target() string {
	if u.URL != "" {
		return u.URL
	}
	return strings.Join(u.Command, " ")
}

func (u *upstreamRow) counted() string {
	c := u.Counts
	return fmt.Sprintf("%d %s, %d %s, %d %s", c.Tools, counted(c.Tools, "tool", "tools"), c.Prompts, counted(c.Prompts, "prompt", "prompts"),
		c.Resources, counted(c.Resources, "resource", "resources"))
}

// loggedIn returns whose logins calls use, or "" without OAuth.
func (u *upstreamRow) loggedIn() string {
	switch {
	case u.OAuth == nil:
		return ""
	case u.OAuth.Login == "each":
		return fmt.Sprintf("each: %d", len(u.Logins))
	}
	return "shared"
}

// waiting returns the number of definitions that wait for an approval, or "" if none exist.
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
		Use: "list", Short: "List upstreams and their states", Args: cobra.NoArgs,
		RunE: shows(a, upstreamsPath, func(out struct{ Upstreams []upstreamRow }) error {
			var rows [][]string
			var by []*managedRow
			for _, u := range out.Upstreams {
				by = append(by, u.Managed)
				rows = append(rows, []string{
					u.Name, u.State, fmt.Sprint(u.Counts.Tools), fmt.Sprint(u.Counts.Prompts),
					fmt.Sprint(u.Counts.Resources), dash(u.waiting()), dash(u.confined()), u.target(), dash(u.loggedIn()), dash(u.Reason),
				})
			}
			head := []string{"NAME", "STATE", "TOOLS", "+PROMPTS", "+RESOURCES", "WAITING", "CONFINED", "+TARGET", "+LOGIN", "REASON"}
			head, rows = managedColumn(head, rows, by)
			return a.table(head, rows, "no upstream is registered; add one with: junctor mcp add NAME -- COMMAND ARG...")
		}),
	}
	show := &cobra.Command{
		Use: "show NAME", Short: "Show an upstream: its state, its definitions, what was dropped and why", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodGet, upstreamPath(args[0], ""), nil, decoded(a.printUpstream))
		},
	}
	remove := &cobra.Command{
		Use: "remove NAME", Short: "Remove an upstream, with what was approved", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodDelete, upstreamPath(args[0], ""), nil, a.done("removed %s\n", plainText(args[0])))
		},
	}
	restart := &cobra.Command{
		Use: "restart NAME", Short: "Connect an upstream again, also one that was given up", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodPost, upstreamPath(args[0], "/restart"), nil, decoded(func(u upstreamRow) error {
				a.printf("%s is %s: %s\n", plainText(u.Name), u.State, u.counted())
				return nil
			}))
		},
	}
	sample := &cobra.Command{
		Use: "sample", Short: "Be a small MCP server on standard input and output, to try upstreams with", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return samplemcp.Serve(cmd.Context(), version(), a.stdin, a.stdout)
		},
	}
	return a.group("upstreams", "Manage upstreams: MCP servers and A2A agents as providers", a.upstreamsAddCommand(), list, show, remove,
		a.upstreamsLoginCommand(), a.upstreamsLogoutCommand(),
		a.upstreamsDiffCommand(), a.upstreamsApproveCommand(), a.upstreamsConfineCommand(), a.upstreamsSetCommand(),
		a.upstreamsLogsCommand(), restart, sample)
}

func (a *app) printUpstream(u upstreamRow) error {
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
	if c := u.confined(); c != "" {
		rows = append(rows, []string{"confined", c})
	}
	for _, of := range []struct {
		label string
		list  []string
	}{{"may read", u.ReadOnly}, {"may change", u.ReadWrite}, {"cannot see", u.Unseen}} {
		if len(of.list) > 0 {
			rows = append(rows, []string{of.label, strings.Join(of.list, " ")})
		}
	}
	if u.Managed != nil {
		rows = append(rows, []string{"managed by", u.Managed.File})
	}
	if o := u.Registry; o != nil {
		rows = append(rows, []string{"registry entry", fmt.Sprintf("%s %s (%s)", o.Name, o.Version, o.Package)})
	}
	if u.Limit != "" {
		rows = append(rows, []string{"went over", "its " + u.Limit})
	}
	if s := u.Server; s != nil {
		rows = append(rows, []string{"server", strings.TrimSpace(s.Name + " " + s.Release + ", " + strings.ToUpper(u.Kind) + " " + s.Version)})
	}
	if n := len(u.Keys); n > 0 {
		rows = append(rows, []string{"keys of its card", fmt.Sprint(n)})
	}
	if l := u.Login; l != nil {
		rows = append(rows, []string{"tokens from", dash(l.Issuer)}, []string{"scopes", dash(strings.Join(l.Scopes, " "))},
			[]string{"token ends", when(l.Expires)}, []string{"renewed by itself", fmt.Sprint(l.Renewed)})
	}
	for _, l := range u.Logins {
		text := "needed again"
		if l.Issuer != "" {
			text = fmt.Sprintf("since %s, from %s, token ends %s", when(l.Since), l.Issuer, when(l.Expires))
		}
		if l.Lists {
			text += "; reads the lists"
		}
		rows = append(rows, []string{"login of " + l.Principal, text})
	}
	for _, d := range u.Definitions {
		rows = append(rows, []string{d.Kind + " " + d.Name, strings.Join(append(d.details(), d.Advice...), "; ")})
	}
	for _, d := range u.Dropped {
		rows = append(rows, []string{"dropped " + d.Kind, fmt.Sprintf("%q: %s", d.Name, d.Reason)})
	}
	for _, kind := range slices.Sorted(maps.Keys(u.Lists)) {
		rows = append(rows, []string{"list of " + kind + "s", u.Lists[kind]})
	}
	if err := a.fields(rows); err != nil {
		return err
	}
	if u.Stderr != "" {
		a.printf("\nthe last lines that it wrote to standard error:\n")
		for line := range strings.Lines(u.Stderr) {
			a.printf("  %s\n", plainText(strings.TrimRight(line, "\r\n")))
		}
	}
	return nil
}

func (a *app) upstreamsDiffCommand() *cobra.Command {
	return &cobra.Command{
		Use: "diff NAME", Short: "Show what waits for an approval: what has changed, and what is new", Args: cobra.ExactArgs(1),
		Example: `  junctor mcp diff files
  junctor mcp approve files read_file`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodGet, upstreamPath(args[0], "/diff"), nil, decoded(func(out struct {
				Definitions []struct {
					Kind, Name, State string
					Changes           []struct{ Path, Old, New string }
					Advice            []string
					More              int
				}
			},
			) error {
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
					a.note("nothing waits for an approval")
				}
				return nil
			}))
		},
	}
}

func (a *app) upstreamsApproveCommand() *cobra.Command {
	var kind, pin string
	c := &cobra.Command{
		Use: "approve NAME [TOOL]", Short: "Approve what waits, as it is now: one definition, or all", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := make(map[string]any)
			setText(body, "kind", kind)
			setText(body, "pin", pin)
			if len(args) == 2 {
				body["name"] = args[1]
			}
			return a.call(cmd.Context(), http.MethodPost, upstreamPath(args[0], "/approve"), body, decoded(func(out struct {
				Approved []struct{ Kind, Name, Was string }
			},
			) error {
				for _, d := range out.Approved {
					a.printf("approved %s %s, which was %s\n", plainText(d.Kind), plainText(d.Name), d.Was)
				}
				if len(out.Approved) == 0 {
					a.note("nothing waits for an approval")
				}
				return nil
			}))
		},
	}
	c.Flags().StringVar(&kind, "kind", "", "`KIND` only this kind: tool, prompt, resource or resource-template")
	c.Flags().StringVar(&pin, "pin", "", "`HASH` only if the definition still has this pin (junctor mcp diff --json)")
	return c
}

// mcpCommand returns the commands about MCP servers. Without a verb it is the bridge unless standard
// input is a terminal, because the configurations of installed clients run it so.
func (a *app) mcpCommand() *cobra.Command {
	var bridge mcpBridge
	c := with(a.group("mcp", "Manage MCP servers and A2A agents, and serve MCP to a client"), a.mcpServeCommand(), a.mcpImportCommand(),
		a.mcpSearchCommand())
	for _, verb := range a.upstreamsCommand().Commands() {
		c.AddCommand(verb)
	}
	c.Use = "mcp [COMMAND]"
	c.Long = `Manage MCP servers and A2A agents as providers, and serve MCP to a client. Without a
command, and if standard input is not a terminal, it is "junctor mcp serve".`
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 || terminal(a.stdin) {
			return a.noVerb(cmd, args)
		}
		return a.runBridge(cmd.Context(), bridge)
	}
	bridge.flags(c)
	return c
}
