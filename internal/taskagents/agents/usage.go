package agents

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// meter adds up the usage of one session from the records of its program, which are read as they
// grow.
type meter struct {
	since time.Time // start of the session; records may begin before it
	tapes map[string]*tape
}

// tape is one record.
type tape struct {
	offset int64
	known  map[string]programs.Usage // by the id of an answer
	sum    programs.Usage
	before programs.Usage // total before the session
	total  programs.Usage
}

// watchUsage reads the usage of a session in a terminal after each turn, and a moment later again
// because programs write late, until the session has ended.
func (a *Agents) watchUsage(g *agent, s *sessions.Session) {
	m := &meter{since: s.Info().CreatedAt, tapes: make(map[string]*tape)}
	for over := false; !over; {
		select {
		case <-g.turned:
		case <-s.Done():
			over = true
		}
		s.Spend(a.measure(m, g))
		late := time.NewTimer(recordDelay)
		select {
		case <-late.C:
		case <-s.Done():
			late.Stop()
			over = true
		}
		s.Spend(a.measure(m, g))
	}
}

// measure reads what the records of a session have in addition, and returns its usage.
func (a *Agents) measure(m *meter, g *agent) (sum programs.Usage) {
	g.mu.Lock()
	named := g.record
	g.mu.Unlock()
	if dir := programs.Of(g.framework).Records; dir != "" && named != "" {
		m.read(filepath.Join(a.cfg.Home, filepath.FromSlash(dir)), named)
	}
	seen := 0
	_ = filepath.WalkDir(g.kept, func(path string, e fs.DirEntry, err error) error {
		seen++
		switch {
		case seen > maxSeen || len(m.tapes) > maxRecords:
			return fs.SkipAll
		case err == nil && e.Type().IsRegular() && strings.HasSuffix(path, ".jsonl"):
			m.read(g.kept, path)
		}
		return nil // what cannot be read is not counted
	})
	for _, t := range m.tapes {
		sum = sum.Plus(t.sum).Plus(t.total.Minus(t.before))
	}
	return sum
}

// read reads the new lines of the record at path, if it is a regular file below folder.
func (m *meter) read(folder, path string) {
	rel, err := filepath.Rel(folder, path)
	if err != nil || !filepath.IsLocal(rel) {
		return
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return
	}
	defer root.Close()
	file, err := root.OpenFile(rel, os.O_RDONLY|hostfs.NonBlocking, 0) // the program may have put a pipe there
	if err != nil {
		return
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return
	}
	t := m.tapes[path]
	if t == nil {
		t = &tape{known: make(map[string]programs.Usage)}
		m.tapes[path] = t
	}
	piece := make([]byte, recordPiece)
	for t.offset < maxRecord {
		n, err := file.ReadAt(piece, t.offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return
		}
		whole := bytes.LastIndexByte(piece[:n], '\n') + 1
		if whole == 0 && n < len(piece) {
			return // the program has not finished the line
		}
		if whole == 0 {
			whole = n
		}
		for line := range bytes.Lines(piece[:whole]) {
			t.add(line, m.since)
		}
		t.offset += int64(whole)
	}
}

// add counts one line.
func (t *tape) add(line []byte, since time.Time) {
	s, ok := programs.ReadSpent(line)
	old := s.At.Before(since)
	switch {
	case !ok:
	case s.Total && old:
		t.before = s.Usage
	case s.Total:
		t.total = s.Usage
	case old:
	case s.ID == "":
		t.sum = t.sum.Plus(s.Usage)
	default: // the answer is recorded again as it grows
		was := t.known[s.ID]
		now := was.Max(s.Usage)
		t.sum = t.sum.Plus(now.Minus(was))
		if len(t.known) >= maxAnswers {
			clear(t.known)
		}
		t.known[s.ID] = now
	}
}
