package main

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/base/yamljson"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

//go:embed templates/*.yaml
var ownTemplates embed.FS

const (
	templatesDir   = "templates"
	templateSuffix = ".yaml"
	readonlyPreset = "readonly"
	textValue      = "text" // value that the argument of tasks create gives
)

var (
	templateName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)
	holder       = regexp.MustCompile(`\{\{ *([a-z][a-z0-9_]*) *\}\}`)
)

// taskTemplate is a task whose texts have placeholders, such as {{text}}.
type taskTemplate struct {
	Description string            `json:"description"`
	Values      map[string]string `json:"values"` // defaults of placeholders
	Task        string            `json:"task"`
	Brief       string            `json:"brief"`
	Preset      string            `json:"preset"`
	Criteria    []string          `json:"criteria"`
	Parts       []struct {
		Label string   `json:"label"`
		Task  string   `json:"task"`
		Agent string   `json:"agent"`
		After []string `json:"after"`
	} `json:"parts"`
}

// templateFolder is a folder of templates.
type templateFolder struct {
	name    string
	open    func() (fs.FS, error)
	foreign bool // in a checkout, whose author is perhaps not the user
}

// templateFolders returns the folders of templates: that of the home, of the checkout, and of junctor.
// The first with a name counts.
func (a *app) templateFolders() (list []templateFolder) {
	rooted := func(dir string) func() (fs.FS, error) {
		return func() (fs.FS, error) {
			root, err := os.OpenRoot(dir)
			if err != nil {
				return nil, err
			}
			return rootFS{root}, nil
		}
	}
	if home, err := a.findHome(); err == nil {
		dir := filepath.Join(home, templatesDir)
		list = append(list, templateFolder{name: dir, open: rooted(dir)})
	}
	for dir, err := filepath.Abs("."); err == nil; dir = filepath.Dir(dir) {
		if _, missing := os.Lstat(filepath.Join(dir, ".git")); missing == nil {
			dir = filepath.Join(dir, ".junctor", templatesDir)
			list = append(list, templateFolder{dir, rooted(dir), true})
			break
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return append(list, templateFolder{name: "junctor", open: func() (fs.FS, error) { return fs.Sub(ownTemplates, templatesDir) }})
}

// rootFS is a folder whose links lead to no other, and whose pipes are not waited for.
type rootFS struct{ *os.Root }

func (r rootFS) Open(name string) (fs.File, error) {
	return r.OpenFile(name, os.O_RDONLY|hostfs.NonBlocking, 0)
}

func badTemplate(where, why string, err error) error {
	return capability.Wrap(capability.CodeInvalidInput, "", "the template "+where+" cannot be used: "+why, err).
		With("invalid_template", "docs/task-agents.md shows one")
}

// findTemplate reads the template with a name, and returns its text and file.
func (a *app) findTemplate(name string) (t taskTemplate, data []byte, where string, err error) {
	if templateName.MatchString(name) {
		for _, folder := range a.templateFolders() {
			t, data, err = readTemplate(folder, name)
			if !errors.Is(err, fs.ErrNotExist) {
				return t, data, filepath.Join(folder.name, name+templateSuffix), err
			}
		}
	}
	return t, nil, "", capability.Errorf(capability.CodeNotFound, "", "no template has the name %q", name).
		With("no_template", "see them with: junctor tasks templates")
}

func readTemplate(folder templateFolder, name string) (t taskTemplate, data []byte, err error) {
	files, err := folder.open()
	if err != nil {
		return t, nil, err
	}
	if c, ok := files.(io.Closer); ok {
		defer c.Close()
	}
	where := filepath.Join(folder.name, name+templateSuffix)
	f, err := files.Open(name + templateSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil, err
	}
	if err != nil {
		return t, nil, badTemplate(where, "it cannot be read", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxTemplate {
		return t, nil, badTemplate(where, "it is not a regular file of at most 64 KiB", err)
	}
	if data, err = io.ReadAll(io.LimitReader(f, maxTemplate)); err != nil {
		return t, nil, badTemplate(where, "it cannot be read", err)
	}
	doc, err := yamljson.ToJSON(data, "invalid_template")
	if err != nil {
		return t, nil, badTemplate(where, capability.AsError(err).Message, nil)
	}
	switch err := jsonx.UnmarshalStrict(doc, &t); {
	case err != nil:
		return t, nil, badTemplate(where, "its members are description, values, task, brief, preset, criteria and parts with label, task, agent and after", err)
	case t.Task == "" && len(t.Parts) == 0:
		return t, nil, badTemplate(where, "it has no task", nil)
	case folder.foreign && t.Preset != "" && t.Preset != readonlyPreset:
		return t, nil, badTemplate(where, "a template of a checkout may set the preset to readonly only; give --preset instead", nil)
	}
	return t, data, nil
}

// fill returns the request of a template with the values of its placeholders. agent is the program of
// the parts that name none.
func (t taskTemplate) fill(name, agent string, given map[string]string) (map[string]any, error) {
	values := maps.Clone(t.Values)
	if values == nil {
		values = map[string]string{}
	}
	maps.Copy(values, given)
	used := map[string]bool{}
	var missing []string
	filled := func(s string) string {
		return holder.ReplaceAllStringFunc(strings.TrimSpace(s), func(m string) string {
			key := holder.FindStringSubmatch(m)[1]
			used[key] = true
			if values[key] == "" && !slices.Contains(missing, key) {
				missing = append(missing, key)
			}
			return values[key]
		})
	}
	body := map[string]any{}
	setText(body, "task", filled(t.Task))
	setText(body, "brief", filled(t.Brief))
	setText(body, "approvalPreset", t.Preset)
	var criteria, after []string
	for _, c := range t.Criteria {
		criteria = append(criteria, filled(c))
	}
	if len(criteria) > 0 {
		body["acceptanceCriteria"] = criteria
	}
	var parts []map[string]any
	for _, p := range t.Parts {
		part := map[string]any{"task": filled(p.Task)}
		setText(part, "label", p.Label)
		setText(part, "agentType", p.Agent)
		if p.Agent == "" {
			setText(part, "agentType", agent)
		}
		parts = append(parts, part)
		if len(p.After) > 0 {
			after = append(after, p.Label+":"+strings.Join(p.After, ","))
		}
	}
	if err := addDependencies(parts, after); err != nil {
		return nil, badTemplate(name, "a part is after one that it does not have", err)
	}
	if len(parts) > 0 {
		body["agents"] = parts
	}
	for key := range given {
		if !used[key] {
			return nil, capability.Errorf(capability.CodeInvalidInput, "", "the template %s takes no %s", name, key).
				With("invalid_template_value", "see it with: junctor tasks templates "+name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "the template %s needs %s", name, strings.Join(missing, ", ")).
			With("invalid_template_value", "give the text as an argument, and other values as --set NAME=VALUE")
	}
	return body, nil
}

// fromTemplate returns the request that a template makes of the arguments of tasks create.
func (a *app) fromTemplate(name, agent string, args, set []string) (map[string]any, error) {
	t, _, where, err := a.findTemplate(name)
	if err != nil {
		return nil, err
	}
	given := map[string]string{}
	for _, s := range set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, capability.Errorf(capability.CodeInvalidInput, "", "%.100q is not NAME=VALUE", s).With("invalid_template_value", "")
		}
		given[key] = value
	}
	if len(args) == 1 {
		given[textValue] = args[0]
	}
	body, err := t.fill(name, agent, given)
	if err == nil && !a.quiet {
		fmt.Fprintf(a.stderr, "junctor: the template is %s\n", plainText(where))
	}
	return body, err
}

func (a *app) taskTemplatesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "templates [NAME]", Short: "List the templates of tasks, or print one", Args: cobra.MaximumNArgs(1),
		Long: `List the templates for junctor tasks create --template NAME, or print one. They are files
NAME.yaml in the folder templates of the home or .junctor/templates of the checkout.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				t, data, where, err := a.findTemplate(args[0])
				if err == nil && a.json {
					return a.printObject(map[string]any{"name": args[0], "file": where, "template": t})
				}
				if err == nil {
					a.printf("%s\n", strings.TrimRight(text.VisibleLines(string(data)), "\n"))
				}
				return err
			}
			return a.printTemplates()
		},
	}
}

// printTemplates lists all templates, also those that cannot be used, with the reason.
func (a *app) printTemplates() error {
	type row struct {
		Name        string `json:"name"`
		Folder      string `json:"folder"`
		Description string `json:"description"`
	}
	rows := []row{}
	for _, folder := range a.templateFolders() {
		files, err := folder.open()
		if err != nil {
			continue // most have none
		}
		entries, _ := fs.ReadDir(files, ".") // those that can be read
		if c, ok := files.(io.Closer); ok {
			_ = c.Close()
		}
		for _, e := range entries {
			name, ok := strings.CutSuffix(e.Name(), templateSuffix)
			if !ok || !templateName.MatchString(name) || slices.ContainsFunc(rows, func(r row) bool { return r.Name == name }) {
				continue
			}
			t, _, err := readTemplate(folder, name)
			if err != nil {
				t.Description = capability.AsError(err).Message
			}
			rows = append(rows, row{name, folder.name, t.Description})
		}
	}
	slices.SortFunc(rows, func(x, y row) int { return strings.Compare(x.Name, y.Name) })
	if a.json {
		return a.printObject(map[string]any{"templates": rows})
	}
	var cells [][]string
	for _, r := range rows {
		cells = append(cells, []string{r.Name, dash(r.Description), r.Folder})
	}
	return a.table([]string{"TEMPLATE", "WHAT IT DOES", "FROM"}, cells, "there are no templates")
}
