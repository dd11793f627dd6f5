package memory

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWord is the longest word that is indexed as it is, in bytes.
const maxWord = 64

// words takes a text apart into the index's words, each [a-z0-9]+: runs of letters
// and digits without case and accents. A character of a script that is written
// without spaces is a word of its own. What is not ASCII is written in hexadecimal
// behind a "u", so that the index has nothing to interpret.
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
			// an accent of its own: part of the letter before it, which counts without
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

// fold is a letter without case, and a Latin one without its accent.
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

// mark is a word that stands for a string of any form.
func mark(kind, s string) string {
	sum := sha256.Sum256([]byte(s))
	return kind + hex.EncodeToString(sum[:16])
}

func marks(tags []string) []string {
	out := make([]string, len(tags))
	for i, tag := range tags {
		out[i] = mark("t", tag)
	}
	return out
}
