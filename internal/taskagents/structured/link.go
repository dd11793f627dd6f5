package structured

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// read handles the program's messages until its output ends, and then ends the session.
func (s *Session) read() {
	in := bufio.NewReaderSize(&braked{s: s}, 64<<10)
	garbage := 0
	for {
		line, whole, err := readLine(in, maxLine)
		if err != nil {
			break
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if whole && s.handleLine(line) {
			garbage = 0
			continue
		}
		garbage++
		s.mu.Lock()
		s.counts.Lines++
		s.counts.Garbage++
		if garbage == maxGarbage {
			s.fail("protocol", "the program wrote 50 lines in a row that are not messages of its protocol")
		}
		s.mu.Unlock()
	}
	// A program without output is useless. It usually exits by itself.
	timer := time.NewTimer(stopGrace)
	select {
	case <-s.child.Done():
	case <-timer.C:
		s.child.Kill()
		<-s.child.Done()
	}
	timer.Stop()
	s.over()
}

// braked reads the program's output at a limited rate.
type braked struct {
	s     *Session
	brake sessions.Brake
}

func (b *braked) Read(p []byte) (int, error) {
	n, err := b.s.child.Read(p)
	b.brake.Took(b.s.ctx, n)
	return n, err
}

// handleLine handles one line. It returns false if the line is not a message.
func (s *Session) handleLine(line []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	step, err := s.talk.HandleLine(line)
	if err != nil {
		return false
	}
	s.counts.Lines++
	s.info.LastActivity, s.wedged = time.Now(), false
	s.do(step)
	s.x.Notify()
	return true
}

// readLine reads a line without its line end. whole is false for a line over the limit, whose
// content is dropped.
func readLine(in *bufio.Reader, limit int) (line []byte, whole bool, err error) {
	whole = true
	for {
		part, err := in.ReadSlice('\n')
		if whole = whole && len(line)+len(part) <= limit+1; whole {
			line = append(line, part...)
		} else {
			line = []byte("…")
		}
		if err == nil {
			return bytes.TrimSuffix(line, []byte("\n")), whole, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, false, err
		}
	}
}

// put queues messages for the program without blocking. If the program does not read and more than
// maxUnsent bytes wait, it is ended. The caller holds mu.
func (s *Session) put(list [][]byte) {
	for _, m := range list {
		s.out = append(s.out, m)
		s.outSize += len(m) + 1
	}
	if s.outSize > maxUnsent {
		s.out, s.outSize = nil, 0
		s.fail("protocol", "the program asks, and does not read the answers")
	}
	poke(s.unsent)
}

// write writes the queued messages to the program until the session ends.
func (s *Session) write() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.unsent:
		}
		s.mu.Lock()
		list := s.out
		s.out = nil
		s.mu.Unlock()
		for _, m := range list {
			if _, err := s.child.Write(append(m, '\n')); err != nil {
				return // the program ends, or its output has the cause
			}
			s.mu.Lock()
			s.outSize = max(0, s.outSize-len(m)-1)
			s.mu.Unlock()
		}
	}
}

// over ends the session after its program has ended.
func (s *Session) over() {
	exit := s.child.Exit()
	said := s.stderr.lines(shownLines)
	s.mu.Lock()
	s.gone, s.open = true, nil
	s.info.ExitCode, s.info.ExitSignal, s.info.EndedAt = &exit.Code, exit.Signal, time.Now()
	working := s.status.State != detect.Ready && s.status.State != detect.Stopping
	e := sessions.Event{Type: sessions.Ended, ExitCode: &exit.Code, Signal: exit.Signal, Text: s.view.tail(shownLines)}
	switch {
	case s.trouble.kind != "" && !s.asked:
		e.Type, e.Kind, e.Text = sessions.Failed, s.trouble.kind, strings.TrimSpace(s.trouble.text+"\n"+said)
	case !s.asked && (working || exit.Code != 0):
		e.Type, e.Kind, e.Text = sessions.Failed, "exit", said
	}
	if e.Type == sessions.Failed {
		s.info.Error = e.Text
		s.move(detect.Status{State: detect.Error, Kind: e.Kind}, "exit", e.Text)
	} else {
		phase := s.status.Phase
		s.move(detect.Status{State: detect.Stopping, Phase: phase}, "exit", "")
		s.move(detect.Status{State: detect.Stopped, Phase: phase}, "exit", "")
	}
	s.emit(e)
	s.x.Notify()
	s.mu.Unlock()
	s.cancel()
	_ = s.child.Close()
	s.group.Wait()
	s.files.close()
	s.cleanup()
	close(s.done)
}

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tail is an io.Writer that keeps the end of what was written.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p[max(0, len(p)-maxStderr):]...)
	if len(t.text) > 2*maxStderr {
		t.text = append(t.text[:0], t.text[len(t.text)-maxStderr:]...)
	}
	return len(p), nil
}

// lines returns the last n lines as plain text.
func (t *tail) lines(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := strings.Split(strings.TrimSpace(plain(string(t.text[max(0, len(t.text)-maxStderr):]))), "\n")
	return strings.Join(list[max(0, len(list)-n):], "\n")
}
