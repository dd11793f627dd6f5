package term

import "unicode/utf8"

// parser is the state machine of DEC terminals (vt100.net/emu/dec_ansi_parser) with
// UTF-8 for text and colons between parameters. Bytes above 0x7F are text or part of a string,
// never C1 controls, because in UTF-8 they also occur within characters.
type parser struct {
	state   state
	pending [utf8.UTFMax]byte // incomplete character at the end of the last Write
	npend   int

	prefix byte // of CSI: one of < = > ?
	inter  byte // the last intermediate byte of CSI or ESC
	params [maxParams]uint16
	nparam int    // number of started parameters
	colon  uint32 // bit i: a colon precedes parameter i

	str  []byte // of the operating system command
	over bool   // it is longer than MaxSequence
}

type state uint8

const (
	ground state = iota
	escape
	escapeInter
	csiEntry
	csiParam
	csiInter
	csiIgnore
	oscString
	oscEscape   // in an operating system command, after ESC
	otherString // DCS, SOS, PM, APC: skipped
	otherEscape
)

const (
	bel = 0x07
	can = 0x18
	sub = 0x1A
	esc = 0x1B
	del = 0x7F
)

// Write applies output of the program to the screen. It accepts any bytes, split anywhere, and
// calls Reply and OSC. It never fails, and always returns len(p).
func (s *Screen) Write(p []byte) (int, error) {
	x, y := s.cursor.x, s.cursor.y
	for i := 0; i < len(p); {
		if s.state != ground {
			s.step(p[i])
			i++
			continue
		}
		if s.npend > 0 {
			i += s.finish(p[i:])
			continue
		}
		switch b := p[i]; {
		case b == esc:
			s.begin(escape)
			i++
		case b < ' ' || b == del:
			s.control(b)
			i++
		case b < utf8.RuneSelf:
			end := i + 1
			for end < len(p) && p[end] >= ' ' && p[end] < del {
				end++
			}
			s.printASCII(p[i:end])
			i = end
		case !utf8.FullRune(p[i:]):
			s.npend = copy(s.pending[:], p[i:])
			i = len(p)
		default:
			r, n := utf8.DecodeRune(p[i:])
			s.print(r)
			i += n
		}
	}
	if x != s.cursor.x || y != s.cursor.y {
		s.changes++
	}
	return len(p), nil
}

// finish completes and prints the pending character, and returns the number of bytes of p that it
// used.
func (s *Screen) finish(p []byte) int {
	took := copy(s.pending[s.npend:], p)
	have := s.pending[:s.npend+took]
	if !utf8.FullRune(have) {
		s.npend += took
		return took
	}
	r, n := utf8.DecodeRune(have)
	s.print(r)
	if n >= s.npend {
		took = n - s.npend
		s.npend = 0
		return took
	}
	// The character is invalid, so the bytes after its first one are parsed again.
	s.npend = copy(s.pending[:], have[n:s.npend])
	return 0
}

// step processes one byte of a sequence.
func (s *Screen) step(b byte) {
	switch s.state {
	case oscString, oscEscape, otherString, otherEscape:
		s.stringByte(b)
		return
	}
	switch {
	case b == esc:
		s.begin(escape)
	case b == can || b == sub:
		s.state = ground
	case b < ' ':
		s.control(b) // ECMA-48 allows controls within sequences
	case b == del:
	case b > del:
		s.state = ground // not valid in a sequence, so it is text
		s.npend = copy(s.pending[:], []byte{b})
		s.finish(nil)
	case s.state == escape || s.state == escapeInter:
		s.escapeByte(b)
	default:
		s.csiByte(b)
	}
}

func (s *Screen) begin(st state) {
	s.state = st
	s.prefix, s.inter = 0, 0
	s.nparam, s.colon = 0, 0
	s.params[0] = 0
	s.str, s.over = s.str[:0], false
}

func (s *Screen) escapeByte(b byte) {
	switch {
	case b < '0':
		s.inter, s.state = b, escapeInter
		return
	case s.state == escapeInter:
	case b == '[':
		s.begin(csiEntry)
		return
	case b == ']':
		s.begin(oscString)
		return
	case b == 'P' || b == 'X' || b == '^' || b == '_':
		s.begin(otherString)
		return
	}
	s.state = ground
	s.escapeSequence(b)
}

func (s *Screen) csiByte(b byte) {
	switch {
	case b >= '@':
		run := s.state != csiIgnore
		s.state = ground
		if run {
			s.controlSequence(b)
		}
	case s.state == csiIgnore:
	case b < '0':
		if s.inter != 0 {
			s.state = csiIgnore // no supported sequence has two
			return
		}
		s.inter, s.state = b, csiInter
	case s.state == csiInter:
		s.state = csiIgnore
	case b >= '<':
		if s.state != csiEntry {
			s.state = csiIgnore
			return
		}
		s.prefix, s.state = b, csiParam
	default:
		s.state = csiParam
		s.paramByte(b)
	}
}

func (s *Screen) paramByte(b byte) {
	if s.nparam == 0 {
		s.nparam = 1
	}
	if s.nparam > maxParams {
		return
	}
	if b < ':' {
		p := &s.params[s.nparam-1]
		*p = uint16(min(uint32(*p)*10+uint32(b-'0'), 1<<16-1))
		return
	}
	s.nparam++
	if s.nparam > maxParams {
		return
	}
	s.params[s.nparam-1] = 0
	if b == ':' {
		s.colon |= 1 << (s.nparam - 1)
	}
}

// args returns the parameters; an omitted one is 0.
func (s *Screen) args() []uint16 { return s.params[:min(s.nparam, maxParams)] }

// arg returns parameter i, or def if it is omitted or 0.
func (s *Screen) arg(i, def int) int {
	if a := s.args(); i < len(a) && a[i] != 0 {
		return int(a[i])
	}
	return def
}

// stringByte processes one byte of a string, which ends with BEL or ESC \. CAN, SUB and any other
// sequence abort it.
func (s *Screen) stringByte(b byte) {
	command := s.state == oscString || s.state == oscEscape
	switch {
	case s.state == oscEscape || s.state == otherEscape:
		if b == '\\' {
			s.state = ground
			if command {
				s.command(false)
			}
			return
		}
		s.begin(escape)
		s.step(b)
	case b == esc:
		s.state++ // the state after ESC
	case b == can || b == sub:
		s.state = ground
	case !command:
	case b == bel:
		s.state = ground
		s.command(true)
	case b < ' ' || b == del:
	case len(s.str) >= MaxSequence:
		s.over = true
	default:
		s.str = append(s.str, b)
	}
}

// isControl reports whether r is of C0 or C1.
func isControl(r rune) bool { return r < ' ' || r >= del && r < 0xA0 }
