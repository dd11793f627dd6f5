package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
)

const deepSubmodules = 3 // levels of nesting

// submodules fetches the submodules of the work tree at dir. The policy must allow each address,
// as that of a requested repository. A submodule that it does not allow is left out with a
// note in w.Notes, because most work does not need it.
func (m *Manager) submodules(ctx context.Context, w *Workspace, dir string, depth int) error {
	info, err := os.Lstat(filepath.Join(dir, ".gitmodules"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil
	}
	note := func(what string) { w.Notes = append(w.Notes, "submodules: "+what) }
	if err != nil || depth >= deepSubmodules {
		note("those within submodules three deep were left out")
		return nil
	}
	git := func(args ...string) (string, error) {
		local, cancel := context.WithTimeout(ctx, workTimeout)
		defer cancel()
		result, err := m.command(local, m.git, *w, gitcmd.Command{Dir: dir, Args: args, NeedRepository: true}, 1)
		return string(result.Stdout.Bytes()), err
	}
	if _, err := git("submodule", "--quiet", "init"); err != nil {
		note("what .gitmodules says cannot be read")
		return nil
	}
	// After init the configuration has absolute addresses.
	listed, err := git("config", "--local", "-z", "--get-regexp", `^submodule\..*\.url$`)
	if err != nil {
		return err
	}
	paths, err := git("config", "--file", ".gitmodules", "-z", "--get-regexp", `^submodule\..*\.path$`)
	if err != nil {
		return err
	}
	at := make(map[string]string)
	for entry := range strings.SplitSeq(paths, "\x00") {
		key, value, _ := strings.Cut(entry, "\n")
		at[strings.TrimSuffix(key, ".path")] = value
	}
	done := 0
	for entry := range strings.SplitSeq(strings.TrimSuffix(listed, "\x00"), "\x00") {
		key, address, _ := strings.Cut(entry, "\n")
		path := at[strings.TrimSuffix(key, ".url")]
		if path == "" || !filepath.IsLocal(path) || strings.HasPrefix(path, "-") {
			continue
		}
		repo, err := m.cfg.Policy.Parse(address)
		if err != nil || done >= maxSubmodules || (repo.Dir != "") != (w.Repo.Dir != "") {
			note(path + " was left out: its address is not allowed, or there are too many")
			continue
		}
		done++
		// The protocols and the credential are those of the main repository; the credential
		// is limited to its host.
		if _, err := m.remote(ctx, *w, *w, dir, cloneTimeout, "submodule", "--quiet", "update", "--init", "--checkout", "--", path); err != nil {
			if ctx.Err() != nil {
				return err
			}
			note(path + " was left out: " + capability.AsError(err).Message)
			continue
		}
		if err := m.submodules(ctx, w, filepath.Join(dir, path), depth+1); err != nil {
			return err
		}
	}
	return nil
}
