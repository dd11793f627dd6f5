package workspace

import (
	"context"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/secret"
)

// Bounds of a listing.
const (
	maxFiles   = 200
	maxDepth   = 5
	maxWalked  = 2000
	maxText    = 16 << 10 // bytes of each answer of git
	gitTimeout = 30 * time.Second
)

// Listing is the files of a directory, as slash-separated paths in order: at most 200,
// five folders deep, of at most 2000 entries that were looked at. Truncated reports that
// there is more. Folders of builds and of version control are left out.
type Listing struct {
	Files     []string `json:"files"`
	Truncated bool     `json:"truncated,omitempty"`
}

// Evidence is what was seen. Status and Stat are git's words, "" where there is no
// repository that can be looked at; Note then states why.
type Evidence struct {
	Listing Listing `json:"listing"`
	Status  string  `json:"status,omitempty"`
	Stat    string  `json:"stat,omitempty"`
	Note    string  `json:"note,omitempty"`
}

// Collect looks at dir, a real path inside root, which the repository may not reach
// out of (see roots.Set.Workdir). git may be nil. The error is only ever ctx's, or
// not_found for a directory that is not there.
func Collect(ctx context.Context, git *gitcmd.Git, dir, root string) (Evidence, error) {
	listing, err := List(ctx, dir)
	e := Evidence{Listing: listing}
	if err != nil || git == nil {
		return e, err
	}
	ask := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, gitTimeout)
		defer cancel()
		result, err := git.Run(ctx, gitcmd.Command{Dir: dir, Root: root, Args: args, ReadOnly: true, NeedRepository: true})
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
		e.Note = capability.AsError(err).Message // also of a repository without a commit
	}
	return e, nil
}

// List walks a directory, each folder in the order of its names.
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

// walk reads no more names of a folder than may still be looked at.
func (l *lister) walk(ctx context.Context, dir string, depth int) error {
	if ctx.Err() != nil {
		return capability.AsError(ctx.Err())
	}
	f, err := l.root.Open(dir)
	if err != nil {
		return nil // it went, or is closed to us
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

// skipped are folders that version control and builds fill.
var skipped = []string{
	".git", ".hg", ".svn", ".jj", "node_modules", "dist", "build", "out", "target", "bin", "obj", "vendor",
	".next", ".nuxt", ".turbo", ".cache", ".venv", "venv", "__pycache__", ".pytest_cache", ".mypy_cache", ".tox", ".gradle", "coverage",
}
