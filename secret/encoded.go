package secret

import (
	"encoding/base64"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// between matches what a page may put between the characters of a value without changing how it reads.
const between = `[\s\p{Z}\p{Cf}]*`

// spaces are the forms of white space that others do not have. A field of one line drops it.
var spaces = map[rune]string{' ': `|\+|%(?:25)*2b`, '\n': `|%(?:25)*0d%(?:25)*0a|\\{1,8}n`, '\r': `|\\{1,8}r`, '\t': `|\\{1,8}t`}

// entities are the names that HTML has for the characters that it escapes.
var entities = map[rune]string{'&': "amp", '<': "lt", '>': "gt", '"': "quot", '\'': "apos"}

// base64Chars are the expressions for characters of base64 of which there is more than one form.
var base64Chars = strings.NewReplacer("+", `(?:[+-]|%(?:25)*2[Bb])`, "/", `(?:\\?/|_|%(?:25)*2[Ff])`)

// Redactor returns a function that replaces each value in a text with mask, in any letter case, also if it
// is spaced, or encoded for a URL, HTML or JSON, once or several times and in whole or in part, or within
// base64. Of a text made to be slow to search the rest is replaced as a whole.
func Redactor(mask string, values ...string) func(text string) string {
	var heads, forms []string // expressions for the beginnings of the values, and for the whole
	// A search from each byte is slow: starts are the pairs of bytes with which a form may begin.
	var starts startPairs
	longest := 0
	rowLimit := 8 // backslashes before one character
	for _, v := range values {
		v = strings.TrimFunc(v, func(r rune) bool { return unicode.In(r, unicode.White_Space, unicode.Z, unicode.Cf) })
		if v == "" {
			continue
		}
		longest = max(longest, len(v))
		if strings.Contains(v, `\`) {
			rowLimit = math.MaxInt
		}
		if len(v) > maxEncoded {
			heads, forms = append(heads, regexp.QuoteMeta(v[:maxHead])), append(forms, regexp.QuoteMeta(v))
			starts.add(v[:1], v[1:2])
			continue
		}
		var chars []string
		for _, r := range v {
			chars = append(chars, encodedRune(r))
		}
		add := func(chars []string, between, flags string) {
			heads = append(heads, flags+strings.Join(chars[:min(len(chars), maxHead)], between)+")")
			forms = append(forms, flags+strings.Join(chars, between)+")")
		}
		add(chars, between, "(?i:")
		starts.addEncoded(v)
		if len(v) >= minBase64 {
			for _, of := range base64Forms(v) {
				chars := make([]string, len(of))
				for i := range of {
					chars[i] = base64Chars.Replace(of[i : i+1])
				}
				add(chars, "", "(?:")
				starts.addBase64(of)
			}
		}
	}
	if forms == nil {
		return func(text string) string { return text }
	}
	head := regexp.MustCompile(`\A(?:` + strings.Join(heads, "|") + ")")
	whole := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\A(?:` + strings.Join(forms, "|") + ")") })
	return func(text string) string {
		var b strings.Builder
		from := 0 // what is before is in b
		searches, steps, row := 0, 0, 0
		for i := 0; i < len(text); i++ {
			row = rowOf(text, i, row)
			if i+1 < len(text) && !starts[text[i]][text[i+1]] || row > rowLimit {
				continue
			}
			if searches++; searches > maxSearches || steps > maxSteps {
				return b.String() + text[from:i] + mask
			}
			found := head.FindStringIndex(text[i:])
			if found != nil && longest > maxHead {
				steps += longest
				found = whole().FindStringIndex(text[i:])
			}
			if found != nil {
				b.WriteString(text[from:i] + mask)
				from = i + found[1]
				i, row = from-1, 0
			}
		}
		return b.String() + text[from:]
	}
}

// startPairs are the pairs of bytes with which a form may begin.
type startPairs [256][256]bool

// add adds pairs of each byte of first with each of second, or with any if second is "", and with bytes of
// characters that are not ASCII, which may separate those of a value.
func (p *startPairs) add(first, second string) {
	for _, a := range []byte(first) {
		for b := range p[a] {
			p[a][b] = p[a][b] || second == "" || b >= utf8.RuneSelf || strings.IndexByte(second, byte(b)) >= 0
		}
	}
}

// addEncoded adds those of a value in any form of its first two characters.
func (p *startPairs) addEncoded(v string) {
	first, size := utf8.DecodeRuneInString(v)
	next := ""
	if second, n := utf8.DecodeRuneInString(v[size:]); n > 0 && !unicode.IsSpace(second) {
		next = `\%&` + "+ \t\n\r\f" // its other forms, and what may be before it
		for _, c := range folds(second) {
			next += c[:1]
		}
	}
	escaped := `\uU`
	for _, c := range folds(first) {
		if len(c) == 1 {
			p.add(c, next)
			escaped += c
		} else {
			p.add(c[:1], "")
			escaped += c[:1]
		}
	}
	p.add(`\`, escaped)
	p.add("%", "0123456789abcdefABCDEF")
	p.add("&", "#aAlLgGqQ")
}

// addBase64 adds those of a form of base64Forms.
func (p *startPairs) addBase64(form string) {
	switch {
	case strings.ContainsAny(form[:1], "+/"):
		p.add(`+-/_%\`, "")
	case len(form) == 1 || strings.ContainsAny(form[1:2], "+/"):
		p.add(form[:1], "")
	default:
		p.add(form[:1], form[1:2])
	}
}

// folds returns the characters that equal r in any letter case.
func folds(r rune) []string {
	out := []string{string(r)}
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		out = append(out, string(f))
	}
	return out
}

// rowOf returns the number of backslashes in a row from i; before is that from i-1.
func rowOf(text string, i, before int) int {
	if before > 0 {
		return before - 1
	}
	n := 0
	for i+n < len(text) && text[i+n] == '\\' {
		n++
	}
	return n
}

// encodedRune returns an expression for the forms of one character, which is optional if it is space.
func encodedRune(r rune) string {
	escaped, percent := "", ""
	for _, unit := range utf16.Encode([]rune{r}) {
		escaped += fmt.Sprintf(`\\{1,8}u%04x`, unit)
	}
	for _, c := range []byte(string(r)) {
		percent += fmt.Sprintf(`%%(?:25)*%02x`, c)
	}
	entity := fmt.Sprintf("#0*%d|#x0*%x", r, r)
	if name := entities[r]; name != "" {
		entity += "|" + name
	}
	// At most eight backslashes, because a search from each of a long row would take quadratic time.
	out := `(?:\\{0,8}` + regexp.QuoteMeta(string(r)) + "|" + escaped + "|" + percent + "|&(?:amp;)*(?:" + entity + ");?"
	if unicode.IsSpace(r) {
		return out + spaces[r] + ")?"
	}
	return out + ")"
}

// base64Forms returns the base64 of a value for each position that it can have in the groups of three bytes.
// Characters that also have bits of the bytes before or after the value are left out.
func base64Forms(v string) (out []string) {
	for shift, shared := range []int{0, 2, 3} {
		text := base64.RawStdEncoding.EncodeToString(append(make([]byte, shift), v...))[shared:]
		if (shift+len(v))%3 != 0 {
			text = text[:len(text)-1]
		}
		out = append(out, text)
	}
	return out
}
