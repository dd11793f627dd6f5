package fleet

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// Record is what gateways share of one node. It is written when something of it
// changes; what changes all the time (its load, what it has under way) is each
// gateway's own to see.
type Record struct {
	Member
	Epoch    int64
	Joined   time.Time
	Gateway  string // the instance that let it in
	Writer   string // the instance that wrote this
	Draining bool   `json:",omitempty"`
}

const (
	// compressAbove is where a record is worth compressing, in bytes.
	compressAbove = 2 << 10
	// maxRecord bounds a record before compression: a message of a node has half.
	maxRecord = 1 << 20
)

// Codec writes and reads records. The zero value is ready; it is safe for concurrent
// use and keeps its compressors for the next one.
type Codec struct{ writers sync.Pool }

// Encode writes a record in at most limit bytes, compressed where that is shorter. A
// record that is too large all the same is payload_too_large: schemas compress well,
// so it says more than any honest node has to.
func (c *Codec) Encode(r *Record, limit int) ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "nodes.join", "what the node offers cannot be written",
			err).With("bad_encoding", "")
	}
	plain := len(data)
	if plain > compressAbove && plain <= maxRecord {
		var out bytes.Buffer
		w, _ := c.writers.Get().(*gzip.Writer)
		if w == nil {
			w, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // a level that there is
		}
		w.Reset(&out)
		if _, err = w.Write(data); err == nil {
			err = w.Close()
		}
		c.writers.Put(w)
		if err != nil {
			return nil, err
		}
		data = out.Bytes()
	}
	if len(data) > limit || plain > maxRecord {
		return nil, capability.Errorf(capability.CodeTooLarge, "nodes.join",
			"what the node offers has %d bytes, %d compressed; the limits are %d and %d", plain, len(data), maxRecord, limit).
			With("payload_too_large", "offer fewer functions, or shorter schemas and descriptions")
	}
	return data, nil
}

// Decode reads what Encode wrote.
func (c *Codec) Decode(data []byte) (Record, error) {
	bad := func(err error) (Record, error) {
		return Record{}, capability.Wrap(capability.CodeInvalidInput, "nodes.table", "an entry of the table of nodes cannot be read",
			err).With("bad_encoding", "")
	}
	if len(data) > 0 && data[0] == 0x1f {
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err == nil {
			data, err = io.ReadAll(io.LimitReader(r, maxRecord+1))
		}
		if err != nil {
			return bad(err)
		}
	}
	if len(data) > maxRecord {
		return bad(io.ErrShortBuffer)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return bad(err)
	}
	if err := check(&r.Member); err != nil || r.ID == "" || r.Epoch <= 0 {
		return bad(err)
	}
	return r, nil
}
