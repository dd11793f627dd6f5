package permit

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// commandOf returns the command in a tool's input, which is a string or a list of words. ok is
// false if the input has none and does not refer to a running command.
func commandOf(input json.RawMessage) (text string, ok bool) {
	var object map[string]json.RawMessage
	if len(input) == 0 || jsonx.Unmarshal(input, &object) != nil {
		return "", false
	}
	for _, name := range []string{"command", "cmd", "chars"} {
		raw, there := object[name]
		if !there {
			continue
		}
		if jsonx.Unmarshal(raw, &text) == nil {
			return text, true
		}
		var list []string
		if jsonx.Unmarshal(raw, &list) != nil {
			return "", false
		}
		for i, word := range list {
			quoted, err := syntax.Quote(word, syntax.LangBash)
			if err != nil {
				return "", false
			}
			list[i] = quoted
		}
		return strings.Join(list, " "), true
	}
	return "", object["shell_id"] != nil || object["bash_id"] != nil || object["task_id"] != nil // refers to a running command
}

// command returns why a command may not be run, or "" if it may.
func (r *Request) command(text string) string { return r.script(text, 0) }

// script parses text as a Bash script and returns why it may not be run, or "". It follows cd, and
// nested scripts up to maxNested.
func (r *Request) script(text string, depth int) (why string) {
	if len(text) > maxCommand || depth > maxNested {
		return "The command is too long, or nested too deeply, to be looked into. Write it as several short ones."
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		return "The command cannot be read: it is not a shell command that ends."
	}
	// Where a command works changes with cd, and back at the end of what has a shell of
	// its own; Walk says nil at the end of each node.
	before := r.at
	defer func() { r.at = before }()
	type opened struct {
		own bool
		at  string
	}
	var open []opened
	syntax.Walk(file, func(node syntax.Node) bool {
		if node == nil {
			if last := open[len(open)-1]; last.own {
				r.at = last.at
			}
			open = open[:len(open)-1]
			return true
		}
		if why != "" {
			return false
		}
		own := false
		switch node.(type) {
		case *syntax.Subshell, *syntax.CmdSubst, *syntax.ProcSubst:
			own = true
		}
		open = append(open, opened{own, r.at})
		switch n := node.(type) {
		case *syntax.CallExpr:
			var words []string
			for _, w := range n.Args {
				words = append(words, literal(w))
			}
			why = r.call(words, depth)
		case *syntax.Redirect:
			path := ""
			if n.Word != nil && !slices.Contains([]syntax.RedirOperator{syntax.DplIn, syntax.DplOut, syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc},
				n.Op) {
				path = literal(n.Word)
			}
			switch {
			case path == "" || path == "/dev/null" || path == "/dev/stderr" || path == "/dev/stdout" || path == "/dev/tty":
			case r.credentials(r.absolute(path)):
				why = "That file holds credentials, which are not yours to read."
			case n.Op != syntax.RdrIn && !r.inside(r.absolute(path)):
				why = "The command writes outside of your folder. Stay inside " + r.Workdir + "."
			}
		}
		if why != "" {
			open = open[:len(open)-1]
		}
		return why == ""
	})
	return why
}

// literal returns the literal parts of a word, without the shell's expansions.
func literal(w *syntax.Word) string {
	var b strings.Builder
	var parts func([]syntax.WordPart)
	parts = func(list []syntax.WordPart) {
		for _, p := range list {
			switch p := p.(type) {
			case *syntax.Lit:
				b.WriteString(unescaped(p.Value))
			case *syntax.SglQuoted:
				b.WriteString(p.Value)
			case *syntax.DblQuoted:
				parts(p.Parts)
			case *syntax.ParamExp:
				if p.Param != nil && p.Param.Value == "HOME" {
					b.WriteString("~")
				}
			}
		}
	}
	parts(w.Parts)
	return b.String()
}

// unescaped removes the backslashes of a plain word: s\udo is sudo.
func unescaped(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// pushes reports whether a git command would send commits away, also by an alias.
func pushes(args []string) bool {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		skip := 1
		if slices.Contains([]string{"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env"}, args[0]) {
			skip = min(2, len(args))
			if strings.HasPrefix(args[skip-1], "alias.") {
				return true
			}
		}
		args = args[skip:]
	}
	if len(args) == 0 {
		return false
	}
	switch args[0] {
	case "push", "send-pack", "http-push":
		return true
	case "subtree", "lfs":
		return len(args) > 1 && args[1] == "push"
	}
	return false
}

// call returns why one command may not be run, or "" if it may.
func (r *Request) call(words []string, depth int) string {
	for len(words) > 0 && (words[0] == "" || slices.Contains([]string{
		"command", "exec", "nohup", "time", "builtin", "env", "nice", "xargs",
		"setsid", "stdbuf", "timeout",
	}, filepath.Base(words[0]))) {
		skip := filepath.Base(words[0])
		words = words[1:]
		for len(words) > 0 && (strings.HasPrefix(words[0], "-") || skip == "env" && strings.Contains(words[0], "=") || skip == "timeout" &&
			words[0] != "" && words[0][0] >= '0' && words[0][0] <= '9') {
			words = words[1:]
		}
	}
	if len(words) == 0 {
		return ""
	}
	name, args := filepath.Base(words[0]), words[1:]
	switch name {
	case "sudo", "doas", "su", "pkexec", "runuser":
		return "You may not become another user. Do without, and say what would need it."
	case "cd", "pushd":
		if len(args) == 0 {
			args = []string{"~"}
		}
		if at := args[len(args)-1]; at != "" && at[0] != '-' && at[0] != '+' {
			r.at = r.absolute(at)
		}
	case "git":
		if pushes(args) {
			return "You may not push. Commit your work; it is pushed when it has been looked at."
		}
	case "gh", "glab":
		if len(args) > 1 && slices.Contains([]string{"pr", "mr", "repo", "release", "secret", "auth", "workflow"}, args[0]) &&
			!slices.Contains([]string{"view", "list", "status", "diff", "checks"}, args[1]) {
			return "You may not change what is on the forge. Commit your work; the rest is done when it has been looked at."
		}
	case "sh", "bash", "zsh", "dash", "ksh", "eval":
		for i, a := range args {
			if name == "eval" {
				return r.script(strings.Join(args, " "), depth+1)
			}
			if strings.HasPrefix(a, "-") && strings.Contains(a, "c") && !strings.HasPrefix(a, "--") && i+1 < len(args) {
				return r.script(args[i+1], depth+1)
			}
		}
	}
	writes := slices.Contains([]string{
		"rm", "mv", "cp", "tee", "touch", "mkdir", "rmdir", "ln", "chmod", "chown", "dd", "truncate",
		"install", "shred", "rsync",
	}, name)
	for _, a := range args {
		path := a
		if _, value, found := strings.Cut(a, "="); found && (strings.HasPrefix(a, "-") || name == "dd") {
			path = value
		}
		if path == "" || strings.HasPrefix(path, "-") || strings.Contains(path, "://") {
			continue
		}
		switch full := r.absolute(path); {
		case strings.ContainsAny(path, "/~.") && r.credentials(full):
			return "That file holds credentials, which are not yours to read."
		case writes && !r.inside(full) && (strings.Contains(path, "/") || path == "~" || path == ".." || r.at != ""):
			return "The command changes files outside of your folder. Stay inside " + r.Workdir + "."
		}
	}
	return ""
}
