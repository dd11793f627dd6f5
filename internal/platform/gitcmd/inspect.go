package gitcmd

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// inspect returns the overrides for everything that the repository's configuration could execute,
// and checks that the repository is inside Root. Its queries do not execute anything of the
// repository.
func (g *Git) inspect(ctx context.Context, c Command) ([]Setting, error) {
	keys, overrides, err := g.configuration(ctx, c)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(keys, func(key []byte) bool { return string(key) == "user.name" }) {
		// The user's own configuration, which has the author, is not read.
		overrides = append(overrides, Setting{"user.name", "junctor"}, Setting{"user.email", "junctor@localhost"})
	}
	top := ""
	if c.room != nil { // its paths were checked, and others do not exist for git
		top = c.room.top
	} else {
		top, err = g.locate(ctx, c)
	}
	if err != nil || top == "" {
		return overrides, err
	}
	ignored, err := g.submodules(ctx, c, top)
	if err != nil {
		return nil, err
	}
	inner, err := g.nested(ctx, c, 0)
	return slices.Concat(overrides, ignored, inner), err
}

// nested returns the overrides for the repositories inside of the working tree that are in the index and
// checked out. Add, rm, stash and others run git status in them, with the same environment; ignoring
// submodules does not prevent that.
func (g *Git) nested(ctx context.Context, c Command, depth int) (out []Setting, err error) {
	if c.room != nil && c.ReadOnly {
		return nil, nil // what runs there can change nothing
	}
	listed, err := g.query(ctx, c, maxIndexBytes, "ls-files", "--stage", "-z", "--", ":/")
	if err != nil {
		return nil, err
	}
	if listed.Stdout.Truncated() {
		return nil, capability.Errorf(capability.CodeTooLarge, "git.run",
			"the repository has more than %d MiB of file names, too many to look for repositories inside of it", maxIndexBytes>>20).
			With("index_too_large", "run this command yourself, without junctor")
	}
	for entry := range bytes.SplitSeq(listed.Stdout.Bytes(), []byte{0}) {
		if !bytes.HasPrefix(entry, []byte("160000 ")) {
			continue
		}
		_, name, _ := strings.Cut(string(entry), "\t")
		in := c
		in.Dir = filepath.Join(c.Dir, filepath.FromSlash(name))
		if _, err := os.Lstat(filepath.Join(in.Dir, ".git")); err != nil {
			continue
		}
		if depth == maxNestedDepth || len(out) > maxOverrides {
			return nil, tooMany()
		}
		settings, err := g.inspectNested(ctx, in, depth)
		if err != nil {
			return nil, capability.AsError(err).Detail("repository", name)
		}
		out = append(out, settings...)
	}
	return out, nil
}

// inspectNested is inspect for a repository inside of another one, in which no command is run directly.
func (g *Git) inspectNested(ctx context.Context, c Command, depth int) ([]Setting, error) {
	_, overrides, err := g.configuration(ctx, c)
	if err != nil {
		return nil, err
	}
	ignored, err := g.submodules(ctx, c, c.Dir)
	if err != nil {
		return nil, err
	}
	inner, err := g.nested(ctx, c, depth+1)
	return slices.Concat(overrides, ignored, inner), err
}

// configuration returns the keys of a repository's configuration and the overrides for them. It executes nothing.
func (g *Git) configuration(ctx context.Context, c Command) (keys [][]byte, overrides []Setting, err error) {
	if keys, err = g.keys(ctx, c, "--includes", "--list"); err != nil {
		return nil, nil, err
	}
	if len(keys) < len(fixed()) { // git lists those too, so it failed
		return nil, nil, unreadable()
	}
	if overrides, err = g.neutralise(keys); err == nil {
		err = g.ownTree(ctx, c, keys)
	}
	return keys, overrides, err
}

// ownTree refuses a repository whose configuration places its working tree elsewhere than around its .git,
// because names in its index are then of other files. That of a submodule names its own directory.
func (g *Git) ownTree(ctx context.Context, c Command, keys [][]byte) error {
	if !slices.ContainsFunc(keys, func(key []byte) bool { return string(key) == "core.worktree" }) {
		return nil
	}
	found, err := g.query(ctx, c, maxConfigBytes, "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	for dir := c.Dir; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil || dir == c.Root || dir == filepath.Dir(dir) {
			if strings.TrimSuffix(string(found.Stdout.Bytes()), "\n") == dir {
				return nil
			}
			break
		}
	}
	return capability.Errorf(capability.CodeDenied, "git.run", "the repository's configuration moves its working tree away").
		With("security_violation", "take core.worktree out of its configuration")
}

// keys returns the names of the configuration keys of a source, or none if it does not exist.
func (g *Git) keys(ctx context.Context, c Command, source ...string) ([][]byte, error) {
	listed, err := g.query(ctx, c, maxConfigBytes, append([]string{"config", "--name-only", "-z"}, source...)...)
	if err != nil {
		return nil, err
	}
	if listed.Stdout.Truncated() {
		return nil, tooMany()
	}
	if listed.ExitCode != 0 && len(listed.Stdout.Bytes()) > 0 {
		return nil, unreadable() // an incomplete list must not be used
	}
	return bytes.Split(bytes.TrimSuffix(listed.Stdout.Bytes(), []byte{0}), []byte{0}), nil
}

// locate checks that every directory of the repository, including its alternates, is inside the
// root. It returns the top level of the working tree, or "".
func (g *Git) locate(ctx context.Context, c Command) (top string, err error) {
	// The output has this order and ends at the first value that is not available: outside a
	// repository all are missing, in a bare one the top level.
	found, err := g.query(ctx, c, maxConfigBytes, "rev-parse", "--absolute-git-dir", "--git-common-dir", "--git-path", "objects",
		"--show-toplevel")
	if err != nil {
		return "", err
	}
	answers := strings.TrimSuffix(string(found.Stdout.Bytes()), "\n")
	if answers == "" {
		return "", noRepository(c)
	}
	for i, line := range strings.Split(answers, "\n") {
		if line == "" {
			continue
		}
		roots := append([]string{c.Root}, c.Also...)
		if i == 3 { // the working tree
			roots = roots[:1]
		}
		dir, err := inside(roots, c.Dir, line)
		if err != nil {
			return "", err
		}
		switch i {
		case 2:
			if _, err := checkAlternates(roots, dir, 0); err != nil {
				return "", err
			}
		case 3:
			top = dir
		}
	}
	return top, nil
}

// noRepository checks a directory without repository. Errors: not_found with NeedRepository; denied
// if .git is a symbolic link, because init would create a repository at its target.
func noRepository(c Command) error {
	if c.NeedRepository {
		return capability.Errorf(capability.CodeNotFound, "git.run", "there is no git repository here").
			With("not_a_repository", "name a directory inside a repository")
	}
	if info, err := os.Lstat(filepath.Join(c.Dir, ".git")); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return outside()
	}
	return nil
}

// inside returns the real path of a directory that git reported. One outside the roots is denied.
func inside(roots []string, base, dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(base, dir)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", outside()
	}
	for _, root := range roots {
		if rel, err := filepath.Rel(root, real); err == nil && filepath.IsLocal(rel) {
			return real, nil
		}
	}
	return "", outside()
}

// checkAlternates returns the object directories in objects/info/alternates, from which git also reads objects,
// recursively, and checks that they are inside the roots.
func checkAlternates(roots []string, objects string, depth int) (list []string, err error) {
	if depth > maxAlternatesDepth {
		return nil, outside()
	}
	text, err := readFile(filepath.Join(objects, "info", "alternates"), maxAlternatesBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, outside()
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		dir, err := inside(roots, objects, line)
		if err != nil {
			return nil, err
		}
		further, err := checkAlternates(roots, dir, depth+1)
		if err != nil {
			return nil, err
		}
		if list = append(append(list, dir), further...); len(list) > maxAlternates {
			return nil, outside()
		}
	}
	return list, nil
}

// submodules returns settings that prevent git from running inside submodules, whose own
// configuration inspect does not check. Values in .gitmodules take precedence over
// diff.ignoreSubmodules, so there is one setting per name. Git uses the file, else the index's
// copy, else that of HEAD.
func (g *Git) submodules(ctx context.Context, c Command, top string) ([]Setting, error) {
	sources := [][]string{{"--blob", ":.gitmodules", "--list"}, {"--blob", "HEAD:.gitmodules", "--list"}}
	if _, err := os.Lstat(filepath.Join(top, ".gitmodules")); err == nil {
		sources = [][]string{{"--file", filepath.Join(top, ".gitmodules"), "--list"}}
	} else if c.room != nil && c.ReadOnly {
		return nil, nil // what runs in a submodule can change nothing, and each source is a further run
	}
	seen := make(map[string]bool)
	var out []Setting
	for _, source := range sources {
		keys, err := g.keys(ctx, c, source...)
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			name, isSubmodule := strings.CutPrefix(string(k), "submodule.")
			dot := strings.LastIndexByte(name, '.')
			if !isSubmodule || dot < 0 || seen[name[:dot]] {
				continue
			}
			name = name[:dot]
			seen[name] = true
			out = append(out, Setting{"submodule." + name + ".ignore", "dirty"}, Setting{"submodule." + name + ".update", "none"})
		}
		if len(out) > maxOverrides {
			return nil, tooMany()
		}
	}
	return out, nil
}

// query runs a read-only command with an output limit of its own.
func (g *Git) query(ctx context.Context, c Command, limit int, args ...string) (sandbox.Result, error) {
	limited := *g
	limited.cfg.StdoutLimit = limit
	return limited.run(ctx, Command{Dir: c.Dir, Root: c.Root, Args: args, ReadOnly: true, room: c.room}, nil)
}

func outside() error {
	return capability.Errorf(capability.CodeDenied, "git.run", "the repository reaches out of the root").
		With("security_violation", "keep the working tree, its git directory and its alternates inside one root")
}

func unreadable() error {
	return capability.Errorf(capability.CodeFailed, "git.run", "the repository's configuration cannot be read").
		With("bad_repository", "correct the syntax of .git/config or .gitmodules")
}

func tooMany() error {
	return capability.Errorf(capability.CodeDenied, "git.run", "the repository's configuration defines more than %d commands or is larger than %d bytes", maxOverrides, maxConfigBytes).
		With("security_violation", "remove filters, drivers and helpers from the repository's configuration")
}
