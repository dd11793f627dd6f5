package gitops

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// rule restricts the options of one subcommand, in addition to the general rules.
type rule struct {
	deny  string // short options that name a program or a file to read or write
	text  string // short options whose value is text, not a path
	diffs bool   // it runs external diffs and textconv unless options forbid it
	check func(args []string) error
}

// subcommands returns the permitted subcommands. It leaves out those that run commands from
// their arguments (bisect, difftool, filter-branch, submodule), write to paths from their
// arguments (archive, bundle, clone), read such files (hash-object, am), or
// are servers. For worktree see worktreeReads.
func subcommands() map[string]rule {
	blame := rule{deny: "S"}
	diff := rule{deny: "O", text: "SG", diffs: true}
	log := rule{deny: "O", text: "SG", diffs: true}
	plain := rule{}
	message := rule{deny: "Ft", text: "mCc"}
	return map[string]rule{
		"add": plain, "annotate": blame, "apply": plain, "blame": blame, "branch": plain, "cat-file": plain,
		"check-attr": plain, "check-ignore": plain, "checkout": plain, "cherry": plain, "cherry-pick": plain,
		"clean": {text: "e"}, "commit": message, "config": {deny: "fe", check: configReads}, "count-objects": plain,
		"describe": plain, "diff": diff, "diff-files": diff, "diff-index": diff, "diff-tree": diff, "fetch": plain,
		"for-each-ref": plain, "format-patch": {deny: "oO", diffs: true}, "fsck": plain, "gc": plain,
		"grep": {deny: "Of", text: "e"}, "init": {check: initHere}, "log": log, "ls-files": {deny: "X", text: "x"}, "ls-remote": plain,
		"ls-tree": plain, "merge": {deny: "Fs", text: "m"}, "merge-base": plain, "mv": plain, "name-rev": plain,
		"notes": {deny: "F", text: "mCc"}, "pull": {deny: "s"}, "push": {text: "o"}, "range-diff": diff,
		"rebase": {deny: "xs"}, "reflog": {deny: "O", text: "SG"}, "remote": plain, "reset": plain, "restore": plain, "rev-list": plain,
		"rev-parse": plain, "revert": plain, "rm": plain, "shortlog": plain, "show": log, "show-branch": plain,
		"show-ref": plain, "stash": {text: "m"}, "status": plain, "switch": plain, "symbolic-ref": {text: "m"},
		"tag": {deny: "F", text: "m"}, "update-index": plain, "update-ref": {text: "m"}, "version": plain, "whatchanged": log,
		"worktree": {check: worktreeReads}, "write-tree": plain,
	}
}

// deniedOptions returns the long options that name programs to run, or files and directories
// that git does not confine to the working tree.
func deniedOptions() []string {
	return []string{
		"exec", "exec-path", "upload-pack", "receive-pack", "ext-diff", "textconv", "open-files-in-pager", "no-index",
		"output", "output-directory", "template", "separate-git-dir", "contents", "pathspec-from-file", "ignore-revs-file",
		"file", "exclude-from", "exclude-per-directory", "recurse-submodules", "strategy", "reference", "ref-format", "config",
		"git-dir", "work-tree", "super-prefix", "namespace", "edit-description", "show-signature", "gpg-sign",
	}
}

// textOptions returns the options whose value is text, not a path, after "=" or as the next
// argument.
func textOptions() []string {
	return []string{"message", "author", "date", "grep", "since", "until", "after", "before"}
}

// attachedTextOptions returns the options whose value is text only after "="; the next
// argument is checked as a path.
func attachedTextOptions() []string { return []string{"format", "pretty", "trailer", "committer"} }

// checkArgs returns the arguments to run git with, or an error that names the argument that
// is refused.
func checkArgs(args []string, t tree) ([]string, error) {
	if len(args) == 0 {
		return nil, invalid("args is empty: begin with a subcommand, such as status")
	}
	size := 0
	for _, a := range args {
		size += len(a)
		if strings.ContainsRune(a, 0) {
			return nil, invalid("an argument holds a NUL byte")
		}
	}
	if len(args) > maxArgs || size > maxArgBytes {
		return nil, invalid("more than 256 arguments or 64 KiB of them")
	}
	name := args[0]
	r, known := subcommands()[name]
	if !known {
		if strings.HasPrefix(name, "-") {
			return nil, refused("the option " + shown(name) + " before the subcommand")
		}
		return nil, refused("the subcommand " + shown(name))
	}
	if err := checkOptions(name, args[1:], r, t); err != nil {
		return nil, err
	}
	if r.check != nil {
		if err := r.check(args[1:]); err != nil {
			return nil, err
		}
	}
	out := []string{name}
	if r.diffs {
		out = append(out, "--no-ext-diff", "--no-textconv")
	}
	if name == "format-patch" {
		out = append(out, "--stdout") // the files that it would write could be links
	}
	return append(out, args[1:]...), nil
}

// checkOptions checks the arguments after a subcommand. Everything that is not a permitted
// option or the text of one must be a path inside the root.
func checkOptions(name string, args []string, r rule, t tree) error {
	options := true
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--" && options:
			options = false
		case options && strings.HasPrefix(a, "--"):
			long, value, hasValue := strings.Cut(a[2:], "=")
			if err := checkLong(name, long); err != nil {
				return err
			}
			text := slices.Contains(textOptions(), long)
			switch {
			case text && !hasValue:
				i++
			case !text && hasValue && !slices.Contains(attachedTextOptions(), long):
				if err := checkPath(opRun, value, t); err != nil {
					return err
				}
			}
		case options && len(a) > 1 && a[0] == '-':
			takesNext, err := checkShort(a, r, t)
			if err != nil {
				return err
			}
			if takesNext {
				i++
			}
		default:
			if err := checkPath(opRun, a, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkLong refuses denied options and all their prefixes, because git accepts unambiguous
// abbreviations.
func checkLong(subcommand, long string) error {
	switch long { // permitted, although a denied option begins with it
	case "", "text", "no", "show", "ref", "exclude":
		return nil
	case "git-dir":
		if subcommand == "rev-parse" {
			return nil
		}
	}
	for _, d := range deniedOptions() {
		if strings.HasPrefix(d, long) {
			return refused("the option --" + shown(long))
		}
	}
	return nil
}

// checkShort checks a group of short options such as -am up to the first that takes text.
// takesNext reports that the text is the next argument.
func checkShort(a string, r rule, t tree) (takesNext bool, err error) {
	for j := 1; j < len(a); j++ {
		switch c := a[j]; {
		case strings.IndexByte(r.deny, c) >= 0:
			return false, refused("the option -" + string(rune(c)))
		case strings.IndexByte(r.text, c) >= 0:
			return j == len(a)-1, nil
		case c == '/' || c == '.':
			return false, checkPath(opRun, a[j:], t)
		}
	}
	return false, nil
}

// checkPath refuses paths that lead out of the root: absolute paths elsewhere, any component
// "..", and links to targets outside, which some subcommands follow. It accepts revisions
// such as a..b, which have no component "..".
func checkPath(op, p string, t tree) error {
	if strings.ContainsRune(p, 0) {
		return invalid("an argument holds a NUL byte")
	}
	if slices.Contains(strings.FieldsFunc(p, func(r rune) bool { return r == '/' || r == filepath.Separator }), "..") {
		return leadsOut(op, p)
	}
	full := p
	if !filepath.IsAbs(p) {
		if strings.HasPrefix(p, "/") {
			return leadsOut(op, p)
		}
		full = filepath.Join(t.dir, p)
	}
	if !within(t.root, full) {
		return leadsOut(op, p)
	}
	// Check the longest existing part; the rest does not exist yet.
	for at := full; within(t.root, at); at = filepath.Dir(at) {
		if _, err := os.Lstat(at); err != nil {
			continue
		}
		if real, err := filepath.EvalSymlinks(at); err != nil || !within(t.root, real) {
			return leadsOut(op, p)
		}
		break
	}
	return nil
}

func within(root, path string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && filepath.IsLocal(rel)
}

func leadsOut(op, p string) error {
	return capability.Errorf(capability.CodeDenied, op, "the argument %s leads out of the root", shown(p)).
		With("security_violation", "use paths relative to cwd, without a step up")
}

func refused(what string) error {
	return capability.Errorf(capability.CodeDenied, opRun, "%s is not allowed here", what).
		With("security_violation", "it could run another program or reach files outside the root")
}

func invalid(why string) error {
	return capability.Errorf(capability.CodeInvalidInput, opRun, "%s", why)
}

// shown shortens a caller's text to 80 bytes for an error message.
func shown(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// configReads permits only reading git config, because the next git that a user runs in the
// repository could execute what is written there.
func configReads(args []string) error {
	for _, a := range args {
		switch a {
		case "--get", "--get-all", "--get-regexp", "--get-urlmatch", "--list", "-l":
			return nil
		case "--":
			return refused("writing configuration")
		}
	}
	if len(args) > 0 && (args[0] == "get" || args[0] == "list") {
		return nil
	}
	return refused("writing configuration")
}

// worktreeReads permits only worktree list and prune.
func worktreeReads(args []string) error {
	if len(args) > 0 && (args[0] == "list" || args[0] == "prune") {
		return nil
	}
	return refused("a worktree subcommand other than list and prune")
}

// initHere permits init only in the working directory.
func initHere(args []string) error {
	for _, a := range args {
		if !strings.HasPrefix(a, "-") {
			return refused("init of another directory")
		}
	}
	return nil
}
