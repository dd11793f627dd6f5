package audit

import (
	"bytes"
	"fmt"
	"sync"
)

// mirrorHold is the number of bytes buffered for a mirror file. Beyond it the writer of the chain
// flushes the buffer itself.
const mirrorHold = 256 << 10

// mirrors collects the lines of the files under logs/.
type mirrors struct {
	out Mirror

	mu    sync.Mutex
	bufs  [2][]byte
	spare [2][]byte     // the previous bufs while they are written
	busy  chan struct{} // holds a token while the files are written
}

func newMirrors(out Mirror) *mirrors { return &mirrors{out: out, busy: make(chan struct{}, 1)} }

func mirrorFiles() [2]Mirrors { return [2]Mirrors{MirrorCapabilities, MirrorSecurity} }

// add buffers the lines of a batch for their mirror files, and flushes full buffers.
func (m *mirrors) add(batch []*pending, buf []byte, ends []int) {
	m.mu.Lock()
	from := 0
	for i, p := range batch {
		m.put(p.row.Mirrors, buf[from:ends[i]])
		from = ends[i]
	}
	m.mu.Unlock()
	if m.full() {
		_ = m.flush() // the next opening completes the copies
	}
}

func (m *mirrors) full() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.bufs[0]) > mirrorHold || len(m.bufs[1]) > mirrorHold
}

// put copies a line with its newline. The caller holds mu, or m is not shared yet.
func (m *mirrors) put(files Mirrors, data []byte) {
	for i, f := range mirrorFiles() {
		if files&f != 0 {
			m.bufs[i] = append(m.bufs[i], data...)
		}
	}
}

// flush writes the buffered lines. After an error they stay buffered, unless too many wait.
func (m *mirrors) flush() error {
	m.busy <- struct{}{}
	defer func() { <-m.busy }()
	m.mu.Lock()
	bufs := m.bufs
	m.bufs, m.spare = m.spare, [2][]byte{}
	m.mu.Unlock()
	for i, f := range mirrorFiles() {
		if len(bufs[i]) == 0 {
			continue
		}
		if err := m.out.Append(f, bufs[i]); err != nil {
			m.mu.Lock()
			if len(m.bufs[i]) < 16*mirrorHold {
				m.bufs[i] = append(bufs[i], m.bufs[i]...)
			}
			m.mu.Unlock()
			return fmt.Errorf("copy the audit log: %w", err)
		}
		m.mu.Lock()
		if cap(bufs[i]) <= 2*mirrorHold {
			m.spare[i] = bufs[i][:0]
		}
		m.mu.Unlock()
	}
	return nil
}

// last returns the number of the last record of each file.
func (m *mirrors) last() (seqs [2]uint64, err error) {
	for i, f := range mirrorFiles() {
		data, err := m.out.LastLine(f)
		if err != nil {
			return seqs, fmt.Errorf("read the copy of the audit log: %w", err)
		}
		if k, ok := parseLink(bytes.TrimSuffix(data, []byte("\n"))); ok {
			seqs[i] = k.seq
		}
	}
	return seqs, nil
}
