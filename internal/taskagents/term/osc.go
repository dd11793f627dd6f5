package term

// command executes an operating system command. byBel reports that it ended with BEL, so that the
// answer ends with BEL too.
func (s *Screen) command(byBel bool) {
	if s.over {
		return
	}
	n, i := 0, 0
	for ; i < len(s.str) && s.str[i] >= '0' && s.str[i] <= '9'; i++ {
		if n = n*10 + int(s.str[i]-'0'); n > 99999 {
			return
		}
	}
	data := s.str[i:]
	switch {
	case i == 0:
		return
	case len(data) > 0:
		if data[0] != ';' {
			return
		}
		data = data[1:]
	}
	switch n {
	case 0, 2:
		s.setTitle(data)
	case 10, 11:
		if string(data) == "?" {
			s.color(n, byBel)
			return
		}
	}
	if s.OSC != nil {
		s.OSC(n, string(data))
	}
}

// color replies with the colour of text (10) or of the background (11).
func (s *Screen) color(n int, byBel bool) {
	answer, end := "\x1b]10;rgb:ffff/ffff/ffff", "\x1b\\"
	if n == 11 {
		answer = "\x1b]11;rgb:0000/0000/0000"
	}
	if byBel {
		end = "\a"
	}
	s.reply(answer + end)
}

func (s *Screen) reply(answer string) {
	if s.Reply != nil {
		s.Reply([]byte(answer))
	}
}
