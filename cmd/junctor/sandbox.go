package main

import (
	"context"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// sandboxCommand returns the command that shows how programs are confined: by the running server,
// or by a server that this user would start.
func (a *app) sandboxCommand() *cobra.Command {
	status := &cobra.Command{
		Use: "status", Short: "Show which walls stand, and what the last self-test found", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.showSandbox(cmd.Context(), (*sandbox.Box).Report, false)
		},
	}
	selftest := &cobra.Command{
		Use: "selftest", Short: "Try to break out of every tier", Args: cobra.NoArgs,
		Long: "Try to break out of every tier, for real. The exit status is 1 if a wall gave way.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.showSandbox(cmd.Context(), (*sandbox.Box).SelfTest, true)
		},
	}
	return a.group("sandbox", "Show and test what confines the programs that run here", status, selftest)
}

// box returns the sandbox of this machine. Its report is cached in the home if that exists.
func (a *app) box() (*sandbox.Box, error) {
	home, err := a.findHome()
	if err != nil {
		return nil, err
	}
	settings, err := a.loadConfig(home, "", nil)
	if err != nil {
		return nil, err
	}
	cfg := sandbox.Config{Off: sandbox.Without(settings.Sandbox.Off)}
	if _, err := os.Stat(home); err == nil {
		cfg.CacheFile = filepath.Join(home, "cache", "sandbox.json")
	}
	return sandbox.New(cfg), nil
}

// serversReport requests the report of the running server, because the confinement depends on its
// user and settings. fresh requests a new self-test.
func (a *app) serversReport(ctx context.Context, fresh bool) (report sandbox.Report, err error) {
	method, path := http.MethodGet, "/api/v1/sandbox"
	if fresh {
		method, path = http.MethodPost, path+"/selftest"
	}
	return report, a.do(ctx, method, path, nil, &report)
}

// showSandbox prints the report of the server or, if none runs, that of ask. It returns exit status
// 1 if the confinement failed the self-test.
func (a *app) showSandbox(ctx context.Context, ask func(*sandbox.Box, context.Context) (sandbox.Report, error), all bool) error {
	report, err := a.serversReport(ctx, all)
	if capability.CodeOf(err) == capability.CodeUnavailable { // no server runs: what it would be here
		box, boxErr := a.box()
		if boxErr != nil {
			return boxErr
		}
		report, err = ask(box, ctx)
	}
	if err != nil {
		return capability.AsError(err)
	}
	if a.json {
		data, err := jsonx.Answer(report.Status())
		if err != nil {
			return err
		}
		if err := a.printJSON(data); err != nil {
			return err
		}
	} else {
		a.printSandbox(report, all)
	}
	if !report.Held() {
		return exitStatus(1)
	}
	return nil
}

func (a *app) printSandbox(r sandbox.Report, all bool) {
	f := r.Facts
	a.printf("%-12s %s\n", "tier", f.Tier)
	layers := r.Layers()
	for _, layer := range slices.Sorted(maps.Keys(layers)) {
		a.printf("%-12s %s\n", layer, plainText(layers[layer]))
	}
	user := "this user, in a user namespace of its own"
	if f.Root {
		user = "another user, without a user namespace, because the server is root"
	}
	a.printf("%-12s programs run as %s\n", "as", user)
	cgroup := "none: memory is watched, not held"
	if f.Cgroup != "" {
		cgroup = f.Cgroup + " (" + strings.Join(f.Control, ", ") + ")"
	}
	a.printf("%-12s Landlock %d, control groups %s\n", "kernel", f.Landlock, cgroup)
	l := sandbox.DefaultLimits()
	a.printf("%-12s memory %d MiB, %d processes, CPU %s, file %d MiB, work %d MiB, tmp %d MiB\n", "limits", l.Memory>>20, l.Processes, l.CPU,
		l.FileSize>>20, l.Disk>>20, l.Temp>>20)
	for _, t := range r.Tiers {
		if t.Skipped != "" {
			a.printf("%-12s %s not tried: %s\n", "self-test", t.Tier, plainText(t.Skipped))
			continue
		}
		broken := t.Broken()
		a.printf("%-12s %s: %d acts tried, %d got through, %d known residual\n", "self-test", t.Tier, len(t.Results)+len(t.Residual),
			len(broken), len(t.Residual))
		for _, b := range broken {
			a.printf("%-12s   BROKEN   %s (%s) %s\n", "", plainText(b.Act), b.Layer, plainText(b.Detail))
		}
		for _, b := range t.Residual {
			a.printf("%-12s   residual %s\n", "", plainText(b.Act))
		}
		if !all {
			continue
		}
		for _, b := range t.Results {
			a.printf("%-12s   %-13s %-11s %s %s\n", "", b.Outcome, b.Layer, plainText(b.Act), plainText(b.Detail))
		}
	}
	a.printf("%-12s %s\n", "tried at", when(r.At))
}
