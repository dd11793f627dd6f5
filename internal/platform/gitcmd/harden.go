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
		{"core.commitGraph", "false"}, // git believes it about the parents of commits
		{"core.attributesFile", "/dev/null"},
		{"core.excludesFile", "/dev/null"},
		{"sequence.editor", "false"},
		{"interactive.diffFilter", "cat"},
		{"diff.ignoreSubmodules", "dirty"},
		{"diff.submodule", "short"},
		{"status.submoduleSummary", "false"},
		{"http.sslVerify", "true"},
		{"http.curloptResolve", ""},
		{"credential.helper", ""},
		{"credential.interactive", "false"},
		{"gpg.program", "false"},
		{"gpg.ssh.program", "false"},
		{"gpg.x509.program", "false"},
		{"gpg.ssh.defaultKeyCommand", ""},
		{"gpg.ssh.allowedSignersFile", ""},
		{"gpg.ssh.revocationFile", ""},
		{"commit.gpgSign", "false"},
		{"commit.status", "false"}, // it runs git status in repositories that an earlier step has brought
		{"commit.template", "/dev/null"},
		{"mailmap.file", "/dev/null"},
		{"diff.orderFile", "/dev/null"},
		{"format.signatureFile", "/dev/null"},
		{"pull.rebase", "false"},
		{"merge.autoStash", "false"}, // it runs git status in repositories that the merge has just brought
		{"rebase.autoStash", "false"},
		{"rebase.instructionFormat", "%s"}, // a line break in it begins another command
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
		{regexp.MustCompile(`(?s)^http\.(.*\.)?cookiefile$`), ""},
		{regexp.MustCompile(`(?s)^http\.(.*\.)?savecookies$`), "false"},
		{regexp.MustCompile(`(?s)^branch\..*\.rebase$`), "false"},
		{regexp.MustCompile(`(?s)^branch\..*\.mergeoptions$`), ""}, // such as -F and a file
		{regexp.MustCompile(`^fetch\.bundleuri$`), ""},
	}
}

// firstCounts matches keys of which git uses the first value, which is the repository's, so that
// they cannot be overridden. They matter only to a Git that may reach remotes.
var firstCounts = regexp.MustCompile(`(?s)^remote\..*\.(uploadpack|receivepack)$`)

// allCount matches keys of which git uses every value. Included files are in the list of keys, but those that
// depend on a branch are only if it is checked out, and a command can check it out.
var allCount = regexp.MustCompile(`(?s)^(include\.path|includeif\..*\.path|gc\.recentobjectshook|((fetch|receive)\.)?fsck\.skiplist)$`)

// neutralise returns an override for every listed key that could execute a program. Errors: denied,
// reason security_violation, for a key that cannot be overridden, and for too many.
func (g *Git) neutralise(keys [][]byte) ([]Setting, error) {
	var out []Setting
	rules := drivers()
	for _, k := range keys {
		key := string(k)
		if firstCounts.MatchString(key) && (g.cfg.LocalRemotes || len(g.cfg.Protocols) > 0) {
			return nil, capability.Errorf(capability.CodeDenied, "git.run", "the repository names a program for its remote").
				With("security_violation", "take uploadpack and receivepack out of its configuration")
		}
		if allCount.MatchString(key) {
			return nil, capability.Errorf(capability.CodeDenied, "git.run", "the repository's configuration has %s, which names a file or program",
				section(key)).
				With("security_violation", "take it out of the repository's configuration")
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
	return out, nil
}

// section returns a key without the part that the repository chose.
func section(key string) string {
	if strings.HasPrefix(key, "includeif.") {
		return "includeIf"
	}
	return key
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
		// Objects and parents are those that a push sends and a merge adds, not those that the repository shows instead.
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_GRAFT_FILE=/dev/null/none", // not /dev/null, which a conversion of grafts removes
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
