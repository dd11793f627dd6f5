package main

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/config/elizafile"
)

// imported is the result for one endpoint of the files.
type imported struct {
	ID      string            `json:"id"`
	BaseURL string            `json:"baseUrl"`
	OK      bool              `json:"ok"`
	DryRun  bool              `json:"dryRun,omitempty"`
	Answer  json.RawMessage   `json:"answer,omitempty"` // of the request to connect
	Error   *capability.Error `json:"error,omitempty"`
}

// endpointsImportCommand returns the command that connects the endpoints in the files of an elizaOS
// agent.
func (a *app) endpointsImportCommand() *cobra.Command {
	var from string
	var dryRun bool
	c := &cobra.Command{
		Use: "import", Short: "Connect the endpoints that an elizaOS agent keeps in config.env and eliza.json", Args: cobra.NoArgs,
		Long: `Connect the endpoints that an elizaOS agent keeps in config.env and eliza.json, with
their tokens, allow-lists and trust policies. Each goes the way of "junctor connect":
all of it is let in or nothing, and one that fails takes nothing from the others.
A restriction that cannot be read ends the import before anything is connected.`,
		Example: "  junctor endpoints import --from ~/.eliza --dry-run",
		RunE: func(cmd *cobra.Command, _ []string) error {
			said, err := a.readAgent(from)
			if err != nil {
				return err
			}
			if len(said.Endpoints) == 0 {
				a.warnf("the files name no endpoint that is switched on")
			}
			out := make([]imported, 0, len(said.Endpoints))
			var c *client.Client
			if !dryRun && len(said.Endpoints) > 0 {
				if c, err = a.client(); err != nil {
					return err
				}
			}
			failed := 0
			for _, e := range said.Endpoints {
				one := imported{ID: e.ID, BaseURL: e.BaseURL, OK: true, DryRun: dryRun}
				if !dryRun {
					err := c.Do(cmd.Context(), http.MethodPost, "/api/capability-router/connect", connectBodyOf(e, providersOf(said.TrustAudit)),
						&one.Answer)
					if err != nil {
						one.OK, one.Error = false, capability.AsError(err)
						failed++
					}
				}
				out = append(out, one)
				if cmd.Context().Err() != nil {
					break // connected endpoints stay and are printed
				}
			}
			if err := a.printImported(out); err != nil {
				return err
			}
			if cmd.Context().Err() != nil {
				return exitStatus(130)
			}
			if failed > 0 {
				return exitStatus(capability.CodeFailed.Row().Exit)
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&from, "from", "", "`DIR` folder with the two files (default $ELIZA_STATE_DIR, else ~/.eliza)")
	f.BoolVar(&dryRun, "dry-run", false, "say what would be done; do nothing")
	return c
}

// agentPlaces returns the paths of the files in a directory, or for "" those that the environment
// names.
func (a *app) agentPlaces(dir string) (elizafile.Places, error) {
	if dir == "" {
		return elizafile.Find(a.env)
	}
	return elizafile.In(dir), nil
}

// readAgent reads the endpoints in the agent's files. It fails with not_found if both files are missing,
// and with invalid_input if a restriction cannot be read.
func (a *app) readAgent(dir string) (config.Eliza, error) {
	places, err := a.agentPlaces(dir)
	if err != nil {
		return config.Eliza{}, err
	}
	files, err := elizafile.Read(places)
	if err != nil {
		return config.Eliza{}, err
	}
	if files.Absent() {
		return config.Eliza{}, capability.Errorf(capability.CodeNotFound, "", "there is neither %s nor %s", places.Env, places.Config).
			With("", "name the directory that holds them with --from")
	}
	vars, err := files.Vars()
	if err != nil {
		return config.Eliza{}, err
	}
	said, err := config.ElizaVars(vars)
	if err != nil {
		return said, capability.Errorf(capability.CodeInvalidInput, "", "in %s and %s: %w", places.Env, places.Config, err).
			With("", "nothing was connected; mend the variable there, since a restriction that is not understood must not be dropped")
	}
	return said, nil
}

// connectBodyOf returns the body of POST /api/capability-router/connect for an endpoint.
func connectBodyOf(e config.ElizaEndpoint, providers map[string]string) map[string]any {
	endpoint := map[string]any{"id": e.ID, "baseUrl": e.BaseURL}
	if !e.Token.Empty() {
		endpoint["token"] = e.Token.Reveal()
	}
	body := map[string]any{"endpoint": endpoint}
	if provider := providers[e.ID+" "+e.BaseURL]; provider != "" {
		body["provider"] = provider
	}
	if e.Timeout > 0 {
		body["requestTimeoutMs"] = e.Timeout.Milliseconds()
	}
	if e.AllowedModules != nil {
		body["allowedModuleIds"] = e.AllowedModules
	}
	if e.TrustPolicy != nil {
		body["trustPolicy"] = json.RawMessage(e.TrustPolicy)
	}
	return body
}

// providersOf returns the provider family of endpoints by id and URL, from the trust audit, because
// the other variables do not contain it.
func providersOf(audit []byte) map[string]string {
	var records []json.RawMessage
	_ = json.Unmarshal(audit, &records) // it was validated when it was read
	out := make(map[string]string)
	for _, raw := range records {
		var r elizafile.Record
		if json.Unmarshal(raw, &r) == nil && slices.Contains([]string{"e2b", "home-machine", "mobile-companion", "desktop-companion"},
			r.Provider) {
			out[r.Endpoint.ID+" "+r.Endpoint.BaseURL] = r.Provider
		}
	}
	return out
}

func (a *app) printImported(list []imported) error {
	if a.json {
		return a.printObject(map[string]any{"endpoints": list})
	}
	rows := make([][]string, 0, len(list))
	for _, e := range list {
		what := "connected"
		switch {
		case e.DryRun:
			what = "would be connected"
		case e.Error != nil:
			what = "failed: " + e.Error.Message
		}
		rows = append(rows, []string{e.ID, e.BaseURL, what})
	}
	return a.table([]string{"ID", "URL", "RESULT"}, rows, "the files name no endpoint")
}
