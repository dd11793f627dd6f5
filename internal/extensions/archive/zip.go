package archive

import (
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// ReadZip reads the directory of a zip file of the given size, and refuses one with too many
// members, an unsafe or ambiguous name, or a directory that two readers could read differently.
// Decompressed sizes are checked on extraction only. Files are read from r later, so r must stay
// readable as long as the tree is used.
func ReadZip(r io.ReaderAt, size int64) (*Tree, error) {
	if size > MaxBytes {
		return nil, large("the archive has more than %d bytes", MaxBytes)
	}
	entries, err := survey(r, size)
	if err != nil {
		return nil, err
	}
	zr, err := zip.NewReader(r, size)
	if err != nil {
		return nil, because(broken("this is not a zip file").With(ReasonInvalid, "give the .zip of a package, or its folder"), err)
	}
	if len(zr.File) != entries {
		return nil, refused("the directory of the archive can be read in two ways")
	}
	t, seen := &Tree{}, newNames()
	var packed uint64
	for _, f := range zr.File {
		m, file, err := member(f, seen)
		if err != nil {
			return nil, err
		}
		// Members that share their packed bytes would make a small file huge.
		if packed += f.CompressedSize64; f.CompressedSize64 > uint64(size) || packed > uint64(size) {
			return nil, refused("members of the archive overlap")
		}
		if file {
			t.members = append(t.members, m)
		}
	}
	slices.SortFunc(t.members, func(a, b Member) int { return cmp.Compare(a.Path, b.Path) })
	return t, nil
}

func member(f *zip.File, seen *names) (m Member, file bool, err error) {
	mode := f.Mode()
	p, isDir := strings.CutSuffix(f.Name, "/")
	switch {
	case isDir && mode.Type() == fs.ModeDir, !isDir && mode.IsRegular():
	default:
		return m, false, refused("%s is neither a file nor a directory", shown(f.Name))
	}
	if err := seen.check(p, !isDir); err != nil {
		return m, false, err
	}
	switch {
	case f.Flags&1 != 0:
		return m, false, broken("%s is encrypted", shown(p))
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return m, false, broken("%s is packed by a method other than store and deflate", shown(p))
	}
	return Member{Path: p, Executable: mode&0o111 != 0, open: f.Open, packed: int64(f.CompressedSize64)}, !isDir, nil
}

const (
	endLength    = 22
	headerLength = 46
)

// survey counts the entries of the directory before memory is allocated for them. It
// refuses a file unless it has one directory, directly before the end record, with the
// declared number of entries, so that every zip reader finds the same members.
func survey(r io.ReaderAt, size int64) (entries int, err error) {
	tail := make([]byte, min(size, endLength+1<<16))
	if _, err := r.ReadAt(tail, size-int64(len(tail))); err != nil && size > 0 && !errors.Is(err, io.EOF) {
		return 0, because(broken("the archive cannot be read"), err)
	}
	at := bytes.LastIndex(tail, []byte("PK\x05\x06"))
	if at < 0 || len(tail)-at < endLength {
		return 0, broken("this is not a zip file").With(ReasonInvalid, "give the .zip of a package, or its folder")
	}
	end := tail[at:]
	if int(binary.LittleEndian.Uint16(end[20:]))+endLength != len(end) {
		return 0, refused("the archive goes on after its end")
	}
	total := int(binary.LittleEndian.Uint16(end[10:]))
	length, begin := int64(binary.LittleEndian.Uint32(end[12:])), int64(binary.LittleEndian.Uint32(end[16:]))
	endsAt := size - int64(len(end))
	if total > MaxEntries {
		return 0, large("the archive has more than %d members", MaxEntries)
	}
	if begin+length != endsAt || binary.LittleEndian.Uint32(end[4:]) != 0 || int(binary.LittleEndian.Uint16(end[8:])) != total {
		return 0, refused("the directory of the archive is not where its end says")
	}
	head := make([]byte, headerLength)
	for at := begin; at < endsAt; entries++ {
		if entries >= total || endsAt-at < headerLength {
			return 0, refused("the directory of the archive holds more than its end says")
		}
		if _, err := r.ReadAt(head, at); err != nil {
			return 0, because(broken("the archive cannot be read"), err)
		}
		if !bytes.HasPrefix(head, []byte("PK\x01\x02")) {
			return 0, broken("the directory of the archive is damaged")
		}
		if err := agree(r, at, head); err != nil {
			return 0, err
		}
		at += headerLength
		for _, field := range []int{28, 30, 32} { // name, extra, comment
			at += int64(binary.LittleEndian.Uint16(head[field:]))
		}
	}
	if entries != total {
		return 0, refused("the directory of the archive holds less than its end says")
	}
	return entries, nil
}

// localLength is the length of a member's own header, without its name.
const localLength = 30

// agree returns an error unless the header before a member's bytes has the same name, flags and
// method as its entry of the directory, head, which is at the offset at. Programs that read a zip
// file from its beginning would otherwise find another member.
func agree(r io.ReaderAt, at int64, head []byte) error {
	name := make([]byte, binary.LittleEndian.Uint16(head[28:]))
	local := make([]byte, localLength)
	begin := int64(binary.LittleEndian.Uint32(head[42:]))
	if begin >= at {
		return refused("a member of the archive is not before its directory")
	}
	if _, err := r.ReadAt(name, at+headerLength); err != nil {
		return because(broken("the archive cannot be read"), err)
	}
	if _, err := r.ReadAt(local, begin); err != nil || !bytes.HasPrefix(local, []byte("PK\x03\x04")) {
		return refused("%s is not where the directory of the archive says", shown(string(name)))
	}
	own := make([]byte, binary.LittleEndian.Uint16(local[26:]))
	if _, err := r.ReadAt(own, begin+localLength); err != nil {
		return because(broken("the archive cannot be read"), err)
	}
	if !bytes.Equal(own, name) || !bytes.Equal(local[6:10], head[8:12]) {
		return refused("%s is called %s before its bytes, or packed in another way", shown(string(name)), shown(string(own)))
	}
	return nil
}
