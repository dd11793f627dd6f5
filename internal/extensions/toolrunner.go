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

// shellRunner is the runner whose words come from a line of the manifest.
const shellRunner = "exec.shell"

// entryRunner is the runner of a program of the package that the action names: a
// tool by another way, and like the package's tools one that needs exec alone,
// whatever its first line says runs it.
const entryRunner = "exec.entrypoint"

// executors are the families of runners. A new one is one line here.
func (x *Service) executors() map[string]runner.Executor {
	return x.withScripts(map[string]runner.Executor{
		"exec": &toolRunner{x}, "api": &apiRunner{x}, "analyze": &analyzeRunner{x},
		"browser": &browserRunner{x}, "db": &dbRunner{x},
	})
}

// runnerFlags are the flags that a runner's actions understand beside their own.
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

// withFlags declares the flags of the runners, so that what follows one as a word
// is its value. An action's own flag of a name wins, and so does its own letter.
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

// toolRunner carries out exec.<tool>, exec.shell and exec.entrypoint.
type toolRunner struct{ *Service }

// Supports implements runner.Executor.
func (*toolRunner) Supports(name string) bool {
	if name == shellRunner {
		return true
	}
	_, err := command.ToolOf(name)
	return err == nil && !slices.Contains([]string{"exec.script", "exec.python_handler"}, name)
}

// Needs implements runner.Executor.
func (*toolRunner) Needs(a *command.Action) []string {
	return declaration.NeededPermissions(a.Runner, false)
}

// prepared is a program as it would be run.
type prepared struct {
	request  tool.Request
	display  []string // its words, with dots for what must not be seen
	words    []string
	secret   []string // names of the secrets that it gets
	wished   sandbox.Tier
	placed   sandbox.Placement
	manifest *extension.Manifest
	// unfiltered is why its network needs an approval; nil: it does not.
	unfiltered error
}

// prepare finds out what a run is, down to its words.
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

// binds is a digest of what a yes holds for: the words, the names of variables, the
// folder and the permissions. The package is bound by its own hash.
func (p *prepared) binds() (string, error) {
	data, err := jsonx.Marshal([]any{
		p.words, p.manifest.Env.Pass, slices.Sorted(maps.Keys(p.manifest.Env.Set)), p.secret, p.request.Confinement.Work, p.request.Permissions,
		p.placed.Tier, p.placed.Network,
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
	out.Details["argv"] = p.display
	out.Details["sandbox"] = walls(p.placed, p.request.Confinement.Limits)
	out.Details["work_dir"] = p.placed.Work
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
	if p.unfiltered != nil && r.Agreed == "" { // no user can have been asked
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
		if err != nil { // what it said is worth having
			e := *capability.AsError(err)
			return out, e.Detail("output", got.Output).Detail("exit_code", got.ExitCode).Detail("signal", got.Signal)
		}
	}
	return out, err
}

// maxToolOutput is the ceiling of what is kept of a program's output.
const maxToolOutput = 16 << 20

// words are the tool of an action and the template of its arguments.
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

// installed is the extension of a run, as long as it is the one that was published.
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

// artifactTTL is how long a run's artifacts are kept.
const artifactTTL = 24 * time.Hour

// artifacts watches the working folder for what a run makes for others, and keeps
// it for a day.
func (x *Service) artifacts(id string) func(context.Context, runner.Run) ([]runner.Artifact, []string, error) {
	before := runner.LookAtArtifacts(filepath.Join(x.dir, id, "work"))
	return func(ctx context.Context, r runner.Run) (kept []runner.Artifact, omitted []string, err error) {
		ctx = context.WithoutCancel(ctx) // also of a run that came too late
		expires := time.Now().Add(artifactTTL)
		omitted, err = before.Each(func(f runner.ArtifactFile) error {
			ref, err := x.blobs.Put(ctx, blob.Ref{Principal: r.Owner.Principal, Run: r.ID, Name: f.Name, MIME: f.MIME, Expires: expires}, f,
				runner.MaxArtifactSize)
			if err == nil {
				kept = append(kept, runner.Artifact{Name: ref.Name, Size: ref.Size, SHA256: ref.SHA256, MIME: ref.MIME})
			}
			return err
		})
		return kept, omitted, err
	}
}

// last is the last response that a run may see.
func (x *Service) last(ctx context.Context, r runner.Run) (session.Result, error) {
	if r.Owner.Session == "" {
		return session.Result{}, fault.InvalidArgs("run both commands with the same --session NAME",
			"the last response belongs to a session, and this run has none")
	}
	return x.results.Last(ctx, r.Owner, session.Reader{Extension: r.Extension, Any: slices.Contains(r.Permissions, "session.read")})
}

// input is what an action's program reads.
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
