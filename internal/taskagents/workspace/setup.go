package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/yamljson"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/secret"
)

// SetupFile is the file of a checkout that describes its [Setup], in YAML.
const SetupFile = ".junctor/task.yaml"

// Setup is what the worktrees of a repository need before an agent starts. The user who starts a
// task agrees to it.
type Setup struct {
	// Copy has patterns, in the syntax of .gitignore, of ignored files such as .env that are copied
	// from the checkout.
	Copy []string `json:"copy,omitempty"`
	// Run has command lines for sh, which run in the worktree one after the other, confined: they see
	// the system, the worktree, a temporary home, and the paths of Read and Write, which may begin
	// with ~/. They may use the network.
	Run   []string `json:"run,omitempty"`
	Read  []string `json:"read,omitempty"`
	Write []string `json:"write,omitempty"`
	// Minutes is the timeout of each command; 0 means 10.
	Minutes int `json:"minutes,omitempty"`
	// Checks has command lines for sh that check whether the work is done. They run as the server's
	// user, as agents do.
	Checks []string `json:"checks,omitempty"`

	// Text is the content of the file, and Digest its SHA-256 in hex.
	Text   string `json:"text,omitempty"`
	Digest string `json:"digest,omitempty"`
}

// SetupStep is the result of a command of a Setup.
type SetupStep struct {
	Command string  `json:"command"`
	Exit    int     `json:"exit"`
	Output  string  `json:"output"` // its end
	Seconds float64 `json:"seconds"`
}

// Box runs commands confined.
type Box interface {
	Facts() sandbox.Facts
	Permits(c sandbox.Confinement) error
	Run(ctx context.Context, spec sandbox.Spec, c sandbox.Confinement) (sandbox.Result, error)
}

// ReasonSetupFailed is the reason of the error of a setup that failed.
const ReasonSetupFailed = "setup_failed"

func setupFailed(what string, err error) *capability.Error {
	return capability.Wrap(capability.CodeFailed, "workspace.setup", "the workspace could not be prepared: "+what, err).With(ReasonSetupFailed,
		"correct "+SetupFile+", or leave the setup out: junctor tasks create --no-setup")
}

// SetupOf reads the setup of a user's checkout, or returns nil if it has none. It fails with
// invalid_input, reason invalid_setup.
func (m *Manager) SetupOf(s Source) (*Setup, error) {
	bad := func(what string, err error) (*Setup, error) {
		return nil, capability.Wrap(capability.CodeInvalidInput, "workspace.setup", SetupFile+" cannot be used: "+what, err).With("invalid_setup",
			"docs/task-agents.md shows one")
	}
	root, err := os.OpenRoot(s.Path)
	if err != nil {
		return bad("the checkout cannot be read", err)
	}
	defer root.Close()
	file, err := root.OpenFile(SetupFile, os.O_RDONLY|hostfs.NonBlocking, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return bad("it cannot be read", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxSetupFile {
		return bad("it is not a regular file of at most 16 KiB", err)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxSetupFile))
	if err != nil {
		return bad("it cannot be read", err)
	}
	doc, err := yamljson.ToJSON(data, "invalid_setup")
	if err != nil {
		return bad(capability.AsError(err).Message, nil)
	}
	out := &Setup{}
	if err := jsonx.UnmarshalStrict(doc, out); err != nil || out.Digest != "" || out.Text != "" {
		return bad("its members are copy, run, read, write, checks (lists of texts) and minutes", err)
	}
	for _, list := range [][]string{out.Copy, out.Run, out.Read, out.Write, out.Checks} {
		if len(list) > maxSetupList || slices.Contains(list, "") {
			return bad(fmt.Sprintf("a list has at most %d entries, and none is empty", maxSetupList), nil)
		}
	}
	if out.Minutes < 0 || out.Minutes > maxMinutes {
		return bad(fmt.Sprintf("minutes is a number from 1 to %d", maxMinutes), nil)
	}
	sum := sha256.Sum256(data)
	out.Text, out.Digest = string(data), hex.EncodeToString(sum[:])
	return out, nil
}

// setUp copies the files of a setup to the worktree of a part and runs its commands, whose results
// are in w.Setup. It fails with reason setup_failed, with the last output in details.output, and with
// unavailable, reason sandbox_unavailable.
func (m *Manager) setUp(ctx context.Context, w *Workspace, s *Setup) error {
	var wanted []string
	for _, pattern := range s.Copy {
		wanted = append(wanted, "--exclude="+pattern)
	}
	git := func(args ...string) (sandbox.Result, error) { return m.inSource(ctx, *w.Source, args...) }
	if err := copyIgnored(w.Source.Path, w.Path, wanted, git); err != nil || len(s.Run) == 0 {
		return err
	}
	if m.cfg.Box == nil {
		return capability.Errorf(capability.CodeUnavailable, "workspace.setup", "this server has no sandbox for the setup").
			With("sandbox_unavailable", "see: junctor debug sandbox status; or leave the setup out: junctor tasks create --no-setup")
	}
	c := sandbox.Confinement{
		MinTier: sandbox.T2, Network: sandbox.NetworkRaw, Work: w.Path, OwnPath: true, Home: true, Limits: sandbox.ServiceLimits(),
	}
	c.Limits.Memory, c.Limits.Disk, c.Limits.Temp, c.Limits.FileSize = 4<<30, 16<<30, 4<<30, 4<<30
	c.Limits.Processes, c.Limits.OpenFiles = 2048, 8192
	var err error
	if c.ReadOnly, err = named(s.Read); err == nil {
		c.ReadWrite, err = named(s.Write)
	}
	if err == nil {
		err = m.cfg.Box.Permits(c)
	}
	if err != nil {
		return setupFailed("a folder of read or write cannot be given to it", err)
	}
	defer func() {
		if m.cfg.Box.Facts().Root {
			giveBack(w.Path) // the sandbox gave it to the user of the commands
		}
	}()
	for _, line := range s.Run {
		if err := m.setupStep(ctx, w, s, c, line); err != nil {
			return err
		}
	}
	return nil
}

// setupStep runs one command of a setup.
func (m *Manager) setupStep(ctx context.Context, w *Workspace, s *Setup, c sandbox.Confinement, line string) error {
	wait := setupTimeout
	if s.Minutes > 0 {
		wait = time.Duration(s.Minutes) * time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	env := slices.DeleteFunc(sandbox.Environment(), func(kv string) bool { return strings.HasPrefix(kv, "HOME=") })
	result, err := m.cfg.Box.Run(ctx, sandbox.Spec{
		Path: "/bin/sh", Args: []string{"-c", `HOME="${TMPDIR:-/tmp}" exec /bin/sh -c "$1"`, "setup", line}, Env: env,
		MergeStderr: true, StdoutLimit: 1 << 20,
	}, c)
	output := secret.MaskTokens(strings.ToValidUTF8(result.Stdout.Text(), "\uFFFD"))
	step := SetupStep{
		Command: line, Exit: result.ExitCode, Output: strings.ToValidUTF8(output[max(0, len(output)-maxSetupOutput):], ""),
		Seconds: result.Ended.Sub(result.Started).Seconds(),
	}
	w.Setup = append(w.Setup, step)
	switch {
	case err != nil:
		return setupFailed("the command "+line+" was stopped or did not start", err).Detail("output", step.Output)
	case result.ExitCode != 0:
		return setupFailed("the command "+line+" failed", nil).Detail("exit_code", result.ExitCode).Detail("output", step.Output)
	}
	return nil
}

// named returns the real paths of a setup's list.
func named(list []string) (out []string, err error) {
	for _, path := range list {
		if below, ok := strings.CutPrefix(path, "~/"); ok {
			home, err := os.UserHomeDir()
			if err != nil {
				return nil, err
			}
			path = filepath.Join(home, below)
		}
		if !filepath.IsAbs(path) {
			return nil, errors.New(path + " is not an absolute path")
		}
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, err
		}
		out = append(out, real)
	}
	return out, nil
}

// copyIncluded copies the ignored files of a clone to a worktree beside it that its file
// .worktreeinclude names.
func (m *Manager) copyIncluded(ctx context.Context, w, parent Workspace) error {
	const included = ".worktreeinclude"
	if info, err := os.Lstat(filepath.Join(parent.Path, included)); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	git := func(args ...string) (sandbox.Result, error) { return m.run(ctx, parent, args) }
	return copyIgnored(parent.Path, w.Path, []string{"--exclude-from=" + included}, git)
}

// copyIgnored copies the files of a checkout that the patterns of wanted select and that git ignores.
// git, which runs there, evaluates both conditions.
func copyIgnored(source, target string, wanted []string, git func(args ...string) (sandbox.Result, error)) error {
	if len(wanted) == 0 {
		return nil
	}
	matching, err := git(append([]string{"ls-files", "-z", "--others", "--ignored"}, wanted...)...)
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
	ignored, err := git(both...)
	if err != nil {
		return setupFailed("the list of files to copy cannot be read", err)
	}
	from, err := os.OpenRoot(source)
	if err != nil {
		return setupFailed("the checkout cannot be read", err)
	}
	defer from.Close()
	to, err := os.OpenRoot(target)
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
