package sessions

// Ring holds the last 100,000 bytes of a session's output for its viewers. The zero Ring is
// empty.
type Ring struct {
	data  []byte
	total uint64 // bytes printed
}

// Add appends data and returns the number of bytes before it.
func (c *Ring) Add(data []byte) (offset uint64) {
	offset = c.total
	c.total += uint64(len(data))
	c.data = append(c.data, data...)
	if len(c.data) > 2*consoleBytes {
		c.data = append(c.data[:0], c.data[len(c.data)-consoleBytes:]...)
	}
	return offset
}

// From returns the output from an offset on and the offset after it. If since is 0 or not stored
// any more, it begins with the oldest stored output, at a safe position.
func (c *Ring) From(since uint64) ([]byte, uint64) {
	first := c.total - uint64(len(c.data))
	if kept := uint64(consoleBytes); c.total-first > kept {
		first = c.total - kept
	}
	at := first
	if since > first && since <= c.total {
		at = since
	}
	data := c.data[uint64(len(c.data))-(c.total-at):]
	if at == first && first > 0 {
		data = safe(data)
	}
	return append([]byte(nil), data...), c.total
}

// Total returns the number of bytes that were added.
func (c *Ring) Total() uint64 { return c.total }

// safe removes a possible rest of a character or escape sequence: the result begins after the
// first line end or with a sequence.
func safe(data []byte) []byte {
	for i, b := range data[:min(len(data), 4096)] {
		switch b {
		case '\n':
			return data[i+1:]
		case 0x1b:
			return data[i:]
		}
	}
	return data
}
