package memory

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// words splits a text into words for the index, each [a-z0-9]+: sequences of letters and
// digits without case and accents. In scripts written without spaces, each character is a
// word. Words that are not ASCII are encoded as "u" and hexadecimal digits, so that they
// have no special meaning in the index.
func words(text string) []string {
	var out []string
	var word strings.Builder
	flush := func() {
		if word.Len() > 0 {
			out = append(out, encode(word.String()))
			word.Reset()
		}
	}
	for _, r := range text {
		switch {
		case r == utf8.RuneError:
			flush()
		case unicode.Is(unicode.Mn, r):
			// a combining accent: it belongs to the letter before it and is dropped
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar):
			flush()
			word.WriteRune(r)
			flush()
		case unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsNumber(r):
			word.WriteString(fold(r))
		default:
			flush()
		}
	}
	flush()
	return out
}

// fold returns a letter in lower case, a Latin letter also without its accent.
func fold(r rune) string {
	r = unicode.ToLower(r)
	if r < 0xC0 || r > 0x17F {
		return string(r)
	}
	const (
		from = "àáâãäåāăąçćĉċčďđèéêëēĕėęěĝğġģĥħìíîïĩīĭįıĵķĺļľŀłñńņňòóôõöøōŏőŕŗřśŝşšţťŧùúûüũūŭůűųŵýÿŷźżž"
		to   = "aaaaaaaaacccccddeeeeeeeeegggghhiiiiiiiiijklllllnnnnooooooooorrrsssstttuuuuuuuuuuwyyyzzz"
	)
	switch r {
	case 'ß':
		return "ss"
	case 'æ':
		return "ae"
	case 'œ':
		return "oe"
	}
	at := 0
	for _, f := range from {
		if f == r {
			return to[at : at+1]
		}
		at++
	}
	return string(r)
}

// encode returns the form of a word in the index: a hash if it is longer than maxWord, the
// word itself if it is ASCII, else "u" and hexadecimal digits.
func encode(word string) string {
	ascii := true
	for i := range len(word) {
		ascii = ascii && word[i] < utf8.RuneSelf
	}
	if len(word) > maxWord {
		return mark("h", word)
	}
	if ascii {
		return word
	}
	return "u" + hex.EncodeToString([]byte(word))
}

// mark returns a word for the index that represents s: kind and a hash.
func mark(kind, s string) string {
	sum := sha256.Sum256([]byte(s))
	return kind + hex.EncodeToString(sum[:16])
}

// hashed returns the marks of several names.
func hashed(kind string, names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = mark(kind, name)
	}
	return out
}
