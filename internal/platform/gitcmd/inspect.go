package gitcmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// inspect returns the overrides for everything that the repository's configuration could execute,
// and checks that the repository is inside Root. Its queries do not execute anything of the
// repository.
func (g *Git) inspect(ctx context.Context, c Command) ([]Setting, error) {
	keys, err := g.keys(ctx, c, "--includes", "--list")
	if err != nil {
		return nil, err
	}
	overrides, err := g.neutralise(keys)
	if err != nil {
		return nil, err
	}
	top, err := g.locate(ctx, c)
	if err != nil || top == "" {
		return overrides, err
	}
	ignored, err := g.submodules(ctx, c, top)
	return append(overrides, ignored...), err
}

// keys returns the names of the configuration keys of a source, or none if it does not exist.
func (g *Git) keys(ctx context.Context, c Command, source ...string) ([][]byte, error) {
	listed, err := g.query(ctx, c, append([]string{"config", "--name-only", "-z"}, source...)...)
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
	found, err := g.query(ctx, c, "rev-parse", "--absolute-git-dir", "--git-common-dir", "--git-path", "objects", "--show-toplevel")
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
			if err := checkAlternates(roots, dir, 0); err != nil {
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

// checkAlternates checks that the object directories in objects/info/alternates, from which git also
// reads objects, are inside the roots, recursively.
func checkAlternates(roots []string, objects string, depth int) error {
	if depth > maxAlternatesDepth {
		return outside()
	}
	f, err := os.Open(filepath.Join(objects, "info", "alternates"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return outside()
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxAlternatesBytes+1))
	if err != nil || len(data) > maxAlternatesBytes {
		return outside()
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		dir, err := inside(roots, objects, line)
		if err != nil {
			return err
		}
		if err := checkAlternates(roots, dir, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// submodules returns settings that prevent git from running inside submodules, whose own
// configuration inspect does not check. Values in .gitmodules take precedence over
// diff.ignoreSubmodules, so there is one setting per name. Git uses the file, else the index's
// copy, else that of HEAD.
func (g *Git) submodules(ctx context.Context, c Command, top string) ([]Setting, error) {
	sources := [][]string{{"--blob", ":.gitmodules", "--list"}, {"--blob", "HEAD:.gitmodules", "--list"}}
	if _, err := os.Lstat(filepath.Join(top, ".gitmodules")); err == nil {
		sources = [][]string{{"--file", filepath.Join(top, ".gitmodules"), "--list"}}
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

// query runs a read-only command with a smaller output limit, because configurations are small.
func (g *Git) query(ctx context.Context, c Command, args ...string) (sandbox.Result, error) {
	limited := *g
	limited.cfg.StdoutLimit = maxConfigBytes
	return limited.run(ctx, Command{Dir: c.Dir, Root: c.Root, Args: args, ReadOnly: true}, nil)
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
