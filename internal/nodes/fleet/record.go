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

// Record is the data of one node that gateways share. It is written when it changes. Data
// that changes constantly (load, running calls) is not part of it.
type Record struct {
	Member
	Epoch    int64
	Joined   time.Time
	Gateway  string // the instance that admitted it
	Writer   string // the instance that wrote this
	Draining bool   `json:",omitempty"`
}

// compressAbove is the size in bytes above which a record is compressed.
const compressAbove = 2 << 10

// Codec encodes and decodes records. The zero value is ready to use. It is safe for
// concurrent use and reuses its compressors.
type Codec struct{ writers sync.Pool }

// Encode encodes a record in at most limit bytes, compressed if that is shorter. A larger
// record is payload_too_large.
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
			w, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
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

// Decode decodes the result of Encode.
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
