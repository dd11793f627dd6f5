package tool

import (
	"os"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/secret"
)

// maxEnvironment bounds all variables together, in bytes.
const maxEnvironment = 64 << 10

// Environment is what a program may see of variables: it is built, never
// inherited.
type Environment struct {
	Extension, Run, Session string
	Pass                    []string                // names that are copied from the server's own, unless they are never
	Set                     map[string]string       // the manifest's own
	Secrets                 map[string]secret.Value // by variable; agreed to, and redacted everywhere
	// Lookup reads a variable of the server; nil is os.LookupEnv.
	Lookup func(name string) (string, bool)
}

// denied are names that change how programs load or what they may do, or that
// smell of a secret. A trailing '*' is any rest, a leading one any beginning.
func denied() []string {
	return strings.Fields("LD_* DYLD_* BASH_ENV ENV BASH_FUNC_* SHELLOPTS PS4 IFS PROMPT_COMMAND PYTHON* PERL5* RUBY* NODE_* JAVA_TOOL_OPTIONS GIT_* SSH_* " +
		"GCONV_PATH LOCPATH NLSPATH TMUX* DBUS_* XDG_RUNTIME_DIR DISPLAY WAYLAND_* *_KEY *_TOKEN *SECRET* *PASSWORD* *CREDENTIAL* " +
		"AWS_* AZURE_* GOOGLE_* GH_* OPENAI_* ANTHROPIC_* JUNCTOR_*")
}

// Denied reports whether a variable is never copied nor set by a manifest.
func Denied(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc(denied(), func(pattern string) bool {
		rest, suffix := strings.CutPrefix(pattern, "*")
		rest, prefix := strings.CutSuffix(rest, "*")
		switch {
		case suffix && prefix:
			return strings.Contains(name, rest)
		case suffix:
			return strings.HasSuffix(name, rest)
		case prefix:
			return strings.HasPrefix(name, rest)
		}
		return name == pattern
	})
}

// build makes the whole environment of a placed program. dirs are the machine's, as
// pkg is, the package's folder; the program sees that where it was placed.
func (e Environment) build(p sandbox.Placement, pkg string, dirs []string) ([]string, error) {
	lookup := e.Lookup
	if lookup == nil {
		lookup = os.LookupEnv
	}
	vars := map[string]string{
		"PATH": strings.Join(seen(existing(dirs, p.Work), pkg, p.Package), ":"), "HOME": p.Work, "PWD": p.Work, "TMPDIR": "/tmp",
		"USER": "agent", "LOGNAME": "agent",
		"LANG": locale(lookup, "LANG"), "LC_ALL": locale(lookup, "LC_ALL"),
		"AGENTOS_EXTENSION_ID": e.Extension, "AGENTOS_RUN_ID": e.Run, "AGENTOS_SESSION_ID": e.Session, "AGENTOS_WORK_DIR": p.Work,
	}
	fixed := make(map[string]bool, len(vars))
	for name := range vars {
		fixed[name] = true
	}
	for _, name := range e.Pass {
		value, ok := lookup(name)
		if ok && validVariable(name) && !Denied(name) && !fixed[name] {
			vars[name] = value
		}
	}
	for name, value := range e.Set {
		if !validVariable(name) || Denied(name) || fixed[name] && name != "LANG" && name != "LC_ALL" {
			return nil, fault.SecurityViolation("the extension may not set the variable " + name)
		}
		vars[name] = value
	}
	for name, value := range e.Secrets { // the user agreed to the name as it is
		if !validVariable(name) || fixed[name] || strings.HasPrefix(name, "LD_") {
			return nil, fault.SecurityViolation("the extension may not set the variable " + name)
		}
		vars[name] = value.Reveal()
	}
	out := make([]string, 0, len(vars))
	total := 0
	for name, value := range vars {
		if strings.IndexByte(value, 0) >= 0 {
			return nil, fault.SecurityViolation("the variable " + name + " holds a NUL byte")
		}
		out = append(out, name+"="+value)
		total += len(name) + len(value) + 2
	}
	if total > maxEnvironment {
		return nil, tooLong("the environment has %d bytes; the limit is %d", total, maxEnvironment)
	}
	slices.Sort(out)
	return out, nil
}

// secrets are the values that must not be shown.
func (e Environment) secrets() []string {
	var out []string
	for _, v := range e.Secrets {
		if text := v.Reveal(); len(text) >= minSecret {
			out = append(out, text)
		}
	}
	// The longest first, or a part of it would be left.
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out
}

// existing are the absolute directories that are there and that the program cannot
// write into.
func existing(dirs []string, work string) (out []string) {
	for _, dir := range dirs {
		if !strings.HasPrefix(dir, "/") || dir == work || strings.HasPrefix(dir, work+"/") || strings.ContainsRune(dir, ':') {
			continue
		}
		if info, err := os.Stat(dir); err == nil && info.IsDir() && !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}

// seen names the directories of the package as the program sees them.
func seen(dirs []string, pkg, inside string) []string {
	for i, dir := range dirs {
		if rest, ok := strings.CutPrefix(dir, pkg+"/"); ok && pkg != "" {
			dirs[i] = inside + "/" + rest
		}
	}
	return dirs
}

func locale(lookup func(string) (string, bool), name string) string {
	value, ok := lookup(name)
	sane := ok && value != "" && len(value) <= 64
	for i := range len(value) {
		c := value[i]
		sane = sane && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("._@-", rune(c)))
	}
	if !sane {
		return "C.UTF-8"
	}
	return value
}

func validVariable(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
