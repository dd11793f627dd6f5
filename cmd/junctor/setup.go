package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/setup"
	"github.com/junctor-run/junctor/internal/setup/clients"
	"github.com/junctor-run/junctor/internal/setup/setupserve"
	"github.com/junctor-run/junctor/internal/upstreams/mcpclient"
)

// setupOptions are the flags of setup.
type setupOptions struct {
	clients                    []string
	undo, list, dry, yes, keep bool
	service, http              bool
	move                       []string
	hints                      trustWord
	folder                     string         // of the project in which the command runs
	local                      *setup.Service // if not nil, it previews without a server
	done                       []string       // clients that were connected, undone or shown
	started                    int            // process of a server that was started for this and stays, or 0
}

func (a *app) setupCommand() *cobra.Command {
	o := setupOptions{hints: "ask"}
	c := &cobra.Command{
		Use: "setup", Short: "Connect the MCP clients of this machine to junctor", Args: cobra.NoArgs,
		Long: `Finds the MCP clients of this machine, shows the MCP servers that they have, and
connects them: junctor becomes a server of the client, with a token of its own, and the
servers that you choose move behind junctor, where policies, approvals and the audit log
apply to them. Credentials of moved servers become named secrets. Each change of a file
is shown before it is made, and --undo restores the file; at a terminal it asks first.

A server is started in the background if none runs on the home, or with --service as
a service of systemd, whose unit is shown first; --undo --service removes that too.
With --list and --dry-run it ends with the command, and none is started for a home that
was never used.`,
		Example: `  junctor setup
  junctor setup --client claude --dry-run
  junctor setup --yes --move '*' --trust-hints
  junctor setup --undo --dry-run
  junctor setup --undo --client claude`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.setup(cmd.Context(), o) },
	}
	f := c.Flags()
	f.StringArrayVar(&o.clients, "client", nil, "`NAME` only this client, such as claude (repeatable)")
	f.StringArrayVar(&o.move, "move", nil, "`SERVER` move this server of the clients behind junctor; * means all (repeatable)")
	f.BoolVar(&o.keep, "no-move", false, "leave the clients' servers where they are, without asking")
	f.BoolVar(&o.undo, "undo", false, "restore the clients' files, and remove the servers that moved")
	f.BoolVar(&o.list, "list", false, "list the clients and their servers, and change nothing")
	f.BoolVar(&o.dry, "dry-run", false, "show the changes that connecting or --undo would make, and make none")
	f.BoolVar(&o.service, "service", false, "install a systemd unit of yours that starts the server, or with --undo remove it")
	f.BoolVar(&o.http, "http", false, "write a URL and a token into the client's file instead of a command")
	f.BoolVar(&o.yes, "yes", false, "connect or undo every client that is found, without asking; gives moved servers no rights")
	o.hints.flag(c, "`WORD` whether moved tools that declare to only read count as reads: ask, yes or no; with --yes, ask is no")
	return c
}

func (a *app) setup(ctx context.Context, o setupOptions) error {
	if a.json && !o.list && !o.yes && !o.dry && !o.undo {
		return capability.Errorf(capability.CodeInvalidInput, "setup",
			"with --json nothing can be asked: give --yes, --dry-run, --list or --undo")
	}
	if !o.yes && !o.list && !o.dry && !o.undo && !terminal(a.stdin) {
		return capability.Errorf(capability.CodeInvalidInput, "setup", "standard input is not a terminal, so nothing can be asked: give --yes or --dry-run")
	}
	var unit *service
	if o.service && !o.list {
		var err error
		if unit, err = a.findService(); err != nil {
			return err
		}
		if !o.undo {
			if err := unit.install(ctx, o); err != nil || o.dry && !unit.answers(ctx) {
				return err
			}
		}
	}
	nothing := false
	if home, err := a.findHome(); o.undo && err == nil && a.server == "" && a.env("JUNCTOR_URL") == "" {
		finished, interrupted := setups(home)
		nothing = o.dry || finished+interrupted == 0 // then the records of the home are enough
	}
	local, started, stop, err := a.setupServer(ctx, o.list || o.dry || o.undo, nothing, o.yes)
	if err != nil {
		return err
	}
	defer stop()
	o.local, o.started = local, started
	if o.folder, err = os.Getwd(); err != nil {
		o.folder = "" // the folder was removed, so it has no project
	}
	var listed struct{ Clients []setupserve.Status }
	if local != nil {
		listed.Clients = local.List(ctx, o.folder)
	} else if err := a.do(ctx, http.MethodGet, "/api/v1/clients?folder="+url.QueryEscape(o.folder), nil, &listed); err != nil {
		return err
	}
	for _, name := range o.clients {
		if !slices.ContainsFunc(listed.Clients, func(s setupserve.Status) bool { return s.Name == name }) {
			return capability.Errorf(capability.CodeNotFound, "setup", "%q is not a client that can be set up", name).
				With("client_not_found", "see them with: junctor setup --list")
		}
	}
	chosen := slices.DeleteFunc(listed.Clients, func(s setupserve.Status) bool {
		return len(o.clients) > 0 && !slices.Contains(o.clients, s.Name)
	})
	if o.list {
		return a.listClients(chosen)
	}
	if !o.undo {
		if err := knownServers(o.move, chosen, len(o.clients) > 0); err != nil {
			return err
		}
	}
	if err := a.setupClients(ctx, chosen, o); err != nil || !o.undo {
		return err
	}
	switch {
	case unit != nil && o.dry && !a.json:
		a.printf("The service would be stopped, and %s removed.\n", plainText(unit.unit))
	case unit != nil && !o.dry:
		return a.removeService(ctx, unit)
	}
	if o.dry {
		return nil
	}
	if home, err := a.findHome(); err == nil && a.server == "" && a.env("JUNCTOR_URL") == "" {
		if finished, _ := setups(home); finished == 0 {
			return a.stopBackground(ctx)
		}
	}
	return nil
}

// knownServers fails with not_found, reason client_server_not_found, if a name is neither "*" nor a
// server that one of the clients has or had before it moved. Clients that were not found count if named.
func knownServers(names []string, chosen []setupserve.Status, named bool) error {
	known := make(map[string]bool)
	for _, s := range chosen {
		if !s.Found && !named {
			continue
		}
		for _, server := range s.Servers {
			known[server.Name] = true
		}
		for server := range s.Moved {
			known[server] = true
		}
	}
	for _, name := range names {
		if name == "*" || known[name] {
			continue
		}
		exist := "they have no servers"
		if len(known) > 0 {
			exist = "these are: " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")
		}
		return capability.Errorf(capability.CodeNotFound, "setup", "%q is not a server of any client that was chosen; %s", name, exist).
			With("client_server_not_found", "see the clients and their servers with: junctor setup --list")
	}
	return nil
}

// setupClients connects or undoes the chosen clients, and reports what was done.
func (a *app) setupClients(ctx context.Context, chosen []setupserve.Status, o setupOptions) error {
	results := []setupserve.Result{}
	var failures []error
	for _, s := range chosen {
		done, err := a.setupClient(ctx, s, o)
		if err != nil {
			fmt.Fprintf(a.stderr, "%s: %s\n", s.Title, plainText(capability.AsError(err).Message))
			failures = append(failures, err)
			if capability.CodeOf(err) == capability.CodeCancelled {
				break // no question follows
			}
		} else if done != nil {
			results, o.done = append(results, *done), append(o.done, s.Name)
		}
	}
	if len(results) == 0 && o.started != 0 {
		defer fmt.Fprintf(a.stderr, "The server that was started (process %d) still runs. To stop it: junctor stop\n", o.started)
	}
	if a.json {
		return errors.Join(a.printObject(map[string]any{"clients": results}), errors.Join(failures...))
	}
	if len(results) > 0 && !o.undo && !o.dry {
		a.printNext()
	}
	switch {
	case len(failures) > 0:
		return failures[0]
	case len(results) == 0 && o.undo && slices.ContainsFunc(chosen, func(s setupserve.Status) bool { return s.SetUp }):
		a.printf("Nothing was undone.\n")
	case len(results) == 0 && o.undo:
		a.printf("No client was set up, so there is nothing to undo.\n")
	case len(results) == 0:
		a.printf("No client was changed. See which there are with: junctor setup --list\n")
	}
	return nil
}

// printNext prints what follows a setup: where calls that wait are answered, and how junctor is found.
func (a *app) printNext() {
	a.printf("Next: calls that wait for you, such as writes, are answered in a second terminal with junctor approvals watch, " +
		"or in the browser with junctor console.\n")
	if _, err := exec.LookPath("junctor"); err == nil {
		return
	}
	if program, err := os.Executable(); err == nil {
		a.printf("junctor is not on your PATH. To put it there, also into ~/.profile: export PATH=%s:\"$PATH\"\n",
			plainText(text.ShellWord(filepath.Dir(program))))
	}
}

func (a *app) removeService(ctx context.Context, unit *service) error {
	if err := unit.remove(ctx); err != nil {
		return err
	}
	if !a.json {
		a.printf("The service was stopped, and %s removed.\n", plainText(unit.unit))
	}
	return nil
}

// setupClient connects or disconnects one client. It returns nil if nothing was to do.
func (a *app) setupClient(ctx context.Context, s setupserve.Status, o setupOptions) (*setupserve.Result, error) {
	named := len(o.clients) > 0
	if o.undo {
		if !s.SetUp && !named {
			return nil, nil
		}
		if o.dry {
			return a.previewUndo(ctx, s, o)
		}
		return a.undoClient(ctx, s, o)
	}
	switch {
	case !s.Found && !named:
		return nil, nil
	case s.Fault != "":
		return nil, capability.Errorf(capability.CodeInvalidInput, "setup", "%s", s.Fault).With("client_config", "")
	case s.SetUp && (o.http || !slices.ContainsFunc(s.Servers, func(f clients.Found) bool { return isChosen(f, o.move) })):
		if !a.json {
			a.printf("%s is set up already.\n", s.Title)
			var left []string
			for _, server := range s.Servers {
				if server.Stays == "" {
					left = append(left, server.Name)
				}
			}
			if len(left) > 0 {
				a.printStayed(s, left)
			}
		}
		return nil, nil
	}
	move := o.move
	if !o.keep && len(move) == 0 && !o.yes && !o.dry {
		var names []string
		for _, server := range s.Servers {
			if server.Stays == "" {
				names = append(names, server.Name)
			}
		}
		if len(names) > 0 {
			answer, err := a.ask(ctx, fmt.Sprintf("%s has the servers %s. Move them behind junctor? [y/N or names] ", s.Title,
				strings.Join(names, ", ")))
			if err != nil {
				return nil, err
			}
			switch answer = strings.TrimSpace(answer); {
			case isYes(answer):
				move = names
			case answer != "" && !strings.EqualFold(answer, "n") && !strings.EqualFold(answer, "no"):
				move = strings.FieldsFunc(answer, func(r rune) bool { return r == ',' || r == ' ' })
				if err := knownServers(move, []setupserve.Status{s}, true); err != nil {
					return nil, err
				}
			}
		}
	}
	present := slices.DeleteFunc(slices.Clone(move), func(name string) bool { // --move is for all clients
		return name != "*" && !slices.ContainsFunc(s.Servers, func(f clients.Found) bool { return f.Name == name })
	})
	preview, err := a.previewClient(ctx, s.Name, setupserve.Request{
		Move: present, DryRun: true, HTTP: o.http, Folder: o.folder, KeepUnreached: o.yes,
	}, o.local)
	if err != nil {
		return nil, err
	}
	a.printLeft(preview.Left, nil) // before the question, so that a yes is given to what stays too
	if s.SetUp && len(preview.Moved) == 0 {
		return nil, nil
	}
	if !a.json {
		a.printf("%s, %s:\n%s", s.Title, plainText(preview.File), plainLines(preview.Difference)+"\n")
	}
	for _, warning := range preview.Warnings {
		if !a.json {
			a.printf("  note: %s\n", plainText(warning))
		}
	}
	for _, server := range slices.Sorted(maps.Keys(preview.Folders)) {
		if folders := preview.Folders[server]; !a.json {
			a.printf("  %s would be confined; it may write to %s and read %s\n", plainText(server),
				plainText(orNothing(folders.ReadWrite)), plainText(orNothing(folders.ReadOnly)))
		}
	}
	when := "run after the move"
	if !o.yes && !o.dry {
		when = ""
	}
	a.printUnreached(preview, when)
	if o.dry {
		return &preview, nil
	}
	trust := o.hints == "yes"
	var given map[string]setupserve.Folders
	if !o.yes {
		answer, err := a.ask(ctx, "Make this change? [y/N] ")
		if err != nil || !isYes(strings.TrimSpace(answer)) {
			return nil, err
		}
		if given, err = a.askFolders(ctx, preview); err != nil {
			return nil, err
		}
		if len(preview.Moved) > 0 && o.hints == "ask" {
			answer, err = a.ask(ctx, "May tools that declare themselves read-only run without approval? [y/N] ")
			if err != nil {
				return nil, err
			}
			trust = isYes(strings.TrimSpace(answer))
		}
	}
	done, err := a.connectClient(ctx, s.Name, setupserve.Request{
		Move: present, TrustHints: trust, HTTP: o.http, Folder: o.folder, Folders: given, KeepUnreached: o.yes,
	})
	if err != nil {
		return nil, err
	}
	a.printSetUp(ctx, s, done, preview.Left, trust)
	return &done, nil
}

// isChosen reports whether --move names a server that can move.
func isChosen(f clients.Found, move []string) bool {
	return f.Stays == "" && (slices.Contains(move, f.Name) || slices.Contains(move, "*"))
}

// printSetUp prints what was done. The reasons in announced, why servers stay, were printed before.
func (a *app) printSetUp(ctx context.Context, s setupserve.Status, done setupserve.Result, announced map[string]string, trust bool) {
	if a.json {
		return
	}
	for server, upstream := range done.Moved {
		a.printf("  moved %s, which is the upstream %s\n", plainText(server), plainText(upstream))
	}
	if len(done.Moved) > 0 && !trust {
		a.printf("  each call asks, until you believe that the tools which declare it only read: junctor mcp set NAME --trust-hints\n")
	}
	a.printLeft(done.Left, announced)
	tools, err := a.verifyClient(ctx, s.Name, done.File)
	if err != nil {
		a.printf("  the connection could not be verified: %s\n", plainText(capability.AsError(err).Message))
		return
	}
	a.printf("  verified: %s sees %d %s as agent:%s. If it is running, restart it.\n", s.Title, tools, counted(tools, "tool", "tools"), s.Name)
	a.printUnreached(done, "run")
	var left []string
	for _, server := range s.Servers {
		if _, moved := done.Moved[server.Name]; server.Stays == "" && !moved {
			left = append(left, server.Name)
		}
	}
	switch {
	case len(left) > 0:
		a.printStayed(s, left)
	case tools == 0:
		a.printf("  junctor has no tools yet. Add an MCP server: junctor mcp add NAME -- COMMAND ARG...\n")
	}
}

// printStayed prints the servers that a client still runs, and the command that moves them. It asks,
// because --yes would leave a server that needs a folder.
func (a *app) printStayed(s setupserve.Status, servers []string) {
	again := "junctor setup --client " + s.Name
	for _, name := range servers {
		again += " --move " + text.ShellWord(name)
	}
	a.printf("  %s still runs %s itself. To move behind junctor what stayed: %s\n", s.Title,
		plainText(strings.Join(servers, ", ")), plainText(again))
}

// printLeft prints the servers that stay in a client for a reason of their own, except those that were announced.
func (a *app) printLeft(left, announced map[string]string) {
	for _, server := range slices.Sorted(maps.Keys(left)) {
		if why := left[server]; why != "it was not chosen" && why != announced[server] && !a.json {
			a.printf("  left %s in the client: %s\n", plainText(server), plainText(why))
		}
	}
}

// undoClient undoes a client. At a terminal it shows the change and asks first, unless --yes is given.
func (a *app) undoClient(ctx context.Context, s setupserve.Status, o setupOptions) (*setupserve.Result, error) {
	var done setupserve.Result
	if o.local != nil {
		return nil, capability.Errorf(capability.CodeNotFound, "setup", "%s was not set up by junctor", s.Title).
			With("client_not_set_up", "see the clients with: junctor setup --list")
	}
	asks := !o.yes && !a.json && terminal(a.stdin)
	if asks {
		if _, err := a.previewUndo(ctx, s, o); err != nil { // an interrupted setup may be undone nevertheless
			a.printf("%s: the change cannot be shown: %s\n", s.Title, plainText(capability.AsError(err).Message))
		}
		if answer, err := a.ask(ctx, "Make this change? [y/N] "); err != nil || !isYes(strings.TrimSpace(answer)) {
			return nil, err
		}
	}
	if err := a.do(ctx, http.MethodDelete, "/api/v1/clients/"+url.PathEscape(s.Name), nil, &done); err != nil {
		return nil, err
	}
	if !a.json {
		if asks {
			a.printf("%s is as it was before.\n", s.Title)
		} else {
			a.printf("%s is as it was before:\n%s\n", s.Title, strings.TrimRight(plainLines(done.Difference), "\n"))
		}
		if len(done.Removed) > 0 {
			a.printf("  removed from junctor: %s\n", plainText(strings.Join(done.Removed, ", ")))
		}
		a.printf("  What stays: the home with its audit log, and rules that people wrote about %s and its servers; with a server, see them "+
			"with: junctor policy list\n  If %s is running, restart it.\n\n", s.Title, s.Title)
	}
	return &done, nil
}

// previewUndo prints what an undo of a client would do, after those that were shown.
func (a *app) previewUndo(ctx context.Context, s setupserve.Status, o setupOptions) (*setupserve.Result, error) {
	var out setupserve.Result
	var err error
	if o.local != nil {
		out, err = o.local.PreviewUndo(s.Name, o.done)
	} else {
		err = a.do(ctx, http.MethodGet, "/api/v1/clients/"+url.PathEscape(s.Name)+"/undo?"+url.Values{"after": o.done}.Encode(), nil, &out)
	}
	if err != nil || a.json {
		return &out, err
	}
	a.printf("%s, %s:\n%s\n", s.Title, plainText(out.File), strings.TrimRight(plainLines(out.Difference), "\n"))
	if len(out.Removed) > 0 {
		a.printf("  would be removed from junctor: %s\n", plainText(strings.Join(out.Removed, ", ")))
	}
	if len(out.Secrets) > 0 {
		a.printf("  with the secrets: %s\n", plainText(strings.Join(out.Secrets, ", ")))
	}
	for _, upstream := range slices.Sorted(maps.Keys(out.Kept)) {
		a.printf("  would stay in junctor: %s, which %s uses\n", plainText(upstream), out.Kept[upstream])
	}
	a.printf("  the token of agent:%s would end; rules about it and its servers stay: junctor policy list\n\n", s.Name)
	return &out, nil
}

// previewClient returns what connecting a client would do; local is nil if a server runs.
func (a *app) previewClient(ctx context.Context, name string, req setupserve.Request, local *setup.Service) (setupserve.Result, error) {
	if local != nil {
		return local.Connect(ctx, capability.Principal{}, name, req)
	}
	return a.connectClient(ctx, name, req)
}

func (a *app) connectClient(ctx context.Context, name string, req setupserve.Request) (done setupserve.Result, err error) {
	return done, a.do(ctx, http.MethodPost, "/api/v1/clients/"+url.PathEscape(name), req, &done)
}

// ask prints a question and returns the line that the user types.
func (a *app) ask(ctx context.Context, question string) (string, error) {
	fmt.Fprint(a.stderr, plainText(question))
	line, err := readLine(ctx, a.stdin)
	if ctx.Err() != nil {
		return "", capability.Wrap(capability.CodeCancelled, "setup", "interrupted", ctx.Err())
	}
	if err != nil && line == "" {
		return "", capability.Wrap(capability.CodeCancelled, "setup", "there was no answer", err)
	}
	return line, nil
}

// readLine reads a line, or returns when ctx ends, such as by Ctrl-C. Since a read of a terminal cannot
// be interrupted, it is then left to the end of the process, which follows.
func readLine(ctx context.Context, r io.Reader) (string, error) {
	read := make(chan struct{})
	var got string
	var failed error
	go func() {
		got, failed = scanLine(r)
		close(read)
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-read:
		return got, failed
	}
}

// scanLine reads up to a line end, one byte at a time, so that later reads find the rest.
func scanLine(r io.Reader) (string, error) {
	var line []byte
	for b := make([]byte, 1); len(line) < 4096; {
		n, err := r.Read(b)
		if n > 0 && b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[:n]...)
		if err != nil {
			return string(line), err
		}
	}
	return string(line), nil
}

// orNothing joins folders for a sentence.
func orNothing(folders []string) string {
	if len(folders) == 0 {
		return "no folder of yours"
	}
	return strings.Join(folders, ", ")
}

// agrees reads a line and reports whether it is yes and nothing else.
func (a *app) agrees(ctx context.Context) bool {
	line, _ := readLine(ctx, a.stdin) // what was read before an error is the answer
	return isYes(strings.TrimSpace(line))
}

func isYes(answer string) bool {
	return strings.EqualFold(answer, "y") || strings.EqualFold(answer, "yes")
}

func (a *app) listClients(list []setupserve.Status) error {
	if a.json {
		return a.printObject(map[string]any{"clients": list})
	}
	var rows [][]string
	for _, s := range list {
		state := "not found"
		switch {
		case s.Fault != "":
			state = "file cannot be used"
		case s.SetUp:
			state = "set up"
		case s.Connected:
			state = "connected by hand"
		case s.Found:
			state = "found"
		}
		var servers []string
		for _, server := range s.Servers {
			servers = append(servers, server.Name)
		}
		rows = append(rows, []string{s.Name, state, when(s.Used), dash(strings.Join(servers, ", ")), s.File})
	}
	if err := a.table([]string{"CLIENT", "STATE", "LAST REQUEST", "SERVERS", "FILE"}, rows, ""); err != nil {
		return err
	}
	for _, s := range list {
		for _, server := range s.Servers {
			if server.Stays != "" {
				a.printf("\n%s: %s cannot be moved: %s", s.Name, plainText(server.Name), plainText(server.Stays))
			}
		}
		if s.Fault != "" {
			a.printf("\n%s", plainText(s.Fault))
		}
	}
	a.printf("\n")
	return nil
}

// verifyClient connects to junctor with the entry in the client's file, as the client will, and returns
// the number of tools that it lists.
func (a *app) verifyClient(ctx context.Context, client, file string) (tools int, err error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	found, err := clients.Find(client)
	if err != nil {
		return 0, err
	}
	now, err := found.Read(file)
	if err != nil {
		return 0, err
	}
	if !now.Connected {
		return 0, capability.Errorf(capability.CodeUnavailable, "setup", "%s has no entry of junctor on this machine", file)
	}
	cfg := mcpclient.Config{Name: "junctor", ConnectTimeout: verifyTimeout, URL: now.Own.URL}
	if cfg.URL == "" {
		cfg.Command = append([]string{now.Own.Command}, now.Own.Args...)
		cfg.Env = slices.DeleteFunc(slices.Clone(a.environ), func(v string) bool {
			return strings.HasPrefix(v, "JUNCTOR_") // the client has none of them
		})
	} else {
		header := make(http.Header)
		for name, value := range now.Own.Headers {
			header.Set(name, value)
		}
		cfg.Header = func(context.Context) (http.Header, error) { return header, nil }
		cfg.HTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	c, err := mcpclient.New(cfg)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if _, err := c.Connect(ctx); err != nil {
		return 0, err
	}
	_, err = c.List(ctx, mcpclient.Tools, func(json.RawMessage) error {
		tools++
		return nil
	})
	return tools, err
}
