package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/conformance"
	"github.com/junctor-run/junctor/conformance/livereport"
	"github.com/junctor-run/junctor/secret"
)

func (a *app) conformanceCommand() *cobra.Command {
	var token, tokenFile, report, dialect, profile, id string
	var require []string
	var timeoutMS int64
	c := &cobra.Command{
		Use:   "conformance URL",
		Short: "Test an endpoint through every surface and name what does not hold",
		Long: `Test an endpoint through every surface and name what does not hold. It asks the
endpoint itself and needs no server. The exit status is 1 if anything does not hold.`,
		Example: `  junctor conformance http://127.0.0.1:31337 --endpoint-token-file token
  junctor conformance http://127.0.0.1:31337 --require action --report report.json
  junctor conformance http://127.0.0.1:31337 --profile elizaos`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts := conformance.Options{
				EndpointID: id, BaseURL: args[0], Token: secret.New(token), Required: require, Dialect: conformance.Dialect(dialect),
				Timeout: time.Duration(timeoutMS) * time.Millisecond, Profile: profile,
			}
			if tokenFile != "" {
				value, err := a.readSecretFile(tokenFile)
				if err != nil {
					return err
				}
				opts.Token = value
			}
			return a.conform(cmd.Context(), opts, report)
		},
	}
	f := c.Flags()
	f.StringVar(&id, "id", "", "`ID` id of the endpoint in the report")
	f.StringVar(&token, "endpoint-token", "", "`TOKEN` token of the endpoint; other processes can see it, so prefer --endpoint-token-file")
	f.StringVar(&tokenFile, "endpoint-token-file", "", "`FILE` file with the token of the endpoint")
	f.StringSliceVar(&require, "require", nil, "`SURFACE` surface that must be offered (repeatable, default all)")
	f.StringVar(&dialect, "dialect", "", "`DIALECT` generation of routers to judge it for: s, t, n or union (default union)")
	f.StringVar(&profile, "profile", "", "`PROFILE` elizaos: what only our further checks find are warnings")
	f.StringVar(&report, "report", "", "`FILE` also write the report to this file")
	f.Int64Var(&timeoutMS, "request-timeout-ms", 0, "`MS` deadline of one call, in milliseconds")
	return c
}

// conform tests an endpoint, prints the result and, if file is not "", writes the report. If the
// endpoint does not conform, it returns an exitStatus.
func (a *app) conform(ctx context.Context, opts conformance.Options, file string) error {
	report, err := conformance.Run(ctx, opts)
	failure, failed := errors.AsType[*conformance.Failure](err)
	if err != nil && !failed {
		return err
	}
	data, err := json.Marshal(report)
	if err != nil {
		return err
	}
	if file != "" {
		if err := replaceFile(file, append(data, '\n')); err != nil {
			return err
		}
	}
	switch {
	case a.json:
		if err := a.printJSON(data); err != nil {
			return err
		}
	default:
		for _, w := range report.Warnings {
			a.printf("warn  %s: %s\n", plainText(w.Where), plainText(w.Message))
		}
	}
	switch {
	case a.json:
	case failed:
		for _, f := range failure.Faults {
			a.printf("FAIL  %s: %s\n", plainText(f.Where), plainText(f.Message))
			if f.Where == "availability" {
				a.note("check the URL and that the endpoint runs; give its token with --endpoint-token-file")
			}
		}
	default:
		a.printf("conforms: %d modules, %d surfaces, %d calls\n", report.ModuleCount, len(report.Exercised), len(report.RPCCalls))
	}
	if failed {
		return exitStatus(capability.CodeFailed.Row().Exit)
	}
	return nil
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

func minutes(m float64) time.Duration { return time.Duration(m * float64(time.Minute)) }

func names(list string) []string {
	if list == "" {
		return nil
	}
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// parseCount parses N or MIN..MAX.
func parseCount(s string) (least, most int, err error) {
	if s == "" {
		return 0, 0, nil
	}
	from, to, isRange := strings.Cut(s, "..")
	if !isRange {
		to = from
	}
	least, err1 := strconv.Atoi(from)
	most, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil || least < 0 || most < least {
		return 0, 0, capability.Errorf(capability.CodeInvalidInput, "", "--expect-count %q is neither a number nor MIN..MAX", s)
	}
	return least, most, nil
}
