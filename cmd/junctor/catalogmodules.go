package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/protocol/router"
)

func (a *app) modulesCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List modules", Args: cobra.NoArgs,
		RunE: shows(a, "/api/v1/modules", func(out struct {
			Modules []struct {
				ID, Extension, Version, Origin, Endpoint string
				Contributions                            int
				Trust                                    *router.TrustDecision
			}
		},
		) error {
			var rows [][]string
			for _, m := range out.Modules {
				rows = append(rows, []string{
					m.ID, m.Extension, dash(m.Version), m.Origin, dash(m.Endpoint), fmt.Sprint(m.Contributions),
					trustOf(m.Trust),
				})
			}
			return a.table([]string{"ID", "EXTENSION", "VERSION", "+ORIGIN", "ENDPOINT", "CONTRIBUTIONS", "TRUST"}, rows,
				"there are no modules; connect an endpoint with: junctor connect URL")
		}),
	}
	show := &cobra.Command{
		Use: "show ID", Short: "Show a module with its contributions", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodGet, "/api/v1/modules/"+url.PathEscape(args[0]), nil, decoded(func(out struct {
				ID, Extension, Name, Version, Origin, Endpoint, Digest string
				Trust                                                  *router.TrustDecision
				Contributions                                          []struct {
					Kind, Member, Description string
					Policy                    struct{ Effect string }
					Availability              struct{ State string }
				}
			},
			) error {
				a.printf("%s (%s) %s from %s %s\n%s\ntrust: %s\n\n", plainText(out.Name), plainText(out.Extension), plainText(out.Version), out.Origin,
					plainText(out.Endpoint), out.Digest, plainText(trustOf(out.Trust)))
				var rows [][]string
				for _, c := range out.Contributions {
					rows = append(rows, []string{c.Member, c.Kind, c.Policy.Effect, c.Availability.State})
				}
				return a.table([]string{"TARGET", "KIND", "EFFECT", "STATE"}, rows, "the module contributes nothing now")
			}))
		},
	}
	return a.group("modules", "Look at modules of every kind", list, show, a.routeCommand())
}

// trustOf returns the reason for trusting a module. Built-in modules have no decision.
func trustOf(d *router.TrustDecision) string {
	if d == nil {
		return "-"
	}
	return verdict(*d)
}

// showing describes one list of user interface parts of all modules.
type showing struct{ noun, short, head, name string }

// showingCommands returns the commands that list the views, widgets, nav entries and apps of all
// modules.
func (a *app) showingCommands() []*cobra.Command {
	var out []*cobra.Command
	for _, s := range []showing{
		{"views", "List the views of all modules, with the URL of each", "URL", "bundleUrl"},
		{"widgets", "List the widgets of all modules, with the slot of each", "SLOT", "slot"},
		{"nav", "List the navigation tabs of all modules", "PATH", "path"},
		{"apps", "List the apps of all modules", "URL", "launchUrl"},
	} {
		out = append(out, &cobra.Command{
			Use: s.noun, Short: s.short, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return a.call(cmd.Context(), http.MethodGet, "/api/v1/"+s.noun, nil, func(raw json.RawMessage) error {
					return a.printShowing(s, raw)
				})
			},
		})
	}
	return out
}

func (a *app) printShowing(s showing, raw json.RawMessage) error {
	out, err := decode[map[string][]map[string]json.RawMessage](raw)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, item := range out[s.noun] {
		var available struct{ State, Reason string }
		_ = json.Unmarshal(item["availability"], &available) // a missing member means unknown
		label := textOf(item, "label")
		if label == "" {
			label = textOf(item, "displayName")
		}
		state := available.State
		if fault := textOf(item, "fault"); fault != "" {
			state += ": " + fault
		}
		rows = append(rows, []string{
			textOf(item, "id"), dash(label), dash(state), textOf(item, "module"), dash(textOf(item, "endpoint")),
			dash(textOf(item, s.name)),
		})
	}
	return a.table([]string{"ID", "LABEL", "STATE", "MODULE", "ENDPOINT", s.head}, rows, "no module has "+s.noun+
		"; see what there is with: junctor modules list")
}

// textOf returns a member that is a text, or "".
func textOf(item map[string]json.RawMessage, name string) string {
	var text string
	if json.Unmarshal(item[name], &text) != nil {
		return ""
	}
	return text
}
