// Package permit decides whether an agent's program may use a tool. The program asks through its
// hooks. The decision applies regardless of the program's own settings, which are not a security
// boundary.
//
// The rules apply in this order. A tool that the preset blocks is refused. A file outside of the
// agent's folders is refused. A command that would push, become another user, write outside of
// the folders or read a user's credentials is refused. Before a file changes from
// which programs run commands, the user is asked. A tool that the preset allows is allowed.
// For others the user is asked. This protects against mistakes of agents, not against attacks; a
// sandbox must enforce hard limits.
package permit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

// Effect is the result of a decision.
type Effect string

// The effects.
const (
	Allow Effect = "allow"
	Deny  Effect = "deny"
	Ask   Effect = "ask"
)

// Request is one use of a tool.
type Request struct {
	Framework programs.Name
	Preset    programs.Preset
	Tool      string
	Input     json.RawMessage // of the tool, as its program sent it
	Workdir   string          // absolute, without symbolic links
	Roots     []string        // further allowed folders, in the same form
	Home      string          // home of the user, whose credentials must not be read
	Own       string          // home of the server, which agents must not access

	at string // current directory within a command, as far as it can be determined; "": Workdir
}

// BySettings is the rule of a decision about a file from which programs run commands.
const BySettings = "settings"

// ByCoordinator is the rule of a decision that the coordinator made.
const ByCoordinator = "coordinator"

// Decision is the decision about a request, with its reason.
type Decision struct {
	Effect   Effect            `json:"effect"`
	Category programs.Category `json:"category"`
	Rule     string            `json:"rule"`   // preset, path, command, unreadable, [BySettings] or [ByCoordinator]
	Reason   string            `json:"reason"` // for the agent: the cause and an alternative
}

// Judge decides about a request. It reads the file system to resolve links, and changes nothing.
func Judge(r Request) Decision {
	d := Decision{Category: r.category()}
	verdict := r.Preset.Judge(d.Category)
	if d.Category == programs.ShellUse && verdict != programs.Auto && r.reads() {
		d.Category, verdict = programs.FileRead, r.Preset.Judge(programs.FileRead)
	}
	if verdict == programs.Blocked {
		return d.with(Deny, "preset", fmt.Sprintf("The preset %s does not allow %s. Do what you can without it, and say what is left.", r.Preset,
			words(d.Category)))
	}
	switch d.Category {
	case programs.FileRead, programs.FileWrite:
		paths, ok := pathsOf(r.Input)
		if !ok || len(paths) == 0 && d.Category == programs.FileWrite {
			return d.with(Ask, "unreadable", "It cannot be told which file is meant.")
		}
		for _, p := range paths {
			if why := r.refused(p); why != "" {
				return d.with(Deny, "path", why)
			}
			if d.Category == programs.FileWrite && r.Preset != programs.Autonomous && r.settings(p) {
				return d.with(Ask, BySettings, "Programs run commands from that file, so that the user is asked.")
			}
		}
	case programs.ShellUse:
		command, ok := commandOf(r.Input)
		if !ok {
			return d.with(Ask, "unreadable", "It cannot be told what would be run.")
		}
		dir, ok := dirOfCommand(r.Input)
		if !ok {
			return d.with(Ask, "unreadable", "It cannot be told in which folder the command would run.")
		}
		if why := r.enter(dir); why != "" {
			return d.with(Deny, "path", why)
		}
		if why := r.command(command); why != "" {
			return d.with(Deny, "command", why)
		}
	}
	if verdict == programs.Auto {
		return d.with(Allow, "preset", "")
	}
	return d.with(Ask, "preset", fmt.Sprintf("The preset %s asks before %s.", r.Preset, words(d.Category)))
}

// category returns the category of the tool. One that is not listed and has a command or a script runs it, whatever
// a newer version of the program calls it, unless it is named like a tool of an MCP server.
func (r *Request) category() programs.Category {
	name := strings.ToLower(r.Tool)
	if programs.Listed(r.Framework, r.Tool) || strings.HasPrefix(name, "mcp_") || strings.HasPrefix(name, "junctor_") {
		return programs.CategoryOf(r.Framework, r.Tool)
	}
	var input map[string]json.RawMessage
	_ = jsonx.Unmarshal(r.Input, &input) // anything but an object leaves it empty
	for _, member := range []string{"command", "cmd", "script", "code"} {
		if input[member] != nil {
			return programs.ShellUse
		}
	}
	return programs.Agent
}

// enter sets the folder in which a command is run, and returns why it may not be, or "".
func (r *Request) enter(dir string) string {
	if dir == "" {
		return ""
	}
	if why := r.refused(dir); why != "" {
		return why
	}
	if dir = real(r.absolute(dir)); dir != r.Workdir {
		r.at = dir
	}
	return ""
}

func (d Decision) with(e Effect, rule, reason string) Decision {
	d.Effect, d.Rule, d.Reason = e, rule, reason
	return d
}

func words(c programs.Category) string {
	return map[programs.Category]string{
		programs.FileRead: "reading files", programs.FileWrite: "writing files", programs.ShellUse: "running commands", programs.Web: "the web",
		programs.Agent: "other agents and tools", programs.Planning: "plans", programs.UserInteraction: "questions",
	}[c]
}

// inside reports whether a path, after symbolic links are resolved, is in one of the agent's
// folders.
func (r *Request) inside(path string) bool {
	at := real(path)
	return slices.ContainsFunc(append([]string{r.Workdir}, r.Roots...), func(root string) bool { return root != "" && below(at, root) })
}

// refused returns why a path may not be accessed, or "" if it may.
func (r *Request) refused(path string) string {
	if path = r.absolute(path); !r.inside(path) {
		return "That path is outside of your folder. Stay inside " + r.Workdir + "."
	}
	if r.credentials(path) {
		return "That file holds credentials, which are not yours to read."
	}
	return ""
}

// settings reports whether programs run commands from a file, as named or after symbolic links are resolved.
func (r *Request) settings(path string) bool {
	path = r.absolute(path)
	return slices.ContainsFunc([]string{path, real(path)}, func(at string) bool {
		return programs.IsProjectSettings(strings.TrimPrefix(at, r.Workdir+"/"))
	})
}

// absolute returns a path as the agent's program would open it.
func (r *Request) absolute(path string) string {
	switch {
	case path == "~" || strings.HasPrefix(path, "~/"):
		path = r.Home + path[1:]
	case !filepath.IsAbs(path):
		path = cmp.Or(r.at, r.Workdir) + "/" + path
	}
	return path // not cleaned, because .. after a link is relative to its target
}

// real resolves the symbolic links of the existing part of a path.
func real(path string) string {
	rest := ""
	for range 256 {
		if at, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Clean(at + "/" + rest)
		}
		// A missing file would be created in its resolved folder. A dangling link is resolved
		// here.
		if target, err := os.Readlink(path); err == nil {
			if !filepath.IsAbs(target) {
				target = filepath.Dir(path) + "/" + target
			}
			path = target
			continue
		}
		i := strings.LastIndexByte(strings.TrimRight(path, "/"), '/')
		if i <= 0 {
			break
		}
		last := strings.Trim(path[i+1:], "/")
		path = path[:i]
		switch {
		case last == "..": // of a missing folder: the target is unknown
			return "/"
		case last != "" && last != ".":
			rest = last + "/" + rest
		}
	}
	return filepath.Clean("/" + rest)
}

func below(path, root string) bool {
	return path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
}

// credentials reports whether a path is a place of a user's credentials.
func (r *Request) credentials(path string) bool {
	at := real(path)
	if r.Own != "" && below(at, r.Own) && !below(at, r.Workdir) {
		return true
	}
	home := real(r.Home)
	for _, name := range []string{
		".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker/config.json", ".config/gcloud", ".config/gh", ".netrc", ".git-credentials",
		".npmrc", ".pypirc",
		".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json", ".pi/agent/auth.json", ".local/share/opencode/auth.json",
		".password-store",
	} {
		if r.Home != "" && below(at, home+"/"+name) {
			return true
		}
	}
	return at == "/etc/shadow" || at == "/etc/gshadow" || strings.HasPrefix(at, "/proc/") && strings.HasSuffix(at, "/environ")
}

// pathsOf returns the files that a tool's input names; ok is false if it is not an object.
func pathsOf(input json.RawMessage) (paths []string, ok bool) {
	var object map[string]json.RawMessage
	if len(input) == 0 || jsonx.Unmarshal(input, &object) != nil {
		return nil, false
	}
	for _, name := range []string{"file_path", "notebook_path", "absolute_path", "path", "dir_path", "filePath", "directory"} {
		var text string
		if raw, there := object[name]; there {
			if jsonx.Unmarshal(raw, &text) != nil {
				return nil, false
			}
			paths = append(paths, text)
		}
	}
	for _, name := range []string{"paths", "file_paths"} {
		var list []string
		if raw, there := object[name]; there {
			if jsonx.Unmarshal(raw, &list) != nil {
				return nil, false
			}
			paths = append(paths, list...)
		}
	}
	for _, name := range []string{"patch", "input", "command"} { // of apply_patch
		var text string
		if raw, there := object[name]; there && jsonx.Unmarshal(raw, &text) == nil {
			paths = append(paths, patched(text)...)
		}
	}
	return paths, true
}

// dirOfCommand returns the folder in which the input of a tool lets a command run, or "" for the
// default. ok is false if the input is not an object, or names a folder that is not text, or two.
func dirOfCommand(input json.RawMessage) (dir string, ok bool) {
	var object map[string]json.RawMessage
	if jsonx.Unmarshal(input, &object) != nil {
		return "", len(input) == 0
	}
	for _, name := range []string{"cwd", "workdir", "dir_path", "directory"} {
		var text string
		if raw, there := object[name]; there && string(raw) != "null" {
			if jsonx.Unmarshal(raw, &text) != nil || text != "" && dir != "" && text != dir {
				return "", false
			}
			dir = cmp.Or(text, dir)
		}
	}
	return dir, true
}

// patched returns the files that a patch in Codex's format names.
func patched(text string) (paths []string) {
	for line := range strings.Lines(text) {
		for _, word := range []string{"*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "} {
			if path, found := strings.CutPrefix(strings.TrimRight(line, "\r\n"), word); found {
				paths = append(paths, strings.TrimSpace(path))
			}
		}
	}
	return paths
}
