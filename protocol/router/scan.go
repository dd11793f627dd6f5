package router

import (
	"fmt"
	"unicode/utf8"
)

// syntaxError is malformed JSON; offset counts bytes from the start of the
// scanned document.
type syntaxError struct {
	offset int
	msg    string
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("malformed JSON at byte %d: %s", e.offset, e.msg)
}

// scanner validates JSON in one pass without building values, because calls must pass free-form
// JSON through unchanged and need only a few members.
type scanner struct {
	data  []byte
	pos   int
	depth int
	max   int
}

func newScanner(data []byte, limit int) scanner { return scanner{data: data, max: limit} }

func (s *scanner) fail(msg string) error { return &syntaxError{s.pos, msg} }

func (s *scanner) space() {
	if s.pos < len(s.data) && s.data[s.pos] > ' ' {
		return
	}
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next byte after whitespace, or 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// end fails unless only whitespace is left.
func (s *scanner) end() error {
	s.space()
	if s.pos != len(s.data) {
		return s.fail("unexpected data after the value")
	}
	return nil
}

// value validates one value, moves behind it, and returns its bytes.
func (s *scanner) value() ([]byte, error) {
	s.space()
	start := s.pos
	if err := s.skip(); err != nil {
		return nil, err
	}
	return s.data[start:s.pos], nil
}

// skip validates one value and moves behind it.
func (s *scanner) skip() error {
	switch c := s.peek(); {
	case c == '"':
		_, _, err := s.str()
		return err
	case c == '{':
		return s.object(nil)
	case c == '[':
		return s.array(nil)
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	case s.pos >= len(s.data):
		return s.fail("the document ends too early")
	}
	return s.fail("a value is expected")
}

func (s *scanner) literal(word string) error {
	if len(s.data)-s.pos < len(word) || string(s.data[s.pos:s.pos+len(word)]) != word {
		return s.fail("a value is expected")
	}
	s.pos += len(word)
	return nil
}

// str validates a string and returns the bytes between its quotes. escaped reports whether it
// contains escapes.
func (s *scanner) str() (inner []byte, escaped bool, err error) {
	s.pos++
	start := s.pos
	for {
		// Most bytes of a document are inside strings, so this loop works on a local slice.
		rest := s.data[s.pos:]
		n := 0
		for n < len(rest) && rest[n] >= ' ' && rest[n] != '"' && rest[n] != '\\' {
			n++
		}
		s.pos += n
		switch {
		case n == len(rest):
			return nil, false, s.fail("a string is not closed")
		case rest[n] == '"':
			inner = s.data[start:s.pos]
			s.pos++
			return inner, escaped, nil
		case rest[n] == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return nil, false, err
			}
		default:
			return nil, false, s.fail("a control character must be escaped")
		}
	}
}

func (s *scanner) escape() error {
	s.pos++
	if s.pos >= len(s.data) {
		return s.fail("a string is not closed")
	}
	switch s.data[s.pos] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return nil
	case 'u':
		s.pos++
		for range 4 {
			if s.pos >= len(s.data) || !isHex(s.data[s.pos]) {
				return s.fail("\\u needs four hexadecimal digits")
			}
			s.pos++
		}
		return nil
	}
	return s.fail("unknown escape sequence")
}

func isHex(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && isDigit(s.data[s.pos]) {
		s.pos++
	}
	return s.pos > start
}

func (s *scanner) at(c byte) bool { return s.pos < len(s.data) && s.data[s.pos] == c }

// number validates a number.
func (s *scanner) number() error {
	if s.at('-') {
		s.pos++
	}
	switch {
	case s.at('0'):
		s.pos++
	case !s.digits():
		return s.fail("a number needs digits")
	}
	if s.at('.') {
		s.pos++
		if !s.digits() {
			return s.fail("a fraction needs digits")
		}
	}
	if s.at('e') || s.at('E') {
		s.pos++
		if s.at('+') || s.at('-') {
			s.pos++
		}
		if !s.digits() {
			return s.fail("an exponent needs digits")
		}
	}
	return nil
}

// visitMember is called for each member of an object. The slices alias the input.
type visitMember func(name []byte, escaped bool, value []byte) error

// object validates an object and calls visit, unless it is nil, for each member.
func (s *scanner) object(visit visitMember) error {
	if err := s.enter(); err != nil {
		return err
	}
	if s.peek() == '}' {
		return s.leave()
	}
	for {
		if s.peek() != '"' {
			return s.fail("a member name is expected")
		}
		name, escaped, err := s.str()
		if err != nil {
			return err
		}
		if s.peek() != ':' {
			return s.fail("':' is expected after a member name")
		}
		s.pos++
		value, err := s.value()
		if err != nil {
			return err
		}
		if visit != nil {
			if err := visit(name, escaped, value); err != nil {
				return err
			}
		}
		switch s.peek() {
		case ',':
			s.pos++
		case '}':
			return s.leave()
		default:
			return s.fail("',' or '}' is expected")
		}
	}
}

// array validates an array and calls visit, unless it is nil, for each element.
func (s *scanner) array(visit func(i int, value []byte) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	if s.peek() == ']' {
		return s.leave()
	}
	for i := 0; ; i++ {
		value, err := s.value()
		if err != nil {
			return err
		}
		if visit != nil {
			if err := visit(i, value); err != nil {
				return err
			}
		}
		switch s.peek() {
		case ',':
			s.pos++
		case ']':
			return s.leave()
		default:
			return s.fail("',' or ']' is expected")
		}
	}
}

func (s *scanner) enter() error {
	if s.depth++; s.depth > s.max {
		return s.fail(fmt.Sprintf("nested more than %d levels deep", s.max))
	}
	s.pos++
	return nil
}

func (s *scanner) leave() error {
	s.depth--
	s.pos++
	return nil
}

// checkUTF8 checks a whole document, because the scanner does not check UTF-8.
func checkUTF8(data []byte) error {
	if utf8.Valid(data) {
		return nil
	}
	pos := 0
	for pos < len(data) {
		r, n := utf8.DecodeRune(data[pos:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		pos += n
	}
	return &syntaxError{pos, "the text is not valid UTF-8"}
}
