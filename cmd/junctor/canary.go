package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programcheck"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
)

// canaryCommand returns the command that checks an installed coding program.
func (a *app) canaryCommand() *cobra.Command {
	return &cobra.Command{
		Use: "canary PROGRAM", Short: "Check that a coding program asks, and obeys the answers", Args: cobra.ExactArgs(1),
		Example: `  junctor debug canary claude`,
		Long: `Start an installed coding program (claude, codex, gemini, qwen or opencode) in a
temporary home, with a scripted model on loopback, and check four acts: it does a
task, it runs a command after a permission, it does not run one after a refusal, and
it passes on the answer to a question. Nothing of the user is read or changed, and no
account is needed. It takes 20 s at most for claude and codex, 60 s for the others.

The server does the same once before the first task of a version that it was not
tested with. If an act fails, it offers only presets that need no answer from the
program.`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.canary(cmd.Context(), args[0]) },
	}
}

func (a *app) canary(ctx context.Context, name string) error {
	known, ok := programs.Normalise(name)
	if !ok || !programcheck.Checks(known) {
		return capability.Errorf(capability.CodeInvalidInput, "canary", "%.60q is not a program that can be checked", name).
			With("nothing_to_check", "use claude, codex, gemini, qwen or opencode")
	}
	rules, err := a.ruleFiles()
	if err != nil {
		return err
	}
	program := preflight.One(ctx, preflight.Config{Env: a.env}, known)
	if !program.Installed {
		return capability.Errorf(capability.CodeUnavailable, "canary", "%s is not installed on this machine", known).
			With("agent_not_installed", "see: junctor frameworks list")
	}
	self, err := os.Executable()
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "canary", "the path of this program is not known", err)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "canary", "junctor has no folder for temporary files, because HOME is not set", err)
	}
	env := make(map[string]string)
	for _, entry := range os.Environ() {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	r, err := programcheck.Run(ctx, programcheck.Config{
		Dir: filepath.Join(dir, "junctor"), Self: self, Version: version(), UID: os.Getuid(), Parent: env, Rules: rules,
	}, program)
	if err != nil {
		return err
	}
	if a.json {
		if err := a.printObject(r); err != nil {
			return err
		}
	} else {
		a.printCanary(r)
	}
	if r.Failed != "" {
		return capability.Errorf(capability.CodeFailed, "canary", "%s %s failed its check: %s: %s", known, r.Version, r.Failed, r.Finding).
			With("canary_failed", "use a version that junctor was tested with: junctor frameworks list")
	}
	return nil
}

func (a *app) printCanary(r programcheck.Result) {
	for _, act := range r.Held {
		fmt.Fprintln(a.stdout, "ok       "+act)
	}
	for _, act := range r.Skipped {
		fmt.Fprintln(a.stdout, "skipped  "+plainText(act))
	}
	if r.Failed == "" {
		fmt.Fprintf(a.stdout, "%s %s does what junctor relies on (%v)\n", r.Program, plainText(r.Version), r.Took.Round(time.Millisecond))
	}
}
