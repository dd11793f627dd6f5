package modelwire

import (
	"bytes"
	"errors"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

// Delta is a piece of a reply that is being streamed.
type Delta struct {
	Kind BlockKind // Text, Thinking or Call
	Text string    // piece of a text, or of the arguments of a call
	// Call counts the calls of the reply from 0. Name is set in the first piece of a call,
	// which may be empty otherwise.
	Call int
	Name string
}

// collector assembles a reply from the events of a stream.
type collector interface {
	// event adds the data of one event. done reports that the reply is complete.
	event(data []byte, emit func(Delta)) (done bool, err error)
	// reply returns what was collected.
	reply() (Reply, error)
}

// Decoder assembles a reply from the events of a stream. The caller bounds the bytes of a
// stream.
type Decoder struct {
	collector
	room int // bytes of text that may still come
	cut  bool
	done bool
}

// NewDecoder returns a decoder that stops after maxText bytes of text.
func (f Form) NewDecoder(maxText int) *Decoder {
	return &Decoder{collector: f.functions().stream(), room: maxText}
}

// Event adds the data of one server-sent event and returns the pieces that it contains. done
// reports that no further event is needed. Errors: a malformed event; [ServiceError].
func (d *Decoder) Event(data []byte) (pieces []Delta, done bool, err error) {
	if d.done {
		return nil, true, nil
	}
	done, err = d.event(data, func(piece Delta) {
		if piece.Kind == Text {
			if d.cut {
				return
			}
			if len(piece.Text) > d.room {
				piece.Text, d.cut = text.CutBytes(piece.Text, d.room), true
			}
			d.room -= len(piece.Text)
		}
		if piece.Text != "" || piece.Name != "" {
			pieces = append(pieces, piece)
		}
	})
	d.done = done || d.cut
	return pieces, d.done, err
}

// ErrBroken is the error for a stream that ended before the reply was complete.
var ErrBroken = errors.New("the stream ended without its end")

// Reply returns the reply. Error: [ErrBroken] if the stream ended too early.
func (d *Decoder) Reply() (Reply, error) {
	r, err := d.reply()
	switch {
	case err != nil:
		return Reply{}, err
	case d.cut:
		r.Stop = StopLength
	case !d.done && r.Stop == "":
		return Reply{}, ErrBroken
	}
	if r.Stop == "" {
		r.Stop = stopOr(StopOther, r.Message)
	}
	return r, nil
}

// merged is a JSON object that grows by pieces. Members keep the order in which they came.
type merged struct {
	names  []string
	values map[string]*value
}

// value is a member: a JSON value, a string that grows, or a list that grows.
type value struct {
	raw  jsonx.Raw
	text *strings.Builder
	list *bytes.Buffer // elements, separated by commas
}

func (m *merged) at(name string) *value {
	v := m.values[name]
	if v == nil {
		if m.values == nil {
			m.values = make(map[string]*value)
		}
		v = &value{}
		m.names, m.values[name] = append(m.names, name), v
	}
	return v
}

// set replaces a member.
func (m *merged) set(name string, raw []byte) {
	*m.at(name) = value{raw: bytes.Clone(raw)}
}

// setAll sets every member of a JSON object.
func (m *merged) setAll(raw []byte) error {
	return jsonx.Members(raw, m.set)
}

// appendText appends to a string member.
func (m *merged) appendText(name, piece string) {
	v := m.at(name)
	if v.text == nil {
		v.text = new(strings.Builder)
		if old, ok := jsonx.Text(v.raw); ok {
			v.text.WriteString(old)
		}
	}
	v.text.WriteString(piece)
}

// appendElements appends the elements of a list to a member.
func (m *merged) appendElements(name string, list []byte) {
	v := m.at(name)
	if v.list == nil {
		v.list = new(bytes.Buffer)
		v.addElements(v.raw)
	}
	v.addElements(list)
}

func (v *value) addElements(list []byte) {
	if len(list) == 0 || list[0] != '[' {
		return
	}
	_ = jsonx.Elements(list, func(one []byte) error {
		if v.list.Len() > 0 {
			v.list.WriteByte(',')
		}
		v.list.Write(one)
		return nil
	})
}

// text returns a string member.
func (m *merged) text(name string) string {
	v := m.values[name]
	switch {
	case v == nil:
		return ""
	case v.text != nil:
		return v.text.String()
	}
	s, _ := jsonx.Text(v.raw)
	return s
}

// merge adds a piece of the object: strings and lists grow, other values are replaced.
func (m *merged) merge(name string, raw []byte) {
	switch {
	case len(raw) > 0 && raw[0] == '"':
		piece, _ := jsonx.Text(raw)
		m.appendText(name, piece)
	case len(raw) > 0 && raw[0] == '[':
		m.appendElements(name, raw)
	case string(raw) == "null" && m.values[name] != nil: // adds nothing
	default:
		m.set(name, raw)
	}
}

// bytes returns the object.
func (m *merged) bytes() jsonx.Raw {
	out := []byte{'{'}
	for i, name := range m.names {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(jsonx.AppendString(out, name), ':')
		switch v := m.values[name]; {
		case v.text != nil:
			out = jsonx.AppendString(out, v.text.String())
		case v.list != nil:
			out = append(append(append(out, '['), v.list.Bytes()...), ']')
		default:
			out = append(out, v.raw...)
		}
	}
	return append(out, '}')
}

// list returns JSON values as a JSON list.
func list[T ~[]byte](values []T) jsonx.Raw {
	out := []byte{'['}
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}
