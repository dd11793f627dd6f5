package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/setup/declared"
)

// applyCommand is a command of home, because the files that it applies are in the home and declare
// more than MCP servers.
func (a *app) applyCommand() *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use: "apply [FOLDER]", Short: "Apply the files of config.d, which declare MCP servers and endpoints", Args: cobra.MaximumNArgs(1),
		Long: `Make the MCP servers, HTTP APIs, A2A agents and endpoints of the server what the files
config.d/*.yaml in its home declare: add, change and remove them. The server does the
same at its start, and a moment after a file changes.

With --dry-run nothing is changed, and the changes are shown. A FOLDER, such as a
checkout of git, is compared in place of config.d. The exit status is 5 if an object
could not be applied; the others are.`,
		Example: `  junctor apply --dry-run
  junctor apply --dry-run ~/src/junctor-config`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req := declared.Request{DryRun: dry}
			if len(args) == 1 {
				if !dry {
					return capability.Errorf(capability.CodeInvalidInput, "", "a folder can only be compared: give --dry-run").
						With("", "to apply its files, put them into config.d of the server's home")
				}
				var err error
				if req.Files, err = declarations(args[0]); err != nil {
					return err
				}
			}
			var raw json.RawMessage
			if err := a.do(cmd.Context(), http.MethodPost, "/api/v1/apply", req, &raw); err != nil {
				return err
			}
			out, err := decode[declared.Result](raw)
			if err != nil {
				return err
			}
			return a.printApplied(raw, out)
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "show what would be added, changed and removed, and change nothing")
	return c
}

// declarations returns the files of a folder, which are compared with the server's objects.
func declarations(dir string) ([]declared.File, error) {
	files, err := declared.Folder(dir).Read()
	if err == nil && files == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		code := capability.CodeInvalidInput
		if errors.Is(err, fs.ErrNotExist) {
			code = capability.CodeNotFound
		}
		return nil, capability.Wrap(code, "apply", "the folder "+dir+" cannot be used: "+err.Error(), err).
			With("", "name a folder with at most 100 files *.yaml")
	}
	out := make([]declared.File, len(files)) // not nil: an empty folder declares nothing
	for i, f := range files {
		out[i] = declared.File{Name: f.Name, Text: string(f.Text)}
	}
	return out, nil
}

func (a *app) printApplied(raw json.RawMessage, out declared.Result) (err error) {
	var rows [][]string
	failed, kept := false, 0
	for _, r := range out.Rows {
		failed = failed || r.Action == declared.Error
		if r.Action == declared.Keep {
			kept++
		}
		rows = append(rows, []string{r.Name, r.Kind, r.Action, r.File, dash(r.Detail)})
	}
	if a.json {
		err = a.printJSON(raw)
	} else {
		err = a.table([]string{"NAME", "KIND", "ACTION", "FILE", "DETAIL"}, rows, "no file declares anything")
	}
	switch {
	case err != nil:
		return err
	case failed:
		return exitStatus(capability.CodeUnavailable.Row().Exit)
	case len(rows) > 0 && kept == len(rows):
		a.note("nothing to change")
	}
	return nil
}

// managedRow is the file that declares an object; nil if a user added it.
type managedRow struct{ File string }

// managedColumn adds the column MANAGED BY before the last one of a list, if a file declares one of
// its objects.
func managedColumn(head []string, rows [][]string, by []*managedRow) ([]string, [][]string) {
	if !slices.ContainsFunc(by, func(m *managedRow) bool { return m != nil }) {
		return head, rows
	}
	for i, m := range by {
		file := "-"
		if m != nil {
			file = m.File
		}
		rows[i] = slices.Insert(rows[i], len(rows[i])-1, file)
	}
	return slices.Insert(head, len(head)-1, "MANAGED BY"), rows
}
