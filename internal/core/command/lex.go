package command

import (
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
)

// Mode is the way in which a message was split into words.
type Mode string

const (
	// modeWords is splitting with the quotes and escapes of a shell.
	modeWords Mode = "words"
	// modeFallback is plain splitting at whitespace with quotes kept as
	// characters, because a quote was not closed or a backslash ended the text.
	modeFallback Mode = "fallback"
)

// Token is one word. Text is its value without quotes; Start and End are its position in the
// source.
type Token struct {
	Text       string
	Start, End int
}

// Lex splits text into words with POSIX-style quotes and escapes, without any expansion. Text
// with an open quote is split at whitespace instead, and the mode is modeFallback. Errors:
// invalid_input for control characters and bad UTF-8; too_large (see [MaxMessage],
// [MaxTokens], [MaxToken]).
func Lex(text string) ([]Token, Mode, error) {
	if err := checkText(text); err != nil {
		return nil, "", err
	}
	mode := modeWords
	tokens, closed := splitWords(text)
	if !closed {
		mode, tokens = modeFallback, splitPlain(text)
	}
	if len(tokens) > MaxTokens {
		return nil, "", tooLarge("the command has %d words; %d are the most", len(tokens), MaxTokens)
	}
	for _, t := range tokens {
		if len(t.Text) > MaxToken {
			return nil, "", tooLarge("a word of the command has %d bytes; %d are the most", len(t.Text), MaxToken)
		}
	}
	return tokens, mode, nil
}

// LexStrict is like Lex, but an open quote is invalid_input. It is for declared texts such as
// templates.
func LexStrict(text string) ([]Token, error) {
	tokens, mode, err := Lex(text)
	if err == nil && mode != modeWords {
		err = invalidMessage("a quote is not closed, or the text ends with a backslash")
	}
	if err != nil {
		return nil, err
	}
	return tokens, nil
}

// checkText checks the size, control characters and UTF-8 of a command.
func checkText(text string) error {
	if len(text) > MaxMessage {
		return tooLarge("the message has %d bytes; a command may have %d", len(text), MaxMessage)
	}
	for i := range len(text) {
		if c := text[i]; c < ' ' && !isSeparator(c) {
			return invalidMessage("the command holds the control character 0x%02x", c)
		}
	}
	if !utf8.ValidString(text) {
		return invalidMessage("the command is not valid UTF-8")
	}
	return nil
}

// isSeparator reports whether c separates words. Other Unicode spaces are parts of words.
func isSeparator(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// skipSeparators returns the index of the first byte at or after i that is not a separator.
func skipSeparators(text string, i int) int {
	for i < len(text) && isSeparator(text[i]) {
		i++
	}
	return i
}

// splitWords splits text into words. It returns false for an open quote or a backslash at the end.
func splitWords(text string) ([]Token, bool) {
	var tokens []Token
	for i := skipSeparators(text, 0); i < len(text); i = skipSeparators(text, i) {
		word, end, ok := oneWord(text, i)
		if !ok {
			return nil, false
		}
		tokens = append(tokens, Token{word, i, end})
		i = end
	}
	return tokens, true
}

// oneWord parses the word at start and returns its value and its end. ok is false for an open quote
// or a backslash at the end.
func oneWord(text string, start int) (word string, end int, ok bool) {
	// Most words have neither quotes nor escapes and need no copy.
	if n := strings.IndexAny(text[start:], " \t\r\n'\"\\"); n < 0 {
		return text[start:], len(text), true
	} else if isSeparator(text[start+n]) {
		return text[start : start+n], start + n, true
	}
	var b strings.Builder
	i := start
	for i < len(text) && !isSeparator(text[i]) {
		switch c := text[i]; c {
		case '\'':
			n := strings.IndexByte(text[i+1:], '\'')
			if n < 0 {
				return "", 0, false
			}
			b.WriteString(text[i+1 : i+1+n])
			i += n + 2
		case '"':
			if i, ok = doubleQuoted(text, i+1, &b); !ok {
				return "", 0, false
			}
		case '\\':
			if i+1 == len(text) {
				return "", 0, false
			}
			b.WriteByte(text[i+1]) // further bytes of a multi-byte character follow unchanged
			i += 2
		default:
			b.WriteByte(c)
			i++
		}
	}
	return b.String(), i, true
}

// doubleQuoted appends the text up to the closing quote and returns the index behind it. A
// backslash escapes only a quote and itself.
func doubleQuoted(text string, i int, b *strings.Builder) (int, bool) {
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i + 1, true
		case c == '\\' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\'):
			i++
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return 0, false
}

// splitPlain splits text at separators; quotes and backslashes are ordinary characters.
func splitPlain(text string) []Token {
	var tokens []Token
	for i := skipSeparators(text, 0); i < len(text); i = skipSeparators(text, i) {
		end := i
		for end < len(text) && !isSeparator(text[end]) {
			end++
		}
		tokens = append(tokens, Token{text[i:end], i, end})
		i = end
	}
	return tokens
}

// Quote returns a word in a form that [Lex] parses back to it.
func Quote(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\r\n'\"\\") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func invalidMessage(format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeInvalidInput, op, format, args...).With("invalid_input", "")
}

// tooLarge is the error of a command that is too long.
func tooLarge(format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeTooLarge, op, format, args...).With("args_too_long", "")
}
