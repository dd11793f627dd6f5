package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/config/elizafile"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
)

// savedRow is one endpoint that the server has stored.
type savedRow struct {
	ID, BaseURL, Provider, TokenSecret, Damaged string
	AllowedModuleIDs                            []string
	TrustPolicy                                 json.RawMessage
}

// endpointsExportCommand returns the command that writes the stored endpoints into the files of an
// elizaOS agent.
func (a *app) endpointsExportCommand() *cobra.Command {
	var to string
	var withTokens, replaceAll bool
	c := &cobra.Command{
		Use: "export", Short: "Write the remembered endpoints as an elizaOS agent's config.env and eliza.json", Args: cobra.NoArgs,
		Long: `Write the endpoints that are remembered over restarts as an elizaOS agent's config.env
and eliza.json, with their allow-lists, trust policies and trust decisions. Whatever
else stands in files that are there already is kept; endpoints in them that are not
exported are only taken away with --replace.

Tokens are left out. With --with-tokens they are read from the home's own secret store,
so this works on the server's machine only, and written to config.env, mode 0600.`,
		Example: "  junctor endpoints export --to ./agent-files --with-tokens",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if to == "" {
				return capability.Errorf(capability.CodeInvalidInput, "", "--to must name the directory to write to")
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			var saved struct{ Endpoints []savedRow }
			if err := c.Do(cmd.Context(), http.MethodGet, "/api/capability-router/saved", nil, &saved); err != nil {
				return err
			}
			var now struct{ Endpoints []endpointRow }
			if err := c.Do(cmd.Context(), http.MethodGet, "/api/capability-router/endpoints", nil, &now); err != nil {
				return err
			}
			files, err := elizafile.Read(elizafile.In(to))
			if err != nil {
				return err
			}
			before, err := leftOver(files, saved.Endpoints)
			if err != nil && !replaceAll {
				return err
			}
			list, err := exported(saved.Endpoints, before)
			if err != nil {
				return err
			}
			if withTokens {
				if err := a.fillTokens(c, saved.Endpoints, list); err != nil {
					return err
				}
			}
			if err := files.Put(list, recordsOf(list, now.Endpoints)); err != nil {
				return err
			}
			if err := files.Write(); err != nil {
				return err
			}
			return a.printExported(to, saved.Endpoints, list, now.Endpoints)
		},
	}
	f := c.Flags()
	f.StringVar(&to, "to", "", "`DIR` folder to write the two files to")
	f.BoolVar(&withTokens, "with-tokens", false, "also write the tokens of the endpoints to config.env")
	f.BoolVar(&replaceAll, "replace", false, "remove endpoints from the files that are not exported")
	return c
}

// leftOver returns the endpoints that the files contain. It fails with conflict if an export would
// remove an endpoint or overwrite unreadable values.
func leftOver(files *elizafile.Files, saved []savedRow) (config.Eliza, error) {
	const hint = "write to another directory, or take them away with --replace"
	vars, err := files.Vars()
	if err != nil {
		return config.Eliza{}, err
	}
	for _, name := range []string{"ELIZA_CAPABILITY_ROUTER_ENABLED", "ELIZA_REMOTE_CAPABILITY_ENABLED"} {
		delete(vars, name) // disabled endpoints count too
	}
	before, err := config.ElizaVars(vars)
	if err != nil {
		return config.Eliza{}, capability.Errorf(capability.CodeConflict, "", "what is there already cannot be read: %w", err).With("", hint)
	}
	for _, e := range before.Endpoints {
		if !slices.ContainsFunc(saved, func(s savedRow) bool { return s.ID == e.ID && s.BaseURL == e.BaseURL }) {
			return before, capability.Errorf(capability.CodeConflict, "", "the files there name the endpoint %s at %s, which is not exported", e.ID,
				e.BaseURL).With("", hint)
		}
	}
	return before, nil
}

// exported converts the stored endpoints to the agent's form. The endpoint for low-level calls is
// first, because elizaOS uses the first one for them. Tokens in the files for the same id and URL
// are kept. It fails with conflict if stored restrictions cannot be read.
func exported(saved []savedRow, before config.Eliza) ([]elizafile.Endpoint, error) {
	var out []elizafile.Endpoint
	for _, s := range saved {
		if s.Damaged != "" {
			return nil, capability.Errorf(capability.CodeConflict, "",
				"the saved restrictions of endpoint %s cannot be read, and an export would drop them", s.ID).
				With("", "connect it again, or disconnect it")
		}
		e := elizafile.Endpoint{ID: s.ID, BaseURL: s.BaseURL, AllowedModules: s.AllowedModuleIDs}
		if len(s.TrustPolicy) > 0 {
			var policy map[string]json.RawMessage
			if err := json.Unmarshal(s.TrustPolicy, &policy); err != nil {
				return nil, capability.Wrap(capability.CodeConflict, "", "the saved trust policy of endpoint "+s.ID+" cannot be read", err)
			}
			// elizaOS reads an allow-list only from its own variable.
			if inside, ok := policy["allowedModuleIds"]; ok && e.AllowedModules == nil {
				if err := json.Unmarshal(inside, &e.AllowedModules); err != nil {
					return nil, capability.Wrap(capability.CodeConflict, "", "the saved trust policy of endpoint "+s.ID+" cannot be read", err)
				}
				delete(policy, "allowedModuleIds")
			}
			if len(policy) > 0 {
				data, err := json.Marshal(policy)
				if err != nil {
					return nil, err
				}
				e.TrustPolicy = data
			}
		}
		for _, b := range before.Endpoints {
			if b.ID == e.ID && b.BaseURL == e.BaseURL {
				e.Token = b.Token
			}
		}
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(x, y elizafile.Endpoint) int {
		switch {
		case x.ID == "primary" && y.ID != "primary":
			return -1
		case y.ID == "primary" && x.ID != "primary":
			return 1
		}
		return 0
	})
	return out, nil
}

// fillTokens sets the tokens from the secret store of the home, which must be the server's home,
// because no API returns secrets.
func (a *app) fillTokens(c *client.Client, saved []savedRow, list []elizafile.Endpoint) error {
	home, err := a.findHome()
	if err != nil {
		return err
	}
	elsewhere := func(err error) error {
		return capability.Wrap(capability.CodeInvalidInput, "", "the tokens are in the secret store of the server at "+c.URL()+
			", which is not the home "+home, err).
			With("", "export where that server runs, with its --home, or leave --with-tokens out")
	}
	dir := filepath.Join(home, "secrets")
	if _, err := os.Stat(dir); err != nil {
		return elsewhere(err)
	}
	store, err := secretstore.Open(dir, secretstore.Further{})
	if err != nil {
		return err
	}
	defer store.Close()
	for _, s := range saved {
		if s.TokenSecret == "" {
			continue
		}
		token, err := store.Get(s.TokenSecret)
		if capability.CodeOf(err) == capability.CodeNotFound {
			return elsewhere(err)
		}
		if err != nil {
			return err
		}
		for i := range list {
			if list[i].ID == s.ID {
				list[i].Token = token
			}
		}
	}
	return nil
}

// recordsOf returns the trust audit of the exported endpoints: the server's history of each, or its
// decisions about the last manifest if none exists.
func recordsOf(list []elizafile.Endpoint, now []endpointRow) []elizafile.Record {
	var rows []trustRow
	for _, e := range now {
		if !slices.ContainsFunc(list, func(x elizafile.Endpoint) bool { return x.ID == e.ID }) {
			continue
		}
		if len(e.History) > 0 {
			rows = append(rows, e.History...)
			continue
		}
		row := trustRow{
			RecordedAt: e.Synced, Mode: "endpoint", Provider: e.Provider, AllowedModuleIDs: e.AllowedModuleIDs,
			TrustDecisions: e.TrustDecisions,
		}
		if row.RecordedAt.IsZero() {
			row.RecordedAt = e.Since
		}
		if e.Provider != "" && e.Provider != "direct" {
			row.Mode = e.Provider
		}
		row.Endpoint.ID, row.Endpoint.BaseURL, row.Endpoint.HasToken = e.ID, e.BaseURL, e.HasToken
		for _, d := range e.TrustDecisions {
			if d.Trusted {
				row.Registered = append(row.Registered, d.PluginName)
			} else {
				row.Skipped = append(row.Skipped, d.PluginName)
			}
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(x, y trustRow) int { return x.RecordedAt.Compare(y.RecordedAt) })
	out := make([]elizafile.Record, 0, len(rows))
	for _, r := range rows {
		out = append(out, r.record())
	}
	return out
}

// record converts the row to the form of elizaOS, which has fewer members.
func (r *trustRow) record() elizafile.Record {
	some := func(in []string) []string { return append([]string{}, in...) }
	out := elizafile.Record{
		RecordedAt: elizafile.Stamp(r.RecordedAt.Round(time.Millisecond)), Mode: r.Mode, Provider: r.Provider,
		Endpoint:         elizafile.RecordEndpoint{ID: r.Endpoint.ID, BaseURL: r.Endpoint.BaseURL, HasToken: r.Endpoint.HasToken},
		AllowedModuleIDs: r.AllowedModuleIDs, Registered: some(r.Registered), Skipped: some(r.Skipped), Unloaded: some(r.Unloaded),
		TrustDecisions: []elizafile.Decision{},
	}
	for _, d := range r.TrustDecisions {
		out.TrustDecisions = append(out.TrustDecisions, elizafile.Decision{
			ModuleID: d.ModuleID, PluginName: d.PluginName, EndpointID: d.EndpointID, ProvenanceIssuer: d.ProvenanceIssuer, Trusted: d.Trusted,
			Reason: d.Reason,
		})
	}
	return out
}

// printExported prints the written files and endpoints, and those that were left out.
func (a *app) printExported(dir string, saved []savedRow, list []elizafile.Endpoint, now []endpointRow) error {
	names, noToken, left := []string{}, []string{}, []string{}
	for _, e := range list {
		names = append(names, e.ID)
		i := slices.IndexFunc(saved, func(s savedRow) bool { return s.ID == e.ID })
		if e.Token.Empty() && saved[i].TokenSecret != "" {
			noToken = append(noToken, e.ID)
		}
	}
	for _, e := range now {
		if !slices.Contains(names, e.ID) {
			left = append(left, e.ID)
		}
	}
	places := elizafile.In(dir)
	if a.json {
		data, err := json.Marshal(map[string]any{
			"files": []string{places.Env, places.Config}, "exported": names, "withoutToken": noToken, "leftOut": left,
		})
		if err != nil {
			return err
		}
		return a.printJSON(data)
	}
	a.printf("wrote %s and %s\n", places.Env, places.Config)
	a.printf("  exported       %s\n", dash(strings.Join(names, ", ")))
	if len(noToken) > 0 {
		a.printf("  without token  %s (add --with-tokens)\n", strings.Join(noToken, ", "))
	}
	if len(left) > 0 {
		a.printf("  left out       %s (not remembered over restarts)\n", strings.Join(left, ", "))
	}
	return nil
}
