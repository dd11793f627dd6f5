package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// runCommand returns the command that runs a slash command.
func (a *app) runCommand() *cobra.Command {
	var req struct {
		Command string `json:"command"`
		Session string `json:"session_id,omitempty"`
		DryRun  bool   `json:"dry_run,omitempty"`
		NoCache bool   `json:"no_cache,omitempty"`
		Async   bool   `json:"async,omitempty"`
	}
	var yes bool
	c := &cobra.Command{
		Use: `run "/COMMAND [ACTION] [ARG...]"`, Short: "Run a slash command", Args: cobra.ExactArgs(1),
		Example: `  junctor run "/weather get https://api.example.com/status"
  junctor run "/weather get https://api.example.com/status" --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Command = args[0]
			return a.confirmed(cmd.Context(), yes, func() error {
				err := a.call(cmd.Context(), http.MethodPost, extensionsPath+"/execute", req, func(raw json.RawMessage) error {
					if req.DryRun {
						a.printf("%s\n", indent(raw))
						return nil
					}
					out, err := decode[struct {
						Result struct{ Output string }
						RunID  string `json:"run_id"`
						Status string
					}](raw)
					if err != nil {
						return err
					}
					if req.Async {
						a.printf("%s %s\n", out.RunID, out.Status)
						return nil
					}
					a.printf("%s\n", fault.Clean(strings.TrimRight(out.Result.Output, "\n")))
					return nil
				})
				a.printPartial(capability.AsError(err))
				return err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&req.Session, "session", "", "`SESSION` session it belongs to")
	f.BoolVar(&req.DryRun, "dry-run", false, "say what would be done; do nothing")
	f.BoolVar(&req.NoCache, "no-cache", false, "run it even where a kept result would do")
	f.BoolVar(&req.Async, "async", false, "do not wait: print the id of the run")
	f.BoolVar(&yes, "yes", false, yesHelp)
	return c
}

type runRow struct {
	ID        string            `json:"run_id"`
	Extension string            `json:"extension_id"`
	Command   string            `json:"command"`
	Action    string            `json:"action"`
	Status    string            `json:"status"`
	Stage     string            `json:"stage"`
	Message   string            `json:"message"`
	Started   time.Time         `json:"started_at"`
	Result    json.RawMessage   `json:"result"`
	Error     *capability.Error `json:"error"`
}

// runsCommand returns the commands about current and recent runs.
func (a *app) runsCommand() *cobra.Command {
	const path = "/api/v1/invocations"
	filter := map[string]*string{"extension_id": new(string), "session_id": new(string), "status": new(string)}
	list := &cobra.Command{
		Use: "list", Short: "List what runs, and what ended within the hour", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{}
			for key, value := range filter {
				if *value != "" {
					q.Set(key, *value)
				}
			}
			return a.call(cmd.Context(), http.MethodGet, path+"?"+q.Encode(), nil, decoded(func(out struct{ Runs []runRow }) error {
				var rows [][]string
				for _, r := range out.Runs {
					rows = append(rows, []string{r.ID, r.Status, strings.TrimSpace(r.Command + " " + r.Action), dash(r.Extension), when(r.Started)})
				}
				return a.table([]string{"ID", "STATE", "COMMAND", "MODULE", "STARTED"}, rows,
					`nothing runs, and nothing ended within the hour; run a slash command with: junctor run "/help"`)
			}))
		},
	}
	list.Flags().StringVar(filter["extension_id"], "ext", "", "`MODULE` only this module")
	list.Flags().StringVar(filter["session_id"], "session", "", "`SESSION` only this session")
	list.Flags().StringVar(filter["status"], "state", "", "`STATE` only this state: pending, running, succeeded, failed, timeout or canceled")
	alsoSpelled(list, "status", "state")
	show := &cobra.Command{
		Use: "show ID", Short: "Show how a run stands and what came of it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodGet, path+"/"+url.PathEscape(args[0]), nil, decoded(func(r runRow) error {
				a.printf("%s  %s (%s)  %s %s of %s\n", r.ID, r.Status, r.Stage, plainText(r.Command), plainText(r.Action), plainText(r.Extension))
				var value struct{ Output string }
				switch {
				case r.Error != nil:
					a.printf("%s\n", plainText(r.Error.Message))
				case len(r.Result) > 0 && json.Unmarshal(r.Result, &value) == nil:
					a.printf("%s\n", fault.Clean(strings.TrimRight(value.Output, "\n")))
				case r.Message != "":
					a.printf("%s\n", plainText(r.Message))
				}
				return nil
			}))
		},
	}
	cancel := &cobra.Command{
		Use: "cancel ID", Short: "Cancel a run", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodPost, path+"/"+url.PathEscape(args[0])+"/cancel", nil, a.done("stopping %s\n", args[0]))
		},
	}
	return a.group("runs", "Look after runs of slash commands", list, show, cancel, a.artifactsCommand(path))
}

// artifactsCommand returns the command that lists a run's artifacts or saves one.
func (a *app) artifactsCommand(path string) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "artifacts ID [NAME]", Short: "List the files that a run made, or save one", Args: cobra.RangeArgs(1, 2),
		Example: `  junctor runs artifacts run_0123456789abcdef01234567
  junctor runs artifacts run_0123456789abcdef01234567 report.txt --out report.txt`,
		RunE: func(cmd *cobra.Command, args []string) error {
			at := path + "/" + url.PathEscape(args[0]) + "/artifacts"
			if len(args) == 2 {
				if !filepath.IsLocal(args[1]) {
					return capability.Errorf(capability.CodeInvalidInput, "runs.artifacts", "%q is not the name of an artifact", args[1]).With("",
						"list them with: junctor runs artifacts "+args[0])
				}
				return a.saveArtifact(cmd.Context(), at+"/"+(&url.URL{Path: args[1]}).EscapedPath(), cmp.Or(output, filepath.Base(args[1])))
			}
			return a.call(cmd.Context(), http.MethodGet, at, nil, decoded(func(out struct {
				Artifacts []struct {
					Name, MIME, SHA256 string
					Size               int64
				}
			},
			) error {
				var rows [][]string
				for _, f := range out.Artifacts {
					rows = append(rows, []string{f.Name, strconv.FormatInt(f.Size, 10), f.MIME, f.SHA256})
				}
				return a.table([]string{"NAME", "BYTES", "KIND", "SHA256"}, rows, "the run made no files")
			}))
		},
	}
	c.Flags().StringVarP(&output, "out", "o", "", "`FILE` file to write, which must not exist yet (default the name of the artifact, in this folder)")
	alsoSpelled(c, "output", "out")
	return c
}

// saveArtifact downloads an artifact to a new file. It fails if the file exists.
func (a *app) saveArtifact(ctx context.Context, at, output string) error {
	var data json.RawMessage // raw bytes, not necessarily JSON
	if err := a.do(ctx, http.MethodGet, at, nil, &data); err != nil {
		return err
	}
	f, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the user's own choice
	if err != nil {
		return capability.Wrap(capability.CodeInvalidInput, "runs.artifacts", plainText(output)+" cannot be made; is it there already?",
			err).With("", "name another file with --out")
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if a.json {
		return a.printObject(map[string]any{"file": output, "bytes": len(data)})
	}
	a.printf("saved %s, %d bytes\n", plainText(output), len(data))
	return nil
}
