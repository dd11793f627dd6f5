package backup

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"reflect"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// take receives one file of an archive before it is verified. Its output must not be used
// until read returns without an error.
type take func(f File, content io.Reader) error

// read reads an archive to its end, checks it against the bounds and the manifest, and returns the
// manifest. each, unless nil, is called for every entry. Memory is bounded by the names.
func read(ctx context.Context, from io.Reader, most bounds, each take) (Manifest, error) {
	var m Manifest
	in := bufio.NewReader(from)
	gz, err := gzip.NewReader(in)
	if err != nil {
		return m, damaged(fmt.Errorf("it is not gzipped: %w", err))
	}
	gz.Multistream(false)
	budget := &bounded{from: gz, left: most.bytes + int64(most.files)*1024 + maxManifest, ctx: ctx}
	archive := tar.NewReader(budget)
	var files []File
	places := make(map[string]bool) // the result, including folders without an entry
	var total int64
	found := false
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return m, failure(ctx, err)
		}
		name, ours := strings.CutPrefix(h.Name, root())
		switch {
		case !ours:
			return m, foreign(h.Name)
		case found:
			return m, damaged(fmt.Errorf("%q comes after its manifest", h.Name))
		case name == manifest && h.Typeflag == tar.TypeReg:
			if m, err = readManifest(archive, h.Size); err != nil {
				return m, err
			}
			found = true
			continue
		}
		f := File{}
		if f.Path, ours = strings.CutPrefix(name, "home/"); !ours {
			return m, foreign(h.Name)
		}
		if err := inHome(f.Path); err != nil {
			return m, damaged(err)
		}
		for at := strings.TrimSuffix(f.Path, "/"); at != "." && !places[at]; at = path.Dir(at) {
			places[at] = true
		}
		if len(files) == most.files || len(places) > most.files {
			return m, damaged(fmt.Errorf("it has more than %d files and folders", most.files))
		}
		folder := strings.HasSuffix(f.Path, "/")
		if folder != (h.Typeflag == tar.TypeDir) || !folder && h.Typeflag != tar.TypeReg {
			return m, damaged(fmt.Errorf("%q is neither a file nor a folder", h.Name))
		}
		if f.Size = h.Size; f.Size < 0 || f.Size > most.bytes-total || folder && f.Size != 0 {
			return m, damaged(fmt.Errorf("its files have more than %d bytes", most.bytes))
		}
		total += f.Size
		sum := sha256.New()
		content := io.TeeReader(archive, sum)
		if each != nil {
			if err := each(f, content); err != nil {
				return m, err
			}
		}
		if _, err := io.Copy(io.Discard, content); err != nil {
			return m, failure(ctx, err)
		}
		if !folder {
			f.SHA256 = hex.EncodeToString(sum.Sum(nil))
		}
		files = append(files, f)
	}
	if !found {
		return m, damaged(errors.New("its manifest is missing"))
	}
	more, err := io.Copy(io.Discard, budget) // to the checksum
	if err != nil {
		return m, failure(ctx, err)
	}
	if _, err := in.ReadByte(); more > 0 || !errors.Is(err, io.EOF) {
		return m, damaged(errors.New("there is something behind its end"))
	}
	return m, agree(m, files)
}

// readManifest decodes the manifest and checks its format.
func readManifest(r io.Reader, size int64) (m Manifest, err error) {
	if size > maxManifest {
		return m, damaged(fmt.Errorf("its manifest has more than %d bytes", maxManifest))
	}
	data, err := io.ReadAll(io.LimitReader(r, size))
	if err == nil {
		err = jsonx.UnmarshalStrict(data, &m)
	}
	if err == nil && m.Format != format {
		err = errors.New("its manifest is of another format")
	}
	if err != nil {
		return m, damaged(fmt.Errorf("its manifest cannot be read: %w", err))
	}
	return m, nil
}

// agree returns an error unless the entries match the manifest.
func agree(m Manifest, files []File) error {
	seen := make(map[string]bool, len(files))
	hasDatabase := false
	for i, f := range files {
		if i >= len(m.Files) {
			return damaged(fmt.Errorf("%q is not in its manifest", f.Path))
		}
		want := m.Files[i]
		if want.Mode != mode(f.Path, want.Mode) || want.UID < 0 {
			return damaged(fmt.Errorf("the mode of %q is invalid", f.Path))
		}
		want.Mode, want.UID = 0, 0
		if !reflect.DeepEqual(want, f) {
			return damaged(fmt.Errorf("%q is not as its manifest says", f.Path))
		}
		key := strings.TrimSuffix(f.Path, "/")
		if seen[key] {
			return damaged(fmt.Errorf("%q is in it twice", f.Path))
		}
		seen[key] = true
		hasDatabase = hasDatabase || f.Path == database
	}
	switch {
	case len(m.Files) > len(files):
		return damaged(fmt.Errorf("%q is missing", m.Files[len(files)].Path))
	case !hasDatabase:
		return damaged(errors.New("it has no database"))
	}
	return nil
}

// foreign distinguishes a backup of a later program from a file that is not a backup.
func foreign(name string) error {
	if rest, ours := strings.CutPrefix(name, prefix); ours {
		number, _, _ := strings.Cut(rest, "/")
		if n, err := strconv.Atoi(number); err == nil && n > format {
			return capability.Errorf(capability.CodeConflict, "backup",
				"this backup has format %d, and this program knows %d: a later junctor made it", n, format).
				With(ReasonNewer, "restore it with the junctor that made it, or a later one")
		}
	}
	return damaged(fmt.Errorf("%q does not belong in one", name))
}

// failure returns the cause of a read error: the end of ctx, a bound, or the file.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return capability.AsError(ctx.Err())
	}
	return damaged(err)
}

// bounded is a reader that fails beyond the maximum size of a backup, and when its context ends.
type bounded struct {
	from io.Reader
	left int64
	ctx  context.Context //nolint:containedctx // of one reading
}

func (b *bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if b.left <= 0 {
		return 0, errors.New("it holds more than any backup may")
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
