package audit

import (
	"regexp"
	"strings"

	"github.com/junctor-run/junctor/secret"
)

const redacted = "[redacted]"

// redactor removes secrets from free text. Most strings contain none, so one pass searches for
// possible beginnings of a match, and the patterns are applied only if it finds one.
type redactor struct {
	home   string
	hook   func(string) string
	token  *regexp.Regexp
	bearer *regexp.Regexp
	header *regexp.Regexp
	url    *regexp.Regexp
}

func newRedactor(home string, hook func(string) string) *redactor {
	home = strings.TrimRight(home, "/")
	return &redactor{
		home: home, hook: hook,
		token:  regexp.MustCompile(`jct_[A-Za-z0-9_-]*`),
		bearer: regexp.MustCompile(`(?i)\b(bearer)[ \t:=]+[^\s,;"']+`),
		header: regexp.MustCompile(`(?i)\b((?:proxy-)?authorization)("?\s*[:=]\s*"?)(?:(?:bearer|basic|digest|negotiate|token|apikey)\s+)?[^\s,;"']+`),
		url:    regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#"'@]*(?:@[^\s/?#"'@]*)*@`),
	}
}

// TextMasker returns a function that masks credentials in a text, as kept arguments have it.
func TextMasker() func(string) string {
	r := newRedactor("", nil)
	return func(s string) string { return secret.MaskTokens(r.clean(s)) }
}

// clean returns s with secrets replaced and the home directory written as ~.
func (r *redactor) clean(s string) string {
	if s == "" {
		return s
	}
	if r.hook != nil {
		s = r.hook(s)
	}
	if suspicious(s) {
		s = r.token.ReplaceAllString(s, redacted)
		s = r.header.ReplaceAllString(s, "${1}${2}"+redacted)
		s = r.bearer.ReplaceAllString(s, "${1} "+redacted)
		s = r.url.ReplaceAllString(s, "${1}"+redacted+"@")
	}
	if r.home != "" && strings.Contains(s, r.home) {
		s = r.tilde(s)
	}
	return s
}

// tilde replaces the home directory by ~, except where it is only the beginning of a longer name.
func (r *redactor) tilde(s string) string {
	var b strings.Builder
	for {
		i := strings.Index(s, r.home)
		if i < 0 {
			b.WriteString(s)
			return b.String()
		}
		end := i + len(r.home)
		b.WriteString(s[:i])
		if end < len(s) && isNameByte(s[end]) {
			b.WriteString(r.home)
		} else {
			b.WriteByte('~')
		}
		s = s[end:]
	}
}

func isNameByte(c byte) bool {
	return c == '_' || c == '-' || c == '.' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// suspicious reports whether any pattern of the redactor could match s.
func suspicious(s string) bool {
	for i := range len(s) {
		switch s[i] {
		case 'j':
			if strings.HasPrefix(s[i:], "jct_") {
				return true
			}
		case ':':
			if strings.HasPrefix(s[i:], "://") && strings.Contains(s[i:], "@") {
				return true
			}
		case 'b', 'B':
			if len(s)-i > 6 && strings.EqualFold(s[i:i+6], "bearer") {
				return true
			}
		case 'z', 'Z': // the rare letter of "authorization"
			if i >= 7 && strings.EqualFold(s[i-7:i+1], "authoriz") {
				return true
			}
		}
	}
	return false
}
