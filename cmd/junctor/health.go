package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
)

// healthCommand returns the command for supervisors that restart servers, such as containers and
// service managers. It needs no token and, unlike the doctor, ignores faults outside of the server.
func (a *app) healthCommand() *cobra.Command {
	return &cobra.Command{
		Use: "health", Short: "Say whether the server answers, for health checks; exit 5 if it does not", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, url, err := a.serverURL()
			if err != nil {
				return err
			}
			req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, strings.TrimSuffix(url, "/")+"/readyz", nil)
			if err != nil {
				return capability.Errorf(capability.CodeInvalidInput, "health", "%q is not the URL of a server", url)
			}
			resp, err := (&http.Client{Timeout: healthTimeout}).Do(req)
			if err != nil {
				return capability.Wrap(capability.CodeUnavailable, "health", "no server answers at "+url, err).With("service_unavailable",
					"start one with: junctor serve")
			}
			defer resp.Body.Close()
			data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
			var said struct {
				Ready   bool     `json:"ready"`
				Reasons []string `json:"reasons"`
			}
			if err != nil || json.Unmarshal(data, &said) != nil {
				return capability.Errorf(capability.CodeUnavailable, "health", "what answers at %s is not a junctor server", url)
			}
			if !said.Ready {
				return capability.Errorf(capability.CodeUnavailable, "health", "the server at %s is not ready: %s", url,
					plainText(strings.Join(said.Reasons, "; "))).With("not_ready", "junctor doctor has the remedies")
			}
			if a.json {
				return a.printJSON(data)
			}
			a.printf("The server at %s answers requests.\n", url)
			return nil
		},
	}
}
