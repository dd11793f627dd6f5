package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/store/segment"
)

// chain is the state of an audit log at one moment, which later writes do not affect.
type chain struct {
	*segment.Segments
	dir  string // in the home: audit, or that of the node
	list []audit.SegmentInfo
	head []byte // nil if the chain is empty
}

func chains() []string { return []string{"audit", "node/audit"} }

// freeze returns the current end of the log in a folder of a home, or nil if the folder has none.
// It reads the head first, because the head must not be ahead of the segments.
func freeze(home, dir string) (*chain, error) {
	c := &chain{dir: dir}
	var err error
	if c.Segments, err = segment.Open(filepath.Join(home, dir), segment.Config{ReadOnly: true}); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	if c.head, err = c.Segments.LoadHead(); err != nil {
		return nil, err
	}
	if c.list, err = c.Segments.List(); err != nil {
		return nil, err
	}
	if n := len(c.list); n > 0 {
		c.list[n-1].Size, err = wholeLines(filepath.Join(home, c.file(c.list[n-1].ID)), c.list[n-1].Size)
	}
	return c, err
}

// file returns the path of a segment in the home.
func (c *chain) file(id uint64) string { return fmt.Sprintf("%s/audit-%08d.jsonl", c.dir, id) }

// wholeLines returns the end of the last complete line, because the log may be written at the same
// time.
func wholeLines(path string, size int64) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	buf := make([]byte, min(size, 4*audit.MaxLine))
	from := size - int64(len(buf))
	if _, err := f.ReadAt(buf, from); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if i := bytes.LastIndexByte(buf, '\n'); i >= 0 {
		return from + int64(i) + 1, nil
	}
	return size, nil // a line is never that long; verification reports it
}

func (c *chain) List() ([]audit.SegmentInfo, error) { return c.list, nil }

func (c *chain) LoadHead() ([]byte, error) { return c.head, nil }

// verify checks the chain and describes its state.
func verify(ctx context.Context, s audit.Segments) (Chain, error) {
	report, err := audit.VerifySegments(ctx, s, audit.Proofs{})
	return Chain{Records: report.Records, LastSeq: report.LastSeq, FirstBad: report.FirstBad}, err
}
