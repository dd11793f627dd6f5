package sessions

// Ring is the end of what a session showed, for its viewers: the last 100,000 bytes, and
// how many came before. The zero Ring is empty.
type Ring struct {
	data  []byte
	total uint64 // bytes printed
}

// Add keeps data and returns how many bytes came before it.
func (c *Ring) Add(data []byte) (offset uint64) {
	offset = c.total
	c.total += uint64(len(data))
	c.data = append(c.data, data...)
	if len(c.data) > 2*consoleBytes {
		c.data = append(c.data[:0], c.data[len(c.data)-consoleBytes:]...)
	}
	return offset
}

// From is what is kept from an offset on, and the offset of what comes. Where that is not
// kept any more, or 0, it begins with the oldest that is, at a safe place.
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

// Total is how many bytes there were.
func (c *Ring) Total() uint64 { return c.total }

// safe cuts what may be the rest of a character or of an escape sequence: it begins
// after the first line end, or where a sequence begins.
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
