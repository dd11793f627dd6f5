package secret

import (
	"regexp"
	"slices"
	"strings"
)

// Token is the position of a text that has the form of a credential.
type Token struct {
	Kind       string // such as "github_token" or "private_key"
	Start, End int    // bytes
}

// shape is a kind of credential that is recognized by its form. A text is only searched for it
// if it contains one of the marks, because marks are cheap to find.
type shape struct {
	kind  string
	marks []string
	form  *regexp.Regexp
}

var shapes = []shape{
	{"github_token", []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_"}, regexp.MustCompile(`\bgh[pousr]_[A-Za-z0-9]{36,255}\b`)},
	{"github_token", []string{"github_pat_"}, regexp.MustCompile(`\bgithub_pat_[A-Za-z0-9_]{22,255}\b`)},
	{"gitlab_token", []string{"glpat-"}, regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{20,}`)},
	{"bitbucket_token", []string{"ATBB", "ATCTT3x"}, regexp.MustCompile(`\b(?:ATBB[A-Za-z0-9]{32}|ATCTT3x[A-Za-z0-9_=-]{40,})`)},
	{"aws_access_key", []string{"AKIA", "ASIA"}, regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`)},
	{"slack_token", []string{"xox"}, regexp.MustCompile(`\bxox[abeoprs]-[A-Za-z0-9-]{10,}`)},
	{"model_api_key", []string{"sk-"}, regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{20,}`)},
	{"google_api_key", []string{"AIza"}, regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{35}`)},
	{"google_oauth_secret", []string{"GOCSPX-"}, regexp.MustCompile(`\bGOCSPX-[A-Za-z0-9_-]{20,}`)},
	{"npm_token", []string{"npm_"}, regexp.MustCompile(`\bnpm_[A-Za-z0-9]{36}\b`)},
	{"pypi_token", []string{"pypi-"}, regexp.MustCompile(`\bpypi-[A-Za-z0-9_-]{50,}`)},
	{"stripe_key", []string{"k_live_"}, regexp.MustCompile(`\b[rs]k_live_[A-Za-z0-9]{20,}`)},
	{"private_key", []string{"PRIVATE KEY"}, regexp.MustCompile(`-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----`)},
	{"junctor_token", []string{tokenPrefix}, regexp.MustCompile(`\bjct_[a-z]_[A-Za-z0-9_-]{49}`)},
}

// FindTokens returns the positions of texts that look like credentials of well-known services,
// in order and without overlaps. It only recognizes forms; a password that is a word is not
// found.
func FindTokens(text string) []Token {
	var found []Token
	for _, s := range shapes {
		if !slices.ContainsFunc(s.marks, func(mark string) bool { return strings.Contains(text, mark) }) {
			continue
		}
		for _, at := range s.form.FindAllStringIndex(text, -1) {
			if t := text[at[0]:at[1]]; strings.HasSuffix(t, "EXAMPLE") || s.kind == "model_api_key" && !strings.ContainsAny(t, "0123456789") {
				continue // examples in manuals, and hyphenated words
			}
			found = append(found, Token{s.kind, at[0], at[1]})
		}
	}
	slices.SortFunc(found, func(a, b Token) int {
		if a.Start != b.Start {
			return a.Start - b.Start
		}
		return b.End - a.End
	})
	out := found[:0]
	for _, t := range found {
		if len(out) == 0 || t.Start >= out[len(out)-1].End {
			out = append(out, t)
		}
	}
	return out
}

// MaskTokens returns text with the credentials that [FindTokens] finds replaced by dots. A
// private key is replaced up to its end, or to the end of the text.
func MaskTokens(text string) string {
	var b strings.Builder
	from := 0
	for _, t := range FindTokens(text) {
		if t.Start < from {
			continue
		}
		b.WriteString(text[from:t.Start])
		b.WriteString(mask)
		from = t.End
		if t.Kind == "private_key" {
			end := keyEnd.FindStringIndex(text[from:])
			if end == nil {
				return b.String()
			}
			from += end[1]
		}
	}
	if from == 0 {
		return text
	}
	b.WriteString(text[from:])
	return b.String()
}

var keyEnd = regexp.MustCompile(`-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----`)
