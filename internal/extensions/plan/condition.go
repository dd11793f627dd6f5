package plan

// This file parses and evaluates the conditions of install plans. Their language has two
// variables, comparison with text, and, or, not and parentheses. It has no calls, so that
// a condition cannot run anything.

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// Platform holds the variables of conditions.
type Platform struct {
	OS   string `json:"os"`   // linux, darwin, win32
	Arch string `json:"arch"` // x64, arm64
}

// PlatformOf converts Go's names of a system and architecture to those of install plans;
// others are unchanged.
func PlatformOf(goos, goarch string) Platform {
	p := Platform{OS: goos, Arch: goarch}
	switch goos {
	case "windows":
		p.OS = "win32"
	}
	switch goarch {
	case "amd64", "x86_64":
		p.Arch = "x64"
	case "aarch64":
		p.Arch = "arm64"
	}
	return p
}

// When is a step's condition; nil is always true.
type When func(Platform) bool

// Holds evaluates the condition.
func (w When) Holds(p Platform) bool { return w == nil || w(p) }

// ParseCondition parses a condition of at most 1024 bytes. A blank one is nil, which is
// always true. A malformed one is invalid_input, reason condition_error.
func ParseCondition(text string) (When, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil //nolint:nilnil // no condition
	}
	p := parser{rest: text}
	if len(text) > maxWhen {
		return nil, p.fail("it is longer than 1024 bytes")
	}
	w, err := p.or(0)
	if err != nil {
		return nil, err
	}
	if tok := p.next(); tok != "" {
		return nil, p.fail("%.40q is not expected here", tok)
	}
	if p.broken {
		return nil, p.fail("a character is not expected here")
	}
	return w, nil
}

type parser struct {
	rest   string
	peeked string
	has    bool
	broken bool
}

func (p *parser) fail(format string, args ...any) error {
	return capability.Errorf(capability.CodeInvalidInput, "condition", "the condition cannot be read: "+format, args...).
		With(ReasonCondition, `write such as: platform.os in ["linux", "darwin"] and platform.arch == "x64"`)
}

// next consumes and returns a token: a word, a string with its opening quote only, or an
// operator. It returns "" at the end and for an invalid token.
func (p *parser) next() string {
	if p.has {
		p.has = false
		return p.peeked
	}
	p.rest = strings.TrimLeft(p.rest, " \t\r\n")
	if p.rest == "" {
		return ""
	}
	n := 0
	switch c := p.rest[0]; {
	case strings.IndexByte("()[],", c) >= 0:
		n = 1
	case strings.HasPrefix(p.rest, "==") || strings.HasPrefix(p.rest, "!="):
		n = 2
	case c == '\'' || c == '"':
		end := strings.IndexByte(p.rest[1:], c)
		if end < 0 {
			break
		}
		tok := p.rest[:end+1] // without its last quote
		p.rest = p.rest[end+2:]
		return tok
	default:
		for n < len(p.rest) && (p.rest[n] == '.' || p.rest[n] == '_' || 'a' <= p.rest[n] && p.rest[n] <= 'z') {
			n++
		}
	}
	if n == 0 {
		p.broken, p.rest = true, ""
		return ""
	}
	tok := p.rest[:n]
	p.rest = p.rest[n:]
	return tok
}

func (p *parser) is(tok string) bool {
	got := p.next()
	if got == tok {
		return true
	}
	p.peeked, p.has = got, true
	return false
}

func (p *parser) or(depth int) (When, error) {
	if depth > maxWhenDepth {
		return nil, p.fail("it is nested too deep")
	}
	left, err := p.and(depth)
	for err == nil && p.is("or") {
		var right When
		a := left
		if right, err = p.and(depth); err == nil {
			left = func(x Platform) bool { return a(x) || right(x) }
		}
	}
	return left, err
}

func (p *parser) and(depth int) (When, error) {
	left, err := p.not(depth)
	for err == nil && p.is("and") {
		var right When
		a := left
		if right, err = p.not(depth); err == nil {
			left = func(x Platform) bool { return a(x) && right(x) }
		}
	}
	return left, err
}

func (p *parser) not(depth int) (When, error) {
	negate := p.is("not")
	w, err := p.compare(depth)
	if err != nil || !negate {
		return w, err
	}
	return func(x Platform) bool { return !w(x) }, nil
}

func (p *parser) compare(depth int) (When, error) {
	tok := p.next()
	switch tok {
	case "(":
		w, err := p.or(depth + 1)
		if err == nil && !p.is(")") {
			err = p.fail("a closing parenthesis is missing")
		}
		return w, err
	case "true":
		return func(Platform) bool { return true }, nil
	case "false":
		return func(Platform) bool { return false }, nil
	}
	get, ok := variable(tok)
	if !ok {
		return nil, p.fail("%.40q is not a variable; there are platform.os and platform.arch", tok)
	}
	switch op := p.next(); op {
	case "==", "!=":
		want, err := p.str()
		if err != nil {
			return nil, err
		}
		return func(x Platform) bool { return (get(x) == want) == (op == "==") }, nil
	case "not":
		if !p.is("in") {
			return nil, p.fail(`after "not" comes "in"`)
		}
		list, err := p.list()
		return func(x Platform) bool { return !slices.Contains(list, get(x)) }, err
	case "in":
		list, err := p.list()
		return func(x Platform) bool { return slices.Contains(list, get(x)) }, err
	default:
		return nil, p.fail(`after %s comes ==, !=, in or not in`, tok)
	}
}

func variable(name string) (func(Platform) string, bool) {
	switch name {
	case "platform.os", "platform_os":
		return func(p Platform) string { return p.OS }, true
	case "platform.arch", "platform_arch":
		return func(p Platform) string { return p.Arch }, true
	}
	return nil, false
}

func (p *parser) str() (string, error) {
	tok := p.next()
	if tok == "" || tok[0] != '\'' && tok[0] != '"' {
		return "", p.fail("a quoted text is expected")
	}
	return tok[1:], nil
}

func (p *parser) list() ([]string, error) {
	if !p.is("[") {
		return nil, p.fail("a list in brackets is expected")
	}
	var list []string
	for {
		s, err := p.str()
		if err != nil {
			return nil, err
		}
		list = append(list, s)
		switch {
		case p.is("]"):
			return list, nil
		case !p.is(","):
			return nil, p.fail("a comma or a closing bracket is expected")
		}
	}
}
