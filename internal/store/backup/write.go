package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// writer appends files to an archive and lists them in the manifest.
type writer struct {
	ctx   context.Context //nolint:containedctx // of one backup
	tar   *tar.Writer
	home  *os.File
	m     *Manifest
	bytes int64
}

func newWriter(ctx context.Context, to io.Writer, home *os.File, m *Manifest) *writer {
	return &writer{ctx: ctx, tar: tar.NewWriter(to), m: m, home: home}
}

// write creates the archive from the frozen chains and all other files of the home.
func write(ctx context.Context, home, file, db string, frozen []*chain, m *Manifest) (err error) {
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	gz, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	in, err := os.OpenRoot(home)
	if err != nil {
		return err
	}
	defer in.Close()
	folder, err := os.Open(home)
	if err != nil {
		return err
	}
	defer folder.Close()
	w := newWriter(ctx, gz, folder, m)
	// The parts of the frozen moment are written first, and the walk skips them.
	done := map[string]bool{database: true}
	if err := w.copyDatabase(db); err != nil {
		return err
	}
	for _, c := range frozen {
		for _, s := range c.list {
			name := c.file(s.ID)
			done[name] = true
			if err := w.copyFile(name, s.Size); err != nil {
				return vanished(err)
			}
		}
		done[c.dir+"/head"] = true
		if c.head != nil {
			if err := w.add(File{Path: c.dir + "/head", Mode: 0o600, Size: int64(len(c.head))}, bytes.NewReader(c.head)); err != nil {
				return err
			}
		}
	}
	err = fs.WalkDir(in.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && p != "." {
			err = w.entry(p, d, done[p] || frozenBy(frozen, p))
		}
		return w.passOver(p, d, err)
	})
	if err != nil {
		return err
	}
	data, err := jsonx.Marshal(m)
	if err == nil && len(data) > maxManifest {
		err = tooLarge()
	}
	if err == nil {
		err = w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: root() + manifest, Mode: 0o600, Size: int64(len(data))})
	}
	if err == nil {
		_, err = w.tar.Write(data)
	}
	return errors.Join(err, w.tar.Close(), gz.Close())
}

// frozenBy reports whether a file is a segment of a frozen chain's folder, which the walk skips: new
// segments belong to a later moment.
func frozenBy(frozen []*chain, p string) bool {
	for _, c := range frozen {
		if strings.HasPrefix(p, c.dir+"/audit-") {
			return true
		}
	}
	return false
}

// entry adds an entry of the walk.
func (w *writer) entry(p string, d fs.DirEntry, done bool) error {
	in, why := belongs(p)
	switch {
	case why != "":
		w.leaveOut(p, why)
	case in && !d.IsDir() && !d.Type().IsRegular() && d.Type()&fs.ModeSocket == 0:
		w.leaveOut(p, "a link or no plain file")
		return nil
	}
	if !in && d.IsDir() {
		return fs.SkipDir
	}
	if !in || done || !d.IsDir() && !d.Type().IsRegular() {
		return nil
	}
	if err := inHome(p); err != nil {
		w.leaveOut(p, err.Error())
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	if d.IsDir() {
		info, err := d.Info()
		if err != nil {
			return err
		}
		return w.add(File{Path: p + "/", Mode: mode(p, info.Mode().Perm()), UID: owner(p, info)}, nil)
	}
	return w.copyFile(p, -1)
}

// passOver returns nil for errors that do not fail a backup: a file that was removed meanwhile, and an
// unreadable file of another user, which is listed in the manifest as left out.
func (w *writer) passOver(p string, d fs.DirEntry, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, fs.ErrPermission) && others(p):
		w.leaveOut(p, "its program allows no other process to read it")
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	return err
}

func (w *writer) leaveOut(p, why string) {
	w.m.LeftOut = append(w.m.LeftOut, LeftOut{p, why})
}

// copyDatabase adds the copy of the database under its name.
func (w *writer) copyDatabase(from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return w.copyOf(f, database, -1)
}

// copyFile adds the first size bytes of a file of the home, or all if size is -1.
func (w *writer) copyFile(p string, size int64) error {
	f, err := openPlain(w.home, p)
	if err != nil {
		return err
	}
	defer f.Close()
	return w.copyOf(f, p, size)
}

func (w *writer) copyOf(f *os.File, p string, size int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if size < 0 {
		size = info.Size()
	}
	err = w.add(File{Path: p, Mode: mode(p, info.Mode().Perm()), Size: size, UID: owner(p, info)}, f)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %s", errChanged, p)
	}
	return err
}

func tooLarge() error {
	return capability.Errorf(capability.CodeTooLarge, "backup",
		"the home has more than %d files or %d bytes, which is more than a backup holds", maxFiles, int64(maxBytes)).
		With("", "copy the home while its server is stopped")
}

// add writes one entry.
func (w *writer) add(f File, content io.Reader) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if w.bytes += f.Size; w.bytes > maxBytes || len(w.m.Files) == maxFiles {
		return tooLarge()
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: root() + "home/" + f.Path, Mode: int64(f.Mode), Size: f.Size}
	if content == nil {
		h.Typeflag = tar.TypeDir
	}
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	if content != nil {
		sum := sha256.New()
		to := io.MultiWriter(w.tar, sum)
		n, err := io.CopyN(to, &ending{content, w.ctx}, f.Size)
		if errors.Is(err, io.EOF) && others(f.Path) { // the archive already contains its size
			w.leaveOut(f.Path, "its end, which is zeros: it became shorter while it was copied")
			_, err = io.CopyN(to, &ending{zeros{}, w.ctx}, f.Size-n)
		}
		if err != nil {
			return err
		}
		f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	}
	w.m.Files = append(w.m.Files, f)
	return nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// ending is a reader that ends with its context.
type ending struct {
	io.Reader
	ctx context.Context //nolint:containedctx // of one backup
}

func (e *ending) Read(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	return e.Reader.Read(p)
}
