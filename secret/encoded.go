package secret

import (
	"encoding/base64"
	"fmt"
	"math"
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
// base64. Of a text made to be slow to search the rest is replaced as a whole.
func Redactor(mask string, values ...string) func(text string) string {
	var forms []string
	// A search from each byte is slow: pairs are the two bytes with which a form may begin.
	var pairs [256][256]bool
	pair := func(first string, second string) {
		for _, a := range []byte(first) {
			for b := range pairs[a] {
				pairs[a][b] = pairs[a][b] || b >= utf8.RuneSelf || second == "" || strings.IndexByte(second, byte(b)) >= 0
			}
		}
	}
	const encodes = "\\%&+ \t\n\r\f" // or separates characters of a value
	long := 8                        // backslashes before one character
	for _, v := range values {
		switch v = strings.TrimFunc(v, func(r rune) bool { return unicode.In(r, unicode.White_Space, unicode.Z, unicode.Cf) }); {
		case v == "":
			continue
		case len(v) > maxEncoded:
			forms = append(forms, regexp.QuoteMeta(v))
			pair(v[:1], v[1:2])
		default:
			var chars []string
			for _, r := range v {
				chars = append(chars, encodedRune(r))
			}
			forms = append(forms, "(?i:"+strings.Join(chars, between)+")")
			if len(v) >= minBase64 {
				for _, of := range base64Forms(v) {
					forms = append(forms, of)
					pair(base64Starts(of), "")
				}
			}
			first, next := bothCases(v[:1]), ""
			if len(v) > 1 && !unicode.IsSpace(rune(v[1])) {
				next = bothCases(v[1:2]) + encodes
			}
			pair(first, next)
			pair("\\", "\\unrt"+"U"+bothCases(v[:1]))
			pair("%", "0123456789abcdefABCDEF")
			pair("&", "#aAlLgGqQ")
		}
		if strings.Contains(v, `\`) {
			long = math.MaxInt
		}
	}
	if forms == nil {
		return func(text string) string { return text }
	}
	for c := utf8.RuneSelf; c < len(pairs); c++ {
		pair(string([]byte{byte(c)}), "")
	}
	form := regexp.MustCompile(`\A(?:` + strings.Join(forms, "|") + ")")
	return func(text string) string {
		var b strings.Builder
		from := 0 // what is before is in b
		for i, searches, row := 0, 0, 0; i < len(text); i++ {
			row = rowOf(text, i, row)
			if i+1 < len(text) && !pairs[text[i]][text[i+1]] || row > long {
				continue
			}
			if searches++; searches > maxSearches {
				return b.String() + text[from:i] + mask
			}
			if found := form.FindStringIndex(text[i:]); found != nil {
				b.WriteString(text[from:i] + mask)
				from = i + found[1]
				i, row = from-1, 0
			}
		}
		return b.String() + text[from:]
	}
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

func bothCases(s string) string { return strings.ToLower(s) + strings.ToUpper(s) }

// base64Starts returns the bytes with which a form of base64Forms begins.
func base64Starts(form string) string {
	if form[0] == '(' {
		return `+-/_%\`
	}
	return form[:1]
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
