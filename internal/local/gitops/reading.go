package gitops

import "slices"

// readers returns the subcommands that change nothing, whatever their permitted arguments are.
func readers() []string {
	return []string{
		"annotate", "blame", "cat-file", "check-attr", "check-ignore", "cherry", "config", "count-objects", "describe", "diff", "diff-files",
		"diff-index", "diff-tree", "for-each-ref", "format-patch", "fsck", "grep", "log", "ls-files", "ls-remote", "ls-tree", "merge-base",
		"name-rev", "range-diff", "rev-list", "rev-parse", "shortlog", "show", "show-branch", "show-ref", "status", "version", "whatchanged",
	}
}

// listings returns, of subcommands that also change something, the arguments with which they only list.
func listings() map[string][]string {
	return map[string][]string{
		"branch": {"-a", "--all", "-r", "--remotes", "-v", "-vv", "--show-current", "-l", "--list"}, "tag": {"-l", "--list", "-n"},
		"stash": {"list"}, "remote": {"-v", "--verbose"}, "worktree": {"list", "--porcelain"}, "notes": {"list"},
	}
}

// readsOnly reports whether permitted arguments certainly change nothing.
func readsOnly(args []string) bool {
	name := args[0]
	if slices.Contains(readers(), name) {
		return true
	}
	forms, known := listings()[name]
	if !known {
		return false
	}
	if len(args) == 1 {
		return name != "stash" // which stashes
	}
	for _, a := range args[1:] {
		if !slices.Contains(forms, a) {
			return false
		}
	}
	return true
}
