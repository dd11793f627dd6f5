// Package extension reads an extension package: manifest.json,
// commands/commands.yaml, install/plan.yaml and the user's guide become one
// [Package], or an error that names what the author must change. A Package is
// converted to its contributions to the catalog, and to the [Screen] that an operator
// reads before giving a [Consent]. [Scaffold] writes a new package for its author.
// The package stores nothing and runs nothing.
package extension

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/base/yamljson"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
	"github.com/junctor-run/junctor/internal/extensions/plan"
)

// Paths of the parts of a package.
const (
	ManifestFile = "manifest.json"
	CommandsFile = "commands/commands.yaml"
	legacyFile   = "commands.yaml"
	PlanFile     = "install/plan.yaml"
	UsageFile    = "docs/USAGE.md"
)

// Files gives access to the files of a package; archive.Tree implements it.
type Files interface {
	Has(name string) bool
	// ReadFile returns a file; not_found, or too_large beyond limit bytes.
	ReadFile(name string, limit int64) ([]byte, error)
	// Sum returns the SHA-256 of a file of at most limit bytes, in lower-case hex.
	Sum(name string, limit int64) (string, error)
}

// Rules holds the requirements of the operator and the machine, in addition to those of
// the format. Fields with the zero value are not checked.
type Rules struct {
	// Strict treats warnings as errors.
	Strict bool
	// NoExternalBins enables the strict runtime policy; see RuntimePolicy.
	NoExternalBins bool
	// OS is linux, darwin or win32.
	OS string
	// Version is the server's, for min_agent_version. An invalid version is not checked.
	Version string
	// Reserved reports whether a command name belongs to the server.
	Reserved func(name string) bool
	// Schema returns an error for an invalid JSON Schema.
	Schema func(doc []byte) error
}

// Package is a parsed and validated extension package.
type Package struct {
	Manifest Manifest   `json:"manifest"`
	Commands []Command  `json:"commands"`
	Plan     *plan.Plan `json:"plan"`
	// Permissions are all that the package requests anywhere, canonical. The operator
	// consents to them and the runner enforces them.
	Permissions []string `json:"permissions"`
	// Warnings are for the author.
	Warnings []string `json:"warnings,omitempty"`
}

// SecretNames returns the names of the settings and stored secrets that the package uses as secrets:
// for variables of its programs, and as addresses of databases, which have passwords.
func (p *Package) SecretNames() []string {
	names := slices.Collect(maps.Values(p.Manifest.Env.Secrets))
	for i := range p.Commands {
		for _, a := range p.Commands[i].Actions {
			if a.DSNRef != "" {
				names = append(names, a.DSNRef)
			}
		}
	}
	return names
}

// Read reads and validates a package. An error has the reason of the faulty part.
func Read(files Files, rules Rules) (*Package, error) {
	raw, err := files.ReadFile(ManifestFile, MaxManifest)
	if err != nil {
		return nil, err
	}
	m, warnings, err := ParseManifest(raw)
	if err != nil {
		return nil, err
	}
	p := &Package{Manifest: *m, Warnings: warnings}
	if rules.NoExternalBins {
		if code := RuntimePolicy(raw); code != PolicyCompliant {
			return nil, capability.Errorf(capability.CodeDenied, "extension", "the runtime policy forbids it: %s", code).
				With(ReasonPolicy, "declare runtime and an empty external_bins, or turn extensions.no_external_bins off").Detail("policy_code",
				string(code))
		}
	}
	if err := p.fits(rules); err != nil {
		return nil, err
	}
	if rules.Schema != nil && len(m.ConfigSchema) > 0 {
		if err := rules.Schema(m.ConfigSchema); err != nil {
			return nil, bad("config_schema is not a JSON Schema: %s", err)
		}
	}
	for _, name := range []string{PlanFile, UsageFile, m.Install.Plan, m.Docs.Usage} {
		if !files.Has(name) {
			return nil, bad("%.120s is missing", name)
		}
	}
	if err := p.readCommands(files, rules); err != nil {
		return nil, err
	}
	p.Permissions = p.asked()
	for _, name := range p.Permissions {
		if !slices.Contains(m.PermissionsRequired, name) {
			p.warn("commands ask for %s, which permissions_required does not name", name)
		}
	}
	p.warnOfNeeds()
	p.warnOfClaims()
	if programs := p.Programs(); rules.NoExternalBins && len(programs) > 0 {
		return nil, capability.Errorf(capability.CodeDenied, "extension",
			"the runtime policy forbids programs of the machine, and its commands run %s", programs[0]).
			With(ReasonPolicy, "bring the program in the package, or turn extensions.no_external_bins off").Detail("policy_code",
			string(PolicyBinaryForbidden))
	}
	if err := p.readPlan(files); err != nil {
		return nil, err
	}
	if err := p.delivered(files); err != nil {
		return nil, err
	}
	if rules.Strict && len(p.Warnings) > 0 {
		return nil, bad("%s", p.Warnings[0])
	}
	return p, nil
}

func (p *Package) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

// fits returns conflict if the package does not support this system or needs a later
// version of the server.
func (p *Package) fits(rules Rules) error {
	m := &p.Manifest
	if rules.OS != "" && !slices.Contains(m.Platforms, "all") && !slices.Contains(m.Platforms, rules.OS) {
		return capability.Errorf(capability.CodeConflict, "extension", "%s runs on %s, not on %s", m.ID, strings.Join(m.Platforms, ", "),
			rules.OS).With(ReasonPlatform, "")
	}
	if v := strings.TrimPrefix(rules.Version, "v"); m.MinAgentVersion != "" && ValidVersion(v) && CompareVersions(v, m.MinAgentVersion) < 0 {
		return capability.Errorf(capability.CodeConflict, "extension", "%s needs version %s or later of this server, which is %s", m.ID,
			m.MinAgentVersion, v).With(ReasonPlatform, "update the server")
	}
	return nil
}

// readCommands reads the commands (from the legacy path if the current one is missing),
// adds those of form B and finds the scripts. A reserved name is denied.
func (p *Package) readCommands(files Files, rules Rules) error {
	name := CommandsFile
	if !files.Has(name) && files.Has(legacyFile) {
		name = legacyFile
		p.warn("%s is read in place of %s", legacyFile, CommandsFile)
	}
	data, err := files.ReadFile(name, yamljson.MaxBytes)
	if capability.CodeOf(err) == capability.CodeNotFound {
		return bad("%s is missing", CommandsFile)
	}
	if err != nil {
		return err
	}
	list, warnings, err := ParseCommands(data)
	if err != nil {
		return err
	}
	p.Commands, p.Warnings = list, append(p.Warnings, warnings...)
	p.formB()
	for i := range p.Commands {
		c := &p.Commands[i]
		for _, name := range append([]string{c.Name}, c.Aliases...) {
			if bare := strings.TrimPrefix(name, "/"); rules.Reserved != nil && rules.Reserved(bare) {
				return capability.Errorf(capability.CodeDenied, "extension", "%s belongs to the server", name).With(ReasonReserved,
					"give the command another name")
			}
		}
		for j := range c.Actions {
			if err := p.script(files, c, &c.Actions[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// formB applies capabilities of form B to the commands: a declared command receives the
// permissions and timeout, an undeclared one is added with one action.
func (p *Package) formB() {
	for i := range p.Manifest.Capabilities {
		c := &p.Manifest.Capabilities[i]
		if c.Command == "" {
			continue
		}
		at := slices.IndexFunc(p.Commands, func(x Command) bool { return x.Name == c.Command })
		if at < 0 {
			if len(c.AllowedCommands) > 1 {
				p.warn("%s has several allowed_commands and no actions in commands.yaml that name them", c.Command)
			}
			summary := c.Summary
			if summary == "" {
				summary, _, _ = strings.Cut(c.Description, "\n")
			}
			summary = cmp.Or(summary, p.Manifest.Name)
			a := Action{ID: "default", Runner: c.Runner, Description: c.Description, TimeoutSec: c.TimeoutSec}
			if len(c.AllowedCommands) == 1 {
				a.Command = c.AllowedCommands[0]
			}
			p.Commands = append(p.Commands, Command{
				Name: c.Command, Summary: text.CutRunes(summary, 256), Description: c.Description, Runner: c.Runner, Permissions: c.Permissions,
				Actions: []Action{a},
			})
			continue
		}
		cmd := &p.Commands[at]
		cmd.Permissions, _ = declaration.CanonicalPermissions(slices.Concat(cmd.Permissions, c.Permissions))
		for j := range cmd.Actions {
			if cmd.Actions[j].TimeoutSec == 0 {
				cmd.Actions[j].TimeoutSec = c.TimeoutSec
			}
		}
	}
}

// asked returns the union of the permissions that all parts declare.
func (p *Package) asked() []string {
	list := slices.Clone(p.Manifest.PermissionsRequired)
	for i := range p.Manifest.Capabilities {
		list = append(list, p.Manifest.Capabilities[i].Permissions...)
	}
	for i := range p.Commands {
		list = append(list, p.Commands[i].Permissions...)
		for j := range p.Commands[i].Actions {
			list = append(list, p.Commands[i].Actions[j].Permissions...)
		}
	}
	list, _ = declaration.CanonicalPermissions(list)
	return list
}

func (p *Package) readPlan(files Files) error {
	data, err := files.ReadFile(p.Manifest.Install.Plan, yamljson.MaxBytes)
	if err != nil {
		return err
	}
	var warnings []string
	if p.Plan, warnings, err = plan.Parse(data, p.Manifest.ID, p.Manifest.PermissionsRequired); err != nil {
		return err
	}
	p.Warnings = append(p.Warnings, warnings...)
	return nil
}

// delivered returns an error unless the package contains the tools with their declared
// hashes, and the icon.
func (p *Package) delivered(files Files) error {
	for _, t := range p.Manifest.Tools {
		if t.Made() {
			continue
		}
		sum, err := files.Sum(t.Path, maxTool)
		if err != nil {
			return bad("the tool %s: %.120s cannot be read", t.Name, t.Path)
		}
		if sum != t.SHA256 {
			return capability.Errorf(capability.CodeFailed, "extension", "the tool %s is not the one the manifest describes: its sha256 is %s",
				t.Name, sum).With(plan.ReasonVerification, "")
		}
	}
	if icon := p.Manifest.Icon; icon != "" {
		if _, err := files.ReadFile(icon, maxIcon); err != nil {
			return bad("the icon %.120s is missing or has more than %d bytes", icon, maxIcon)
		}
	}
	return nil
}

// Usage returns at most 256 KiB of the user's guide of a package, as valid UTF-8.
func Usage(files Files, m *Manifest) (string, error) {
	data, err := files.ReadFile(m.Docs.Usage, 16<<20) // only the beginning is used
	if err != nil {
		return "", err
	}
	return strings.ToValidUTF8(text.CutBytes(string(data), maxUsage), "\uFFFD"), nil
}

// needed returns the permissions of an action: its own and its command's, or, if neither
// declares any, all of the package's.
func (p *Package) needed(c *Command, a *Action) []string {
	if list, _ := declaration.CanonicalPermissions(slices.Concat(a.Permissions, c.Permissions)); len(list) > 0 {
		return list
	}
	return p.Permissions
}

// warnOfNeeds adds a warning for each action that lacks a permission its runner needs.
func (p *Package) warnOfNeeds() {
	for i := range p.Commands {
		c := &p.Commands[i]
		for j := range c.Actions {
			a := &c.Actions[j]
			for _, name := range declaration.NeededPermissions(a.Runner, a.DSNRef != "") {
				if !slices.Contains(p.needed(c, a), name) {
					p.warn("%s %s cannot run: its runner needs the permission %s, which is not declared for it", c.Name, a.ID, name)
				}
			}
		}
	}
}

// AgentActions returns the actions that become agent tools when the package is enabled:
// those that the package marks and those in chosen ("all" selects every one).
func (p *Package) AgentActions(chosen []string) []string {
	var out []string
	for i := range p.Commands {
		for j := range p.Commands[i].Actions {
			a := &p.Commands[i].Actions[j]
			name := strings.TrimPrefix(p.Commands[i].Name, "/") + "." + a.ID
			if a.AgentVisible || slices.Contains(chosen, "all") || slices.Contains(chosen, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// HasAction reports whether <command>.<action> is declared.
func (p *Package) HasAction(name string) bool {
	return slices.Contains(p.AgentActions([]string{"all"}), name)
}
