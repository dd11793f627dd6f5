package tool

import (
	"os"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/secret"
)

// Environment describes the environment variables of a program. The server's own
// environment is not inherited.
type Environment struct {
	Extension, Run, Session string
	Pass                    []string                // names that are copied from the server's environment, except [Denied] ones
	Set                     map[string]string       // values from the manifest
	Secrets                 map[string]secret.Value // by variable; redacted from all output
	// Lookup returns a variable of the server; nil means os.LookupEnv.
	Lookup func(name string) (string, bool)
}

// denied returns the patterns of names, in addition to [text.IsSteering], that change what programs
// may do or suggest a secret. A leading or trailing '*' matches any text.
func denied() []string {
	return strings.Fields("PYTHON* NODE_* GIT_* SSH_* TMUX* DBUS_* XDG_RUNTIME_DIR DISPLAY WAYLAND_* *_KEY *_TOKEN *SECRET* *PASSWORD* *CREDENTIAL* " +
		"AWS_* AZURE_* GOOGLE_* GH_* OPENAI_* ANTHROPIC_* JUNCTOR_*")
}

// Denied reports whether a variable can be neither copied nor set by a manifest. The names of
// secrets may suggest one, because the user agreed to them, but not steer a program.
func Denied(name string) bool {
	name = strings.ToUpper(name)
	return text.IsSteering(name) || slices.ContainsFunc(denied(), func(pattern string) bool {
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

// build returns the sorted environment of a program. pkg and dirs (for PATH) are paths
// of the machine; those below pkg are replaced with where the program sees them. Errors:
// denied, reason security_violation (a variable that must not be set, a NUL byte);
// args_too_long (more than maxEnvironment).
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
	for name, value := range e.Secrets { // the user agreed to the name, so it may suggest a secret
		if !validVariable(name) || fixed[name] || text.IsSteering(name) {
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

// secrets returns the values to redact, longest first.
func (e Environment) secrets() []string {
	var out []string
	for _, v := range e.Secrets {
		if text := v.Reveal(); len(text) >= minSecret {
			out = append(out, text)
		}
	}
	// Otherwise a secret that contains another one would be redacted only in part.
	slices.SortFunc(out, func(a, b string) int { return len(b) - len(a) })
	return out
}

// existing returns the absolute directories that exist and are not in the working
// folder, which the program can write to. Duplicates and names with ':' are left out.
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

// seen replaces, in dirs itself, the prefix pkg with inside, its path in the sandbox.
func seen(dirs []string, pkg, inside string) []string {
	for i, dir := range dirs {
		if rest, ok := strings.CutPrefix(dir, pkg+"/"); ok && pkg != "" {
			dirs[i] = inside + "/" + rest
		}
	}
	return dirs
}

// locale returns the server's value of a locale variable, or C.UTF-8 if it is unset or
// not a plausible locale name.
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
