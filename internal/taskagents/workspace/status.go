package workspace

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/secret"
)

// Status lists the changes in a workspace. Ignored files are left out. Each list has at most
// 1000 paths; Truncated reports that there are more.
type Status struct {
	Branch    string   `json:"branch"` // "" if no branch is checked out
	Clean     bool     `json:"clean"`
	Modified  []string `json:"modified"`
	Staged    []string `json:"staged"`
	Untracked []string `json:"untracked"`
	Unmerged  []string `json:"unmerged"`
	Truncated bool     `json:"truncated,omitempty"`
}

// Status returns the changes that git reports, without changing anything. If git's output was
// truncated, Truncated is true and Clean false. Errors: not_found, reason workspace_not_found;
// invalid_input, reason no_repository, for a Folder workspace; denied, reason
// security_violation; and failures of git.
func (m *Manager) Status(ctx context.Context, id string) (Status, error) {
	w, err := m.Get(id)
	if err != nil {
		return Status{}, err
	}
	return m.status(ctx, w)
}

func (m *Manager) status(ctx context.Context, w Workspace) (Status, error) {
	result, err := m.run(ctx, w, []string{
		"status", "--porcelain=v2", "-z", "--branch", "--untracked-files=all", "--no-renames",
		"--ignore-submodules=dirty",
	})
	if err != nil {
		return Status{}, err
	}
	out := result.Stdout.Bytes()
	if result.Stdout.Truncated() {
		out = complete(result.Stdout.Head)
	}
	s := parseStatus(string(out))
	s.Truncated = s.Truncated || result.Stdout.Truncated()
	s.Clean = s.Clean && !result.Stdout.Truncated()
	return s, nil
}

// complete returns output that was cut without its last entry, of which only the beginning may be
// left.
func complete(out []byte) []byte { return out[:bytes.LastIndexByte(out, 0)+1] }

// parseStatus parses git's porcelain v2 format with -z and without renames.
func parseStatus(out string) Status {
	s := Status{Clean: true, Modified: []string{}, Staged: []string{}, Untracked: []string{}, Unmerged: []string{}}
	add := func(list *[]string, path string) {
		if path = strings.ToValidUTF8(path, "\uFFFD"); len(*list) < maxListed {
			*list = append(*list, path)
		} else {
			s.Truncated = true
		}
		s.Clean = false
	}
	for entry := range strings.SplitSeq(out, "\x00") {
		kind, rest, _ := strings.Cut(entry, " ")
		switch kind {
		case "#":
			if name, ok := strings.CutPrefix(rest, "branch.head "); ok && name != "(detached)" {
				s.Branch = name
			}
		case "?":
			add(&s.Untracked, rest)
		case "1": // XY sub mH mI mW hH hI path
			parts := strings.SplitN(rest, " ", 8)
			if len(parts) < 8 || len(parts[0]) != 2 {
				continue
			}
			if parts[0][0] != '.' {
				add(&s.Staged, parts[7])
			}
			if parts[0][1] != '.' {
				add(&s.Modified, parts[7])
			}
		case "u": // XY sub m1 m2 m3 mW h1 h2 h3 path
			if parts := strings.SplitN(rest, " ", 10); len(parts) == 10 {
				add(&s.Unmerged, parts[9])
			}
		}
	}
	return s
}

// DiffStat is the size of a change. Text is git's table, of at most 200 lines.
type DiffStat struct {
	Files      int    `json:"files"`
	Insertions int    `json:"insertions"`
	Deletions  int    `json:"deletions"`
	Text       string `json:"text,omitempty"`
}

// Diff is a change as text, in which text that looks like a credential is masked. A text longer
// than 1 MiB is cut in the middle.
type Diff struct {
	From      string   `json:"from"` // the commit that it is compared with
	Text      string   `json:"text"`
	Truncated bool     `json:"truncated,omitempty"`
	Stat      DiffStat `json:"stat"`
}

// emptyTree is the hash of git's empty tree, the base in a repository without commits.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// Diff returns the difference between commit from and the work tree. If from is "", it is the
// commit at which the branch left its base. Untracked files are not included. Errors:
// invalid_input, reason invalid_ref; and those of Status.
func (m *Manager) Diff(ctx context.Context, id, from string) (Diff, error) {
	w, err := m.Get(id)
	if err != nil {
		return Diff{}, err
	}
	commit, err := m.commitOf(ctx, w, from)
	if err != nil {
		return Diff{}, err
	}
	result, err := m.run(ctx, w, diffArgs("diff", commit, "--"))
	if err != nil {
		return Diff{}, err
	}
	stat, err := m.stat(ctx, w, commit)
	d := Diff{From: commit, Stat: stat, Truncated: result.Stdout.Truncated()}
	text := result.Stdout.Text()
	if len(text) > sandbox.DefaultStdoutLimit {
		half := sandbox.DefaultStdoutLimit / 2
		text = strings.ToValidUTF8(text[:half], "") + "\n… " + strconv.Itoa(len(text)-2*half) + " bytes left out …\n" +
			strings.ToValidUTF8(text[len(text)-half:], "")
		d.Truncated = true
	}
	d.Text = secret.MaskTokens(text)
	return d, err
}

// diffArgs returns the arguments of a diff without external programs and colours.
func diffArgs(subcommand string, rest ...string) []string {
	return append([]string{subcommand, "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty"}, rest...)
}

// stat returns the size of the difference between one commit and the work tree, or between two
// commits.
func (m *Manager) stat(ctx context.Context, w Workspace, commits ...string) (DiffStat, error) {
	numbers, err := m.run(ctx, w, diffArgs("diff", append(append([]string{"--numstat", "-z", "--no-renames"}, commits...), "--")...))
	if err != nil {
		return DiffStat{}, err
	}
	var s DiffStat
	for entry := range strings.SplitSeq(string(numbers.Stdout.Bytes()), "\x00") {
		if parts := strings.SplitN(entry, "\t", 3); len(parts) == 3 {
			s.Files++
			in, _ := strconv.Atoi(parts[0]) // "-" for a binary file
			out, _ := strconv.Atoi(parts[1])
			s.Insertions, s.Deletions = s.Insertions+in, s.Deletions+out
		}
	}
	table, err := m.run(ctx, w, diffArgs("diff", append(append([]string{"--stat=100", "--stat-count=199"}, commits...), "--")...))
	s.Text = table.Stdout.Text()
	return s, err
}

// commitOf resolves a caller's name of a commit. "" is the commit at which the branch left its
// base, or emptyTree. An unknown name fails with invalid_input, reason invalid_ref.
func (m *Manager) commitOf(ctx context.Context, w Workspace, ref string) (string, error) {
	if ref == "" {
		if w.BaseCommit == "" {
			return emptyTree, nil
		}
		found, err := m.run(ctx, w, []string{"merge-base", "HEAD", "refs/remotes/origin/" + w.BaseBranch}, 1, 128)
		if err != nil || found.ExitCode != 0 {
			return w.BaseCommit, err
		}
		return strings.TrimSpace(found.Stdout.Text()), nil
	}
	bad := capability.Errorf(capability.CodeInvalidInput, "workspace.diff", "the workspace knows no such commit").With("invalid_ref",
		"name a branch, a tag or a commit")
	if len(ref) > 200 || ref[0] == '-' || strings.ContainsRune(ref, 0) {
		return "", bad
	}
	result, err := m.run(ctx, w, []string{"rev-parse", "--verify", "--quiet", "--end-of-options", ref + "^{commit}"}, 1, 128)
	if err == nil && result.ExitCode != 0 {
		err = bad
	}
	return strings.TrimSpace(result.Stdout.Text()), err
}

// Entry is one commit of a list.
type Entry struct {
	Hash    string    `json:"hash"`
	Author  string    `json:"author"`
	Email   string    `json:"email"`
	At      time.Time `json:"at"`
	Subject string    `json:"subject"`
}

// ListCommits returns the commits of HEAD since from (see [Manager.Diff]), the newest first.
// limit is at most 500; 0 means 50.
func (m *Manager) ListCommits(ctx context.Context, id, from string, limit int) ([]Entry, error) {
	w, err := m.Get(id)
	if err != nil {
		return nil, err
	}
	commit, err := m.commitOf(ctx, w, from)
	if err != nil {
		return nil, err
	}
	head, err := m.line(ctx, w, "rev-parse", "--verify", "--quiet", "HEAD")
	if head == "" || err != nil {
		return []Entry{}, err
	}
	if limit <= 0 {
		limit = 50
	}
	args := []string{"log", "-z", "--no-color", "--max-count=" + strconv.Itoa(min(limit, 500)), "--format=%H%x1f%an%x1f%ae%x1f%at%x1f%s", head}
	if commit != emptyTree {
		args = append(args, "^"+commit)
	}
	result, err := m.run(ctx, w, append(args, "--"))
	if err != nil {
		return nil, err
	}
	out := []Entry{}
	for line := range strings.SplitSeq(result.Stdout.Text(), "\x00") {
		if f := strings.SplitN(line, "\x1f", 5); len(f) == 5 {
			at, _ := strconv.ParseInt(f[3], 10, 64)
			out = append(out, Entry{f[0], f[1], f[2], time.Unix(at, 0).UTC(), secret.MaskTokens(f[4])})
		}
	}
	return out, nil
}
