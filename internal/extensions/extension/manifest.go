package extension

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/extensions/archive"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

// The reasons of this package's errors; those of commands and plans have their own.
const (
	ReasonManifest = "invalid_manifest"
	ReasonReserved = "reserved_command"
	ReasonPlatform = "platform_not_supported"
	ReasonPolicy   = "runtime_policy"
)

// Manifest is manifest.json.
type Manifest struct {
	ID                  string             `json:"id"`
	Name                string             `json:"name"`
	Version             string             `json:"version"`
	Description         *string            `json:"description"`
	Author              *string            `json:"author"`
	License             *string            `json:"license"`
	Capabilities        []Capability       `json:"capabilities"`
	Platforms           []string           `json:"platforms"`
	Install             Install            `json:"install"`
	Docs                Docs               `json:"docs"`
	PermissionsRequired []string           `json:"permissions_required,omitempty"`
	Permissions         map[string]Purpose `json:"permissions,omitempty"`
	Entrypoint          *string            `json:"entrypoint,omitempty"`
	Icon                string             `json:"icon,omitempty"`
	Runtime             string             `json:"runtime,omitempty"` // declarative (default), script, wasm, python
	Python              *Python            `json:"python,omitempty"`
	ExternalBins        []string           `json:"external_bins,omitempty"`
	Tools               []Tool             `json:"tools,omitempty"`
	Network             Network            `json:"network,omitzero"`
	Limits              Limits             `json:"limits,omitzero"`
	Env                 Env                `json:"env,omitzero"`
	ConfigSchema        json.RawMessage    `json:"config_schema,omitempty"`
	MinAgentVersion     string             `json:"min_agent_version,omitempty"`
}

// Capability is one entry of capabilities, in form A (Type and Name) or form B
// (Command and Runner).
type Capability struct {
	Type        string          `json:"type,omitempty"` // slash_command, tool, agent, workflow
	Name        string          `json:"name,omitempty"` // "/postman", or "examples.hello"
	Description string          `json:"description,omitempty"`
	Config      json.RawMessage `json:"config,omitempty"`

	Command         string            `json:"command,omitempty"`
	Runner          string            `json:"runner,omitempty"`
	Permissions     []string          `json:"permissions,omitempty"`
	ArgsSchema      json.RawMessage   `json:"args_schema,omitempty"`
	TimeoutSec      int               `json:"timeout_sec,omitempty"`
	Summary         string            `json:"summary,omitempty"`
	AllowedCommands []string          `json:"allowed_commands,omitempty"` // of exec.shell
	MaxOutputSize   int64             `json:"max_output_size,omitempty"`
	EnvExtras       map[string]string `json:"env_extras,omitempty"`
}

// Install describes how the package is installed.
type Install struct {
	Mode string `json:"mode,omitempty"` // agentos_managed
	Plan string `json:"plan"`
}

// Docs names the user's guide.
type Docs struct {
	Usage string `json:"usage"`
}

// Purpose is the reason for a permission and the actions that need it.
type Purpose struct {
	Reason  string   `json:"reason"`
	Actions []string `json:"actions,omitempty"`
}

// Python holds the requirements of runtime python.
type Python struct {
	Version      string   `json:"version"`
	Dependencies []string `json:"dependencies"`
}

// Tool is a program contained in the package, or produced by its install plan.
type Tool struct {
	Name   string `json:"name"`
	Path   string `json:"path"` // beneath tools/, or beneath work/
	SHA256 string `json:"sha256"`
}

// Made reports whether the install plan produces the program.
func (t *Tool) Made() bool { return strings.HasPrefix(t.Path, archive.WorkDir+"/") }

// Installed returns the path of the program in the installed package.
func (t *Tool) Installed() string {
	if t.Made() {
		return archive.MadeDir + "/" + t.Name
	}
	return t.Path
}

// Network lists the hosts that an extension reaches: host or *.host, optionally :port.
type Network struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// Env holds the environment variables of programs in addition to the defaults.
type Env struct {
	Pass    []string          `json:"pass,omitempty"`    // names copied from the server's
	Set     map[string]string `json:"set,omitempty"`     // fixed values
	Secrets map[string]string `json:"secrets,omitempty"` // variable → name of a setting or secret
}

// ParseManifest parses and validates manifest.json. A repeated member is an error, an unknown one a
// warning. Errors are invalid_input (too_large beyond 100 KiB), reason invalid_manifest.
func ParseManifest(data []byte) (m *Manifest, warnings []string, err error) {
	if len(data) > MaxManifest {
		return nil, nil, capability.Errorf(capability.CodeTooLarge, "extension", "manifest.json has more than %d bytes",
			MaxManifest).With(ReasonManifest, "")
	}
	m = &Manifest{}
	if err := jsonx.Unmarshal(data, m); err != nil {
		return nil, nil, bad("manifest.json does not fit: %s", declaration.Clean(err.Error(), 300))
	}
	var strict Manifest
	if err := jsonx.UnmarshalStrict(data, &strict); err != nil {
		warnings = append(warnings, unknown(data, err)...)
	}
	k := &checker{}
	m.check(k)
	return m, append(warnings, k.warnings...), k.err
}

// unknown returns warnings for the top-level members that are unknown or contain
// something unknown; if none is found, the error of the strict decoder.
func unknown(data []byte, stopped error) (out []string) {
	var members map[string]json.RawMessage
	if jsonx.Unmarshal(data, &members) == nil {
		for name, value := range members {
			one, err := jsonx.Marshal(map[string]json.RawMessage{name: value})
			if err == nil && jsonx.Unmarshal(one, &Manifest{}) == nil {
				if err := jsonx.UnmarshalStrict(one, &Manifest{}); err != nil && len(out) < 50 {
					out = append(out, fmt.Sprintf("manifest.json: something in %.60q is not known", name))
				}
			}
		}
	}
	slices.Sort(out)
	if out == nil {
		out = []string{"manifest.json: " + declaration.Clean(stopped.Error(), 200)}
	}
	return out
}

func bad(format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeInvalidInput, "extension", format, args...).With(ReasonManifest, "")
}

// checker stores the first error and all warnings.
type checker struct {
	warnings []string
	err      error
}

func (k *checker) hold(ok bool, format string, args ...any) {
	if !ok && k.err == nil {
		k.err = bad(format, args...)
	}
}

func (k *checker) warn(format string, args ...any) {
	if len(k.warnings) < 100 {
		k.warnings = append(k.warnings, fmt.Sprintf(format, args...))
	}
}

// ValidID reports whether an id is valid: at most 120 letters, digits, dots, underscores and
// hyphens with at least one dot between others, and no root that belongs to the server.
func ValidID(id string) bool {
	if !dottedName(id, 120) || !strings.Contains(id, ".") || strings.Contains(id, "..") {
		return false
	}
	lower := strings.ToLower(id)
	for _, root := range []string{"core", "local", "task-agent", "remote", "endpoint", "node", "mcp", "a2a", "skill"} {
		if lower == root || strings.HasPrefix(lower, root+".") {
			return false
		}
	}
	return true
}

func dottedName(name string, maxBytes int) bool {
	return declaration.ValidName(name, maxBytes, "._-") && strings.TrimRight(name, "._-") == name
}

func inPackage(p string) bool {
	return p != "" && len(p) <= 240 && path.Clean(p) == p && !path.IsAbs(p) && p != "." && p != ".." && !strings.HasPrefix(p, "../") &&
		!strings.ContainsAny(p, "\\\x00")
}

func (m *Manifest) check(k *checker) {
	k.hold(ValidID(m.ID), "%.130q is not an extension's id: category.name of letters, digits, '.', '_' and '-', at most 120, beginning with none of the server's own names", m.ID)
	k.hold(strings.TrimSpace(m.Name) != "" && line(m.Name, 128),
		"the name is missing, longer than 128 characters, or holds some that are not shown")
	k.hold(ValidVersion(m.Version), "%.60q is not a version: X.Y.Z, then -pre and +build if wanted", m.Version)
	for _, t := range []struct {
		name  string
		text  *string
		limit int
	}{{"description", m.Description, 4096}, {"author", m.Author, 256}, {"license", m.License, 128}} {
		k.hold(t.text != nil, "%s is missing", t.name)
		k.hold(t.text == nil || showable(*t.text, t.limit), "%s is longer than %d characters, or holds some that are not shown", t.name,
			t.limit)
	}
	k.hold(len(m.Capabilities) > 0 && len(m.Capabilities) <= 100, "capabilities needs between 1 and 100 entries")
	for i := range m.Capabilities {
		m.Capabilities[i].check(k, i)
	}
	k.hold(len(m.Platforms) > 0, "platforms is missing")
	for _, p := range m.Platforms {
		k.hold(slices.Contains([]string{"linux", "darwin", "win32", "all"}, p), "the platform %.40q is not one of linux, darwin, win32 and all",
			p)
	}
	m.Install.Mode = cmp.Or(m.Install.Mode, "agentos_managed")
	k.hold(m.Install.Mode == "agentos_managed", "install.mode %.40q is not known; there is agentos_managed", m.Install.Mode)
	k.hold(inPackage(m.Install.Plan), "install.plan is not a path in the package")
	k.hold(inPackage(m.Docs.Usage), "docs.usage is not a path in the package")
	k.hold(m.Entrypoint == nil, "entrypoint must be absent or null: extensions declare commands, they are not loaded")
	m.asks(k)
	m.runs(k)
	k.hold(m.MinAgentVersion == "" || ValidVersion(m.MinAgentVersion), "min_agent_version is not a version")
}

// asks validates permissions, hosts, limits and environment, and canonicalises the permissions.
func (m *Manifest) asks(k *checker) {
	list, unknown := declaration.CanonicalPermissions(m.PermissionsRequired)
	k.hold(unknown == "", "%.60q is not a permission; there are %s", unknown, declaration.PermissionNames())
	m.PermissionsRequired = list
	purposes := make(map[string]Purpose, len(m.Permissions))
	for name, p := range m.Permissions {
		row, ok := declaration.LookupPermission(name)
		k.hold(ok, "%.60q under permissions is not a permission; there are %s", name, declaration.PermissionNames())
		k.hold(line(p.Reason, 500), "the reason for %.60s is longer than 500 characters, or holds some that are not shown", name)
		if ok && !slices.Contains(list, row.Name) {
			k.warn("permissions gives a reason for %s, which permissions_required does not ask for", row.Name)
		}
		purposes[row.Name] = p
	}
	m.Permissions = purposes
	for _, p := range slices.Concat(m.Network.Allow, m.Network.Deny) {
		k.hold(validHost(p), "%.120q under network is not a host: example.com, *.example.com, either with :port", p)
	}
	k.hold(len(m.Network.Allow) <= 256 && len(m.Network.Deny) <= 256, "network lists more than 256 hosts")
	if len(m.Network.Allow) > 0 && !slices.Contains(list, "network") && !slices.Contains(list, "network.raw") {
		k.warn("network lists hosts, but permissions_required does not ask for network")
	}
	l := m.Limits
	for _, v := range []int64{
		int64(l.TimeoutSec), l.MaxOutputBytes, int64(l.MemoryMB), int64(l.CPUSeconds), int64(l.MaxProcesses),
		int64(l.DiskMB),
	} {
		k.hold(v >= 0, "a limit is negative")
	}
	k.hold(len(m.Env.Pass)+len(m.Env.Set)+len(m.Env.Secrets) <= 128, "env names more than 128 variables")
	for _, name := range m.Env.Pass {
		k.hold(variable(name), "%.60q is not the name of a variable", name)
	}
	for name, value := range m.Env.Set {
		k.hold(!text.IsSteering(name), "env.set: %.60q changes what programs load or trust", name)
		k.hold(variable(name) && len(value) <= 64<<10 && !strings.ContainsRune(value, 0),
			"env.set: %.60q is not the name of a variable, or its value is too long", name)
	}
	for name, key := range m.Env.Secrets {
		k.hold(!text.IsSteering(name), "env.secrets: %.60q changes what programs load or trust", name)
		k.hold(variable(name) && key != "" && line(key, 128), "env.secrets: %.60q is not the name of a variable, or names no setting",
			name)
	}
}

// runs validates runtime, programs, tools, icon and settings schema, and sets the default runtime.
func (m *Manifest) runs(k *checker) {
	m.Runtime = cmp.Or(m.Runtime, "declarative")
	k.hold(slices.Contains([]string{"declarative", "script", "wasm", "python"}, m.Runtime),
		"the runtime %.40q is not one of declarative, script, wasm and python", m.Runtime)
	if m.Runtime == "python" {
		k.hold(m.Python != nil && regexp.MustCompile(`^\d{1,2}\.\d{1,3}$`).MatchString(m.Python.Version),
			"runtime python needs python.version, as X.Y")
	}
	k.hold(len(m.ExternalBins) <= 64, "external_bins has more than 64 names")
	for _, name := range m.ExternalBins {
		k.hold(command.IsToolName(name), "%.80q under external_bins is not the name of a program", name)
	}
	seen := make(map[string]bool)
	k.hold(len(m.Tools) <= 64, "tools has more than 64 entries")
	for i := range m.Tools {
		t := &m.Tools[i]
		t.SHA256 = strings.ToLower(t.SHA256)
		k.hold(command.IsToolName(t.Name) && !seen[t.Name], "the tool's name %.80q is invalid, or is given twice", t.Name)
		seen[t.Name] = true
		k.hold(inPackage(t.Path) && (strings.HasPrefix(t.Path, "tools/") || t.Made()),
			"the tool %.64s must be beneath tools/, or beneath work/ where the plan makes it", t.Name)
		k.hold(len(t.SHA256) == 64 && strings.Trim(t.SHA256, "0123456789abcdef") == "", "the sha256 of the tool %.64s is not one", t.Name)
	}
	if m.Icon != "" {
		ext := strings.ToLower(path.Ext(m.Icon))
		k.hold(inPackage(m.Icon) && slices.Contains([]string{".png", ".svg", ".webp", ".jpg"}, ext),
			"the icon is not a path in the package that ends in png, svg, webp or jpg")
	}
	k.hold(len(m.ConfigSchema) == 0 || m.ConfigSchema[0] == '{', "config_schema is not an object")
}

func (c *Capability) check(k *checker, i int) {
	k.hold(showable(c.Description, 4096) && line(c.Summary, 256),
		"capabilities/%d: a text is too long, or holds characters that are not shown", i)
	if c.Command == "" {
		k.hold(slices.Contains([]string{"slash_command", "tool", "agent", "workflow"}, c.Type),
			"capabilities/%d: the type %.40q is not one of slash_command, tool, agent and workflow", i, c.Type)
		command := strings.HasPrefix(c.Name, "/") && ValidCommandName(CommandName(c.Name))
		k.hold(command || dottedName(c.Name, 128), "capabilities/%d: %.80q is neither a command nor a dotted name", i, c.Name)
		return
	}
	c.Command = CommandName(c.Command)
	k.hold(ValidCommandName(c.Command), "capabilities/%d: %.60q is not a command's name", i, c.Command)
	if err := CheckRunner(c.Runner); err != nil && k.err == nil {
		k.err = err
	}
	list, unknown := declaration.CanonicalPermissions(c.Permissions)
	k.hold(unknown == "", "capabilities/%d: %.60q is not a permission; there are %s", i, unknown, declaration.PermissionNames())
	k.hold(len(list) > 0, "capabilities/%d: permissions needs at least one", i)
	c.Permissions = list
	k.hold(c.TimeoutSec >= 0 && c.TimeoutSec <= 3600 && c.MaxOutputSize >= 0,
		"capabilities/%d: timeout_sec or max_output_size is out of bounds", i)
	k.hold(len(c.ArgsSchema) == 0 || c.ArgsSchema[0] == '{', "capabilities/%d: args_schema is not an object", i)
	if c.Runner == "exec.shell" {
		k.hold(len(c.AllowedCommands) > 0 && len(c.AllowedCommands) <= 100,
			"capabilities/%d: exec.shell needs between 1 and 100 allowed_commands", i)
		for _, t := range c.AllowedCommands {
			k.hold(len(t) <= 4096 && line(t, 4096) && !strings.ContainsAny(t, ";|$><`\n") && !strings.Contains(t, "&&"),
				"capabilities/%d: the template %.80q holds what only a shell would read", i, t)
		}
		for name := range c.EnvExtras {
			k.hold(variable(name), "capabilities/%d: %.60q is not the name of a variable", i, name)
			k.hold(!text.IsSteering(name), "capabilities/%d: %.60q changes what programs load or trust", i, name)
		}
	}
}

func variable(name string) bool {
	return name != "" && len(name) <= 256 && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789") == "" &&
		(name[0] < '0' || name[0] > '9')
}

// validHost reports whether p is a host pattern of the egress proxy, in lower-case
// ASCII. International names must be in their xn-- form.
func validHost(p string) bool {
	host, port, ported := strings.Cut(p, ":")
	if ported && (port == "" || len(port) > 5 || strings.Trim(port, "0123456789") != "") {
		return false
	}
	host = strings.TrimPrefix(host, "*.")
	if host == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}
