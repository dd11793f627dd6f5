package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/conformance"
	"github.com/junctor-run/junctor/conformance/livereport"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// liveTarget is the endpoint of a live report, as given by the variables
// ELIZA_REMOTE_CAPABILITY_<PROVIDER>_URL, _ENDPOINT_ID, _TOKEN and _MODULES, or by flags, which win.
type liveTarget struct {
	provider, id, url string
	token             secret.Value
	modules           []string
}

func (a *app) reportWriteCommand() *cobra.Command {
	var dir, address, id, token, tokenFile string
	var allowed []string
	c := &cobra.Command{
		Use: "write PROVIDER", Short: "Connect an endpoint, test all of it and write a live report",
		Long: `Connect an endpoint to the running server, exercise every surface of it, and write a
live report of what was found and what was let in. PROVIDER is e2b, home-machine,
mobile-companion or desktop-companion; the endpoint is that of the variables
ELIZA_REMOTE_CAPABILITY_<PROVIDER>_URL, _ENDPOINT_ID, _TOKEN and _MODULES (E2B,
HOME_MACHINE, …) unless flags say otherwise. It is connected for the run only, and a
report is written whole and sound or not at all.`,
		Example: "  junctor report write home-machine --url http://127.0.0.1:31337 --dir reports",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := a.liveTarget(args[0])
			if err != nil {
				return err
			}
			given, err := a.secretFlag("--endpoint-token", token, tokenFile)
			if err != nil {
				return err
			}
			if given != "" {
				target.token = secret.New(given)
			}
			if address != "" {
				target.url = address
			}
			if id != "" {
				target.id = id
			}
			if cmd.Flags().Changed("allowed-module") {
				target.modules = allowed
			}
			dir = cmp.Or(dir, a.env(livereport.DirVariable))
			switch {
			case dir == "":
				return capability.Errorf(capability.CodeInvalidInput, "", "--dir must name the folder of the report, or %s", livereport.DirVariable)
			case target.url == "":
				return capability.Errorf(capability.CodeInvalidInput, "", "--url must be the URL of the endpoint, or %sURL",
					liveVariable(target.provider))
			}
			path, err := a.writeReport(cmd.Context(), dir, target)
			if err != nil {
				return err
			}
			if a.json {
				return a.printObject(map[string]string{"report": path})
			}
			a.printf("wrote %s\n", path)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&dir, "dir", "", "`DIR` folder to write <provider>.json to (default $"+livereport.DirVariable+")")
	f.StringVar(&address, "url", "", "`URL` URL of the endpoint")
	f.StringVar(&id, "id", "", "`ID` id of the endpoint (default PROVIDER-live-capability)")
	f.StringVar(&token, "endpoint-token", "", "`TOKEN` token of the endpoint; other processes can see it, so prefer --endpoint-token-file")
	f.StringVar(&tokenFile, "endpoint-token-file", "", "`FILE` file with the token of the endpoint")
	f.StringSliceVar(&allowed, "allowed-module", nil, "`MODULE` let in only this module (repeatable)")
	return c
}

// liveVariable returns the prefix of a provider's variables.
func liveVariable(provider string) string {
	return "ELIZA_REMOTE_CAPABILITY_" + strings.ToUpper(strings.ReplaceAll(provider, "-", "_")) + "_"
}

// liveTarget returns the endpoint that the variables of a provider describe. It fails for an unknown
// provider.
func (a *app) liveTarget(provider string) (liveTarget, error) {
	families := []string{"e2b", "home-machine", "mobile-companion", "desktop-companion"}
	if !slices.Contains(families, provider) {
		return liveTarget{}, capability.Errorf(capability.CodeInvalidInput, "", "%q is not a provider of live reports; use %s", provider,
			strings.Join(families, ", "))
	}
	get := func(short string) string { return strings.TrimSpace(a.env(liveVariable(provider) + short)) }
	out := liveTarget{provider: provider, id: get("ENDPOINT_ID"), url: get("URL"), token: secret.New(get("TOKEN"))}
	out.id = cmp.Or(out.id, provider+"-live-capability")
	for part := range strings.SplitSeq(get("MODULES"), ",") {
		if part = strings.TrimSpace(part); part != "" {
			out.modules = append(out.modules, part)
		}
	}
	return out, nil
}

// writeReport connects the endpoint, tests it, disconnects it and writes the report to dir. It fails
// with conflict if an endpoint with that id is connected already.
func (a *app) writeReport(ctx context.Context, dir string, t liveTarget) (path string, err error) {
	c, err := a.client()
	if err != nil {
		return "", err
	}
	at := "/api/capability-router/endpoints/" + url.PathEscape(t.id)
	if err := c.Do(ctx, http.MethodGet, at, nil, nil); err == nil {
		return "", capability.Errorf(capability.CodeConflict, "", "an endpoint %s is connected already, and a report must not change it", t.id).
			With("", "give the run another id with --id")
	} else if capability.CodeOf(err) != capability.CodeNotFound {
		return "", err
	}
	endpoint := map[string]any{"id": t.id, "baseUrl": t.url}
	setText(endpoint, "token", t.token.Reveal())
	body := map[string]any{"endpoint": endpoint, "provider": t.provider, "persist": false}
	if len(t.modules) > 0 {
		body["allowedModuleIds"] = t.modules
	}
	var connected struct {
		Sync struct {
			Unloaded, Skipped []string
			TrustDecisions    []router.TrustDecision
		}
	}
	observed := time.Now()
	if err := c.Do(ctx, http.MethodPost, "/api/capability-router/connect", body, &connected); err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, c.Do(context.WithoutCancel(ctx), http.MethodDelete, at, nil, nil))
	}()
	remote, err := router.NewClient(router.ClientConfig{ID: t.id, BaseURL: t.url, Token: t.token})
	if err != nil {
		return "", capability.Errorf(capability.CodeInvalidInput, "", "%w", err)
	}
	defer remote.CloseIdle()
	modules, err := remote.Modules(ctx)
	if err != nil {
		return "", capability.Wrap(capability.CodeUnavailable, "", "the modules of "+t.id+" cannot be read", err)
	}
	found, err := conformance.Run(ctx, conformance.Options{
		EndpointID: t.id, BaseURL: t.url, Token: t.token, Profile: conformance.ProfileElizaOS,
	})
	if err != nil {
		return "", capability.Wrap(capability.CodeFailed, "", "the endpoint does not conform: "+err.Error(), err).
			With("", "see all of it with: junctor conformance "+t.url)
	}
	return livereport.Write(dir, livereport.Report{
		Kind: "provider", EndpointID: t.id, ObservedAt: observed, Provider: t.provider, EndpointURL: t.url,
		Conformance: found, Modules: modules, Decisions: connected.Sync.TrustDecisions,
		Unloaded: connected.Sync.Unloaded, Skipped: connected.Sync.Skipped, CI: livereport.CIFrom(a.env),
	})
}

func (a *app) reportCommand() *cobra.Command {
	return a.group("report", "Write and validate live reports", a.reportWriteCommand(), a.reportValidateCommand())
}

func (a *app) reportValidateCommand() *cobra.Command {
	var opts livereport.Options
	var set livereport.Set
	var count, allowed, required string
	var maxAge, maxFuture float64
	var matchGitHub bool
	c := &cobra.Command{
		Use:   "validate FILE|DIR...",
		Short: "Validate live reports: each number must follow from another part",
		Example: `  junctor report validate reports --require-providers home-machine
  junctor report validate reports/e2b.json --max-age-minutes 60`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var err error
			if set.MinCount, set.MaxCount, err = parseCount(count); err != nil {
				return err
			}
			opts.MaxAge, opts.MaxFuture = minutes(maxAge), minutes(maxFuture)
			set.AllowedProviders, set.RequiredProviders = names(allowed), names(required)
			if matchGitHub {
				opts.GitHub = make(map[string]string)
				for _, kv := range a.environ {
					if k, v, _ := strings.Cut(kv, "="); strings.HasPrefix(k, "GITHUB_") {
						opts.GitHub[k] = v
					}
				}
			}
			n, problems := livereport.Files(args, opts, set)
			said := []string{}
			for _, p := range problems {
				said = append(said, plainText(p.String()))
			}
			switch {
			case a.json:
				if err := a.printObject(map[string]any{"ok": len(said) == 0, "reports": n, "problems": said}); err != nil {
					return err
				}
			case len(said) > 0:
				fmt.Fprintln(a.stderr, strings.Join(said, "\n"))
			default:
				a.printf("%d %s sound\n", n, counted(n, "report is", "reports are"))
			}
			if len(said) > 0 {
				return exitStatus(1)
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&opts.Kind, "kind", "", "`KIND` only this kind: cloud or provider")
	f.StringVar(&count, "expect-count", "", "`N|MIN..MAX` how many reports there must be")
	f.Float64Var(&maxAge, "max-age-minutes", 0, "oldest report that counts, in minutes")
	f.Float64Var(&maxFuture, "max-future-minutes", 0, "how far ahead the clock of a report may be, in minutes")
	f.StringVar(&allowed, "allowed-providers", "", "`PROVIDERS` providers that may be there, comma-separated")
	f.StringVar(&required, "require-providers", "", "`PROVIDERS` providers that must be there, comma-separated")
	f.BoolVar(&opts.RequireCI, "require-ci", false, "refuse a report without its CI block")
	f.BoolVar(&opts.RequireFileIdentity, "require-file-identity", false, "refuse a file that is not named after its provider")
	f.BoolVar(&matchGitHub, "match-github-env", false, "refuse a CI block that is not what the GITHUB_ variables say")
	f.BoolVar(&opts.AllowSkipped, "allow-skipped", false, "accept modules that were seen but not let in")
	return c
}
