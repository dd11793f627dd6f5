package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	tty "golang.org/x/term"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/mcpregistry"
)

func (a *app) mcpSearchCommand() *cobra.Command {
	return &cobra.Command{
		Use: "search WORD...", Short: "Search the MCP registry for servers", Args: cobra.MinimumNArgs(1),
		Long: `Search the MCP registry that upstreams.registries.mcp names for servers whose name
contains one of the words. Those that have most of the words come first. A server whose
column PACKAGES is empty cannot be added from the registry.`,
		Example: `  junctor mcp search files
  junctor mcp add --registry io.github.someone/files`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/api/v1/registry?search=" + url.QueryEscape(strings.Join(args, " "))
			return a.call(cmd.Context(), http.MethodGet, path, nil, decoded(func(out mcpregistry.Found) error {
				var rows [][]string
				for _, s := range out.Servers {
					if s.Status != mcpregistry.StatusActive {
						s.Description = s.Status + ". " + s.Description
					}
					rows = append(rows, []string{s.Name, s.Version, dash(strings.Join(s.Packages, " ")), s.Description})
				}
				err := a.table([]string{"NAME", "VERSION", "PACKAGES", "DESCRIPTION"}, rows,
					"no server of the registry has one of these words in its name")
				if out.Dropped > 0 {
					a.warnf("%d %s left out, because they are deleted or malformed", out.Dropped, counted(out.Dropped, "entry was", "entries were"))
				}
				if out.More {
					a.note("the registry has more; search for other words")
				}
				return err
			}))
		},
	}
}

// registryFlags hold the flags of "mcp add" about an entry of the MCP registry.
type registryFlags struct {
	entry, form     string
	inputs, secrets []string
}

func (o *registryFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.entry, "registry", "", "`ENTRY` add the server that this entry of the MCP registry describes, NAME or NAME@VERSION")
	f.StringVar(&o.form, "package", "", "`FORM` which package of the entry: npm, pypi, oci or remote (default the first that can be added)")
	f.StringArrayVar(&o.inputs, "input", nil, "`NAME=VALUE` value that the entry asks for (repeatable)")
	f.StringArrayVar(&o.secrets, "secret-input", nil, "`NAME=SECRET` secret that the entry asks for, by the name of a stored one (repeatable)")
}

// request returns the request of a plan. as is the name of the upstream, or "".
func (o *registryFlags) request(as string) (req mcpregistry.Request, err error) {
	req = mcpregistry.Request{Package: o.form, As: as, Inputs: make(map[string][]string)}
	req.Name, req.Version, _ = strings.Cut(o.entry, "@")
	for _, pair := range o.inputs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return req, capability.Errorf(capability.CodeInvalidInput, "", "--input takes NAME=VALUE, and %.60q is not", pair)
		}
		req.Inputs[name] = append(req.Inputs[name], value)
	}
	req.Secrets, err = pairs("secret-input", o.secrets)
	if req.Secrets == nil {
		req.Secrets = make(map[string]string)
	}
	return req, err
}

// addFromRegistry adds the server that an entry of the registry describes. args is its name, or empty.
func (a *app) addFromRegistry(cmd *cobra.Command, o upstreamFlags, args []string) error {
	if o.url != "" || o.a2a || o.openapi != "" || cmd.ArgsLenAtDash() >= 0 {
		return capability.Errorf(capability.CodeInvalidInput, "", "with --registry the entry determines the command or the URL")
	}
	as := strings.Join(args, "")
	body, err := o.record(cmd, []string{as})
	if err != nil {
		return err
	}
	req, err := o.registry.request(as)
	if err != nil {
		return err
	}
	if err := a.fromRegistry(cmd.Context(), body, req); err != nil {
		return err
	}
	if o.trust {
		body["trust"] = "trusted"
	}
	return a.addUpstream(cmd.Context(), body, o.hints)
}

// fromRegistry adds to the body of "mcp add" what an entry of the registry describes. Inputs that are
// missing are asked for at a terminal. Members of the body take precedence.
func (a *app) fromRegistry(ctx context.Context, body map[string]any, req mcpregistry.Request) error {
	var plan mcpregistry.Plan
	if err := a.do(ctx, http.MethodPost, "/api/v1/registry/plan", req, &plan); err != nil {
		return err
	}
	if plan.Record == nil {
		if err := a.askInputs(ctx, plan, &req); err != nil {
			return err
		}
		if err := a.do(ctx, http.MethodPost, "/api/v1/registry/plan", req, &plan); err != nil {
			return err
		}
		if plan.Record == nil {
			return missingInputs(plan)
		}
	}
	raw, err := json.Marshal(plan.Record)
	if err != nil {
		return err
	}
	record := make(map[string]any)
	if err := json.Unmarshal(raw, &record); err != nil {
		return err
	}
	maps.DeleteFunc(body, func(name string, _ any) bool { return name == "name" }) // the plan has it
	maps.Copy(record, body)
	maps.Copy(body, record)
	if !a.json {
		fmt.Fprintf(a.stderr, "%s %s (%s): %s\n", plainText(plan.Name), plainText(plan.Version), plan.Package,
			plainText(cmp.Or(plan.Record.URL, strings.Join(plan.Record.Command, " "))))
	}
	if plan.Status != mcpregistry.StatusActive {
		a.warnf("%s %s is %s in the registry", plan.Name, plan.Version, plan.Status)
	}
	return nil
}

func missingInputs(plan mcpregistry.Plan) error {
	var flags []string
	for _, in := range plan.Inputs {
		switch {
		case !in.Required || in.Given:
		case in.Secret:
			flags = append(flags, "--secret-input "+in.Key+"=SECRET")
		default:
			flags = append(flags, "--input "+in.Key+"=VALUE")
		}
	}
	return capability.Errorf(capability.CodeInvalidInput, "mcp.add", "%s needs %d more %s", plan.Name, len(flags),
		counted(len(flags), "value", "values")).
		With(mcpregistry.ReasonInput, "give "+strings.Join(flags, " "))
}

// askInputs asks for the inputs that are required and missing. Secrets are typed without an echo and
// stored under the name of the upstream.
func (a *app) askInputs(ctx context.Context, plan mcpregistry.Plan, req *mcpregistry.Request) error {
	if a.json || !terminal(a.stdin) {
		return missingInputs(plan)
	}
	var stored struct{ Secrets []struct{ Name string } }
	if err := a.do(ctx, http.MethodGet, "/api/v1/secrets", nil, &stored); err != nil {
		return err
	}
	for _, in := range plan.Inputs {
		if !in.Required || in.Given {
			continue
		}
		question := in.Key
		if in.Description != "" {
			question += " (" + in.Description + ")"
		}
		if len(in.Choices) > 0 {
			question += ", one of " + strings.Join(in.Choices, ", ")
		}
		if !in.Secret {
			value, err := a.ask(ctx, question+": ")
			if err != nil {
				return err
			}
			if value = strings.TrimRight(value, "\r"); in.Format == "filepath" {
				if value, err = filepath.Abs(value); err != nil {
					return err
				}
			}
			req.Inputs[in.Key] = []string{value}
			continue
		}
		value, err := a.askSecret(ctx, question+", not shown: ")
		if err != nil {
			return err
		}
		base := plan.As + "-" + strings.ToLower(strings.ReplaceAll(in.Key, "_", "-"))
		name := base
		for n := 2; slices.ContainsFunc(stored.Secrets, func(s struct{ Name string }) bool { return s.Name == name }); n++ {
			name = base + "-" + strconv.Itoa(n)
		}
		if err := a.do(ctx, http.MethodPut, "/api/v1/secrets/"+url.PathEscape(name), []byte(value), nil); err != nil {
			return err
		}
		fmt.Fprintf(a.stderr, "kept it as the secret %s\n", plainText(name))
		req.Secrets[in.Key] = name
	}
	return nil
}

// askSecret reads a line without showing it.
func (a *app) askSecret(ctx context.Context, question string) (string, error) {
	file, ok := a.stdin.(*os.File)
	if !ok {
		return a.ask(ctx, question)
	}
	fmt.Fprint(a.stderr, plainText(question))
	value, err := tty.ReadPassword(int(file.Fd()))
	fmt.Fprintln(a.stderr)
	if err != nil || len(value) == 0 || ctx.Err() != nil {
		return "", capability.Wrap(capability.CodeCancelled, "mcp.add", "no secret was typed", err)
	}
	return string(value), nil
}
