package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	tty "golang.org/x/term"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/server"
	"github.com/junctor-run/junctor/secret"
)

// app holds what all commands share: streams, environment and global flags.
type app struct {
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer
	environ []string

	home, server, token string
	json, wide, quiet   bool
	version             bool // of the root command only
}

// execute runs one command line, prints its error if it fails, and returns the exit status.
func (a *app) execute(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if done, ok := errors.AsType[exitStatus](err); ok {
		return int(done)
	}
	// If parsing stopped early, --json may follow later in the line.
	a.json = a.json || asksForJSON(args)
	e, ok := errors.AsType[*capability.Error](err)
	if !ok {
		// Errors of cobra and of flag parsing are always wrong usage.
		e = capability.Errorf(capability.CodeInvalidInput, "", "%s", err.Error())
	}
	a.report(cmd, e, !ok)
	if ctx.Err() != nil && e.Code == capability.CodeCancelled {
		return 130
	}
	return e.Code.Row().Exit
}

func asksForJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.ContainsFunc(args, func(arg string) bool {
		return slices.Contains([]string{"--json", "--json=true", "--output=json", "-o=json", "-ojson"}, arg)
	}) || slices.Contains([]string{"-o", "--output"}, before(args, "json"))
}

// before returns the argument before the first that is word, or "".
func before(args []string, word string) string {
	if i := slices.Index(args, word); i > 0 {
		return args[i-1]
	}
	return ""
}

// outputFlag is the flag that selects how a command prints.
type outputFlag struct{ app *app }

func (outputFlag) String() string { return "" }
func (outputFlag) Type() string   { return "output" }

// Set implements pflag.Value.
func (o outputFlag) Set(format string) error {
	if !slices.Contains(outputFormats(), format) {
		return fmt.Errorf("%q is not an output", format)
	}
	o.app.json, o.app.wide = format == "json", format == "wide"
	return nil
}

func outputFormats() []string { return []string{"table", "wide", "json"} }

// exitStatus is the error of a command whose output already describes the failure. It sets the
// exit status and prints nothing.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// report prints an error: as JSON on standard output with --json, otherwise on standard error with
// its hint and, for wrong usage or input, the usage line.
func (a *app) report(cmd *cobra.Command, e *capability.Error, usage bool) {
	if a.json {
		data, err := json.Marshal(map[string]any{"error": e})
		if err == nil {
			fmt.Fprintln(a.stdout, string(data))
			return
		}
	}
	fmt.Fprintf(a.stderr, "junctor: %s\n", e.Message)
	if lines, ok := e.Details["stderr"].(string); ok && lines != "" {
		fmt.Fprintf(a.stderr, "\nIts program wrote:\n")
		for line := range strings.Lines(lines) {
			fmt.Fprintf(a.stderr, "  %s\n", plainText(strings.TrimRight(line, "\r\n")))
		}
	}
	if e.Hint != "" {
		fmt.Fprintf(a.stderr, "\nHint: %s\n", typedHint(e.Hint))
	}
	if (usage || e.Code == capability.CodeInvalidInput) && cmd != nil {
		fmt.Fprintf(a.stderr, "\nUsage: %s\n", cmd.UseLine())
	}
}

// typedHint rewrites a hint about a selector to the syntax of the command line.
func typedHint(hint string) string {
	if choice, ok := strings.CutPrefix(hint, "set selector."); ok {
		if field, values, ok := strings.Cut(choice, " to one of: "); ok {
			return "choose one with --select " + field + "=" + strings.ReplaceAll(values, ", ", ", or "+field+"=")
		}
	}
	return hint
}

// root returns the root command with all commands and global flags.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "junctor COMMAND",
		Short: "Join any agent to any capability over one governed path",
		Long: `junctor joins any agent to any capability over one governed path:
resolve, authorize, arbitrate, execute, audit.

Start a server with "junctor serve", or see it work with "junctor serve --demo".`,
		SilenceErrors: true, SilenceUsage: true, Args: cobra.ArbitraryArgs, RunE: a.noVerb,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	f := root.PersistentFlags()
	f.StringVar(&a.home, "home", "", "`DIR` home of the server (default $JUNCTOR_HOME, else in the user's data directory)")
	f.StringVar(&a.server, "server", "", "`URL` URL of the server (default $JUNCTOR_URL, else of the one on the home)")
	f.StringVar(&a.token, "token", "", "`TOKEN` token to show (default $JUNCTOR_TOKEN, of junctor login, or the admin's)")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print the ids or names of a list only")
	root.Flags().BoolVar(&a.version, "version", false, "print the version")
	f.BoolVar(&a.json, "json", false, "print one JSON document, or one line for each item where the command streams")
	f.VarP(outputFlag{a}, "output", "o", "`FORMAT` table, wide, which cuts nothing, or json, which is --json (default table)")
	groups := a.commands()
	for _, g := range groups {
		root.AddCommand(g.commands...)
	}
	for _, c := range append(a.formerCommands(), a.completionCommand(root), a.helpCommand(groups)) {
		c.Hidden = true
		root.AddCommand(c)
		if c.Name() == "help" {
			root.SetHelpCommand(c)
		}
	}
	root.SetHelpFunc(a.showHelp(groups))
	root.SetFlagErrorFunc(wrongFlag)
	setPlaceholders(root)
	sayArguments(root)
	a.completeNames(root)
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputFormats(), cobra.ShellCompDirectiveNoFileComp))
	return root
}

// sayArguments replaces the argument errors of a command and its subcommands by errors that name
// the expected arguments, and checks required flags.
func sayArguments(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if check(cmd, args) == nil {
				if f := missingFlag(cmd); f != nil {
					return capability.Errorf(capability.CodeInvalidInput, "", "%s needs --%s %s", cmd.CommandPath(), f.Name, placeholder(f)).With("",
						"--"+f.Name+": "+f.Usage)
				}
				return nil
			}
			_, want, _ := strings.Cut(strings.Replace(cmd.Use, " [flags]", "", 1), " ")
			if want == "" || strings.HasPrefix(want, "-") {
				return capability.Errorf(capability.CodeInvalidInput, "", "%s takes no argument, and %q is one", cmd.CommandPath(), args[0])
			}
			return capability.Errorf(capability.CodeInvalidInput, "", "%s needs %s, and %d %s given", cmd.CommandPath(), want, len(args),
				counted(len(args), "argument was", "arguments were"))
		}
	}
	for _, sub := range c.Commands() {
		sayArguments(sub)
	}
}

// counted returns one if n is 1, otherwise many.
func counted(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// env returns a variable of the environment, or "".
func (a *app) env(name string) string {
	for _, kv := range a.environ {
		if k, v, _ := strings.Cut(kv, "="); k == name {
			return v
		}
	}
	return ""
}

func (a *app) findHome() (string, error) { return server.FindHome(a.home) }

// serverURL returns the home and the URL of the server: from the flag, otherwise the environment,
// otherwise the server that runs on the home. It fails if none is given and none runs.
func (a *app) serverURL() (home, url string, err error) {
	if home, err = a.findHome(); err != nil {
		return "", "", err
	}
	if url = a.server; url == "" {
		url = a.env("JUNCTOR_URL")
	}
	if url == "" {
		line, err := server.ReadServer(home)
		if err != nil {
			return "", "", err
		}
		url = line.URL
	}
	return home, url, nil
}

// connection returns the URL of the server and the token for it: from the flag, otherwise the
// environment, otherwise of the sign-in of the home, otherwise its admin token.
func (a *app) connection() (url string, token secret.Value, err error) {
	if url, token, ok, err := a.loginFor(); ok || err != nil {
		return url, token, err
	}
	return a.connectionWith(filepath.Join("run", "admin.token"))
}

// connectionWith returns the URL of the server and the token for it: from the flag, otherwise the
// environment, otherwise tokenFile below the home. Without a token it fails with unauthenticated.
func (a *app) connectionWith(tokenFile string) (url string, token secret.Value, err error) {
	home, url, err := a.serverURL()
	if err != nil {
		return "", secret.Value{}, err
	}
	switch {
	case a.token != "":
		token = secret.New(a.token)
	case a.env("JUNCTOR_TOKEN") != "":
		token = secret.New(a.env("JUNCTOR_TOKEN"))
	default:
		token, err = a.readSecretFile(filepath.Join(home, tokenFile))
		if err != nil {
			return "", secret.Value{}, capability.Wrap(capability.CodeUnauthenticated, "client", "no token: the home has none and none was given",
				err).
				With("", "give one with --token or JUNCTOR_TOKEN")
		}
	}
	return url, token, nil
}

// readSecretFile reads a token file, and prints a warning if its permissions are too wide.
func (a *app) readSecretFile(path string) (secret.Value, error) {
	value, warning, err := secretstore.ReadFile(path)
	if warning != "" {
		fmt.Fprintln(a.stderr, "junctor: "+warning)
	}
	if err != nil {
		e := capability.AsError(err)
		return value, capability.Wrap(e.Code, "", path+": "+e.Message, err).With(e.Reason,
			cmp.Or(e.Hint, "name a file that holds the token and nothing else"))
	}
	return value, nil
}

func (a *app) client() (*client.Client, error) {
	url, token, err := a.connection()
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{URL: url, Token: token})
}

// call sends one request. With --json it prints the answer unchanged, otherwise it passes the
// answer to show.
func (a *app) call(ctx context.Context, method, path string, body any, show func(json.RawMessage) error) error {
	var raw json.RawMessage
	if err := a.do(ctx, method, path, body, &raw); err != nil {
		return err
	}
	if a.json {
		if len(raw) == 0 {
			raw = json.RawMessage(`{"ok":true}`)
		}
		return a.printJSON(raw)
	}
	return show(raw)
}

func (a *app) printJSON(raw json.RawMessage) error {
	_, err := fmt.Fprintln(a.stdout, strings.TrimSpace(string(raw)))
	return err
}

// printObject prints a value of the command itself as JSON.
func (a *app) printObject(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.printJSON(data)
}

// warnf prints a warning on standard error.
func (a *app) warnf(format string, args ...any) {
	fmt.Fprintf(a.stderr, "junctor: "+format+"\n", args...)
}

func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.stdout, format, args...) }

// terminal reports whether the stream is a terminal.
func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && tty.IsTerminal(int(f.Fd()))
}

// do sends one request, and decodes the answer into out unless out is nil.
func (a *app) do(ctx context.Context, method, path string, body, out any) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	return c.Do(ctx, method, path, body, out)
}

// done returns a function that prints a line instead of an answer of the server.
func (a *app) done(format string, args ...any) func(json.RawMessage) error {
	return func(json.RawMessage) error {
		a.printf(format, args...)
		return nil
	}
}

// decoded returns a function that decodes an answer of the server for show.
func decoded[T any](show func(T) error) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		v, err := decode[T](raw)
		if err != nil {
			return err
		}
		return show(v)
	}
}

// shows returns the function of a command that requests a path and passes the decoded answer to show.
func shows[T any](a *app, path string, show func(T) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		return a.call(cmd.Context(), http.MethodGet, path, nil, decoded(show))
	}
}

// decode decodes an answer of the server.
func decode[T any](raw json.RawMessage) (T, error) {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, capability.Wrap(capability.CodeFailed, "client", "the server's answer cannot be read", err)
	}
	return v, nil
}

// pairs parses the values of a repeated key=value flag.
func pairs(flag string, list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(list))
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, capability.Errorf(capability.CodeInvalidInput, "", "--%s %q is not key=value", flag, kv)
		}
		if _, twice := out[k]; twice {
			return nil, capability.Errorf(capability.CodeInvalidInput, "", "--%s names %q twice", flag, k)
		}
		out[k] = v
	}
	return out, nil
}
