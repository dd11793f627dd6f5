package audit

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Anchor stores checkpoints in another place than the home, so that they stay if the home is replaced by
// an older copy of itself.
type Anchor interface {
	// Write adds one line, given without its newline.
	Write(ctx context.Context, line []byte) error
	// Read returns the lines written so far, or nil if it has no line or cannot be read back.
	Read() (io.ReadCloser, error)
}

// anchorLine is one line of an anchor.
type anchorLine struct {
	Version int       `json:"audit_anchor"`
	Log     string    `json:"log,omitempty"` // the same for all lines made with one key
	Gateway string    `json:"gateway"`       // for readers; it may change
	At      time.Time `json:"at"`
	Seq     uint64    `json:"seq"`
	Hash    string    `json:"hash"`
	Coded   uint64    `json:"coded"`
	MAC     string    `json:"mac,omitempty"`
}

// anchored is the state of the anchor of a log.
type anchored struct {
	wake  chan struct{} // holds a token if want changed
	want  Checkpoint    // the latest one
	seq   uint64        // of the last one that was written
	cause error         // of the last write
}

// runAnchor writes each checkpoint to the anchor until ctx ends. An anchor that fails or is slow delays
// nothing else; the latest checkpoint is tried again.
func (l *Log) runAnchor(ctx context.Context) {
	retry := time.NewTicker(l.cfg.CheckpointEvery)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.anchored.wake:
		case <-retry.C:
		}
		l.writeAnchor(ctx)
	}
}

// writeAnchor writes the latest checkpoint unless the anchor has it.
func (l *Log) writeAnchor(ctx context.Context) {
	l.mu.Lock()
	c, had := l.anchored.want, l.anchored.cause
	done := c.Seq == l.anchored.seq
	l.mu.Unlock()
	if done {
		return
	}
	line, err := jsonx.Marshal(anchorLine{1, logID(l.cfg.Key), l.cfg.Gateway, c.At, c.Seq, c.Hash, c.Coded, c.MAC})
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, anchorTimeout)
		defer cancel()
		err = l.cfg.Anchor.Write(ctx, line)
	}
	l.mu.Lock()
	if l.anchored.cause = err; err == nil {
		l.anchored.seq = c.Seq
	}
	l.mu.Unlock()
	if err != nil && had == nil {
		l.cfg.Logger.Warn("audit checkpoint not anchored", "err", err)
	}
}

// code returns the code of a checkpoint, or "" without a key.
func (c Checkpoint) code(key []byte) string {
	return codeOf(key, "junctor audit checkpoint", fmt.Appendf(nil, "%d %s %d %d", c.Seq, c.Hash, c.At.UnixNano(), c.Coded))
}

// genuine reports whether the checkpoint has the code that key makes of it, or none, or key is empty.
func (c Checkpoint) genuine(key []byte) bool {
	return c.MAC == "" || len(key) == 0 || hmac.Equal([]byte(c.MAC), []byte(c.code(key)))
}

// logID returns the name of a log in an anchor.
func logID(key []byte) string { return codeOf(key, "junctor audit log", nil) }

func codeOf(key []byte, purpose string, doc []byte) string {
	mac := deriveMAC(key, purpose)
	if mac == nil {
		return ""
	}
	_, _ = mac.Write(doc)
	return hex.EncodeToString(mac.Sum(nil)[:macLen])
}

// anchorReader reads the checkpoints of an anchor. With a key it skips the lines of other logs and those
// without the right code, because others may write to the same place, such as syslog. Without a
// key it accepts every line.
type anchorReader struct {
	lines   *bufio.Reader
	key     []byte
	skipped uint64 // lines that name this log and lack its code
}

// next returns the next checkpoint, or false after the last.
func (a *anchorReader) next(context.Context) (Checkpoint, bool, error) {
	for {
		data, long, err := a.lines.ReadLine()
		whole := !long
		for long && err == nil {
			_, long, err = a.lines.ReadLine()
		}
		if errors.Is(err, io.EOF) {
			return Checkpoint{}, false, nil
		}
		if err != nil {
			return Checkpoint{}, false, fmt.Errorf("read the anchor: %w", err)
		}
		from, to := bytes.LastIndex(data, []byte(`{"audit_anchor":`)), bytes.LastIndexByte(data, '}')
		var ln anchorLine
		if !whole || from < 0 || to < from || jsonx.Unmarshal(data[from:to+1], &ln) != nil || ln.Version != 1 {
			continue
		}
		c := Checkpoint{Seq: ln.Seq, Hash: ln.Hash, At: ln.At, Coded: ln.Coded, MAC: ln.MAC}
		switch {
		case len(a.key) > 0 && ln.Log != logID(a.key):
		case len(a.key) > 0 && (c.MAC == "" || !c.genuine(a.key)):
			a.skipped++
		default:
			return c, true, nil
		}
	}
}
