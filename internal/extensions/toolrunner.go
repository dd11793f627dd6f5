package extensions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
	"github.com/junctor-run/junctor/internal/extensions/exec/analyze"
	"github.com/junctor-run/junctor/internal/extensions/exec/api"
	"github.com/junctor-run/junctor/internal/extensions/exec/browser"
	"github.com/junctor-run/junctor/internal/extensions/exec/db"
	"github.com/junctor-run/junctor/internal/extensions/exec/tool"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/internal/extensions/runner"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/store/blob"
)

// shellRunner is the runner whose arguments come from a shell-like line of the manifest.
const shellRunner = "exec.shell"

// entryRunner is the runner of a program file of the package. Like the package's tools
// it needs only the permission exec, even if its first line names an interpreter.
const entryRunner = "exec.entrypoint"

// executors returns the executors by family of runners. Add new families here.
func (x *Service) executors() map[string]runner.Executor {
	of := func(names string) family { return family{x, strings.Fields(names)} }
	scripts := of("script.js script.wasm exec.script builtin default exec.python_handler")
	out := map[string]runner.Executor{
		"exec": &toolRunner{of("")}, "analyze": &analyzeRunner{of("analyze.response analyze.text analyze.schema")},
		"api":     &apiRunner{of("api.get api.post api.put api.patch api.delete api.head api.graphql api.call")},
		"browser": &browserRunner{of("browser.navigate browser.screenshot browser.fill_form browser.click browser.extract browser.pdf")},
		"db":      &dbRunner{of("db.query db.schema db.explain db.exec")},
	}
	for _, name := range scripts.names {
		out[name] = &scriptRunner{scripts}
	}
	return out
}

// runnerFlags returns the flags that a runner's actions accept beside their own.
func runnerFlags(name string) []command.Flag {
	family, _, _ := strings.Cut(name, ".")
	switch family {
	case "api":
		return api.Flags()
	case "analyze":
		return analyze.Flags()
	case "browser":
		return browser.Flags()
	case "db":
		return db.Flags()
	}
	return nil
}

// withFlags adds the flags of the runners to the actions of commands, in place, so that the parser
// treats the word after a flag as its value. An action's own flag or short letter takes precedence.
func withFlags(commands []command.Command) []command.Command {
	for i := range commands {
		for j := range commands[i].Actions {
			a := &commands[i].Actions[j]
			for _, f := range runnerFlags(a.Runner) {
				has := func(name, short string) bool {
					return slices.ContainsFunc(a.Flags, func(own command.Flag) bool { return own.Name == name || short != "" && own.Short == short })
				}
				if has(f.Name, "") {
					continue
				}
				if has("", f.Short) {
					f.Short = ""
				}
				a.Flags = append(a.Flags, f)
			}
		}
	}
	return commands
}

// family is the part that executors share: the runners that they implement.
type family struct {
	*Service
	names []string
}

// Supports implements runner.Executor.
func (f family) Supports(name string) bool { return slices.Contains(f.names, name) }

// Needs implements runner.Executor.
func (family) Needs(a *command.Action) []string {
	return declaration.NeededPermissions(a.Runner, false)
}

// toolRunner runs exec.<tool>, exec.shell and exec.entrypoint.
type toolRunner struct{ family }

// Supports implements runner.Executor.
func (*toolRunner) Supports(name string) bool {
	if name == shellRunner {
		return true
	}
	_, err := command.ToolOf(name)
	return err == nil && !slices.Contains([]string{"exec.script", "exec.python_handler"}, name)
}

// prepared describes how a program would run.
type prepared struct {
	request  tool.Request
	display  []string // its words, with dots in place of sensitive values
	words    []string
	session  string   // whose last response is its input, or ""
	settings string   // their digest
	secret   []string // names of the variables that hold secrets
	wished   sandbox.Tier
	placed   sandbox.Placement
	manifest *extension.Manifest
	// unfiltered is the error with which the sandbox requires an approval for
	// unfiltered network access, or nil.
	unfiltered error
}

// prepare builds the whole request of a run: sandbox, words, own tools, secrets and limits. It
// starts nothing. Errors are those of installed, settings, the sandbox and the template;
// unavailable, reason tool_not_found, for an entry point that is not executable.
func (t *toolRunner) prepare(ctx context.Context, r runner.Run) (p prepared, err error) {
	x, err := t.installed(r)
	if err != nil {
		return p, err
	}
	name, template, err := words(r.Route.Action)
	if err != nil {
		return p, err
	}
	settings, err := t.settings(ctx, x)
	if err != nil {
		return p, err
	}
	m := &x.Package.Manifest
	p.manifest, p.wished = m, t.wish(x)
	room := t.room(ctx, m, filepath.Join(t.dir, x.ID), t.floor(x), r.Permissions)
	if p.placed, err = t.box.Place(room); err != nil && capability.AsError(err).Reason == capability.ReasonConfirmation {
		p.unfiltered, room.AllowUnfiltered = err, true
		p.placed, err = t.box.Place(room)
	}
	if err != nil {
		return p, err
	}
	line, err := template.Expand(command.TemplateInput{Route: r.Route, WorkDir: p.placed.Work, Config: settings.plain})
	if err != nil {
		return p, err
	}
	p.words, p.display = line.List, line.Recordable()
	own := make(map[string]tool.Own, len(m.Tools))
	for i := range m.Tools {
		o := &m.Tools[i]
		own[o.Name] = tool.Own{Path: filepath.Join(t.dir, x.ID, filepath.FromSlash(o.Installed())), SHA256: o.SHA256}
	}
	if a := r.Route.Action; a.Runner == entryRunner {
		file := filepath.Join(t.dir, x.ID, filepath.FromSlash(a.Script))
		if info, err := os.Stat(file); err == nil && info.Mode()&0o111 == 0 {
			return p, capability.Errorf(capability.CodeUnavailable, "runner", "the program %s of the package is not executable", a.Script).
				With("tool_not_found", "make it executable before it is packed, and name what runs it in its first line, as in #!/bin/sh")
		}
		own[name] = tool.Own{Path: file, SHA256: a.SHA256}
	}
	if r.Route.Action.Stdin == "last_response" {
		p.session = r.Owner.Session
	}
	p.settings = settings.digest
	secrets := settings.secrets(m.Env.Secrets)
	p.secret = slices.Sorted(maps.Keys(secrets))
	p.request = tool.Request{
		Tool: name, Args: line.List[1:], Own: own, Permissions: r.Permissions, Confinement: room, Timeout: r.Route.Action.Timeout,
		MaxStdout: int(min(cmp.Or(r.Route.Action.Output.MaxBytes, m.Limits.MaxOutputBytes), maxToolOutput)),
		Environment: tool.Environment{
			Extension: x.ID, Run: r.ID, Session: r.Owner.Session, Pass: m.Env.Pass, Set: m.Env.Set, Secrets: secrets,
		},
	}
	return p, nil
}

// binds returns a digest of what an approval covers: the words, names of variables,
// working folder, permissions, tier, network, settings and session. The package has its own hash.
func (p *prepared) binds() (string, error) {
	data, err := jsonx.Marshal([]any{
		p.words, p.manifest.Env.Pass, slices.Sorted(maps.Keys(p.manifest.Env.Set)), p.secret, p.request.Confinement.Work, p.request.Permissions,
		p.placed.Tier, p.placed.Network, p.settings, p.session,
	})
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), err
}

// Preview implements runner.Previewer.
func (t *toolRunner) Preview(ctx context.Context, r runner.Run, out *capability.Preview) error {
	p, err := t.prepare(ctx, r)
	if err != nil {
		return err
	}
	if out.Binds, err = p.binds(); err != nil {
		return err
	}
	out.What = p.display
	if p.session != "" {
		out.Details["last_response_of"] = p.session
	}
	out.Details["argv"] = p.display
	out.Details["sandbox"] = walls(p.placed, p.request.Confinement.Limits)
	out.Details["work_dir"] = p.placed.Work
	if env := slices.Concat(p.manifest.Env.Pass, slices.Sorted(maps.Keys(p.manifest.Env.Set)), p.secret); len(env) > 0 {
		out.Details["env"] = env // names only
	}
	if p.placed.Network != sandbox.NetworkNone {
		out.Details["hosts"] = append([]string{}, p.manifest.Network.Allow...)
	}
	line := strings.Join(p.words, " ")
	switch i := slices.IndexFunc(t.patterns, func(re *regexp.Regexp) bool { return re.MatchString(line) }); {
	case i >= 0:
		out.Confirm, out.Why = "always", "it matches "+t.patterns[i].String()+", which the operator wants to be asked about"
	case p.unfiltered != nil:
		out.Confirm, out.Why = "first", "it would reach every host: at tier "+p.placed.Tier.String()+" the network is not filtered"
	case p.placed.Tier < p.wished:
		out.Confirm, out.Why = "first", fmt.Sprintf("it would run at tier %s, where %s is called for", p.placed.Tier, p.wished)
	}
	return nil
}

// Execute implements runner.Executor.
func (t *toolRunner) Execute(ctx context.Context, r runner.Run) (runner.Outcome, error) {
	p, err := t.prepare(ctx, r)
	if err != nil {
		return runner.Outcome{}, err
	}
	if binds, err := p.binds(); err != nil || r.Agreed != "" && r.Agreed != binds {
		return runner.Outcome{}, capability.Wrap(capability.CodeConflict, "runner", "what would run is no longer what was agreed to",
			err).With("extension_changed", "try again")
	}
	if p.unfiltered != nil && r.Agreed == "" { // no user has approved it
		return runner.Outcome{}, p.unfiltered
	}
	p.request.Confinement.OnEgress = t.egressRecords(r)
	if p.request.Stdin, err = t.input(ctx, r); err != nil {
		return runner.Outcome{}, err
	}
	if p.placed.Tier < p.wished {
		t.degraded(r, p.wished, p.placed.Tier)
	}
	began := fileNow()
	got, err := t.tools.Execute(ctx, p.request)
	if err != nil && capability.AsError(err).Details["kind"] == "disk" {
		clean(p.request.Confinement.Work, began)
	}
	meta := map[string]any{
		"exit_code": got.ExitCode, "command": p.display, "sandbox_tier": got.Placement.Tier.String(), "tool_ms": got.Duration.Milliseconds(),
		"sandbox": walls(got.Placement, p.request.Confinement.Limits),
	}
	for key, there := range map[string]bool{"truncated": got.Truncated, "binary": got.Binary} {
		if there {
			meta[key] = true
		}
	}
	if got.Stderr != "" {
		meta["stderr"] = got.Stderr
	}
	out := runner.Outcome{
		Output: got.Output, Metadata: meta, Kept: got.Stdout != "" && !got.Binary,
		Ran: capability.Ran{Tool: p.request.Tool, WorkDir: p.request.Confinement.Work},
	}
	if got.Placement.Tier != 0 {
		out.Ran.ExitCode, out.Ran.Sandbox, out.Ran.Truncated, out.Ran.Output = &got.ExitCode, got.Placement.Tier.String(), got.Truncated,
			got.Stdout
		if err != nil { // the output may explain the failure
			e := *capability.AsError(err)
			return out, e.Detail("output", got.Output).Detail("exit_code", got.ExitCode).Detail("signal", got.Signal)
		}
	}
	return out, err
}

// words returns the name of an action's tool and the compiled template of its arguments.
func words(a *command.Action) (name string, t *command.Template, err error) {
	if a.Runner == shellRunner {
		t, name, err = command.CompileShellTemplate(a.Template, a)
		return name, t, err
	}
	if a.Runner == entryRunner {
		name = path.Base(a.Script)
	} else if name, err = command.ToolOf(a.Runner); err != nil {
		return "", nil, err
	}
	t, err = command.CompileTemplate(name, a.Argv)
	return name, t, err
}

// installed returns the extension of a run. Errors: unavailable, reason extension_busy
// (it is being changed) or extension_disabled (also if it is missing); conflict, reason
// extension_changed (its files differ from those of the published digest).
func (x *Service) installed(r runner.Run) (*lifecycle.Loaded, error) {
	got, ok := x.manager.View().Find(r.Extension)
	switch {
	case x.manager.Busy(r.Extension):
		return nil, capability.Errorf(capability.CodeUnavailable, "runner", "%s is being changed", r.Extension).With("extension_busy",
			"try again in a moment")
	case !ok || got.Package == nil || !got.Enabled:
		return nil, capability.Errorf(capability.CodeUnavailable, "runner", "%s is not enabled", r.Extension).With("extension_disabled",
			"junctor extensions enable "+r.Extension)
	case "sha256:"+got.TreeHash != r.Digest:
		return nil, capability.Errorf(capability.CodeConflict, "runner", "%s has changed since this call was decided",
			r.Extension).With("extension_changed", "try again")
	}
	return got, nil
}

// artifacts records the present artifacts of the working folder. The returned function, called
// after the run, stores the new and changed ones for artifactTTL, also if its context has ended. Of a run
// that shared the folder it stores only files with the id of the run in their names.
func (x *Service) artifacts(id string) runner.Collect {
	before := runner.LookAtArtifacts(filepath.Join(x.dir, id, "work"))
	return func(ctx context.Context, r runner.Run) (kept []runner.Artifact, omitted []string, err error) {
		ctx = context.WithoutCancel(ctx) // store them also after a timeout
		expires := time.Now().Add(artifactTTL)
		var foreign, full int
		own := func(name string) bool {
			if !r.Shared() || strings.Contains(name, r.ID) {
				return true
			}
			foreign++
			return false
		}
		omitted, err = before.Each(own, func(f runner.ArtifactFile) error {
			ref, err := x.blobs.Put(ctx, blob.Ref{Principal: r.Owner.Principal, Run: r.ID, Name: f.Name, MIME: f.MIME, Expires: expires}, f,
				runner.MaxArtifactSize)
			if err != nil && capability.AsError(err).Reason == blob.ReasonFull {
				full++
				return nil
			}
			if err == nil {
				kept = append(kept, runner.Artifact{Name: ref.Name, Size: ref.Size, SHA256: ref.SHA256, MIME: ref.MIME})
			}
			return err
		})
		if foreign > 0 { // their names may be those of another principal
			omitted = append(omitted, fmt.Sprintf("%d files: another principal ran the extension at the same time", foreign))
		}
		if full > 0 {
			omitted = append(omitted, fmt.Sprintf("%d files: too many large values are stored", full))
		}
		return kept, omitted, err
	}
}

// last returns the last response of the run's session that the extension may see.
// Outside a session the error is invalid_input.
func (x *Service) last(ctx context.Context, r runner.Run) (session.Result, error) {
	if r.Owner.Session == "" {
		return session.Result{}, fault.InvalidArgs("run both commands with the same --session NAME",
			"the last response belongs to a session, and this run has none")
	}
	return x.results.Last(ctx, r.Owner, session.Reader{Extension: r.Extension, Any: slices.Contains(r.Permissions, "session.read")})
}

// input returns the standard input of an action's program: the typed text, the last
// response or nothing. A last response beyond the sandbox's limit is too_large.
func (x *Service) input(ctx context.Context, r runner.Run) ([]byte, error) {
	switch r.Route.Action.Stdin {
	case "args":
		return []byte(r.Route.Raw), nil
	case "last_response":
		last, err := x.last(ctx, r)
		if err != nil {
			return nil, err
		}
		if len(last.Text) > sandbox.MaxStdin {
			return nil, capability.Errorf(capability.CodeTooLarge, "runner", "the last response has %d bytes; a program reads %d at most",
				len(last.Text), sandbox.MaxStdin)
		}
		return []byte(last.Text), nil
	}
	return nil, nil
}
