package db

import (
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// scanner splits SQL into tokens, by the rules of SQLite's tokenize.c and Postgres's
// scan.l. An unknown character becomes a mark; only spaces and comments are skipped.
type scanner struct {
	sql     string
	d       Dialect
	at      int
	bracket int // Postgres: depth of [ ], inside which a colon is part of a slice
	out     []token
}

// scan returns the tokens of a text. Errors: invalid_input for more than maxTokens, an
// unterminated quote or comment, and a parameter that is not written :name.
func scan(sql string, d Dialect) ([]token, *capability.Error) {
	s := &scanner{sql: sql, d: d}
	for s.at < len(sql) {
		if len(s.out) > maxTokens {
			return nil, fault.InvalidArgs("", "the statement has more than %d words", maxTokens)
		}
		if err := s.next(); err != nil {
			return nil, err
		}
	}
	return s.out, nil
}

func (s *scanner) rest() string { return s.sql[s.at:] }

func (s *scanner) emit(c class, value string, n int) {
	s.out = append(s.out, token{c, value, s.at, s.at + n})
	s.at += n
}

// next skips a space or comment, or appends the next token.
func (s *scanner) next() *capability.Error {
	rest := s.rest()
	c := rest[0]
	switch {
	case strings.IndexByte(" \t\n\r\f", c) >= 0, c == '\v' && s.d == Postgres:
		s.at++
		return nil
	case strings.HasPrefix(rest, "--"):
		return s.line()
	case strings.HasPrefix(rest, "/*"):
		return s.comment()
	case c == '\'':
		return s.quote(literal, 0, '\'', false)
	case c == '"':
		return s.quote(quoted, 0, '"', false)
	case s.d == SQLite && c == '`':
		return s.quote(quoted, 0, '`', false)
	case s.d == SQLite && c == '[':
		end := strings.IndexByte(rest, ']')
		if end < 0 {
			return unended("name in brackets")
		}
		s.emit(quoted, rest[1:end], end+1)
	case s.d == Postgres && c == '$':
		return s.dollar()
	case isDigit(c), c == '.' && len(rest) > 1 && isDigit(rest[1]):
		n := 1
		for n < len(rest) && (isWord(rest[n]) || rest[n] == '.') {
			n++
		}
		s.emit(number, rest[:n], n)
	case isStart(c):
		return s.word()
	case c == ':':
		s.colon()
	case s.d == SQLite && strings.IndexByte("?@$#", c) >= 0:
		return fault.InvalidArgs("", "write a parameter as :name, and give it with --p name=value")
	default:
		switch c {
		case '[':
			s.bracket++
		case ']':
			s.bracket = max(s.bracket-1, 0)
		}
		s.emit(mark, rest[:1], 1)
	}
	return nil
}

// line skips a comment up to the end of its line. It refuses characters that end a line
// in only some dialects and versions.
func (s *scanner) line() *capability.Error {
	body := s.rest()
	end := strings.IndexByte(body, '\n')
	if end < 0 {
		end = len(body)
	}
	if strings.IndexByte(strings.TrimSuffix(body[:end], "\r"), '\r') >= 0 {
		return fault.InvalidArgs("", "a comment holds a carriage return")
	}
	s.at += end
	return nil
}

// comment skips /* … */, which nests in Postgres but not in SQLite.
func (s *scanner) comment() *capability.Error {
	rest := s.rest()
	depth := 1
	for i := 2; i < len(rest); i++ {
		switch {
		case strings.HasPrefix(rest[i:], "*/"):
			depth--
			i++
		case s.d == Postgres && strings.HasPrefix(rest[i:], "/*"):
			depth++
			i++
		}
		if depth == 0 {
			s.at += i + 1
			return nil
		}
	}
	return unended("comment")
}

// quote appends the token between two q characters after a prefix of the given length.
// A doubled q stands for one q.
func (s *scanner) quote(c class, prefix int, q byte, escapes bool) *capability.Error {
	rest := s.rest()
	var b strings.Builder
	for i := prefix + 1; i < len(rest); i++ {
		switch {
		case escapes && rest[i] == '\\':
			if i++; i < len(rest) {
				b.WriteByte(rest[i])
			}
		case rest[i] != q:
			b.WriteByte(rest[i])
		case i+1 < len(rest) && rest[i+1] == q:
			b.WriteByte(q)
			i++
		default:
			s.emit(c, b.String(), i+1)
			return nil
		}
	}
	return unended("quote")
}

// word appends a word, or the quoted token of which it is the prefix (as in E'…').
func (s *scanner) word() *capability.Error {
	rest := s.rest()
	n := 1
	for n < len(rest) && (isWord(rest[n]) || rest[n] == '$') {
		n++
	}
	value := strings.ToLower(rest[:n])
	if s.d == Postgres {
		switch {
		case value == "e" && strings.HasPrefix(rest[n:], "'"):
			return s.quote(literal, n, '\'', true)
		case (value == "b" || value == "x" || value == "n") && strings.HasPrefix(rest[n:], "'"):
			return s.quote(literal, n, '\'', false)
		case value == "u" && (strings.HasPrefix(rest[n:], "&'") || strings.HasPrefix(rest[n:], "&\"")):
			return fault.InvalidArgs("", "write characters as they are, not as U&…")
		}
	}
	s.emit(word, value, n)
	return nil
}

// dollar appends the literal $tag$ … $tag$.
func (s *scanner) dollar() *capability.Error {
	rest := s.rest()
	n := 1
	for n < len(rest) && isWord(rest[n]) {
		n++
	}
	if n >= len(rest) || rest[n] != '$' || n > 1 && isDigit(rest[1]) {
		return fault.InvalidArgs("", "write a parameter as :name, and give it with --p name=value")
	}
	tag := rest[:n+1]
	end := strings.Index(rest[n+1:], tag)
	if end < 0 {
		return unended("quote")
	}
	s.emit(literal, rest[n+1:n+1+end], 2*len(tag)+end)
	return nil
}

// colon appends the parameter :name, or a mark that begins with a colon.
func (s *scanner) colon() {
	rest := s.rest()
	if s.d == Postgres && (strings.HasPrefix(rest, "::") || strings.HasPrefix(rest, ":=")) {
		s.emit(mark, rest[:2], 2)
		return
	}
	n := 1
	for n < len(rest) && rest[n] < 0x80 && isWord(rest[n]) {
		n++
	}
	if n == 1 || isDigit(rest[1]) || s.bracket > 0 {
		s.emit(mark, ":", 1)
		return
	}
	s.emit(param, rest[1:n], n)
}

func unended(what string) *capability.Error {
	return fault.InvalidArgs("", "the statement holds a %s without an end", what)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isStart(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= 0x80
}

func isWord(c byte) bool { return isStart(c) || isDigit(c) }
