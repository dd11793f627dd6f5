package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"time"
)

// packed is a file of an archive.
type packed struct {
	name string
	data []byte
	run  bool // it is a program
}

// files are what an archive holds, with the sums of all of it: the installer compares
// them once more, wherever the folder has been meanwhile.
func (m *maker) files(t target, binary string, licences []byte) ([]packed, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	list := []packed{{t.program(), program, true}, {"THIRD-PARTY-LICENSES.txt", licences, false}}
	take := []string{"LICENSE", "README.md", "CHANGELOG.md", "docs/install.md"}
	if t.os != "windows" {
		take = append(take, "release/install.sh")
	}
	if t.os == "linux" {
		take = append(take, "release/junctor.service", "cmd/junctor/junctor.user.service")
	}
	for _, name := range take {
		data, err := os.ReadFile(filepath.Join(m.source, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		list = append(list, packed{filepath.Base(name), data, filepath.Ext(name) == ".sh"})
	}
	sums := make(map[string]string)
	for _, f := range list {
		sums[f.name] = sum(f.data)
	}
	return append(list, packed{"SHA256SUMS", sumsFile(sums), false}), nil
}

// pack makes a tar.gz, or a zip for Windows, with one folder in it. Every time in it is
// at, and its files have no owner.
func pack(base string, t target, files []packed, at time.Time) (name string, data []byte, err error) {
	var buf bytes.Buffer
	if t.os == "windows" {
		err = writeZip(&buf, base+"/", files, at)
		return base + ".zip", buf.Bytes(), err
	}
	err = writeTar(&buf, base, files, at)
	return base + ".tar.gz", buf.Bytes(), err
}

func writeTar(buf *bytes.Buffer, base string, files []packed, at time.Time) error {
	z, err := gzip.NewWriterLevel(buf, gzip.BestCompression) // without a name or a time of its own
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeDir, Name: base + "/", Mode: 0o755, ModTime: at,
		Format: tar.FormatUSTAR,
	}); err != nil {
		return err
	}
	for _, f := range files {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: base + "/" + f.name, Mode: 0o644, Size: int64(len(f.data)), ModTime: at,
			Format: tar.FormatUSTAR,
		}
		if f.run {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return z.Close()
}

// writeZip writes the files in their order, with prefix before each name.
func writeZip(buf *bytes.Buffer, prefix string, files []packed, at time.Time) error {
	w := zip.NewWriter(buf)
	for _, f := range files {
		h := &zip.FileHeader{Name: prefix + f.name, Method: zip.Deflate, Modified: at.UTC()}
		h.SetMode(0o644)
		if f.run {
			h.SetMode(0o755)
		}
		entry, err := w.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.data); err != nil {
			return err
		}
	}
	return w.Close()
}
