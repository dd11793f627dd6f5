package permit

import (
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

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
		if len(args) < 3 || args[0] != "-n" || !onlyLines.MatchString(args[1]) {
			return false
		}
		args = args[2:]
	case "grep", "rg", "ls", "cat", "head", "tail", "wc", "stat":
	default:
		return false
	}
	for _, a := range args {
		switch {
		case strings.HasPrefix(a, "-") && a != "-":
			// An option can name a file, start a program, or follow links out of the folder.
			if strings.ContainsAny(a, "/~") || slices.ContainsFunc([]string{
				"--pre", "--hostname-bin", "--search-zip", "--follow", "--file", "--ignore-file", "--deref",
			}, func(long string) bool { return strings.HasPrefix(a, long) }) {
				return false
			}
			short := !strings.HasPrefix(a, "--")
			if short && (name == "rg" && strings.ContainsAny(a, "zLf") || name == "grep" && strings.ContainsAny(a, "Rf")) {
				return false
			}
		case r.refused(a) != "":
			return false
		}
	}
	return true
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
