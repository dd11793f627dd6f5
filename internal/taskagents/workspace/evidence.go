package workspace

import (
	"context"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/secret"
)

// Listing holds the files of a directory as slash-separated paths, in order: at most 200, five
// folders deep, among the first 2000 entries. Truncated reports that there are more. Folders of
// builds and of version control are left out.
type Listing struct {
	Files     []string `json:"files"`
	Truncated bool     `json:"truncated,omitempty"`
}

// Evidence is the observed state of a working directory. Status and Stat are git's output. They
// are "" if git cannot read a repository there; Note then has the cause.
type Evidence struct {
	Listing Listing `json:"listing"`
	Status  string  `json:"status,omitempty"`
	Stat    string  `json:"stat,omitempty"`
	Note    string  `json:"note,omitempty"`
}

// Collect returns the evidence about dir, a real path inside root; the repository must not lead
// out of root and also. If git is nil, only files are listed. Errors: that of ctx, and not_found if dir
// does not exist. A failure of git is in Note.
func Collect(ctx context.Context, git *gitcmd.Git, dir, root string, also ...string) (Evidence, error) {
	listing, err := List(ctx, dir)
	e := Evidence{Listing: listing}
	if err != nil || git == nil {
		return e, err
	}
	ask := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, gitTimeout)
		defer cancel()
		result, err := git.Run(ctx, gitcmd.Command{Dir: dir, Root: root, Also: also, Args: args, ReadOnly: true, NeedRepository: true})
		if err == nil && result.ExitCode != 0 {
			err = capability.Errorf(capability.CodeFailed, "evidence.git", "git could not look at it")
		}
		text := secret.MaskTokens(result.Stdout.Text())
		if len(text) > maxText {
			text = strings.ToValidUTF8(text[:maxText], "") + "\n…"
		}
		return text, err
	}
	e.Status, err = ask("-c", "core.quotePath=false", "status", "--short", "--branch", "--ignore-submodules=dirty")
	if err == nil {
		e.Stat, err = ask("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty", "--stat=100", "HEAD", "--")
	}
	if ctx.Err() != nil {
		return e, capability.AsError(ctx.Err())
	}
	if err != nil {
		e.Note = capability.AsError(err).Message // also for a repository without a commit
	}
	return e, nil
}

// List lists the files of a directory, each folder in the order of names. It fails with
// not_found if the directory does not exist, or with ctx's error.
func List(ctx context.Context, dir string) (Listing, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Listing{}, capability.Wrap(capability.CodeNotFound, "evidence.list", "the working directory is not there", err).With("not_found",
			"")
	}
	defer root.Close()
	l := lister{root: root, out: Listing{Files: []string{}}}
	err = l.walk(ctx, ".", 1)
	return l.out, err
}

type lister struct {
	root   *os.Root
	walked int
	out    Listing
}

// walk adds the files of a folder, and reads no more of its names than the remaining bound.
// Folders that cannot be read are skipped.
func (l *lister) walk(ctx context.Context, dir string, depth int) error {
	if ctx.Err() != nil {
		return capability.AsError(ctx.Err())
	}
	f, err := l.root.Open(dir)
	if err != nil {
		return nil // it was removed, or may not be read
	}
	entries, _ := f.ReadDir(maxWalked - l.walked + 1)
	_ = f.Close()
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if l.walked == maxWalked || len(l.out.Files) == maxFiles {
			l.out.Truncated = true
			return nil
		}
		l.walked++
		name := path.Join(dir, e.Name())
		switch {
		case !e.IsDir():
			l.out.Files = append(l.out.Files, strings.ToValidUTF8(name, "\uFFFD"))
		case slices.Contains(skipped, e.Name()):
		case depth == maxDepth:
			l.out.Truncated = true
		default:
			if err := l.walk(ctx, name, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// skipped lists folders of version control and builds.
var skipped = []string{
	".git", ".hg", ".svn", ".jj", "node_modules", "dist", "build", "out", "target", "bin", "obj", "vendor",
	".next", ".nuxt", ".turbo", ".cache", ".venv", "venv", "__pycache__", ".pytest_cache", ".mypy_cache", ".tox", ".gradle", "coverage",
}
