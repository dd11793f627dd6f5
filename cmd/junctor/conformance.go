package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/conformance"
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
