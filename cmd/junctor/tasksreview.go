package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
)

// checkoutRow is the checkout of a task in the server's answers.
type checkoutRow struct {
	Source struct {
		Path, Branch string
		Dirty        bool
	}
	Base, Name string
	Here       bool
}

// checkoutHere returns the folder of the git checkout that the command runs in and its commit, or
// "". The server checks both.
func checkoutHere(ctx context.Context) (dir, head string) {
	dir, err := filepath.Abs(".")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	git, missing := gitcmd.New(gitcmd.Config{})
	if err != nil || missing != nil {
		return "", ""
	}
	line := func(args ...string) string {
		r, err := git.Run(ctx, gitcmd.Command{Dir: dir, Root: "/", Args: args, ReadOnly: true})
		if err != nil || r.ExitCode != 0 {
			return ""
		}
		return strings.TrimSpace(r.Stdout.Text())
	}
	if line("rev-parse", "--is-inside-work-tree") != "true" {
		return "", ""
	}
	return dir, line("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
}

// addCheckout adds the current checkout to a request for a task that names no other place.
func addCheckout(ctx context.Context, body map[string]any, scratch, uncommitted, here bool) error {
	for _, other := range []string{"repo", "workdir", "checkout"} {
		if body[other] != nil {
			scratch = true
		}
	}
	dir, head := "", ""
	if !scratch {
		dir, head = checkoutHere(ctx)
	}
	switch {
	case dir != "":
		body["checkout"] = dir
		setText(body, "checkoutHead", head)
		if uncommitted {
			body["includeUncommitted"] = true
		}
		if here {
			body["here"] = true
		}
	case (uncommitted || here) && body["checkout"] == nil:
		return capability.Errorf(capability.CodeInvalidInput, "", "this folder is not a git checkout").
			With("", "--here and --include-uncommitted are for a task in a checkout, without --repo, --workdir and --scratch")
	}
	return nil
}

// printCheckout prints where the parts of a new task work.
func (a *app) printCheckout(c *checkoutRow, uncommitted bool) {
	if c == nil {
		return
	}
	at := c.Base[:min(len(c.Base), 12)]
	if c.Source.Branch != "" {
		at = c.Source.Branch + " at " + at
	}
	if c.Here {
		a.printf("folder  %s, %s\n", plainText(c.Source.Path), plainText(at))
		return
	}
	a.printf("from    %s, %s\nbranch  junctor/%s/*\n", plainText(c.Source.Path), plainText(at), plainText(c.Name))
	if c.Source.Dirty && !uncommitted {
		fmt.Fprintln(a.stderr, "junctor: the checkout has changes that are not committed; the agents do not have them (--include-uncommitted)")
	}
}

// addDependencies sets dependsOn of the parts that --after names, as LABEL:LABEL[,LABEL].
func addDependencies(parts []map[string]any, after []string) error {
	index := func(label string) (int, error) {
		i := slices.IndexFunc(parts, func(p map[string]any) bool { return p["label"] == strings.TrimSpace(label) })
		if i < 0 {
			return i, capability.Errorf(capability.CodeInvalidInput, "", "no --part has the label %q", strings.TrimSpace(label)).
				With("", "write --part LABEL:TASK for each, and --after LABEL:LABEL[,LABEL]")
		}
		return i, nil
	}
	for _, one := range after {
		label, others, _ := strings.Cut(one, ":")
		i, err := index(label)
		if err != nil {
			return err
		}
		var on []int
		for other := range strings.SplitSeq(others, ",") {
			n, err := index(other)
			if err != nil {
				return err
			}
			on = append(on, n)
		}
		parts[i]["dependsOn"] = on
	}
	return nil
}

// reviewRow is the work of a task in the server's answers.
type reviewRow struct {
	Done, Parts        int
	Base, Head, Branch string
	Commits            []struct{ Part, Branch, Commit string }
	Conflicts          []string
	Stat               struct{ Text string }
	Diff               []byte
}

func diffPath(thread, part string) string {
	path := threadPath(thread, "/diff")
	if part != "" {
		path += "?part=" + url.QueryEscape(part)
	}
	return path
}

func (a *app) taskDiffCommand() *cobra.Command {
	var part string
	var stat bool
	c := &cobra.Command{
		Use: "diff ID", Short: "Show the work of a task in a checkout, as a merge would add it", Args: cobra.ExactArgs(1),
		Long: `Show the work of the completed parts of a task, new and binary files included, as one
change in git's format. In a pipe it is byte for byte what merge adds, so that git apply
takes it; at a terminal characters that it does not show are escaped. The commits that it
shows are on standard error. Merge then takes what was shown last, whole and not as JSON.`,
		Example: `  junctor tasks diff tsk_0123456789abcdef
  junctor tasks diff tsk_0123456789abcdef --part api --stat`,
		RunE: func(cmd *cobra.Command, args []string) error {
			thread, err := a.threadOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.call(cmd.Context(), http.MethodGet, diffPath(thread, part), nil, func(raw json.RawMessage) error {
				out, err := decode[reviewRow](raw)
				if err != nil {
					return err
				}
				if stat {
					a.printf("%s", text.VisibleLines(out.Stat.Text)+"\n")
				} else if err := a.printDiff(&out); err != nil {
					return err
				}
				a.printReviewed(&out)
				if !stat && part == "" {
					a.keepShown(thread, out.Head)
				}
				return nil
			})
		},
	}
	c.Flags().StringVar(&part, "part", "", "`LABEL` only the work of this part and of those that it depends on")
	c.Flags().BoolVar(&stat, "stat", false, "only the changed files, with the number of lines")
	return c
}

// printDiff prints a change; what a terminal does not show is escaped.
func (a *app) printDiff(r *reviewRow) error {
	data := r.Diff
	if terminal(a.stdout) {
		data = []byte(visibleDiff(string(data)))
	}
	_, err := a.stdout.Write(data)
	return err
}

// printReviewed prints which commits a change holds.
func (a *app) printReviewed(r *reviewRow) {
	for _, c := range r.Commits {
		a.warnf("%s is at %.12s", text.Visible(c.Part), plainText(c.Commit))
	}
	a.warnf("%d of %d parts are done; the work is on %s at %s", r.Done, r.Parts, plainText(r.Branch), plainText(r.Head))
	if len(r.Conflicts) > 0 {
		a.warnf("conflicts in %s", text.Visible(strings.Join(r.Conflicts, ", ")))
	}
}

// visibleDiff returns a diff for a terminal: tabs stay, all else that it does not show is escaped.
func visibleDiff(diff string) string {
	var b strings.Builder
	for line := range strings.Lines(diff) {
		end := strings.HasSuffix(line, "\n")
		for i, field := range strings.Split(strings.TrimSuffix(line, "\n"), "\t") {
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(text.Visible(field))
		}
		if end {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func (a *app) taskCommentCommand() *cobra.Command {
	var part string
	var on []string
	c := &cobra.Command{
		Use: "comment ID [TEXT]", Short: "Send a review of its work to an agent", Args: cobra.RangeArgs(1, 2),
		Long: `Send a review of a part's work to its agent as one message, with the lines that the
comments are about. The agent continues in its worktree; tasks diff then shows the work
with its changes.`,
		Example: `  junctor tasks comment tsk_0123456789abcdef --part api --on "api/health.go:12:Return 503 here." "And add a test."`,
		RunE: func(cmd *cobra.Command, args []string) error {
			comments := []map[string]any{}
			for _, one := range on {
				file, rest, _ := strings.Cut(one, ":")
				number, said, ok := strings.Cut(rest, ":")
				line, err := strconv.Atoi(number)
				if !ok || err != nil || strings.TrimSpace(said) == "" {
					return capability.Errorf(capability.CodeInvalidInput, "", "%q is not a comment on a line", one).
						With("", "write --on FILE:LINE:TEXT")
				}
				comments = append(comments, map[string]any{"file": file, "line": line, "text": said})
			}
			body := map[string]any{"comments": comments}
			setText(body, "part", part)
			if len(args) == 2 {
				body["text"] = args[1]
			}
			thread, err := a.threadOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.controlled(cmd.Context(), threadPath(thread, "/comment"), body)
		},
	}
	c.Flags().StringVar(&part, "part", "", "`LABEL` part whose agent gets the review (default the only one)")
	c.Flags().StringArrayVar(&on, "on", nil, "`FILE:LINE:TEXT` comment on a line, as it is after the change (repeatable)")
	return c
}

func (a *app) taskMergeCommand() *cobra.Command {
	var squash, rebase, partial bool
	var commit string
	c := &cobra.Command{
		Use: "merge ID", Short: "Merge the work of a task into the branch of its checkout", Args: cobra.ExactArgs(1),
		Long: `Merge the work of a task into the branch that is checked out where the task was created.
It is the work that tasks diff has shown you last: if a part has moved since, the merge is
refused. If none was shown, merge shows it and asks, at a terminal.

Without a flag the branch is only moved forward. The checkout must have no uncommitted
changes; a merge that is refused changes nothing. Hooks of the repository are not run.`,
		Example: `  junctor tasks merge tsk_0123456789abcdef --squash`,
		RunE: func(cmd *cobra.Command, args []string) error {
			thread, err := a.threadOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if commit == "" {
				if commit, err = a.shownOrAsked(cmd.Context(), args[0], thread); err != nil || commit == "" {
					return err
				}
			}
			body := map[string]any{"commit": commit, "partial": partial}
			switch {
			case squash:
				body["method"] = "squash"
			case rebase:
				body["method"] = "rebase"
			}
			return a.call(cmd.Context(), http.MethodPost, threadPath(thread, "/merge"), body, func(raw json.RawMessage) error {
				out, err := decode[struct {
					Branch, From, Commit string
					Stat                 struct{ Text string }
				}](raw)
				if err != nil {
					return err
				}
				if out.From == out.Commit {
					a.printf("%s has all of it already\n", plainText(out.Branch))
					return nil
				}
				a.printf("%s\n%s is at %.12s, before at %.12s\n", text.VisibleLines(out.Stat.Text), plainText(out.Branch), plainText(out.Commit), plainText(out.From))
				fmt.Fprintf(a.stderr, "junctor: remove its worktrees and branches with: junctor tasks discard %s\n", plainText(args[0]))
				return nil
			})
		},
	}
	c.Flags().BoolVar(&squash, "squash", false, "as one new commit")
	c.Flags().BoolVar(&rebase, "rebase", false, "as new commits after those of the branch")
	c.Flags().BoolVar(&partial, "partial", false, "also if some parts have not completed: without them")
	c.Flags().StringVar(&commit, "commit", "", "`COMMIT` the whole id of the commit that was reviewed (default the one that tasks diff showed last)")
	c.MarkFlagsMutuallyExclusive("squash", "rebase")
	return c
}

func (a *app) taskPullCommand() *cobra.Command {
	var commit string
	var draft, partial, checks bool
	texts := map[string]*string{}
	c := &cobra.Command{
		Use: "pr ID", Short: "Publish the work of a task as a pull request, or show its checks", Args: cobra.ExactArgs(1),
		Long: `Push the work of a task to the origin of its checkout and open a pull request at its
forge, or update the open one: GitHub, GitLab, Forgejo or Gitea. It is the work that
tasks diff has shown you last; what looks like a credential is not pushed.

--checks shows the state of the forge's checks instead, with the output of failed ones.`,
		Example: `  junctor tasks pr tsk_0123456789abcdef --draft
  junctor tasks pr tsk_0123456789abcdef --checks`,
		RunE: func(cmd *cobra.Command, args []string) error {
			thread, err := a.threadOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if checks {
				return a.call(cmd.Context(), http.MethodGet, threadPath(thread, "/pr"), nil, a.printPull)
			}
			if commit == "" {
				if commit, err = a.shownOrAsked(cmd.Context(), args[0], thread); err != nil || commit == "" {
					return err
				}
			}
			body := map[string]any{"commit": commit, "draft": draft, "partial": partial}
			for name, value := range texts {
				setText(body, name, *value)
			}
			return a.call(cmd.Context(), http.MethodPost, threadPath(thread, "/pr"), body, func(raw json.RawMessage) error {
				out, err := decode[pullRow](raw)
				if err == nil {
					a.printf("pull request %d is %s: %s\n", out.Number, plainText(out.State), plainText(out.URL))
				}
				for _, n := range out.Notes {
					a.warnf("%s", text.Visible(n))
				}
				return err
			})
		},
	}
	f := c.Flags()
	for name, usage := range map[string]string{
		"title": "`TEXT` title (default that of the task)", "body": "`TEXT` text (default the parts of the task)",
		"base": "`BRANCH` branch to merge into (default the one that was checked out)",
	} {
		texts[name] = f.String(name, "", usage)
	}
	f.BoolVar(&draft, "draft", false, "open it as a draft")
	f.BoolVar(&partial, "partial", false, "also if some parts have not completed: without them")
	f.BoolVar(&checks, "checks", false, "show the checks of the open pull request")
	f.StringVar(&commit, "commit", "", "`COMMIT` the whole id of the commit that was reviewed (default the one that tasks diff showed last)")
	return c
}

// pullRow is a pull request in the server's answers.
type pullRow struct {
	Number             int
	URL, State, Commit string
	Notes              []string
	Checks             []struct{ Name, State, URL, Output string }
}

// printPull prints a pull request and its checks, with the output of those that failed.
func (a *app) printPull(raw json.RawMessage) error {
	out, err := decode[pullRow](raw)
	if err != nil {
		return err
	}
	a.printf("pull request %d: %s\n\n", out.Number, plainText(out.URL))
	var rows [][]string
	for _, c := range out.Checks {
		rows = append(rows, []string{c.Name, c.State, dash(c.URL)})
	}
	if err := a.table([]string{"CHECK", "STATE", "WHERE"}, rows, "the forge has no checks for this commit"); err != nil {
		return err
	}
	for _, c := range out.Checks {
		if c.State == "failed" && c.Output != "" {
			a.printf("\n%s:\n%s\n", text.Visible(c.Name), text.VisibleLines(c.Output))
		}
	}
	return nil
}

// shownOrAsked returns the commit of a task's work that tasks diff showed last. If it showed none, the
// work is shown and the user is asked; the commit is "" if the user refuses. Without a terminal it fails.
func (a *app) shownOrAsked(ctx context.Context, id, thread string) (string, error) {
	if commit := a.lastShown(thread); commit != "" {
		return commit, nil
	}
	c, err := a.client()
	if err != nil {
		return "", err
	}
	if a.json || !terminal(a.stdin) || !terminal(a.stdout) {
		return "", capability.Errorf(capability.CodeInvalidInput, "", "the work of %s was not shown", id).
			With("not_reviewed", "look at it with: junctor tasks diff "+id+"; or give the commit that you reviewed with --commit")
	}
	var out reviewRow
	if err := c.Do(ctx, http.MethodGet, diffPath(thread, ""), nil, &out); err != nil {
		return "", err
	}
	if err := a.printDiff(&out); err != nil {
		return "", err
	}
	a.printReviewed(&out)
	fmt.Fprint(a.stderr, "Take this work? [y/N] ")
	if !a.agreed() {
		return "", nil
	}
	return out.Head, nil
}

// agreed reports whether the user answers a question with yes.
func (a *app) agreed() bool {
	var word string
	_, _ = fmt.Fscanln(a.stdin, &word)
	return strings.EqualFold(word, "y") || strings.EqualFold(word, "yes")
}

func (a *app) taskDiscardCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "discard ID", Short: "Remove the worktrees and branches of a task in a checkout", Args: cobra.ExactArgs(1),
		Long: `Remove the worktrees and branches of a task from the repository it was created in.
Work that was not merged is lost.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			thread, err := a.threadOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !yes {
				if a.json || !terminal(a.stdin) {
					return capability.Errorf(capability.CodeInvalidInput, "", "work of %s that was not merged would be lost", args[0]).
						With("", "look at it with: junctor tasks diff "+args[0]+"; then give --yes")
				}
				fmt.Fprintf(a.stderr, "Remove all work of %s that was not merged? [y/N] ", plainText(args[0]))
				if !a.agreed() {
					return nil
				}
			}
			return a.call(cmd.Context(), http.MethodPost, threadPath(thread, "/discard"), map[string]any{}, func(raw json.RawMessage) error {
				out, err := decode[struct{ Branches []string }](raw)
				if err != nil {
					return err
				}
				for _, b := range out.Branches {
					a.printf("%s is removed\n", plainText(b))
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, yesHelp)
	return c
}
