package gitops

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

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
// arguments (archive, bundle, clone), read such files (hash-object, am), run commands from a file in
// the git directory (rebase), or are servers. For worktree see worktreeReads.
func subcommands() map[string]rule {
	blame := rule{deny: "S"}
	diff := rule{deny: "O", text: "SG", diffs: true}
	log := rule{deny: "O", text: "SG", diffs: true}
	plain := rule{}
	message := rule{deny: "Ft", text: "mCc"}
	return map[string]rule{
		"add": plain, "annotate": blame, "apply": plain, "blame": blame, "branch": plain, "cat-file": plain,
		"check-attr": plain, "check-ignore": plain, "checkout": {deny: "m", check: noMerge}, "cherry": plain,
		"cherry-pick": {deny: "e", check: oneCommit},
		"clean":       {text: "e"}, "commit": message, "config": {deny: "fe", check: configReads}, "count-objects": plain,
		"describe": plain, "diff": diff, "diff-files": diff, "diff-index": diff, "diff-tree": diff, "fetch": plain,
		"for-each-ref": plain, "format-patch": {deny: "oO", diffs: true}, "fsck": plain, "gc": plain,
		"grep": {deny: "Of", text: "e"}, "init": {check: initHere}, "log": log, "ls-files": {deny: "X", text: "x"}, "ls-remote": plain,
		"ls-tree": plain, "merge": {deny: "Fs", text: "m"}, "merge-base": plain, "mv": plain, "name-rev": plain,
		"notes": {deny: "F", text: "mCc"}, "pull": {deny: "sr"}, "push": {text: "o"}, "range-diff": diff,
		"reflog": {deny: "O", text: "SG"}, "remote": plain, "reset": plain, "restore": plain, "rev-list": plain,
		"rev-parse": plain, "revert": {deny: "e", check: oneCommit}, "rm": plain, "shortlog": plain, "show": log, "show-branch": plain,
		"show-ref": plain, "stash": {text: "m", check: stashInPlace}, "status": plain, "switch": {deny: "m", check: noMerge},
		"symbolic-ref": {text: "m", check: refsOnly(2)},
		"tag":          {deny: "F", text: "m"}, "update-index": plain, "update-ref": {text: "m", check: refsOnly(1)}, "version": plain,
		"whatchanged": log,
		"worktree":    {check: worktreeReads}, "write-tree": plain,
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
		"unsafe-paths", "build-fake-ancestor", "rebase", "signature-file", "description-file", "lost-found",
		"ignore-submodules", "submodule", "dirty", "broken", "autostash", // they run git in repositories inside, by their configuration
		"no-quiet", "no-stdout", // they take back what checkArgs adds
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
	if r.diffs || name == "status" {
		out = append(out, "--ignore-submodules=dirty") // not every subcommand reads the key
	}
	if name == "blame" || name == "annotate" {
		out = append(out, "--no-ignore-revs-file") // a key of the configuration adds files, and no value of it takes them away
	}
	if name == "checkout" || name == "switch" {
		out = append(out, "--quiet") // the list of changes is that of git status, which runs in repositories that have just come
	}
	if name == "stash" && len(args) > 1 && (args[1] == "pop" || args[1] == "apply") {
		return append([]string{name, args[1], "--quiet"}, args[2:]...), nil // likewise
	}
	if name == "format-patch" {
		out = append(out, "--stdout") // the files that it would write could be links
	}
	return append(out, args[1:]...), nil
}

// checkOptions checks the arguments after a subcommand. Everything that is not a permitted
// option or the text of one must be a path inside the root. What begins with a dash is always checked as
// an option: git may take "--", or an option that has a text here, for the value of the one before.
func checkOptions(name string, args []string, r rule, t tree) error {
	options, text := true, false // text: the argument is that of the option before
	for _, a := range args {
		dashed := strings.HasPrefix(a, "-")
		switch {
		case dashed && (text || !options):
			return beginsWithDash(a)
		case text:
			text = false
		case a == "--":
			options = false
		case strings.HasPrefix(a, "--"):
			long, value, hasValue := strings.Cut(a[2:], "=")
			if err := checkLong(name, long); err != nil {
				return err
			}
			isText := slices.Contains(textOptions(), long)
			text = isText && !hasValue
			if hasValue && !isText && !slices.Contains(attachedTextOptions(), long) {
				if err := checkPath(opRun, value, t); err != nil {
					return err
				}
			}
		case dashed && len(a) > 1:
			if namesGitDirectory(a[2:]) {
				return gitDirectory(opRun, a)
			}
			var err error
			if text, err = checkShort(a, r, t); err != nil {
				return err
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
	case "", "text", "no", "show", "ref", "exclude", "signature":
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

// flags are the short options that take no value in any subcommand, so that another one may follow them.
const flags = "aqv"

// checkShort checks a group of short options such as -am up to the first that takes text.
// takesNext reports that the text is the next argument.
func checkShort(a string, r rule, t tree) (takesNext bool, err error) {
	for j := 1; j < len(a); j++ {
		if j > 1 && strings.IndexByte(r.text, a[j]) >= 0 && strings.Trim(a[1:j], flags) != "" {
			return false, refused("the option -" + a[j:j+1] + " in " + shown(a)) // it may be the value of the one before
		}
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
	if namesGitDirectory(p) {
		return gitDirectory(op, p)
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
		real, err := filepath.EvalSymlinks(at)
		if err != nil || !within(t.root, real) {
			return leadsOut(op, p)
		}
		if namesGitDirectory(strings.TrimPrefix(real, t.root)) { // by a link
			return gitDirectory(op, p)
		}
		break
	}
	return nil
}

// namesGitDirectory reports whether a component of an argument is .git, as file systems spell it that
// ignore case, dots and spaces at the end, short names, or characters without a width. An argument can have
// the path after a colon, as of a revision, or after the magic of a pathspec.
func namesGitDirectory(p string) bool {
	for _, name := range strings.FieldsFunc(p, func(r rune) bool { return strings.ContainsRune(`/\:,!^()`, r) }) {
		name = strings.Map(func(r rune) rune {
			if unicode.Is(unicode.Cf, r) {
				return -1
			}
			return unicode.ToLower(r)
		}, name)
		if name = strings.TrimRight(name, ". "); name == ".git" || name == "git~1" {
			return true
		}
	}
	return false
}

func within(root, path string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && filepath.IsLocal(rel)
}

func leadsOut(op, p string) error {
	return capability.Errorf(capability.CodeDenied, op, "the argument %s leads out of the root", shown(p)).
		With("security_violation", "use paths relative to cwd, without a step up")
}

func gitDirectory(op, p string) error {
	return capability.Errorf(capability.CodeDenied, op, "%s names a git directory", shown(p)).
		With("security_violation", "files there can run programs: name files of the working tree")
}

func refused(what string) error {
	return capability.Errorf(capability.CodeDenied, opRun, "%s is not allowed here", what).
		With("security_violation", "it could run another program or reach files outside the root")
}

func beginsWithDash(a string) error {
	return capability.Errorf(capability.CodeDenied, opRun, "the argument %s begins with a dash, so git may take it for an option", shown(a)).
		With("security_violation", "write a path as ./-x, and a text in one argument with its option, such as --message=-x")
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
	for i, a := range args {
		switch a {
		case "--local", "-z", "--null", "--name-only", "--show-origin", "--show-scope":
			continue
		case "--get", "--get-all", "--get-regexp", "--get-urlmatch", "--list", "-l":
			return nil
		case "get", "list":
			if i == 0 {
				return nil
			}
		}
		break // after a name, git takes a reading option for the pattern of a value
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

// stashInPlace refuses stash branch, which checks out before it applies, so that it runs by a
// configuration that the checkout made.
func stashInPlace(args []string) error {
	if slices.Contains(args, "branch") {
		return refused("stash branch")
	}
	return nil
}

// noMerge refuses a switch that merges, which adds all changes after it has brought other repositories.
func noMerge(args []string) error {
	for _, a := range args {
		long, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if strings.HasPrefix(a, "--") && long != "" && (strings.HasPrefix("merge", long) || strings.HasPrefix("conflict", long)) {
			return refused("a checkout that merges")
		}
	}
	return nil
}

// oneCommit permits a cherry-pick or revert of one commit. For an empty one after another, git starts a commit,
// which asks the repositories that the first has brought for their changes.
func oneCommit(args []string) error {
	names := 0
	for i := 0; i < len(args); i++ {
		switch a := args[i]; a {
		case "-m", "--mainline":
			i++
		case "-x", "-n", "--no-commit", "-s", "--signoff", "--no-edit", "--allow-empty", "--allow-empty-message", "--keep-redundant-commits",
			"--ff", "--continue", "--abort", "--quit", "--skip":
		default:
			if strings.HasPrefix(a, "-m") || strings.HasPrefix(a, "--mainline=") {
				continue
			}
			if names++; strings.HasPrefix(a, "-") || strings.HasPrefix(a, "^") || strings.Contains(a, "..") || strings.Contains(a, "^@") ||
				strings.Contains(a, "^!") || strings.Contains(a, "^-") || names > 1 {
				return refused("more than one commit, or the option " + shown(a) + ",")
			}
		}
	}
	return nil
}

// refsOnly permits only HEAD and names that begin with refs/, because git up to version "2.45" takes any file of
// the git directory, such as config, for a ref. Options with a value are not permitted beside -m.
func refsOnly(numNames int) func(args []string) error {
	return func(args []string) error {
		for i := 0; i < len(args) && numNames > 0; i++ {
			switch a := args[i]; {
			case strings.HasPrefix(a, "-"):
				if !strings.HasPrefix(a, "--") && strings.HasSuffix(a, "m") {
					i++ // its text
				}
			case a == "HEAD" || strings.HasPrefix(a, "refs/"):
				numNames--
			default:
				return refused("a name that does not begin with refs/")
			}
		}
		return nil
	}
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
