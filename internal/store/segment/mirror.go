package segment

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/junctor-run/junctor/internal/core/audit"
)

// MirrorConfig configures the files under logs/. The zero value is the documented rotation.
type MirrorConfig struct {
	MaxBytes int64 // a file is full beyond this; 0: 10 MiB
	Keep     int   // full files kept of each kind; 0: 10
}

// Mirror writes capabilities.log and security.log. A full file becomes name.1,
// which stays plain for readers that follow it; the older ones are gzipped. Lines
// are never split between files. It implements [audit.Mirror]; it does not flush to the disk,
// because the files can be rebuilt from the segments.
type Mirror struct {
	dir  string
	cfg  MirrorConfig
	logs [2]mirrorLog
	zips sync.WaitGroup // the goroutine that gzips; Close waits
}

type mirrorLog struct {
	name string
	bit  audit.Mirrors
	out  *os.File
	size int64
}

var _ audit.Mirror = (*Mirror)(nil)

// OpenMirror opens the files in dir and cuts off unfinished last lines.
func OpenMirror(dir string, cfg MirrorConfig) (*Mirror, error) {
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = defaultMirrorBytes
	}
	if cfg.Keep <= 0 {
		cfg.Keep = defaultMirrorFiles
	}
	m := &Mirror{dir: dir, cfg: cfg, logs: [2]mirrorLog{
		{name: "capabilities.log", bit: audit.MirrorCapabilities},
		{name: "security.log", bit: audit.MirrorSecurity},
	}}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("open the audit copies: %w", err)
	}
	for i := range m.logs {
		if err := m.open(&m.logs[i]); err != nil {
			return nil, errors.Join(fmt.Errorf("open the audit copies: %w", err), m.Close())
		}
	}
	return m, nil
}

func (m *Mirror) open(g *mirrorLog) error {
	path := filepath.Join(m.dir, g.name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, fileMode)
	if err != nil {
		return err
	}
	g.out = f
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if g.size, err = wholeLines(path, info.Size()); err != nil {
		return err
	}
	if g.size < info.Size() {
		return f.Truncate(g.size)
	}
	return nil
}

func (m *Mirror) log(bit audit.Mirrors) (*mirrorLog, error) {
	for i := range m.logs {
		if g := &m.logs[i]; g.bit == bit && g.out != nil {
			return g, nil
		}
	}
	return nil, fmt.Errorf("no open audit copy for %d", bit)
}

// Append adds whole lines to a file and rotates it if it is full. It must not be called concurrently.
func (m *Mirror) Append(bit audit.Mirrors, lines []byte) error {
	g, err := m.log(bit)
	if err != nil {
		return err
	}
	for len(lines) > 0 {
		room := m.cfg.MaxBytes - g.size
		part := lines
		if int64(len(lines)) > room { // as many whole lines as fit, at least one into an empty file
			cut := bytes.LastIndexByte(lines[:max(0, room)], '\n') + 1
			if cut == 0 && g.size > 0 {
				if err := m.rotate(g); err != nil {
					return err
				}
				continue
			}
			if cut == 0 {
				cut = bytes.IndexByte(lines, '\n') + 1
			}
			if cut > 0 {
				part = lines[:cut]
			}
		}
		n, err := g.out.Write(part)
		if err != nil {
			return errors.Join(err, g.out.Truncate(g.size))
		}
		g.size += int64(n)
		lines = lines[len(part):]
	}
	return nil
}

// rotate renames a full file to name.1 and the older ones, removes the oldest, opens a new file, and
// compresses name.2 in the background.
func (m *Mirror) rotate(g *mirrorLog) error {
	m.zips.Wait() // at most one file is being gzipped; it must not be renamed meanwhile
	base := filepath.Join(m.dir, g.name)
	for i := m.cfg.Keep; i >= 1; i-- {
		for _, ext := range []string{"", ".gz"} {
			from := base + "." + strconv.Itoa(i) + ext
			var err error
			if i == m.cfg.Keep {
				err = os.Remove(from)
			} else {
				err = os.Rename(from, base+"."+strconv.Itoa(i+1)+ext)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	if err := os.Rename(base, base+".1"); err != nil {
		return err
	}
	_ = g.out.Close()
	g.out = nil
	if m.cfg.Keep > 1 {
		// A copy that stays plain is harmless, so the error is ignored.
		m.zips.Go(func() { _ = compress(base + ".2") })
	}
	return m.open(g)
}

// compress replaces path by path.gz.
func compress(path string) error {
	in, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	tmp := path + ".gz.tmp"
	out, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	// Speed matters more than size, because this runs while calls are made.
	zip, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return errors.Join(err, out.Close())
	}
	_, err = io.Copy(zip, in)
	if err = errors.Join(err, zip.Close(), out.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, path+".gz"); err != nil {
		return err
	}
	return os.Remove(path)
}

// LastLine returns the last whole line of a file or, if it is empty, of the previous file. It returns
// nil if both are empty.
func (m *Mirror) LastLine(bit audit.Mirrors) ([]byte, error) {
	g, err := m.log(bit)
	if err != nil {
		return nil, err
	}
	base := filepath.Join(m.dir, g.name)
	for _, path := range []string{base, base + ".1"} {
		data, err := tailOf(path)
		if err != nil || data != nil {
			return data, err
		}
	}
	return nil, nil
}

// tailOf returns the last whole line of a file, or nil if it is missing or empty.
func tailOf(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data := make([]byte, min(info.Size(), 2*audit.MaxLine))
	if _, err := f.ReadAt(data, info.Size()-int64(len(data))); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	end := bytes.LastIndexByte(data, '\n')
	if end < 0 {
		return nil, nil
	}
	return bytes.Clone(data[bytes.LastIndexByte(data[:end], '\n')+1 : end+1]), nil
}

// Close waits for a running compression and closes the files.
func (m *Mirror) Close() error {
	m.zips.Wait()
	var errs []error
	for i := range m.logs {
		if g := &m.logs[i]; g.out != nil {
			errs = append(errs, g.out.Close())
			g.out = nil
		}
	}
	return errors.Join(errs...)
}
