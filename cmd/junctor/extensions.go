package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/archive"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/operator"
	"github.com/junctor-run/junctor/internal/extensions/plan"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// extensionsCommand returns the commands about extensions. Those for authors need no server.
func (a *app) extensionsCommand() *cobra.Command {
	var dir string
	create := &cobra.Command{
		Example: `  junctor extensions new tools.notes --dir extensions
  junctor extensions check extensions/tools.notes`,
		Use: "new NAME", Short: "Create the folder of a new extension, complete as it is", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.newExtension(dir, args[0]) },
	}
	create.Flags().StringVar(&dir, "dir", ".", "`DIR` folder to write to")
	var strict bool
	check := &cobra.Command{
		Use: "check FILE.zip|DIR", Short: "Check a package and show what it asks for", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.checkExtension(cmd.Context(), args[0], strict) },
	}
	check.Flags().BoolVar(&strict, "strict", false, "treat warnings as errors")
	return a.group("extensions", "Manage extensions: packages of slash commands", append(a.installedCommands(), create, check)...)
}

// newExtension creates the folder of a new extension in dir.
func (a *app) newExtension(dir, name string) error {
	path, err := extension.Scaffold(dir, name, operator.ReservedCommand)
	if err != nil {
		return err
	}
	if a.json {
		return a.printObject(map[string]string{"path": path})
	}
	a.printf("%s\n\nCheck it with: junctor extensions check %s\n", path, path)
	return nil
}

// checkExtension validates a package like an installation, including the extraction of its files,
// without installing it, and prints the consent screen and warnings.
func (a *app) checkExtension(ctx context.Context, path string, strict bool) (err error) {
	tree, done, err := readPackage(path)
	if err != nil {
		return err
	}
	defer done()
	if tree, err = tree.Package(); err != nil {
		return err
	}
	hash, err := inflate(ctx, tree)
	if err != nil {
		return err
	}
	p, err := extension.Read(tree, extension.Rules{
		Strict: strict, OS: plan.PlatformOf(runtime.GOOS, runtime.GOARCH).OS, Version: version(), Reserved: operator.ReservedCommand,
	})
	if err != nil {
		return err
	}
	for _, name := range p.External() {
		if _, err := exec.LookPath(name); err != nil {
			p.Warnings = append(p.Warnings, "this machine has no program "+name+"; where the extension is to run, it must be there")
		}
	}
	screen := extension.NewScreen(p, hash, "folder", sandbox.T2.String(), nil)
	if a.json {
		return a.printObject(map[string]any{"ok": true, "consent": screen, "warnings": append([]string{}, p.Warnings...)})
	}
	a.printf("%s", screen.Text())
	for _, w := range p.Warnings {
		a.printf("\nwarning: %s\n", plainText(w))
	}
	return nil
}

// readPackage opens a zip file or a folder; done closes it.
func readPackage(path string) (tree *archive.Tree, done func(), err error) {
	const op = "extensions.check"
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, capability.Wrap(capability.CodeInvalidInput, op, "there is no such file or folder: "+plainText(path), err)
	}
	if info.IsDir() {
		root, err := os.OpenRoot(path)
		if err != nil {
			return nil, nil, capability.Wrap(capability.CodeInvalidInput, op, "the folder cannot be read", err)
		}
		tree, err = archive.ReadDir(root)
		return closing(tree, root, err)
	}
	f, err := os.Open(path) //nolint:gosec // the user's own file
	if err != nil {
		return nil, nil, capability.Wrap(capability.CodeInvalidInput, op, "the file cannot be read", err)
	}
	tree, err = archive.ReadZip(f, info.Size())
	return closing(tree, f, err)
}

// closing returns the tree and a function that closes its source. If err is not nil, it closes the
// source and returns the error.
func closing(tree *archive.Tree, source io.Closer, err error) (*archive.Tree, func(), error) {
	if err != nil {
		return nil, nil, errors.Join(err, source.Close())
	}
	return tree, func() { _ = source.Close() }, nil
}

// inflate extracts a tree to a temporary folder, to check that this is possible, and returns its
// hash.
func inflate(ctx context.Context, tree *archive.Tree) (hash string, err error) {
	dir, err := os.MkdirTemp("", "junctor-check-")
	if err != nil {
		return "", capability.Wrap(capability.CodeFailed, "extensions.check", "there is no room for a temporary folder", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", capability.Wrap(capability.CodeFailed, "extensions.check", "the temporary folder cannot be read", err)
	}
	defer root.Close()
	return tree.Extract(ctx, root)
}
