package permit

import (
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// longOptions are those of each program that readsOption accepts, without their values.
var longOptions = map[string][]string{
	"grep": strings.Fields("after-context before-context color colour context count exclude exclude-dir extended-regexp files-with-matches " +
		"files-without-match fixed-strings ignore-case include invert-match line-number line-regexp max-count no-filename no-messages null " +
		"only-matching perl-regexp quiet recursive regexp text with-filename word-regexp"),
	"rg": strings.Fields("after-context before-context case-sensitive color column context count count-matches files files-with-matches " +
		"files-without-match fixed-strings glob heading hidden iglob ignore-case invert-match json line-number line-regexp max-columns max-count " +
		"max-depth max-filesize multiline no-config no-filename no-heading no-ignore no-line-number no-messages null only-matching passthru pcre2 " +
		"quiet regexp replace smart-case sort sortr stats text threads trim type type-list type-not unrestricted vimgrep with-filename word-regexp"),
	"ls": strings.Fields("all almost-all author classify color directory full-time group-directories-first human-readable inode numeric-uid-gid " +
		"recursive reverse size sort time time-style"),
	"cat":  strings.Fields("number number-nonblank show-all show-ends show-nonprinting show-tabs squeeze-blank"),
	"head": strings.Fields("bytes lines quiet silent verbose"),
	"tail": strings.Fields("bytes lines quiet silent verbose"),
	"wc":   strings.Fields("bytes chars lines max-line-length words"),
	"stat": strings.Fields("format printf terse"),
}

// onlyLines matches the script of sed that prints lines.
var onlyLines = regexp.MustCompile(`^[0-9]+(,([0-9]+|\$))?p$`)

// reads reports whether the request is a command that only reads files in the agent's folders.
func (r Request) reads() bool {
	command, ok := commandOf(r.Input)
	dir, known := dirOfCommand(r.Input)
	return ok && known && r.enter(dir) == "" && r.command(command) == "" && r.readsScript(command, 0)
}

// readsScript reports whether a command only reads files in the agent's folders, because
// programs read files by commands. A few commands and forms are listed; any other counts as one
// that changes something.
func (r *Request) readsScript(text string, depth int) bool {
	if len(text) > maxCommand || depth > maxReading {
		return false
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil || len(file.Stmts) == 0 {
		return false
	}
	return !slices.ContainsFunc(file.Stmts, func(s *syntax.Stmt) bool { return !r.readsStatement(s, depth) })
}

func (r *Request) readsStatement(s *syntax.Stmt, depth int) bool {
	if s.Background || s.Coprocess {
		return false
	}
	for _, to := range s.Redirs {
		path, plain := plainWord(to.Word)
		into := to.Op == syntax.RdrOut && path == "/dev/null" || to.Op == syntax.DplOut && (path == "1" || path == "2")
		if !plain || !into {
			return false
		}
	}
	switch c := s.Cmd.(type) {
	case *syntax.BinaryCmd:
		return r.readsStatement(c.X, depth) && r.readsStatement(c.Y, depth)
	case *syntax.CallExpr:
		if len(c.Assigns) > 0 || len(c.Args) == 0 {
			return false
		}
		words := make([]string, len(c.Args))
		for i, w := range c.Args {
			var plain bool
			if words[i], plain = plainWord(w); !plain {
				return false
			}
		}
		return r.readsCall(words[0], words[1:], depth)
	}
	return false
}

// readsCall reports whether a simple command only reads.
func (r *Request) readsCall(name string, args []string, depth int) bool {
	switch name {
	case "bash", "sh", "/bin/bash", "/bin/sh", "/usr/bin/bash":
		return len(args) == 2 && (args[0] == "-c" || args[0] == "-lc") && r.readsScript(args[1], depth+1)
	case "pwd", "true", "echo":
		return true
	case "sed":
		// After its files sed still reads options, which may have another script.
		if len(args) < 3 || args[0] != "-n" || !onlyLines.MatchString(args[1]) || slices.ContainsFunc(args[2:], isOption) {
			return false
		}
		args = args[2:]
	case "grep", "rg", "ls", "cat", "head", "tail", "wc", "stat":
	default:
		return false
	}
	options := true
	for _, a := range args {
		switch {
		case options && a == "--":
			options = false
		case options && isOption(a):
			if !readsOption(name, a) {
				return false
			}
		case isOption(a): // after --, where it is a name; refused takes options for none
			if r.refused("./"+a) != "" {
				return false
			}
		case r.refused(a) != "":
			return false
		}
	}
	return true
}

func isOption(arg string) bool { return strings.HasPrefix(arg, "-") && arg != "-" }

// shortOptions are those of each program that follow links, name a file, start a program, or never end.
var shortOptions = map[string]string{"rg": "zLf", "grep": "RfS", "ls": "LH", "stat": "L", "tail": "fF"}

// readsOption reports whether an option of a program of readsCall does not name a file, start a program,
// or follow links out of the folder. Long options must be written out, because GNU's programs take
// abbreviations.
func readsOption(name, arg string) bool {
	if strings.ContainsAny(arg, "/~") {
		return false
	}
	if long, ok := strings.CutPrefix(arg, "--"); ok {
		long, _, _ = strings.Cut(long, "=")
		return slices.Contains(longOptions[name], long)
	}
	return !strings.ContainsAny(arg, shortOptions[name])
}

// plainWord returns a word without expansions; plain is false if it has one.
func plainWord(w *syntax.Word) (text string, plain bool) {
	if w == nil {
		return "", false
	}
	var b strings.Builder
	for _, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			if strings.ContainsAny(p.Value, "*?[{~\\") {
				return "", false
			}
			b.WriteString(p.Value)
		case *syntax.SglQuoted:
			if p.Dollar {
				return "", false
			}
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			for _, inner := range p.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok || p.Dollar || strings.Contains(lit.Value, `\`) {
					return "", false
				}
				b.WriteString(lit.Value)
			}
		default:
			return "", false
		}
	}
	return b.String(), true
}
