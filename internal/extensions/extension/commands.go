package extension

// This file reads commands/commands.yaml, in its current and its older shape, into one list of
// slash commands with their actions, and checks its limits. Permissions are enforced when a
// command runs.

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/yamljson"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

// The reasons of this package's errors.
const (
	ReasonCommands = "invalid_commands"
	ReasonRunner   = "unsupported_runner"
)

// Command is one slash command.
type Command struct {
	Name          string    `json:"name"` // "/postman", lower case
	Summary       string    `json:"summary"`
	Description   string    `json:"description,omitempty"`
	Examples      []Example `json:"examples,omitempty"`
	Runner        string    `json:"runner,omitempty"` // of actions that name none
	DefaultAction string    `json:"default_action,omitempty"`
	Capability    string    `json:"capability,omitempty"`
	Aliases       []string  `json:"aliases,omitempty"` // with their slash
	Hidden        bool      `json:"hidden,omitempty"`
	Permissions   []string  `json:"permissions,omitempty"` // canonical
	Confirm       string    `json:"confirm,omitempty"`     // never, first, always
	Actions       []Action  `json:"actions"`
}

// Example is a line to try, and what it does.
type Example struct {
	Command     string `json:"command"`
	Description string `json:"description,omitempty"`
}

// Action is one action of a command. Runner is never empty.
type Action struct {
	ID          string            `json:"id"`
	Aliases     []string          `json:"aliases,omitempty"`
	Runner      string            `json:"runner"`
	Summary     string            `json:"summary,omitempty"`
	Description string            `json:"description,omitempty"`
	Argv        []string          `json:"argv,omitempty"`
	Args        []Argument        `json:"args,omitempty"`
	Flags       []Argument        `json:"flags,omitempty"`
	TimeoutSec  int               `json:"timeout_sec,omitempty"`
	Permissions []string          `json:"permissions,omitempty"` // canonical
	Confirm     string            `json:"confirm,omitempty"`
	Sensitive   []string          `json:"sensitive,omitempty"` // arguments and flags that are never logged
	CacheSec    int               `json:"cache_ttl_sec,omitempty"`
	Priority    string            `json:"priority,omitempty"` // low, normal, high, critical
	Stdin       string            `json:"stdin,omitempty"`    // none, args, last_response
	Output      Output            `json:"output,omitzero"`
	BaseURL     string            `json:"base_url,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	DSNRef      string            `json:"dsn_ref,omitempty"`
	Command     string            `json:"command,omitempty"`    // for exec.shell: one of the manifest's allowed_commands
	Entrypoint  string            `json:"entrypoint,omitempty"` // for exec.entrypoint: a program of the package
	Script      string            `json:"script,omitempty"`     // for script.js, script.wasm, exec.script and builtin: a file of the package
	// ScriptSHA256 is the hash of the file of Entrypoint or Script, in lower-case hex.
	// It is computed, never read from the file.
	ScriptSHA256 string `json:"script_sha256,omitempty"`
	AgentVisible bool   `json:"agent_visible,omitempty"`
}

// Output describes the format and limit of an action's output.
type Output struct {
	Format   string `json:"format,omitempty"` // text, json, binary
	MaxBytes int64  `json:"max_bytes,omitempty"`
	Store    bool   `json:"store,omitempty"`
}

// Argument is an argument or a flag.
type Argument struct {
	Name        string   `json:"name"`
	Short       string   `json:"short,omitempty"` // of a flag
	Description string   `json:"description,omitempty"`
	Type        string   `json:"type,omitempty"` // string, integer, number, boolean
	Required    bool     `json:"required,omitempty"`
	Default     *string  `json:"default,omitempty"`
	Choices     []string `json:"choices,omitempty"`
	Pattern     string   `json:"pattern,omitempty"`
	TakesValue  *bool    `json:"takes_value,omitempty"` // of a flag; nil: yes unless it is a boolean
	AllowDash   bool     `json:"allow_dash,omitempty"`
}

// ParseCommands parses commands.yaml. warnings name unknown members. Errors are invalid_input
// (too_large beyond 500 KiB), reason invalid_commands or unsupported_runner, and name the command.
func ParseCommands(data []byte) (list []Command, warnings []string, err error) {
	doc, err := yamljson.ToJSON(data, ReasonCommands)
	if err != nil {
		return nil, nil, err
	}
	var f struct {
		Slash  []wireCommand `json:"slash_commands"`
		Legacy []wireLegacy  `json:"commands"`
	}
	if err := jsonx.Unmarshal(doc, &f); err != nil {
		return nil, nil, badCommands("commands.yaml does not fit: %s", declaration.Clean(err.Error(), 300))
	}
	if len(f.Slash) > maxCommands || len(f.Legacy) > maxCommands {
		return nil, nil, badCommands("there are more than %d commands", maxCommands)
	}
	if f.Slash == nil {
		for i := range f.Legacy {
			c, err := f.Legacy[i].modern()
			if err != nil {
				return nil, nil, err
			}
			list = append(list, c)
			warnings = append(warnings, c.Name+" is in the older shape; it is read as slash_commands")
		}
	} else {
		if f.Legacy != nil {
			warnings = append(warnings, "commands is passed over: slash_commands is there")
		}
		if err := jsonx.UnmarshalStrict(doc, &f); err != nil {
			warnings = append(warnings, "something is not known: "+declaration.Clean(err.Error(), 200))
		}
		for i := range f.Slash {
			list = append(list, f.Slash[i].plain())
		}
	}
	if len(list) == 0 {
		return nil, nil, badCommands("commands.yaml declares no command")
	}
	seen := make(map[string]bool)
	for i := range list {
		if err := list[i].check(); err != nil {
			return nil, nil, err
		}
		for _, name := range append([]string{list[i].Name}, list[i].Aliases...) {
			if seen[name] {
				return nil, nil, badCommands("%s is declared twice", name)
			}
			seen[name] = true
		}
	}
	return list, warnings, nil
}

func badCommands(format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeInvalidInput, "commands", format, args...).With(ReasonCommands, "")
}

// CommandName normalises a command's name: lower case, with one slash.
func CommandName(s string) string {
	return "/" + strings.ToLower(strings.TrimPrefix(strings.TrimSpace(s), "/"))
}

// ValidCommandName reports whether a normalised name matches ^/[a-z][a-z0-9_-]{0,31}$.
func ValidCommandName(name string) bool {
	if len(name) < 2 || len(name) > 33 || name[0] != '/' || name[1] < 'a' || name[1] > 'z' {
		return false
	}
	return strings.Trim(name[1:], "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

func validAction(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || !('0' <= c && c <= '9' || c == '_' || c == '-')) {
			return false
		}
	}
	return true
}

// CheckRunner returns an error unless a runner is a known family or family.name. For
// exec.*, the name must not be a path.
func CheckRunner(runner string) error {
	family, rest, dotted := strings.Cut(runner, ".")
	ok := family != "" && len(runner) <= 80 && strings.Trim(family, "abcdefghijklmnopqrstuvwxyz_") == ""
	if dotted {
		ok = ok && rest != "" && len(rest) <= 64 && strings.Trim(rest,
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-") == "" &&
			strings.IndexByte("._+-", rest[0]) < 0 && !strings.Contains(rest, "..")
	}
	if !ok {
		return capability.Errorf(capability.CodeInvalidInput, "commands", "%.80q is not a runner", runner).
			With(ReasonRunner, "known families are exec, analyze, api, db, browser, script and builtin")
	}
	return nil
}

// line reports whether a text has at most limit characters on one line and none that
// cannot be displayed. showable also allows line ends and tabs.
func line(s string, limit int) bool { return showable(s, limit) && !strings.ContainsAny(s, "\n\t") }

func showable(s string, limit int) bool {
	return len(s) <= 4*limit && utf8.RuneCountInString(s) <= limit && !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' || r == utf8.RuneError || unicode.Is(unicode.Bidi_Control, r)
	})
}

// check validates the command and its actions and returns the first error. It also
// canonicalises permissions and sets the runner of actions that name none.
func (c *Command) check() error {
	if !ValidCommandName(c.Name) {
		return badCommands("%.60q is not a command's name: a slash, a letter, then at most 31 of a-z, 0-9, _ and -", c.Name)
	}
	k := commandChecker{at: c.Name}
	for _, a := range c.Aliases {
		k.hold(ValidCommandName(a), "the alias %.60q is not a command's name", a)
	}
	k.hold(c.Summary != "" && line(c.Summary, maxSummary), "it needs a summary: one line, at most %d characters", maxSummary)
	k.hold(showable(c.Description, maxText), "the description is longer than %d characters or holds some that are not shown", maxText)
	k.hold(len(c.Examples) <= maxItems && len(c.Aliases) <= maxItems, "it has more than %d examples or aliases", maxItems)
	for _, e := range c.Examples {
		k.hold(e.Command != "" && line(e.Command, maxText) && showable(e.Description, maxText),
			"an example is empty, too long, or cannot be shown")
	}
	k.confirm(c.Confirm)
	k.permissions(&c.Permissions)
	k.hold(len(c.Actions) > 0 && len(c.Actions) <= maxActions, "it needs between 1 and %d actions", maxActions)
	ids := make(map[string]bool)
	for i := range c.Actions {
		a := &c.Actions[i]
		k.at = c.Name + " " + cut(a.ID)
		a.Runner = cmp.Or(a.Runner, c.Runner)
		a.check(&k)
		for _, id := range append([]string{a.ID}, a.Aliases...) {
			k.hold(validAction(id) && !ids[id], "the action id %.80q is invalid, or is given twice", id)
			ids[id] = true
		}
	}
	k.at = c.Name
	k.hold(c.DefaultAction == "" || ids[c.DefaultAction], "its default action %.80q is not one of its actions", c.DefaultAction)
	return k.err
}

func cut(s string) string {
	if r := []rune(strings.ToValidUTF8(s, "?")); len(r) > 64 {
		return string(r[:64])
	}
	return s
}

// commandChecker stores the first error.
type commandChecker struct {
	at  string
	err error
}

func (k *commandChecker) hold(ok bool, format string, args ...any) {
	if !ok && k.err == nil {
		k.err = badCommands("%.100s: %s", k.at, fmt.Sprintf(format, args...))
	}
}

func (k *commandChecker) one(what, value string, words ...string) {
	k.hold(value == "" || slices.Contains(words, value), "%s is %.40q; it can be %s", what, value, strings.Join(words, ", "))
}

func (k *commandChecker) confirm(value string) { k.one("confirm", value, "never", "first", "always") }

func (k *commandChecker) permissions(list *[]string) {
	got, unknown := declaration.CanonicalPermissions(*list)
	k.hold(unknown == "", "%.40q is not a permission; there are %s", unknown, declaration.PermissionNames())
	*list = got
}

func (a *Action) check(k *commandChecker) {
	if err := CheckRunner(a.Runner); err != nil && k.err == nil {
		e := capability.AsError(err)
		e.Message = cut(k.at) + ": " + e.Message
		k.err = e
	}
	k.hold(line(a.Summary, maxSummary) && showable(a.Description, maxText), "its text is too long or cannot be shown")
	k.hold(len(a.Argv) <= maxItems, "its argv has more than %d items", maxItems)
	for _, item := range a.Argv {
		k.hold(len(item) <= maxText && !strings.ContainsRune(item, 0), "an item of its argv is too long or holds a NUL")
	}
	k.arguments(a.Args, false)
	k.arguments(a.Flags, true)
	k.hold(0 <= a.TimeoutSec && a.TimeoutSec <= 3600, "timeout_sec is between 0 and 3600")
	k.hold(0 <= a.CacheSec && a.CacheSec <= 86_400, "cache.ttl_sec is between 0 and 86400")
	k.permissions(&a.Permissions)
	k.confirm(a.Confirm)
	k.one("priority", a.Priority, "low", "normal", "high", "critical")
	k.one("stdin", a.Stdin, "none", "args", "last_response")
	k.one("output.format", a.Output.Format, "text", "json", "binary")
	k.hold(0 <= a.Output.MaxBytes && a.Output.MaxBytes <= 16<<20, "output.max_bytes is between 0 and 16777216")
	k.hold(len(a.BaseURL) <= 2048 && len(a.Headers) <= 64 && len(a.DSNRef) <= 128 && showable(a.Command, maxText),
		"base_url, headers, dsn_ref or command is too long")
	k.hold(a.Entrypoint == "" || inPackage(a.Entrypoint), "the entrypoint is not a path in the package")
	k.hold(a.Script == "" || inPackage(a.Script), "the script is not a path in the package")
	k.hold(a.Runner != "exec.entrypoint" || a.Entrypoint != "", "exec.entrypoint needs an entrypoint: a program of the package")
	for _, name := range a.Sensitive {
		k.hold(slices.ContainsFunc(append(slices.Clip(a.Args), a.Flags...), func(x Argument) bool { return x.Name == name }),
			"sensitive names %.60q, which is neither an argument nor a flag", name)
	}
}

func (k *commandChecker) arguments(list []Argument, flags bool) {
	k.hold(len(list) <= maxArgs, "it has more than %d arguments or flags", maxArgs)
	seen := make(map[string]bool)
	for i := range list {
		x := &list[i]
		k.hold(validAction(x.Name) && !seen[x.Name], "the name %.80q of an argument is invalid, or is given twice", x.Name)
		seen[x.Name] = true
		k.hold(showable(x.Description, maxText), "the description of %s is too long or cannot be shown", x.Name)
		k.one("the type of "+x.Name, x.Type, "string", "integer", "number", "boolean")
		k.hold(len(x.Choices) <= maxItems, "%s has more than %d choices", x.Name, maxItems)
		k.hold(x.Short == "" || flags && len(x.Short) == 1 && validAction(x.Short), "%s has a short form that is not one letter", x.Name)
		if x.Pattern != "" {
			_, err := regexp.Compile(x.Pattern)
			k.hold(err == nil && len(x.Pattern) <= 512, "the pattern of %s is not a regular expression (RE2), or too long", x.Name)
		}
	}
}
