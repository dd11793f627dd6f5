package audit

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"strconv"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

const headerVersion = 1

// header is the first line of a segment. It is not a record. It holds the number and hash with
// which the previous segment ends, so that a missing or exchanged segment is detected.
type header struct {
	Version  int    `json:"audit_segment"`
	FirstSeq uint64 `json:"first_seq"`
	PrevHash string `json:"prev_hash"`
	Gateway  string `json:"gateway"`
}

func (h header) line() []byte {
	data, err := jsonx.Marshal(h)
	if err != nil { // a gateway name that is not UTF-8
		h.Gateway = ""
		data, _ = jsonx.Marshal(h)
	}
	return append(data, '\n')
}

func parseHeader(data []byte) (h header, prev [sha256.Size]byte, ok bool) {
	if jsonx.Unmarshal(data, &h) != nil || h.Version != headerVersion || h.FirstSeq == 0 || len(h.PrevHash) != 2*len(prev) {
		return h, prev, false
	}
	_, err := hex.Decode(prev[:], []byte(h.PrevHash))
	return h, prev, err == nil
}

// line is one line of a segment, without its newline; data is valid until the
// next one is read.
type line struct {
	segment uint64
	offset  int64
	data    []byte
}

func (l line) header() bool { return l.offset == 0 }

// end returns the offset behind the line and its newline.
func (l line) end() int64 { return l.offset + int64(len(l.data)) + 1 }

var errLongLine = errors.New("line longer than the limit")

// lines reads whole lines from an offset of a segment to the end of list, which bounds the
// reading during concurrent appends. An unfinished line at the very end is omitted; elsewhere
// it is yielded and fails verification. A line that is too long is yielded with errLongLine
// and its beginning, and the reading continues after it.
func lines(segs Segments, list []SegmentInfo, segment uint64, offset int64) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		var buf *bufio.Reader
		for i, info := range list {
			if info.ID < segment {
				continue
			}
			at := int64(0)
			if info.ID == segment {
				at = offset
			}
			if at >= info.Size {
				continue
			}
			if buf == nil {
				buf = bufio.NewReaderSize(nil, 4*MaxLine)
			}
			if !readLines(segs, info, at, i == len(list)-1, buf, yield) {
				return
			}
		}
	}
}

// readLines yields the lines of one segment from an offset, as described at lines. It returns false
// if yield did, or after an error that ends the iteration.
func readLines(segs Segments, info SegmentInfo, at int64, last bool, buf *bufio.Reader, yield func(line, error) bool) bool {
	f, err := segs.Open(info.ID, at)
	if err != nil {
		yield(line{segment: info.ID, offset: at}, fmt.Errorf("open segment %d: %w", info.ID, err))
		return false
	}
	defer f.Close()
	buf.Reset(io.LimitReader(f, info.Size-at))
	for {
		data, err := buf.ReadSlice('\n')
		switch {
		case err == nil:
			if !yield(line{info.ID, at, data[:len(data)-1]}, nil) {
				return false
			}
			at += int64(len(data))
		case errors.Is(err, io.EOF):
			return len(data) == 0 || last || yield(line{info.ID, at, data}, nil)
		case errors.Is(err, bufio.ErrBufferFull):
			if !yield(line{info.ID, at, data}, errLongLine) {
				return false
			}
			for ; errors.Is(err, bufio.ErrBufferFull); data, err = buf.ReadSlice('\n') {
				at += int64(len(data))
			}
			at += int64(len(data))
		default:
			yield(line{segment: info.ID, offset: at}, fmt.Errorf("read segment %d: %w", info.ID, err))
			return false
		}
	}
}

// The fixed parts at the end of a record's line.
const (
	macKey    = `, "mac": "`
	hashKey   = `, "hash": "`
	prevKey   = `, "prev_hash": "`
	seqKey    = `, "seq": `
	hexLen    = 2 * sha256.Size
	macLen    = 16 // bytes
	macMember = len(macKey) + 2*macLen + len(`"`)
	// hashMember and prevMember are the lengths of the whole members.
	hashMember = len(hashKey) + hexLen + len(`"`)
	prevMember = len(prevKey) + hexLen + len(`"`)
)

// link holds the members of a record's line that place it in the chain.
type link struct {
	seq        uint64
	prev, hash [sha256.Size]byte
	mac        []byte // hexadecimal digits, nil if the record has none
	covered    int    // bytes of the line under the hash
}

// parseLink parses the chain's members at the end of a line. It accepts only the exact form that
// the writer produces.
func parseLink(data []byte) (link, bool) {
	var k link
	if !bytes.HasSuffix(data, []byte(`"}`)) {
		return k, false
	}
	end := len(data) - len(`}`)
	if at := end - macMember; at > 0 && bytes.HasPrefix(data[at:], []byte(macKey)) {
		k.mac, end = data[at+len(macKey):end-1], at
	}
	k.covered = end - hashMember
	prevAt := k.covered - prevMember
	if prevAt <= 0 || data[end-1] != '"' ||
		!bytes.HasPrefix(data[k.covered:], []byte(hashKey)) || !bytes.HasPrefix(data[prevAt:], []byte(prevKey)) ||
		data[k.covered-1] != '"' {
		return k, false
	}
	if !unhex(&k.hash, data[k.covered+len(hashKey):]) || !unhex(&k.prev, data[prevAt+len(prevKey):]) {
		return k, false
	}
	seqAt := bytes.LastIndex(data[:prevAt], []byte(seqKey))
	if seqAt < 0 {
		return k, false
	}
	digits := data[seqAt+len(seqKey) : prevAt]
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil || seq == 0 || digits[0] == '0' || digits[0] == '+' {
		return k, false
	}
	k.seq = seq
	return k, true
}

// newMAC returns the code that authenticates records with the key of the home, or nil without a key.
func newMAC(key []byte) hash.Hash { return deriveMAC(key, "junctor audit record") }

// deriveMAC returns the code for one purpose. Its key is derived, because callers can obtain digests
// of chosen values under the key itself.
func deriveMAC(key []byte, purpose string) hash.Hash {
	if len(key) == 0 {
		return nil
	}
	derive := hmac.New(sha256.New, key)
	_, _ = derive.Write([]byte(purpose))
	return hmac.New(sha256.New, derive.Sum(nil))
}

// appendMAC appends the hexadecimal code of a record's hash.
func appendMAC(b []byte, mac hash.Hash, of *[sha256.Size]byte) []byte {
	var sum [sha256.Size]byte
	mac.Reset()
	_, _ = mac.Write(of[:])
	return hex.AppendEncode(b, mac.Sum(sum[:0])[:macLen])
}

func unhex(dst *[sha256.Size]byte, src []byte) bool {
	for _, c := range src[:hexLen] {
		if 'A' <= c && c <= 'F' { // only lower case, so that a line has one valid spelling
			return false
		}
	}
	_, err := hex.Decode(dst[:], src[:hexLen])
	return err == nil
}

// walker verifies the chain line by line.
type walker struct {
	seq    uint64
	prev   [sha256.Size]byte
	sum    hash.Hash
	anchor bool // seq and prev are set; otherwise the first header provides them
	mac    hash.Hash
	coded  uint64 // every record from this number on must have a code; 0: none is known to have one
	macs   uint64 // records with a code
}

// The reasons of a bad record.
const (
	BadLine       = "bad_line"            // not a valid record
	BadHeader     = "bad_header"          // the segment does not begin where the previous one ended
	BadSeq        = "seq_gap"             // records are missing, repeated or out of order
	BadPrev       = "prev_hash_mismatch"  // the record follows another one
	BadHash       = "hash_mismatch"       // the record was edited
	BadMAC        = "mac_mismatch"        // the record has another code than the key makes of it
	BadNoMAC      = "mac_missing"         // the record has no code, and was written when records had one
	BadCheckpoint = "checkpoint_mismatch" // the record is not the one that was logged
	BadPoint      = "checkpoint_forged"   // a checkpoint or the head has another code than the key makes of it
	BadAnchor     = "anchor_mismatch"     // an anchor is of another record: the log went back and continued
	BadTail       = "tail_missing"        // logged records are missing at the end
	BadGap        = "segment_missing"     // the file of a segment is missing
	BadStart      = "start_missing"       // the first segments are missing
)

// step verifies one line and advances the walker. It returns "" for a valid line, else the reason
// why it is bad.
func (w *walker) step(ln line) string {
	if ln.header() {
		h, prev, ok := parseHeader(ln.data)
		switch {
		case !ok:
			return BadHeader
		case !w.anchor:
			w.seq, w.prev, w.anchor = h.FirstSeq-1, prev, true
		case h.FirstSeq != w.seq+1 || prev != w.prev:
			return BadHeader
		}
		return ""
	}
	k, ok := parseLink(ln.data)
	if !ok || len(ln.data) >= MaxLine {
		return BadLine
	}
	if w.sum == nil {
		w.sum = sha256.New()
	}
	w.sum.Reset()
	_, _ = w.sum.Write(k.prev[:])
	_, _ = w.sum.Write(ln.data[:k.covered])
	var got [sha256.Size]byte
	w.sum.Sum(got[:0])
	switch {
	case got != k.hash:
		return BadHash
	case w.anchor && k.seq != w.seq+1:
		return BadSeq
	case w.anchor && k.prev != w.prev:
		return BadPrev
	case k.mac == nil && w.coded > 0 && k.seq >= w.coded:
		return BadNoMAC
	case k.mac != nil && w.mac != nil && !hmac.Equal(k.mac, appendMAC(nil, w.mac, &k.hash)):
		return BadMAC
	}
	if k.mac != nil {
		w.macs++
		if w.coded == 0 {
			w.coded = k.seq
		}
	}
	w.seq, w.prev, w.anchor = k.seq, k.hash, true
	return ""
}
