package archive

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"strings"
)

// UnpackTar writes the files of a gzipped tar file to a folder, with the rules and limits
// of a zip file, and replaces existing files. It reads r once; size is that of the packed
// file. On an error, the files written so far stay.
func UnpackTar(ctx context.Context, r io.Reader, size int64, to *os.Root) error {
	if size > MaxBytes {
		return large("the archive has more than %d bytes", MaxBytes)
	}
	gz, err := gzip.NewReader(r)
	if err != nil {
		return because(broken("this is not a tar file packed with gzip"), err)
	}
	defer gz.Close()
	// The limit includes the headers, for which there are 32 MiB more.
	tr := tar.NewReader(io.LimitReader(gz, MaxInflated+32<<20))
	seen, w := newNames(), writer{ctx: ctx, to: to, sum: newTreeHash(), over: true}
	for entries := 0; ; entries++ {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return because(broken("the archive is damaged"), err)
		}
		if entries >= MaxEntries {
			return large("the archive has more than %d members", MaxEntries)
		}
		p, file := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/"), h.Typeflag == tar.TypeReg
		if p == "" && !file || p == "." && !file { // the packed folder itself
			continue
		}
		if !file && h.Typeflag != tar.TypeDir {
			return refused("%s is neither a file nor a directory", shown(h.Name))
		}
		if err := seen.check(p, file); err != nil {
			return err
		}
		if !file {
			if err := to.MkdirAll(p, 0o755); err != nil {
				return unwritten(p, err)
			}
			continue
		}
		m := Member{Path: p, Executable: h.Mode&0o111 != 0, packed: size, open: func() (io.ReadCloser, error) { return io.NopCloser(tr), nil }}
		if err := w.write(&m); err != nil {
			return err
		}
	}
}
