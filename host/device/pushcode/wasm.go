package pushcode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/junctor-run/junctor/protocol/cmp"
)

// wasmExports returns which of names a module exports, read from its bytes without running
// it. A module with _start has every name, because _start receives the name as an
// argument. The values are false, because modules do not stream.
func wasmExports(code []byte, names []string) (map[string]bool, error) {
	have, err := exportedFunctions(code)
	if err != nil {
		return nil, cmp.Errorf(cmp.ReasonPayload, "it is not a module of WebAssembly")
	}
	found := make(map[string]bool)
	for _, name := range names {
		if slices.Contains(have, name) || slices.Contains(have, "_start") {
			found[name] = false
		}
	}
	return found, nil
}

const sectionExports = 7

// exportedFunctions walks the sections of a binary module.
func exportedFunctions(code []byte) ([]string, error) {
	rest, ok := bytes.CutPrefix(code, []byte("\x00asm\x01\x00\x00\x00"))
	if !ok {
		return nil, errors.New("no header")
	}
	var names []string
	for r := bytes.NewReader(rest); r.Len() > 0; {
		id, err := r.ReadByte()
		if err != nil {
			return nil, err
		}
		section, err := vector(r)
		if err != nil {
			return nil, err
		}
		if id == sectionExports {
			if names, err = exportSection(bytes.NewReader(section)); err != nil {
				return nil, err
			}
		}
	}
	return names, nil
}

func exportSection(r *bytes.Reader) (names []string, err error) {
	count, err := binary.ReadUvarint(r)
	if err != nil || count > uint64(r.Len()) { // each takes more than a byte
		return nil, errors.New("a wrong count of exports")
	}
	for range count {
		name, err := vector(r)
		if err != nil {
			return nil, err
		}
		kind, err := r.ReadByte()
		if err != nil {
			return nil, err
		}
		if _, err := binary.ReadUvarint(r); err != nil {
			return nil, err
		}
		if kind == 0 {
			names = append(names, string(name))
		}
	}
	return names, nil
}

// vector reads a length and that number of bytes.
func vector(r *bytes.Reader) ([]byte, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil || n > uint64(r.Len()) {
		return nil, io.ErrUnexpectedEOF
	}
	b := make([]byte, n)
	_, err = io.ReadFull(r, b)
	return b, err
}
