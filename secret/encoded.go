package secret

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
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
// base64.
func Redactor(mask string, values ...string) func(text string) string {
	var forms []string
	starts := []byte(`\%&+-/_`)
	for _, v := range values {
		switch v = strings.TrimFunc(v, func(r rune) bool { return unicode.In(r, unicode.White_Space, unicode.Z, unicode.Cf) }); {
		case v == "":
			continue
		case len(v) > maxEncoded:
			forms = append(forms, regexp.QuoteMeta(v))
		default:
			var chars []string
			for _, r := range v {
				chars = append(chars, encodedRune(r))
			}
			forms = append(forms, "(?i:"+strings.Join(chars, between)+")")
			if len(v) >= minBase64 {
				of := base64Forms(v)
				forms = append(forms, of...)
				starts = append(starts, of[0][0], of[1][0], of[2][0])
			}
		}
		starts = append(starts, v[0], strings.ToLower(v)[0], strings.ToUpper(v)[0])
	}
	if forms == nil {
		return func(text string) string { return text }
	}
	form := regexp.MustCompile(`\A(?:` + strings.Join(forms, "|") + ")")
	var begins [256]bool // a match begins with one of these bytes; a search that starts at all is slower
	for c := range begins {
		begins[c] = c >= utf8.RuneSelf || bytes.IndexByte(starts, byte(c)) >= 0
	}
	return func(text string) string {
		var b strings.Builder
		from := 0 // what is before is in b
		for i := 0; i < len(text); i++ {
			if !begins[text[i]] {
				continue
			}
			if found := form.FindStringIndex(text[i:]); found != nil {
				b.WriteString(text[from:i] + mask)
				from = i + found[1]
				i = from - 1
			}
		}
		return b.String() + text[from:]
	}
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

// base64Forms returns an expression for each position that a value can have in the groups of three bytes.
// Characters that also have bits of the bytes before or after the value are left out.
func base64Forms(v string) (out []string) {
	for shift, shared := range []int{0, 2, 3} {
		text := base64.RawStdEncoding.EncodeToString(append(make([]byte, shift), v...))[shared:]
		if (shift+len(v))%3 != 0 {
			text = text[:len(text)-1]
		}
		out = append(out, base64Chars.Replace(text))
	}
	return out
}
