package gitcmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// room is what a confined git sees beside the system's files. All paths are real.
type room struct {
	top     string   // of the working tree; the directory of the command if it has no repository above
	parts   []string // directories of the repository outside top
	borrows []string // object directories of other repositories, which git only reads
	tier    sandbox.Tier
}

// enter returns where the command runs confined, or nil if it runs without confinement: without Walls, and
// where no tier confines if that is accepted or the command only reads. It does not start git. Errors: those
// of Run about the repository's place, and unavailable, reason sandbox_unavailable.
func (g *Git) enter(c Command) (*room, error) {
	if g.cfg.Walls == nil {
		return nil, nil
	}
	facts := g.cfg.Walls.Facts()
	if facts.Tier < sandbox.T2 {
		if c.ReadOnly || g.cfg.Unconfined {
			return nil, nil
		}
		return nil, capability.Errorf(capability.CodeUnavailable, "git.run",
			"git cannot be confined on this machine, so that it could run programs of a repository: %s", facts.NoT2).
			With("sandbox_unavailable",
				"see: junctor debug sandbox status; or run it as this server's user, with all that the user may do: fs.git_unconfined")
	}
	r := &room{tier: facts.Tier}
	return r, r.find(c)
}

// find looks for the repository of a command as git does: in the directory and in those above, up to Root.
func (r *room) find(c Command) error {
	roots := append([]string{c.Root}, c.Also...)
	for dir := c.Dir; ; dir = filepath.Dir(dir) {
		git, found, err := gitDirectory(roots, dir)
		if err != nil {
			return err
		}
		if found {
			r.top = dir
			return r.collect(roots, git)
		}
		if dir == c.Root || dir == filepath.Dir(dir) {
			r.top = c.Dir
			return noRepository(c)
		}
	}
}

// gitDirectory returns the git directory that dir/.git is or names. found is false for a directory that git
// does not accept as one.
func gitDirectory(roots []string, dir string) (git string, found bool, err error) {
	path := filepath.Join(dir, ".git")
	info, err := os.Stat(path)
	if err != nil {
		return "", false, nil
	}
	if info.Mode().IsRegular() {
		text, err := readFile(path, maxGitFileBytes)
		name, isLink := strings.CutPrefix(text, "gitdir: ")
		if err != nil || !isLink {
			return "", false, unreadable()
		}
		git, err = inside(roots, dir, name)
		return git, true, err
	}
	if _, err := os.Lstat(filepath.Join(path, "HEAD")); err != nil || !info.IsDir() {
		return "", false, nil
	}
	git, err = inside(roots, dir, ".git")
	return git, true, err
}

// collect records the directories of the repository outside of its working tree: its git directory, the one that
// its working trees share, and the objects that it borrows.
func (r *room) collect(roots []string, git string) error {
	common := git
	if text, err := readFile(filepath.Join(git, "commondir"), maxGitFileBytes); err == nil {
		if common, err = inside(roots, git, text); err != nil {
			return err
		}
	}
	objects := filepath.Join(common, "objects")
	if _, err := os.Lstat(objects); err == nil {
		real, err := inside(roots, common, "objects")
		if err != nil {
			return err
		}
		objects = real
		if r.borrows, err = checkAlternates(roots, objects, 0); err != nil {
			return err
		}
	}
	for _, part := range []string{git, common, objects} {
		r.parts = r.add(r.parts, part)
	}
	borrows := r.borrows
	r.borrows = nil
	for _, part := range borrows {
		r.borrows = r.add(r.borrows, part)
	}
	return nil
}

// add adds a directory to a list unless the room has it already.
func (r *room) add(list []string, dir string) []string {
	if slices.ContainsFunc(append([]string{r.top}, r.parts...), func(shown string) bool { return beneath(dir, shown) }) {
		return list
	}
	return append(list, dir)
}

func beneath(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// readFile returns the content of a small file, without the line break at its end.
func readFile(path string, limit int64) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe does not hold it up
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a file", filepath.Base(path))
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil || int64(len(data)) > limit {
		return "", fmt.Errorf("%s cannot be read", filepath.Base(path))
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}

// confined runs a program of git in its room. At T3 that is the repository. At T2 it is the whole root, because
// Landlock takes directories by name, and a program that may change a directory can exchange those in it. The
// umask is the server's, because files of a repository are for more than git.
func (g *Git) confined(ctx context.Context, spec sandbox.Spec, c Command) (sandbox.Result, error) {
	limits := sandbox.ServiceLimits()
	limits.Memory, limits.FileSize, limits.Disk = maxMemory, maxFileBytes, -1
	box := sandbox.Confinement{
		MinTier: sandbox.T2, Network: sandbox.NetworkNone, Work: c.room.top, WorkReadOnly: c.ReadOnly, OwnPath: true, Exact: true,
		Limits: limits, ReadOnly: c.room.borrows,
	}
	switch {
	case c.room.tier == sandbox.T2:
		box.Work, box.ReadOnly = c.Root, nil
	case c.ReadOnly:
		box.ReadOnly = slices.Concat(c.room.parts, c.room.borrows)
	default:
		box.ReadWrite = c.room.parts
	}
	var err error
	if box.UID, box.GID, box.ServerUser, err = owner(c.room.top); err != nil {
		return sandbox.Result{}, err
	}
	spec.Args = append([]string{"-c", `umask "$0"; exec "$@"`, g.umask, spec.Path}, spec.Args...)
	spec.Path = "/bin/sh"
	return g.cfg.Walls.Run(ctx, spec, box)
}
