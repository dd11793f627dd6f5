package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/archive"
)

const extensionsPath = "/api/v1/extensions"

// extensionRow is one installed extension of a list.
type extensionRow struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Enabled bool   `json:"enabled"`
	Status  string `json:"status"`
}

func (r *extensionRow) state() string {
	switch {
	case r.Status != "INSTALLED":
		return strings.ToLower(r.Status)
	case r.Enabled:
		return "enabled"
	}
	return "disabled"
}

// installedCommands returns the commands about the extensions that a server has installed.
func (a *app) installedCommands() []*cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List installed extensions and whether they may run", Args: cobra.NoArgs,
		RunE: shows(a, extensionsPath, a.printExtensions),
	}
	show := &cobra.Command{
		Use: "show ID", Short: "Show an extension: what it is, what it may do, and its guide", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.showExtension(cmd.Context(), args[0]) },
	}
	var force, agree bool
	install := &cobra.Command{
		Use: "install FILE.zip|DIR", Short: "Install or upgrade a package; its commands run once it is enabled", Args: cobra.ExactArgs(1),
		Long: `Install or upgrade a package. If a step of it runs a program or downloads a file, the
package is shown first; you agree at the terminal, or with --yes. Where there is neither,
nothing runs and the exit status is 3.`,
		Example: `  junctor extensions install ./tools.notes
  junctor extensions enable tools.notes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := packed(args[0])
			if err != nil {
				return err
			}
			return a.install(cmd.Context(), agree, func(agreed string) error {
				path := extensionsPath + "/install?force=" + strconv.FormatBool(force) + "&agreed=" + url.QueryEscape(agreed)
				return a.call(cmd.Context(), http.MethodPost, path, data, decoded(a.printInstalled))
			})
		},
	}
	install.Flags().BoolVar(&force, "force", false, "also when the installed version is higher")
	install.Flags().BoolVar(&agree, "yes", false, yesHelp)
	var address struct {
		URL    string `json:"url"`
		SHA256 string `json:"sha256,omitempty"`
		Force  bool   `json:"force,omitempty"`
		Agreed string `json:"agreed,omitempty"`
	}
	fromURL := &cobra.Command{
		Use: "install-url URL", Short: "Install or upgrade a package from an https address", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			address.URL = args[0]
			return a.install(cmd.Context(), agree, func(agreed string) error {
				address.Agreed = agreed
				return a.call(cmd.Context(), http.MethodPost, extensionsPath+"/install-url", address, decoded(a.printInstalled))
			})
		},
	}
	fromURL.Flags().StringVar(&address.SHA256, "sha256", "", "`HASH` refuse it unless it has this SHA-256")
	fromURL.Flags().BoolVar(&address.Force, "force", false, "also when the installed version is higher")
	fromURL.Flags().BoolVar(&agree, "yes", false, yesHelp)
	var yes bool
	var visible []string
	enable := &cobra.Command{
		Use: "enable ID", Short: "Enable an extension, after showing what it asks for", Args: cobra.ExactArgs(1),
		Long: `Enable an extension. What it asks for is shown first; you agree at the terminal, or
with --yes. Where there is neither, nothing is enabled and the exit status is 3.`,
		Example: `  junctor extensions enable tools.notes --yes --agent-visible notes.say`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.enableExtension(cmd.Context(), args[0], yes, visible)
		},
	}
	enable.Flags().BoolVar(&yes, "yes", false, "say yes to whatever you are asked")
	enable.Flags().StringSliceVar(&visible, "agent-visible", nil,
		"`ACTION` actions that agents may call: all, or COMMAND.ACTION (comma-separated)")
	var kill bool
	disable := &cobra.Command{
		Use: "disable ID", Short: "Disable an extension: later calls are refused", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := extensionsPath + "/" + url.PathEscape(args[0]) + "/disable?kill=" + strconv.FormatBool(kill)
			return a.call(cmd.Context(), http.MethodPost, path, nil, a.done("disabled %s\n", args[0]))
		},
	}
	disable.Flags().BoolVar(&kill, "kill", false, "also end the calls that run now")
	var keep bool
	uninstall := &cobra.Command{
		Use: "uninstall ID", Short: "Uninstall an extension with its files and settings", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := extensionsPath + "/" + url.PathEscape(args[0]) + "?keep_work=" + strconv.FormatBool(keep)
			return a.call(cmd.Context(), http.MethodDelete, path, nil, a.done("uninstalled %s\n", args[0]))
		},
	}
	uninstall.Flags().BoolVar(&keep, "keep-work", false, "keep its working folder in extensions/.trash of the home")
	doctor := &cobra.Command{
		Use: "doctor", Short: "Check installed extensions and say what to do about each fault", Args: cobra.NoArgs,
		Long: "Check installed extensions and say what to do about each fault. The exit status is 1 if\none is broken.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var raw json.RawMessage
			if err := a.do(cmd.Context(), http.MethodGet, extensionsPath+"/doctor", nil, &raw); err != nil {
				return err
			}
			return a.printFindings(raw)
		},
	}
	return []*cobra.Command{list, show, install, fromURL, enable, disable, uninstall, doctor}
}

func (a *app) printExtensions(out struct{ Extensions []extensionRow }) error {
	var rows [][]string
	for _, x := range out.Extensions {
		rows = append(rows, []string{x.ID, x.Name, x.state(), x.Version})
	}
	return a.table([]string{"ID", "NAME", "STATE", "VERSION"}, rows,
		"no extension is installed; install one with: junctor extensions install FILE.zip|DIR")
}

func (a *app) printInstalled(rec struct {
	Extension string `json:"extension_id"`
	Operation string `json:"operation"`
	Step      string `json:"current_step"`
},
) error {
	if rec.Step == "nothing to do" {
		a.printf("%s is installed already, just so\n", plainText(rec.Extension))
		return nil
	}
	a.printf("%s of %s done\n\nSee what it asks for, and let it run: junctor extensions enable %s\n", plainText(rec.Operation),
		plainText(rec.Extension), plainText(rec.Extension))
	return nil
}

// install calls do. If the package acts while it is installed, install prints what it does, asks at
// the terminal, unless yes is set, and calls do again with the hash of what was shown.
func (a *app) install(ctx context.Context, yes bool, do func(agreed string) error) error {
	err := do("")
	e := capability.AsError(err)
	if e == nil || e.Code != capability.CodeApprovalRequired {
		return err
	}
	hash, _ := e.Details["tree_hash"].(string)
	if text, _ := e.Details["text"].(string); !a.json {
		a.printf("%s\n", plainLines(text))
	}
	if !yes && terminal(a.stdin) && !a.json {
		a.printf("Agree? [y/N] ")
		yes = a.agrees(ctx)
	}
	if hash == "" || !yes {
		return err
	}
	return do(hash)
}

// printFindings prints the findings about installed extensions, and returns exit status 1 if an
// extension is broken.
func (a *app) printFindings(raw json.RawMessage) error {
	out, err := decode[struct {
		Findings []struct {
			Code, Message, Hint string
			Extension           string `json:"extension_id"`
			Broken              bool
		}
	}](raw)
	if err != nil {
		return err
	}
	bad := exitStatus(0)
	var rows [][]string
	for _, f := range out.Findings {
		state := "odd"
		if f.Broken {
			state, bad = "broken", exitStatus(1)
		}
		rows = append(rows, []string{f.Extension, state, f.Code, f.Message, f.Hint})
	}
	if a.json {
		err = a.printJSON(raw)
	} else {
		err = a.table([]string{"ID", "STATE", "CODE", "MESSAGE", "REMEDY"}, rows, "nothing is wrong with the installed extensions")
	}
	if err == nil && bad != 0 {
		return bad
	}
	return err
}

// screenOf requests the consent screen of an extension: its hash, its text, and whether it requires
// consent.
func (a *app) screenOf(ctx context.Context, id string, visible []string) (hash, text string, asks bool, err error) {
	path := extensionsPath + "/" + url.PathEscape(id) + "/screen"
	if len(visible) > 0 {
		path += "?agent_visible=" + url.QueryEscape(strings.Join(visible, ","))
	}
	var out struct {
		Screen struct {
			TreeHash string `json:"tree_hash"`
		} `json:"screen"`
		Text string `json:"text"`
		Asks bool   `json:"asks"`
	}
	err = a.do(ctx, http.MethodGet, path, nil, &out)
	return out.Screen.TreeHash, out.Text, out.Asks, err
}

// enableExtension prints the consent screen of an extension and asks the user, unless yes is set. It
// then requests to enable the extension, with the hash of the screen if the user agreed; without a
// required consent the server refuses.
func (a *app) enableExtension(ctx context.Context, id string, yes bool, visible []string) error {
	hash, text, asks, err := a.screenOf(ctx, id, visible)
	if err != nil {
		return err
	}
	if asks && !a.json {
		a.printf("%s\n", text)
	}
	if asks && !yes && terminal(a.stdin) && !a.json {
		a.printf("Agree? [y/N] ")
		yes = a.agrees(ctx)
	}
	body := map[string]any{}
	if yes || !asks {
		body["tree_hash"] = hash
	}
	if len(visible) > 0 {
		body["agent_visible"] = visible
	}
	return a.call(ctx, http.MethodPost, extensionsPath+"/"+url.PathEscape(id)+"/enable", body, a.done("enabled %s\n", id))
}

func (a *app) showExtension(ctx context.Context, id string) error {
	return a.call(ctx, http.MethodGet, extensionsPath+"/"+url.PathEscape(id), nil, decoded(func(x struct {
		extensionRow
		Usage   string `json:"usage"`
		Problem string `json:"problem"`
	},
	) error {
		a.printf("%s %s (%s)\n", plainText(x.Name), plainText(x.Version), x.state())
		if x.Problem != "" {
			a.printf("problem: %s\n", plainText(x.Problem))
		}
		_, text, _, err := a.screenOf(ctx, id, nil)
		if err != nil && capability.CodeOf(err) != capability.CodeDenied { // the screen requires the operator role
			return err
		}
		a.printf("\n%s\n", text)
		for line := range strings.Lines(x.Usage) {
			a.printf("%s\n", plainText(strings.TrimRight(line, "\r\n")))
		}
		return nil
	}))
}

// packed returns a package as a zip file: the file's content, or a folder packed after validation.
func packed(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "extensions.install", "there is no such file or folder: "+plainText(path), err)
	}
	if info.Size() > archive.MaxBytes {
		return nil, capability.Errorf(capability.CodeTooLarge, "extensions.install", "the package has more than %d MiB", archive.MaxBytes>>20)
	}
	if !info.IsDir() {
		data, err := os.ReadFile(path) //nolint:gosec // the user's own file
		return data, err
	}
	tree, done, err := readPackage(path) // so that an invalid package is reported here
	if err != nil {
		return nil, err
	}
	defer done()
	root := os.DirFS(path)
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, m := range tree.Members() {
		h := &zip.FileHeader{Name: m.Path, Method: zip.Deflate}
		mode := fs.FileMode(0o644)
		if m.Executable {
			mode = 0o755
		}
		h.SetMode(mode)
		to, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		data, err := fs.ReadFile(root, m.Path)
		if err != nil {
			return nil, capability.Wrap(capability.CodeInvalidInput, "extensions.install", plainText(m.Path)+" cannot be read", err)
		}
		if _, err := to.Write(data); err != nil {
			return nil, err
		}
		if buf.Len() > archive.MaxBytes {
			return nil, capability.Errorf(capability.CodeTooLarge, "extensions.install", "the package has more than %d MiB", archive.MaxBytes>>20)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
