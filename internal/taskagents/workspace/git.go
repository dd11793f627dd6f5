package workspace

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
	"github.com/junctor-run/junctor/secret"
)

// run runs git without network in a workspace. An exit code other than 0 is an error, unless it
// is accepted.
func (m *Manager) run(ctx context.Context, w Workspace, args []string, accepted ...int) (sandbox.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	return m.command(ctx, m.git, w, gitcmd.Command{Args: args, NeedRepository: true}, accepted...)
}

// command runs c in a workspace after checkGitDir, confined to the folders of its repository.
func (m *Manager) command(ctx context.Context, git *gitcmd.Git, w Workspace, c gitcmd.Command, accepted ...int) (sandbox.Result, error) {
	if err := m.checkGitDir(w); err != nil {
		return sandbox.Result{}, err
	}
	if c.Dir == "" {
		c.Dir = w.Path
	}
	c.Root = w.Path
	switch w.Mode {
	case Worktree:
		c.Root = m.base // the git directory is the parent's
	case Checkout:
		c.Also = w.Source.Directories()
	}
	c.Settings = append(m.author(), c.Settings...)
	result, err := git.Run(ctx, c)
	if err != nil {
		return result, err
	}
	if result.ExitCode == 0 {
		return result, nil
	}
	for _, code := range accepted {
		if result.ExitCode == code {
			return result, nil
		}
	}
	return result, m.failed("workspace.git", result)
}

func (m *Manager) author() []gitcmd.Setting {
	return []gitcmd.Setting{
		{Key: "user.name", Value: m.cfg.AuthorName},
		{Key: "user.email", Value: m.cfg.AuthorEmail},
		{Key: "core.quotePath", Value: "false"},
	}
}

// line runs a command and returns its trimmed output, or "" if it exits with 1.
func (m *Manager) line(ctx context.Context, w Workspace, args ...string) (string, error) {
	result, err := m.run(ctx, w, args, 1)
	if err != nil || result.ExitCode != 0 {
		return "", err
	}
	return strings.TrimSpace(result.Stdout.Text()), nil
}

// checkGitDir fails with denied, reason security_violation, if .git of a workspace was
// replaced, because an agent could redirect commands to another repository. For a Folder
// workspace it fails with invalid_input, reason no_repository.
func (m *Manager) checkGitDir(w Workspace) error {
	tampered := func(err error) error {
		return capability.Wrap(capability.CodeDenied, "workspace.git", "the workspace's git directory is not the one that was made", err).
			With("security_violation", "remove the workspace with force, and make a new one")
	}
	git := filepath.Join(w.Path, ".git")
	info, err := os.Lstat(git)
	switch {
	case w.Mode == Folder:
		return capability.Errorf(capability.CodeInvalidInput, "workspace.git", "the workspace has no repository").With("no_repository",
			"use a workspace that was made of a repository")
	case err != nil:
		return tampered(err)
	case w.Mode == Clone && !info.IsDir(), w.Mode != Clone && (!info.Mode().IsRegular() || info.Size() > 4096):
		return tampered(nil)
	case w.Mode == Clone:
		return nil
	}
	entry := filepath.Join(m.base, w.Parent, ".git", "worktrees", w.ID)
	if w.Mode == Checkout {
		entry = filepath.Join(w.Source.GitDir, "worktrees", w.ID)
	}
	data, err := os.ReadFile(git)
	dir, ok := strings.CutPrefix(strings.TrimSpace(string(data)), "gitdir: ")
	if err != nil || !ok || dir != entry {
		return tampered(err)
	}
	return nil
}

// remote runs a command that contacts the repository's remote, in workspace at (in its folder
// dir if that is not "") and with the credential of w, for at most wait.
func (m *Manager) remote(ctx context.Context, w, at Workspace, dir string, wait time.Duration, args ...string) (sandbox.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	settings, err := m.credential(ctx, w)
	if err != nil {
		return sandbox.Result{}, err
	}
	return m.command(ctx, m.transport(w.Repo), at, gitcmd.Command{
		Dir: dir, Args: args, Settings: settings, LazyFetch: w.Partial,
		NeedRepository: true,
	})
}

// ask is remote for commands that need no local repository, such as clone.
func (m *Manager) ask(ctx context.Context, w Workspace, wait time.Duration, args ...string) (sandbox.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	settings, err := m.credential(ctx, w)
	if err != nil {
		return sandbox.Result{}, err
	}
	result, err := m.transport(w.Repo).Run(ctx, gitcmd.Command{
		Dir: m.base, Root: m.base, Args: args,
		Settings: append(m.author(), settings...), LazyFetch: true,
	})
	if err == nil && result.ExitCode != 0 {
		err = m.failed("workspace.git", result)
	}
	return result, err
}

func (m *Manager) transport(r forge.Repo) *gitcmd.Git {
	if r.Dir != "" {
		return m.local
	}
	return m.network
}

func (m *Manager) credentialFile(id string) string {
	return filepath.Join(m.state, "credentials", id)
}

// token returns the workspace's own token, otherwise that of its clone, otherwise the
// operator's. It fails if an own token cannot be read.
func (m *Manager) token(ctx context.Context, w Workspace) (secret.Value, error) {
	for _, id := range []string{w.ID, w.root()} {
		m.mu.Lock()
		own := m.all[id].OwnToken
		m.mu.Unlock()
		if !own {
			continue
		}
		data, err := os.ReadFile(m.credentialFile(id))
		if err != nil {
			return secret.Value{}, capability.Wrap(capability.CodeFailed, "workspace.credential", "the workspace's credential is gone",
				err).With("invalid_credentials", "make a new workspace with a token")
		}
		_, after, _ := bytes.Cut(data, []byte("password="))
		return secret.New(strings.TrimSpace(string(after))), nil
	}
	return m.cfg.Token(ctx, w.Repo)
}

// credential writes the token to the file that git's helper reads, and returns the setting of
// the helper for the repository's host. So the token is in no argument, variable or URL. For
// ssh, local folders and an empty token it returns no settings.
func (m *Manager) credential(ctx context.Context, w Workspace) ([]gitcmd.Setting, error) {
	u, err := url.Parse(w.Repo.URL)
	if err != nil || w.Repo.Dir != "" || u.Scheme == "ssh" {
		return nil, nil
	}
	token, err := m.token(ctx, w)
	if err != nil || token.Empty() {
		return nil, err
	}
	if err := m.keepToken(w, token); err != nil {
		return nil, err
	}
	file := "'" + strings.ReplaceAll(m.credentialFile(w.ID), "'", `'\''`) + "'"
	return []gitcmd.Setting{{Key: "credential." + u.Scheme + "://" + u.Host + ".helper", Value: "!f() { cat " + file + "; }; f"}}, nil
}

// keepToken writes the token to the workspace's credential file, which it replaces atomically.
func (m *Manager) keepToken(w Workspace, token secret.Value) error {
	if strings.ContainsAny(token.Reveal(), "\r\n\x00") {
		return capability.Errorf(capability.CodeInvalidInput, "workspace.credential", "the token holds a line break").With("invalid_credentials",
			"give the token alone")
	}
	user := "x-access-token"
	switch w.Repo.Host {
	case "gitlab.com":
		user = "oauth2"
	case "bitbucket.org":
		user = "x-token-auth"
	}
	want := []byte("username=" + user + "\npassword=" + token.Reveal() + "\n")
	path := m.credentialFile(w.ID)
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, want) {
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".*.tmp") // 0600
	if err == nil {
		_, err = tmp.Write(want)
		err = errors.Join(err, tmp.Close())
		if err == nil {
			err = os.Rename(tmp.Name(), path)
		}
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "workspace.credential", "the credential could not be kept", err).With("no_space", "")
	}
	return nil
}

func (m *Manager) forgetToken(id string) error {
	if err := os.Remove(m.credentialFile(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// checkRemote fails with denied, reason security_violation, if the repository's configuration
// has another remote address than the record, or settings for URLs or HTTP: a changed address,
// proxy or TLS check would redirect pushes.
func (m *Manager) checkRemote(ctx context.Context, w Workspace) error {
	settings, err := m.configured(ctx, w, `^(url|http)\.|^fetch\.bundle|^remote\.origin\.`)
	if err != nil {
		return err
	}
	addresses := 0
	for _, set := range settings {
		switch {
		case set.Key == "remote.origin.url" && set.Value == w.Repo.URL:
			addresses++
		case set.Key == "remote.origin.fetch", set.Key == "remote.origin.promisor", set.Key == "remote.origin.partialclonefilter":
		default:
			addresses = -1 << 10
		}
	}
	if addresses == 1 {
		return nil
	}
	return capability.Errorf(capability.CodeDenied, "workspace.git", "the workspace's configuration leads to another remote than its own").
		With("security_violation", "take what was added under url, http and remote.origin out of .git/config")
}

// configured returns the settings of the repository's own configuration whose keys match a pattern. Those
// that gitcmd adds to each command are not among them. More than fit into the output fail with denied,
// reason security_violation.
func (m *Manager) configured(ctx context.Context, w Workspace, pattern string) ([]gitcmd.Setting, error) {
	result, err := m.run(ctx, w, []string{"config", "-z", "--show-scope", "--get-regexp", pattern}, 1)
	if err != nil {
		return nil, err
	}
	if result.Stdout.Truncated() {
		return nil, capability.Errorf(capability.CodeDenied, "workspace.git", "the workspace's configuration is too large").
			With("security_violation", "take what is not needed out of .git/config")
	}
	var list []gitcmd.Setting
	fields := strings.Split(string(result.Stdout.Bytes()), "\x00") // scope and setting, each with its end
	for ; len(fields) > 1; fields = fields[2:] {
		if fields[0] != "command" {
			key, value, _ := strings.Cut(fields[1], "\n")
			list = append(list, gitcmd.Setting{Key: key, Value: value})
		}
	}
	return list, nil
}

// checkRef fails with invalid_input and the given reason if name is not a valid branch name.
func (m *Manager) checkRef(ctx context.Context, name, reason string) error {
	bad := capability.Errorf(capability.CodeInvalidInput, "workspace.branch", "that is not a name for a branch").With(reason,
		"use letters, digits, hyphens and slashes, at maxBranchName 200")
	if name == "" || len(name) > maxBranchName || name[0] == '-' || name == "HEAD" || strings.ContainsRune(name, 0) {
		return bad
	}
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	result, err := m.git.Run(ctx, gitcmd.Command{Dir: m.base, Root: m.base, Args: []string{"check-ref-format", "refs/heads/" + name}})
	if err == nil && result.ExitCode != 0 {
		return bad
	}
	return err
}
