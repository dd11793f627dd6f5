package gitcmd

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// fixed returns overrides for all keys with a fixed name that configure a program, a file to read,
// or a connection. "false" and "cat" are harmless programs for keys whose empty value still
// runs something.
func fixed() []Setting {
	return []Setting{
		{"core.hooksPath", "/dev/null"},
		{"core.fsmonitor", "false"},
		{"core.untrackedCache", "false"},
		{"core.sshCommand", "ssh"},
		{"core.gitProxy", ""},
		{"core.askPass", ""},
		{"core.editor", "false"},
		{"core.pager", "cat"},
		{"core.alternateRefsCommand", "false"},
		{"core.attributesFile", "/dev/null"},
		{"core.excludesFile", "/dev/null"},
		{"sequence.editor", "false"},
		{"interactive.diffFilter", "cat"},
		{"diff.ignoreSubmodules", "dirty"},
		{"credential.helper", ""},
		{"credential.interactive", "false"},
		{"gpg.program", "false"},
		{"gpg.ssh.defaultKeyCommand", ""},
		{"commit.gpgSign", "false"},
		{"commit.template", "/dev/null"},
		{"tag.gpgSign", "false"},
		{"push.gpgSign", "false"},
		{"log.showSignature", "false"},
		{"merge.verifySignatures", "false"},
		{"protocol.allow", "never"}, // GIT_ALLOW_PROTOCOL takes precedence; this applies to a git started without it
		{"protocol.ext.allow", "never"},
		{"submodule.recurse", "false"},
		{"fetch.recurseSubmodules", "false"},
		{"push.recurseSubmodules", "no"},
		{"safe.bareRepository", "explicit"},
		{"gc.auto", "0"}, // a background gc would outlive the command
		{"maintenance.auto", "false"},
		{"init.templateDir", "/dev/null"},
		{"advice.detachedHead", "false"},
		{"uploadpack.packObjectsHook", ""},
	}
}

// driver is the override for keys whose middle part the repository chose.
type driver struct {
	key   *regexp.Regexp // matches the listed name, in which section and variable are lower case
	value string
}

// drivers returns the overrides for keys with a name chosen by the repository. The first match
// applies.
func drivers() []driver {
	return []driver{
		{regexp.MustCompile(`(?s)^filter\..*\.(clean|smudge|process)$`), ""},
		{regexp.MustCompile(`(?s)^filter\..*\.required$`), "false"},
		// The override would break every diff, so it applies only if the key is set.
		{regexp.MustCompile(`^diff\.external$`), "false"},
		{regexp.MustCompile(`(?s)^diff\..*\.command$`), "false"},
		{regexp.MustCompile(`(?s)^diff\..*\.textconv$`), "cat"},
		{regexp.MustCompile(`(?s)^diff\..*\.cachetextconv$`), "false"},
		{regexp.MustCompile(`(?s)^merge\..*\.driver$`), "false"},
		{regexp.MustCompile(`(?s)^alias\.`), ""},
		{regexp.MustCompile(`(?s)^credential\..*\.helper$`), ""},
		{regexp.MustCompile(`(?s)^gpg\..*\.(program|defaultkeycommand)$`), "false"},
		{regexp.MustCompile(`(?s)^trailer\..*\.(command|cmd)$`), "false"},
		{regexp.MustCompile(`(?s)^(difftool|mergetool|man|browser|guitool)\..*\.(cmd|path)$`), "false"},
		{regexp.MustCompile(`(?s)^tar\..*\.command$`), "false"},
		{regexp.MustCompile(`(?s)^pager\.`), "false"},
		{regexp.MustCompile(`(?s)^protocol\..*\.allow$`), "never"},
		{regexp.MustCompile(`(?s)^remote\..*\.vcs$`), ""},
		{regexp.MustCompile(`(?s)^submodule\..*\.update$`), "none"},
		{regexp.MustCompile(`(?s)^submodule\..*\.ignore$`), "dirty"},
		{regexp.MustCompile(`(?s)^hook\..*\.command$`), "false"},
		{regexp.MustCompile(`(?s)^http\..*proxy$`), ""},
	}
}

// firstCounts matches keys of which git uses the first value, which is the repository's, so that
// they cannot be overridden. They matter only to a Git that may reach remotes.
var firstCounts = regexp.MustCompile(`(?s)^remote\..*\.(uploadpack|receivepack)$`)

// neutralise returns an override for every listed key that could execute a program. It adds an
// author if the repository has none, because the user's own configuration is not read. Errors:
// denied, reason security_violation, for a key that cannot be overridden, and for too many.
func (g *Git) neutralise(keys [][]byte) ([]Setting, error) {
	var out []Setting
	rules := drivers()
	author := false
	for _, k := range keys {
		key := string(k)
		if key == "user.name" {
			author = true
		}
		if firstCounts.MatchString(key) && (g.cfg.LocalRemotes || len(g.cfg.Protocols) > 0) {
			return nil, capability.Errorf(capability.CodeDenied, "git.run", "the repository names a program for its remote").
				With("security_violation", "take uploadpack and receivepack out of its configuration")
		}
		for _, d := range rules {
			if d.key.MatchString(key) {
				out = append(out, Setting{key, d.value})
				break
			}
		}
		if len(out) > maxOverrides {
			return nil, tooMany()
		}
	}
	if !author {
		out = append(out, Setting{"user.name", "junctor"}, Setting{"user.email", "junctor@localhost"})
	}
	return out, nil
}

// environment returns git's whole environment. Settings are passed as GIT_CONFIG_* variables and
// not as -c options, because keys chosen by a repository may contain '=' and line breaks.
func (g *Git) environment(c Command, overrides []Setting) []string {
	protocols := g.cfg.Protocols
	if g.cfg.LocalRemotes {
		protocols = append(slices.Clip(protocols), "file")
	}
	env := []string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"HOME=/dev/null", "XDG_CONFIG_HOME=/dev/null",
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=", "SSH_ASKPASS_REQUIRE=never", "GCM_INTERACTIVE=never",
		"GIT_PAGER=cat", "PAGER=cat", "GIT_EDITOR=false", "GIT_SEQUENCE_EDITOR=false", "GIT_MERGE_AUTOEDIT=no",
		// Takes precedence over core.sshCommand: no proxy command, no forwarding.
		"GIT_SSH_COMMAND=ssh -F /dev/null -o BatchMode=yes -o ClearAllForwardings=yes", "GIT_SSH_VARIANT=ssh",
		"GIT_ALLOW_PROTOCOL=" + strings.Join(protocols, ":"), "GIT_PROTOCOL_FROM_USER=0",
		"LC_ALL=C", "TERM=dumb",
	}
	if !c.LazyFetch {
		env = append(env, "GIT_NO_LAZY_FETCH=1")
	}
	if c.ReadOnly {
		env = append(env, "GIT_OPTIONAL_LOCKS=0")
	}
	for _, inherited := range sandbox.Environment() {
		if name, _, _ := strings.Cut(inherited, "="); name == "PATH" || name == "TMPDIR" || name == "TZ" || name == "SYSTEMROOT" {
			env = append(env, inherited)
		}
	}
	all := append(fixed(), overrides...)
	if c.Root != "" {
		// Discovery must not leave the root, and repositories of other owners are trusted
		// only between Dir and the root.
		env = append(env, "GIT_CEILING_DIRECTORIES="+filepath.Dir(c.Root))
		for dir, n := c.Dir, 0; n < maxAncestors; dir, n = filepath.Dir(dir), n+1 {
			all = append(all, Setting{"safe.directory", dir})
			if dir == c.Root || dir == filepath.Dir(dir) {
				break
			}
		}
	}
	all = append(all, c.Settings...)
	env = append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(len(all)))
	for i, s := range all {
		n := strconv.Itoa(i)
		env = append(env, "GIT_CONFIG_KEY_"+n+"="+s.Key, "GIT_CONFIG_VALUE_"+n+"="+s.Value)
	}
	return env
}
