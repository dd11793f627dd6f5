package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/eval"
)

const contextHelp = "`KEY=VALUE` where it happens: workspace=…, agent=…, session=…, route=KIND:ACCOUNT:CONVERSATION, adapter=KIND:ACCOUNT or bind=ACTIONS=PROVIDER (repeatable)"

// contextFlag parses the values of --context.
func contextFlag(list []string) (*capability.Context, error) {
	if len(list) == 0 {
		return nil, nil
	}
	c := new(capability.Context)
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, capability.Errorf(capability.CodeInvalidInput, "", "--context %q is not key=value", kv)
		}
		if err := c.Set(k, v); err != nil {
			return nil, err
		}
	}
	return c, c.Check()
}

func (a *app) catalogCommand() *cobra.Command {
	return a.group("catalog", "Show what can be called, and why a provider is chosen",
		a.catalogList("agent", "Show what agents are shown in a context, judged for the token in use", decoded(a.printAgent)),
		a.catalogList("operator", "Show commands, sign-ins and surfaces for operators", decoded(a.printOperator)),
		a.catalogList("internal", "Show everything there is, reachable or not", decoded(a.printInternal)),
		a.catalogStatic(), a.catalogExplain(), a.catalogConflicts(), a.catalogSlots(), a.catalogLint(), a.catalogEval(), a.catalogNamesCommand(),
	)
}

// catalogExample returns the example of a list command, or "" for those without.
func catalogExample(name string) string {
	if name != "agent" {
		return ""
	}
	return `  junctor catalog agent --context session=s1 --context workspace=web`
}

// listPath returns the API path of a catalog list with the context and etag of its flags.
func listPath(name, etag string, contexts []string) string {
	q := url.Values{}
	if etag != "" {
		q.Set("etag", etag)
	}
	for _, kv := range contexts {
		q.Add("context", kv)
	}
	path := "/api/v1/catalog/" + name
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return path
}

func (a *app) catalogList(name, short string, show func(json.RawMessage) error) *cobra.Command {
	var etag string
	var contexts []string
	c := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs, Example: catalogExample(name),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := contextFlag(contexts); err != nil {
				return err
			}
			return a.call(cmd.Context(), http.MethodGet, listPath(name, etag, contexts), nil, unlessUnchanged(a, show))
		},
	}
	c.Flags().StringVar(&etag, "etag", "", "`ETAG` print only \"unchanged\" if the catalog still has this etag")
	if name == "agent" {
		c.Flags().StringArrayVar(&contexts, "context", nil, contextHelp)
	}
	return c
}

// unlessUnchanged returns a function that prints "unchanged" for such an answer, and passes others
// to show.
func unlessUnchanged(a *app, show func(json.RawMessage) error) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		out, err := decode[struct{ Unchanged bool }](raw)
		if err != nil {
			return err
		}
		if out.Unchanged {
			a.printf("unchanged\n")
			return nil
		}
		return show(raw)
	}
}

type shownEntry struct {
	CapabilityID, Kind, CanonicalAction, ProviderKey, Member, Withheld string
	Availability                                                       struct{ State string }
	Policy                                                             struct{ Effect, Approval string }
}

func (a *app) printAgent(out struct {
	Actions []struct {
		Name              string
		Entries           []string
		RequiresSelection bool
	}
	Entries []shownEntry
},
) error {
	byID := make(map[string]shownEntry, len(out.Entries))
	for _, e := range out.Entries {
		byID[e.CapabilityID] = e
	}
	var rows [][]string
	for _, action := range out.Actions {
		choose := "-"
		if action.RequiresSelection {
			choose = "needed"
		}
		for _, id := range action.Entries {
			e := byID[id]
			rows = append(rows, []string{action.Name, e.ProviderKey, e.Policy.Effect, e.Policy.Approval, e.Availability.State, choose})
		}
	}
	return a.table([]string{"NAME", "PROVIDER", "EFFECT", "APPROVAL", "STATE", "SELECTOR"}, rows,
		"an agent can do nothing here; see what there is with: junctor catalog internal")
}

func (a *app) printInternal(out struct{ Entries []shownEntry }) error {
	var rows [][]string
	for _, e := range out.Entries {
		target := e.CanonicalAction
		if e.Member != "" {
			target = e.Member
		}
		rows = append(rows, []string{
			toolName(target), e.ProviderKey, e.Policy.Effect, strings.TrimPrefix(e.Kind, "capability."), e.Availability.State,
			dash(e.Withheld),
		})
	}
	return a.table([]string{"TARGET", "PROVIDER", "EFFECT", "KIND", "STATE", "WITHHELD"}, rows, "the catalog is empty")
}

func (a *app) printOperator(out struct {
	Rows []struct{ Row, RuntimeID, Title, Description, Availability string }
},
) error {
	var rows [][]string
	for _, r := range out.Rows {
		rows = append(rows, []string{r.Row, r.Title, dash(r.RuntimeID), r.Availability, r.Description})
	}
	return a.table([]string{"ID", "TITLE", "FROM", "STATE", "DESCRIPTION"}, rows,
		"no module offers anything to operators; see what there is with: junctor modules list")
}

func (a *app) catalogStatic() *cobra.Command {
	var etag string
	names := []string{"install", "onboarding", "channels", "cli"}
	c := &cobra.Command{
		Use: "static [install|onboarding|channels|cli]", Short: "Show what packages declare, without starting any of them",
		Args: cobra.MaximumNArgs(1), ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "static"
			if len(args) == 1 {
				path += "/" + url.PathEscape(args[0])
			}
			path = listPath(path, etag, nil)
			return a.call(cmd.Context(), http.MethodGet, path, nil, unlessUnchanged(a, decoded(func(out map[string]json.RawMessage) error {
				if len(args) == 1 {
					return a.printStatic(out["rows"])
				}
				for _, name := range names {
					a.printf("%s:\n", name)
					if err := a.printStatic(out[name]); err != nil {
						return err
					}
				}
				return nil
			})))
		},
	}
	c.Flags().StringVar(&etag, "etag", "", "`ETAG` print only \"unchanged\" if the catalog still has this etag")
	return c
}

func (a *app) printStatic(raw json.RawMessage) error {
	list, err := decode[[]map[string]any](raw)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, r := range list {
		rows = append(rows, []string{
			first(r, "id", "flowId", "path", "extensionId"), first(r, "selectionLabel", "label", "name", "target", "mode"),
			first(r, "blurb", "description", "selectionHint", "version"),
		})
	}
	return a.table([]string{"ID", "LABEL", "ABOUT"}, rows, "")
}

// first returns the first of the named members that is a text, or "".
func first(m map[string]any, names ...string) string {
	for _, name := range names {
		if s, ok := m[name].(string); ok && s != "" {
			return s
		}
	}
	return "-"
}

func (a *app) catalogExplain() *cobra.Command {
	var selects, contexts []string
	c := &cobra.Command{
		Use: "explain ACTION", Short: "Explain why a provider is chosen, and what was rejected at which step", Args: cobra.ExactArgs(1),
		Example: `  junctor catalog explain fs.readText
  junctor catalog explain fs.readText --select endpoint=tools`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := contextFlag(contexts); err != nil {
				return err
			}
			q := url.Values{"action": args, "select": selects, "context": contexts}
			return a.call(cmd.Context(), http.MethodGet, "/api/v1/catalog/explain?"+q.Encode(), nil, decoded(a.printExplanation))
		},
	}
	c.Flags().StringArrayVar(&selects, "select", nil, "`KEY=VALUE` choose the provider: provider=…, endpoint=…, node=… (repeatable)")
	c.Flags().StringArrayVar(&contexts, "context", nil, contextHelp)
	return c
}

func (a *app) catalogConflicts() *cobra.Command {
	var all bool
	var contexts []string
	c := &cobra.Command{
		Use: "conflicts", Short: "List what several contributions claim, and the setting that decides it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := listPath("conflicts", "", contexts)
			if all {
				path += map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] + "all"
			}
			return a.call(cmd.Context(), http.MethodGet, path, nil, decoded(func(out struct {
				Conflicts []struct {
					Class, Key, Resolution, Winner, Remediation string
					Members                                     []string
				}
			},
			) error {
				var rows [][]string
				for _, c := range out.Conflicts {
					rows = append(rows, []string{c.Class, c.Key, strings.Join(c.Members, " "), c.Resolution, dash(c.Winner), dash(c.Remediation)})
				}
				return a.table([]string{"CLASS", "KEY", "CLAIMED BY", "RESOLUTION", "WINNER", "TO DECIDE IT"}, rows, "nothing conflicts")
			}))
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also actions that several may provide")
	c.Flags().StringArrayVar(&contexts, "context", nil, contextHelp)
	return c
}

func (a *app) catalogSlots() *cobra.Command {
	var contexts []string
	c := &cobra.Command{
		Use: "slots", Short: "List slots with their holders, and backends", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd.Context(), http.MethodGet, listPath("slots", "", contexts), nil, decoded(func(out struct {
				Slots []struct {
					Slot, Requested, Source, Mode, Winner string
					Available                             []string
					Error                                 *struct{ Code, Remediation string }
				}
				Backends []struct {
					RuntimeID, Withheld string
					Rank                int
					Backend             struct{ Class, ID, Health string }
					Availability        struct{ State string }
				}
			},
			) error {
				var rows [][]string
				for _, s := range out.Slots {
					state := "held"
					if s.Error != nil {
						state = s.Error.Code + ": " + s.Error.Remediation
					}
					rows = append(rows, []string{s.Slot, s.Requested, s.Source, s.Mode, dash(s.Winner), dash(strings.Join(s.Available, " ")), state})
				}
				if err := a.table([]string{"SLOT", "REQUESTED", "BY", "MODE", "HOLDER", "AVAILABLE", "STATE"}, rows,
					"there are no slots"); err != nil || len(out.Backends) == 0 {
					return err
				}
				rows = nil
				for _, b := range out.Backends {
					rows = append(rows, []string{
						b.Backend.ID, dash(b.Availability.State), b.Backend.Class, strconv.Itoa(b.Rank), dash(b.Backend.Health),
						b.RuntimeID, dash(b.Withheld),
					})
				}
				a.printf("\n")
				return a.table([]string{"ID", "STATE", "CLASS", "RANK", "HEALTH", "FROM", "WITHHELD"}, rows, "")
			}))
		},
	}
	c.Flags().StringArrayVar(&contexts, "context", nil, contextHelp)
	return c
}

func (a *app) catalogLint() *cobra.Command {
	var contexts []string
	c := &cobra.Command{
		Use: "lint", Short: "List what in the catalog and its settings needs a look", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd.Context(), http.MethodGet, listPath("lint", "", contexts), nil, decoded(func(out struct {
				Findings []struct{ Code, Subject, Message string }
			},
			) error {
				if len(out.Findings) == 0 {
					a.note("nothing needs a look")
				}
				for _, f := range out.Findings {
					a.printf("%s: %s\n", f.Code, plainText(f.Message))
				}
				return nil
			}))
		},
	}
	c.Flags().StringArrayVar(&contexts, "context", nil, contextHelp)
	return c
}

// catalogEval returns the command that evaluates scenarios without a server.
func (a *app) catalogEval() *cobra.Command {
	var fixtures string
	c := &cobra.Command{
		Use: "eval FILE...", Short: "Run scenario files against the catalog, without a server",
		Long: `Run scenario files against the catalog, without a server, network or clock.

Each question is asked under three orders of extensions and prints one JSON line:
{"id","index","order","ok","got"}. The exit status is 1 if any answer differs from
what the scenario expects.`,
		Example: `  junctor catalog eval --fixtures fixtures.json scenarios.json`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var shared eval.Fixtures
			if fixtures != "" {
				data, err := readBounded(fixtures)
				if err != nil {
					return err
				}
				if shared, err = eval.ParseFixtures(data); err != nil {
					return err
				}
			}
			var files []eval.File
			for _, name := range args {
				data, err := readBounded(name)
				if err != nil {
					return err
				}
				files = append(files, eval.File{Name: name, Data: data})
			}
			ok, err := eval.RunFiles(shared, files, a.stdout)
			if err != nil {
				return err
			}
			if !ok {
				return exitStatus(1)
			}
			return nil
		},
	}
	c.Flags().StringVar(&fixtures, "fixtures", "", "`FILE` file with the extensions and contexts that scenarios name")
	return c
}

// readBounded reads a file. It fails with too_large above maxScenarioFile.
func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "the file %s cannot be read", name).With("",
			"name a file of scenarios that you may read")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxScenarioFile+1))
	if err != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "the file %s cannot be read", name).With("",
			"name a file of scenarios that you may read")
	}
	if len(data) > maxScenarioFile {
		return nil, capability.Errorf(capability.CodeTooLarge, "", "%s is larger than %d bytes", name, maxScenarioFile)
	}
	return data, nil
}
