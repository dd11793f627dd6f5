package workspace

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/secret"
)

// Setup is the operator's preparation of a workspace before its agent starts. If it fails, the
// workspace is not created. It is never part of a request, because it runs with the server's
// rights.
type Setup struct {
	// Copy has patterns, in the syntax of .gitignore, of ignored files such as .env that are
	// copied from the parent to a worktree. The parent's file .worktreeinclude adds patterns.
	Copy []string
	// Argv is run in the workspace with the server's PATH and HOME, without a shell. A path
	// such as ./setup runs a program of the repository, so every repository must be trusted.
	// Wait is its timeout; 0 means 5 min.
	Argv []string
	Wait time.Duration
}

// Bounds of copied files.
const (
	maxCopied     = 1000
	maxCopiedFile = 10 << 20
	maxCopiedAll  = 64 << 20
)

func setupFailed(what string, err error) *capability.Error {
	return capability.Wrap(capability.CodeFailed, "workspace.setup", "the workspace could not be prepared: "+what, err).With("setup_failed",
		"correct the setup, or leave it out")
}

// setUp copies the ignored files of the parent to a worktree and runs the setup command. It
// fails with reason setup_failed and the end of the command's output in details.output.
func (m *Manager) setUp(ctx context.Context, w, parent Workspace) error {
	if w.Mode == Worktree {
		if err := m.copyIgnored(ctx, w, parent); err != nil {
			return err
		}
	}
	if len(m.cfg.Setup.Argv) == 0 {
		return nil
	}
	wait := m.cfg.Setup.Wait
	if wait <= 0 {
		wait = 5 * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	result, err := sandbox.Run(ctx, sandbox.Spec{
		Path: m.cfg.Setup.Argv[0], Args: m.cfg.Setup.Argv[1:], Dir: w.Path, Env: sandbox.Environment(),
		MergeStderr: true, StdoutLimit: 64 << 10,
	})
	if err != nil {
		return setupFailed("its command could not be started, or took too long", err)
	}
	if result.ExitCode != 0 {
		text := secret.MaskTokens(result.Stdout.Text())
		return setupFailed("its command failed", nil).Detail("exit_code", result.ExitCode).Detail("output",
			strings.ToValidUTF8(text[max(0, len(text)-2000):], ""))
	}
	return nil
}

// copyIgnored copies the parent's files that match the patterns and that git ignores. git
// evaluates both conditions.
func (m *Manager) copyIgnored(ctx context.Context, w, parent Workspace) error {
	wanted := []string{"ls-files", "-z", "--others", "--ignored"}
	for _, p := range m.cfg.Setup.Copy {
		wanted = append(wanted, "--exclude="+p)
	}
	const list = ".worktreeinclude"
	if info, err := os.Lstat(filepath.Join(parent.Path, list)); err == nil && info.Mode().IsRegular() {
		wanted = append(wanted, "--exclude-from="+list)
	}
	if len(wanted) == 4 {
		return nil
	}
	matching, err := m.run(ctx, parent, wanted)
	if err != nil {
		return setupFailed("the list of files to copy cannot be read", err)
	}
	names := strings.Split(strings.TrimSuffix(string(matching.Stdout.Bytes()), "\x00"), "\x00")
	if matching.Stdout.Truncated() || len(names) > maxCopied {
		return setupFailed("more than 1000 files would be copied", nil)
	}
	if names[0] == "" {
		return nil
	}
	both := []string{"ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--"}
	for _, name := range names {
		both = append(both, ":(top,literal)"+name)
	}
	ignored, err := m.run(ctx, parent, both)
	if err != nil {
		return setupFailed("the list of files to copy cannot be read", err)
	}
	from, err := os.OpenRoot(parent.Path)
	if err != nil {
		return setupFailed("the parent cannot be read", err)
	}
	defer from.Close()
	to, err := os.OpenRoot(w.Path)
	if err != nil {
		return setupFailed("the workspace cannot be written", err)
	}
	defer to.Close()
	left := int64(maxCopiedAll)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(ignored.Stdout.Bytes()), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		n, err := copyFile(from, to, name, min(left, maxCopiedFile))
		if err != nil {
			return setupFailed(name+" could not be copied", err)
		}
		left -= n
	}
	return nil
}

// copyFile copies a regular file and returns its size. It skips other files and existing
// targets, and fails if the file has more than most bytes.
func copyFile(from, to *os.Root, name string, most int64) (int64, error) {
	info, err := from.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return 0, err
	}
	if info.Size() > most {
		return 0, errors.New("it is larger than 10 MiB, or all together than 64 MiB")
	}
	src, err := from.Open(name)
	if err != nil {
		return 0, err
	}
	defer src.Close()
	if err := to.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return 0, err
	}
	dst, err := to.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if errors.Is(err, fs.ErrExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(dst, io.LimitReader(src, most))
	return n, errors.Join(err, dst.Close())
}
