package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command"
)

// helpWidth is the width of the help in columns.
const helpWidth = 100

// helpOf returns the help of a command: its description, usage, subcommands, examples and flags, the
// rare ones only with all. It does not use a template, because linking the template engine makes the linker keep all methods of
// all types, which adds 4 MiB.
func helpOf(c *cobra.Command, groups []commandGroup, all bool) string {
	var b strings.Builder
	about := c.Long
	about = cmp.Or(about, c.Short)
	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s\n", strings.TrimRight(about, "\n"), c.UseLine())
	if len(c.Aliases) > 0 {
		fmt.Fprintf(&b, "\nAlso spelled:\n  %s\n", strings.Join(c.Aliases, ", "))
	}
	if !c.HasParent() {
		for _, g := range groups {
			listCommands(&b, g.title, g.commands)
		}
	} else {
		listCommands(&b, "Commands", c.Commands())
	}
	if c.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", strings.TrimRight(c.Example, "\n"))
	}
	own, global := flagsOf(c)
	common := own
	if !all {
		common = slices.DeleteFunc(slices.Clone(own), func(f *pflag.Flag) bool { return f.Annotations[annotationRare] != nil })
	}
	listFlags(&b, "Flags", common)
	if n := len(own) - len(common); n > 0 {
		fmt.Fprintf(&b, "\n%d more flags, for rarer cases: junctor help%s --all\n", n, strings.TrimPrefix(c.CommandPath(), c.Root().Name()))
	}
	if c.HasParent() {
		fmt.Fprintf(&b, "\nEvery command also takes --home, --server, --token, --quiet, --output and --json: see junctor --help\n")
	} else {
		listFlags(&b, "Flags of every command", global)
		fmt.Fprint(&b, exitStatuses)
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nMore about a command: %s COMMAND --help\n", c.CommandPath())
	}
	return b.String()
}

// exitStatuses is the part of the help about exit statuses.
const exitStatuses = `
Exit status:
  0  done
  1  the work failed
  2  wrong usage or invalid input
  3  denied, or an approval is needed
  4  not found
  5  unavailable, timed out, or no server runs

Completion of commands and flags: source <(junctor completion bash)
`

func listCommands(b *strings.Builder, title string, commands []*cobra.Command) {
	width, any := 0, false
	for _, c := range commands {
		if c.IsAvailableCommand() {
			width, any = max(width, len(c.Name())), true
		}
	}
	if !any {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	for _, c := range commands {
		if c.IsAvailableCommand() {
			fmt.Fprintf(b, "  %-*s  %s\n", width, c.Name(), c.Short)
		}
	}
}

// flagsOf returns the flags in the help: those of the command and its parents, and the global ones.
func flagsOf(c *cobra.Command) (own, global []*pflag.Flag) {
	everywhere := c.Root().PersistentFlags()
	c.InitDefaultHelpFlag()
	add := func(f *pflag.Flag) {
		switch {
		case f.Hidden || f.Name == "help":
		case everywhere.Lookup(f.Name) == f:
			global = append(global, f)
		default:
			own = append(own, f)
		}
	}
	c.LocalFlags().VisitAll(add)
	if c.HasParent() {
		c.InheritedFlags().VisitAll(add)
	}
	return own, global
}

func listFlags(b *strings.Builder, title string, flags []*pflag.Flag) {
	if len(flags) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	heads, width := make([]string, len(flags)), 0
	for i, f := range flags {
		heads[i] = "--" + f.Name
		if f.Shorthand != "" {
			heads[i] = "-" + f.Shorthand + ", " + heads[i]
		}
		if takes := placeholder(f); takes != "" {
			heads[i] += " " + takes
		}
		width = max(width, len(heads[i]))
	}
	for i, f := range flags {
		text := f.Usage
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" && f.DefValue != "0s" {
			text += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(b, "  %-*s  %s\n", width, heads[i], wrapped(text, helpWidth-width-4, width+4))
	}
}

// wrapped breaks a text at words; further lines are indented.
func wrapped(text string, width, indent int) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case column+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

// annotationRare is the annotation of a flag that only the whole help shows.
const annotationRare = "rare"

// rare marks flags of a command that has too many to be read on one screen.
func rare(c *cobra.Command, names ...string) {
	for _, name := range names {
		_ = c.Flags().SetAnnotation(name, annotationRare, []string{"true"}) // the flag was added just before
	}
}

// annotationPlaceholder is the annotation of a flag that holds its placeholder.
const annotationPlaceholder = "placeholder"

// setPlaceholders moves the backquoted word that begins a flag's usage into an
// annotation, so that help, errors and completions show the sentence behind it.
func setPlaceholders(c *cobra.Command) {
	set := func(f *pflag.Flag) {
		name, usage := pflag.UnquoteUsage(f)
		if usage == f.Usage {
			return
		}
		f.Usage = strings.TrimPrefix(usage, name+" ")
		if f.Annotations == nil {
			f.Annotations = make(map[string][]string, 1)
		}
		f.Annotations[annotationPlaceholder] = []string{name}
	}
	c.Flags().VisitAll(set)
	c.PersistentFlags().VisitAll(set)
	for _, sub := range c.Commands() {
		setPlaceholders(sub)
	}
}

// placeholder returns the name of a flag's value, or "" for a switch.
func placeholder(f *pflag.Flag) string {
	if name := f.Annotations[annotationPlaceholder]; name != nil {
		return name[0]
	}
	switch f.Value.Type() {
	case "bool":
		return ""
	case "int", "int64", "float64":
		return "N"
	case "duration":
		return "DURATION"
	}
	return "VALUE"
}

// help shows the help of the command that its arguments name.
func (a *app) helpCommand(groups []commandGroup) *cobra.Command {
	all := false
	c := &cobra.Command{
		Use: "help [COMMAND]...", Short: "Show the help of a command", Args: cobra.ArbitraryArgs,
		Example: `  junctor help invoke
  junctor help mcp add --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return a.noVerb(of, rest)
			}
			_, err = io.WriteString(a.stdout, helpOf(of, groups, all))
			return err
		},
	}
	c.Flags().BoolVar(&all, "all", false, "list the flags for rare cases too")
	return c
}

// completionCommand returns the library's command with other texts.
func (a *app) completionCommand(root *cobra.Command) *cobra.Command {
	root.InitDefaultCompletionCmd()
	c, _, err := root.Find([]string{"completion"})
	if err != nil {
		panic(err) // the command was added just before
	}
	c.Use, c.Short, c.Args, c.RunE = "completion COMMAND", "Print the completion script of a shell", cobra.ArbitraryArgs, a.noVerb
	c.Example = "  source <(junctor completion bash)"
	for _, shell := range c.Commands() {
		shell.Short = "Print the completion script of " + shell.Name()
		if no := shell.Flags().Lookup("no-descriptions"); no != nil {
			no.Usage = "leave the descriptions out"
		}
	}
	return c
}

// wrongFlag converts an error of the flag parser to a capability error with a hint.
func wrongFlag(c *cobra.Command, err error) error {
	wrong := func(format string, args ...any) error {
		return capability.Errorf(capability.CodeInvalidInput, "", format, args...)
	}
	switch e := err.(type) { //nolint:errorlint // the parser returns them unwrapped
	case *pflag.NotExistError:
		name := "--" + e.GetSpecifiedName()
		if e.GetSpecifiedShortnames() != "" {
			name = "-" + e.GetSpecifiedName()
		}
		return capability.Errorf(capability.CodeInvalidInput, "", "%s has no flag %s", c.CommandPath(), plainText(name)).With("",
			nearFlag(c, e.GetSpecifiedName()))
	case *pflag.ValueRequiredError:
		return wrong("--%s needs a value: %s", e.GetFlag().Name, placeholder(e.GetFlag()))
	case *pflag.InvalidValueError:
		what := "what belongs there"
		switch e.GetFlag().Value.Type() {
		case "trust":
			what = "ask, yes or no"
		case "output":
			what = "table, wide or json"
		case "int", "int64", "uint":
			what = "a whole number"
		case "float64":
			what = "a number"
		case "duration":
			what = "a duration such as 30s"
		case "bool":
			what = "true or false"
		}
		return wrong("--%s takes %s, and %.100q is not", e.GetFlag().Name, what, e.GetValue())
	case *pflag.InvalidSyntaxError:
		return wrong("%.100q is not a flag; a flag is written --name or --name=value", e.GetSpecifiedFlag())
	}
	return err
}

func (a *app) showHelp(groups []commandGroup) func(*cobra.Command, []string) {
	return func(c *cobra.Command, _ []string) { _, _ = io.WriteString(a.stdout, helpOf(c, groups, false)) }
}

// nearFlag returns a hint with the flags that are similar to typed.
func nearFlag(c *cobra.Command, typed string) string {
	var names []string
	own, global := flagsOf(c)
	for _, f := range append(own, global...) {
		names = append(names, f.Name)
	}
	if near := command.Nearest(typed, names); len(near) > 0 {
		return "did you mean: --" + strings.Join(near, " or --")
	}
	return "see: " + c.CommandPath() + " --help"
}

// missingFlag returns a required flag of a command that was not given, or nil.
func missingFlag(c *cobra.Command) (missing *pflag.Flag) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if missing == nil && !f.Changed && len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0 {
			missing = f
		}
	})
	return missing
}

// alsoSpelled lets the older spelling of a flag work as before.
func alsoSpelled(c *cobra.Command, older, name string) {
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, given string) pflag.NormalizedName {
		if given == older {
			return pflag.NormalizedName(name)
		}
		return pflag.NormalizedName(given)
	})
}
