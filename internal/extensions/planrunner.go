package extensions

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/extensions/exec/tool"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/plan"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// programs implements [plan.Programs].
type programs struct{ *Service }

// Run runs a shell script of an install plan in the sandbox of the extension's programs,
// with the working folder writable. A PowerShell script is tool_not_found.
func (x programs) Run(ctx context.Context, p plan.Program) (plan.Outcome, error) {
	shell, args := "/bin/sh", []string{"-c", p.Script}
	if p.PowerShell {
		return plan.Outcome{}, fault.ToolNotFound("pwsh")
	}
	if _, err := os.Stat("/bin/bash"); err == nil {
		shell = "/bin/bash"
	}
	m, err := manifestIn(p.Package)
	if err != nil {
		return plan.Outcome{}, err
	}
	room := x.room(ctx, m, p.Package, cmp.Or(x.minTier, sandbox.T2), append(slices.Clone(p.Permissions), "filesystem.write"))
	room.Work = p.Work
	place, err := x.box.Place(room)
	if err != nil {
		return plan.Outcome{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	env := append([]string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + place.Work, "PWD=" + place.Work, "TMPDIR=/tmp", "LANG=C.UTF-8",
		"AGENTOS_EXTENSION_ID=" + p.Extension, "AGENTOS_WORK_DIR=" + place.Work,
	}, p.Env...)
	got, err := x.box.Run(ctx, sandbox.Spec{Path: shell, Args: args, Dir: room.Work, Env: env, MergeStderr: true}, room)
	return plan.Outcome{ExitCode: got.ExitCode, Output: tool.Clean(got.Stdout.Text(), nil)}, err
}

// manifestIn reads the manifest of a package directory that is not installed yet.
func manifestIn(dir string) (*extension.Manifest, error) {
	data, err := os.ReadFile(filepath.Join(dir, extension.ManifestFile))
	if err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "runner", "the package cannot be read", err)
	}
	m, _, err := extension.ParseManifest(data)
	return m, err
}

// Exists reports whether the extension's tools or the shared tool directories contain an
// executable of that name.
func (x programs) Exists(_ context.Context, id, name string) (bool, error) {
	for _, dir := range append([]string{filepath.Join(x.dir, id, "tools")}, x.toolDirs...) {
		if info, err := os.Stat(filepath.Join(dir, filepath.Base(name))); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return true, nil
		}
	}
	return false, nil
}
