package ingest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

// ownPrefix is the metadata prefix that the protocol reserves. Members below it are
// removed, because a client could take the server's for ours.
const ownPrefix = "io.modelcontextprotocol/"

// declared holds the members that the checks need.
type declared struct {
	Name         string    `json:"name"`
	URI          string    `json:"uri"`
	URITemplate  string    `json:"uriTemplate"`
	Title        string    `json:"title"`
	Description  string    `json:"description"`
	InputSchema  jsonx.Raw `json:"inputSchema"`
	OutputSchema jsonx.Raw `json:"outputSchema"`
	Annotations  struct {
		Title           string `json:"title"`
		ReadOnlyHint    *bool  `json:"readOnlyHint"`
		DestructiveHint *bool  `json:"destructiveHint"`
	} `json:"annotations"`
	Meta jsonx.Raw `json:"_meta"`
}

// Parse checks one definition. The error is the reason for dropping it, as a text for
// operators. Parsing Published again gives the same definition.
func Parse(kind Kind, raw json.RawMessage) (*Definition, error) {
	if len(raw) > MaxDefinition {
		return nil, fmt.Errorf("its definition is larger than %d bytes", MaxDefinition)
	}
	raw = bytes.Clone(bytes.TrimSpace(raw))
	if err := bounded(raw); err != nil {
		return nil, err
	}
	var in declared
	if err := jsonx.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("its definition cannot be read: %s", text.CutBytes(Shown(err.Error()), 200))
	}
	d := &Definition{Kind: kind, Title: text.CutBytes(Shown(cmp.Or(in.Title, in.Annotations.Title, in.Name, in.URI, in.URITemplate)), 120)}
	if err := d.named(&in); err != nil {
		return nil, err
	}
	if kind == Tool {
		if err := d.schemas(&in); err != nil {
			return nil, err
		}
		hint := in.Annotations.ReadOnlyHint
		d.ReadOnly = hint != nil && *hint
		d.Destructive = in.Annotations.DestructiveHint != nil && *in.Annotations.DestructiveHint
		d.Writes = d.Destructive || hint != nil && !*hint
	}
	d.Description = Shown(in.Description)
	if len(d.Description) > MaxDescription {
		d.Description, d.Cut = text.CutBytes(d.Description, MaxDescription), true
		d.Advice = append(d.Advice, fmt.Sprintf("its description has %d bytes; agents see the first %d", len(in.Description), MaxDescription))
	}
	d.Advice = append(d.Advice, advice(&in)...)
	var err error
	if d.Published, err = publish(raw, &in, d.Description); err != nil {
		return nil, err
	}
	if d.Pin, err = pin(d.Published); err != nil {
		return nil, fmt.Errorf("its definition has no canonical form: %s", text.CutBytes(Shown(err.Error()), 200))
	}
	return d, nil
}

// named sets Name from the member that the kind uses, or returns why it is invalid.
func (d *Definition) named(in *declared) (err error) {
	switch d.Kind {
	case Resource, Template:
		if d.Name = in.URI; d.Kind == Template {
			d.Name = in.URITemplate
		}
		switch {
		case d.Name == "":
			return errors.New("it has no address")
		case len(d.Name) > MaxURI:
			return fmt.Errorf("its address is longer than %d bytes", MaxURI)
		case hidden(d.Name) || strings.ContainsFunc(d.Name, unicode.IsSpace):
			return errors.New("its address holds spaces or characters that are not shown")
		}
		if d.Kind == Template {
			d.Pattern, err = pattern(d.Name)
		}
		return err
	}
	switch d.Name = in.Name; {
	case d.Name == "":
		return errors.New("its name is empty")
	case len(d.Name) > MaxName:
		return fmt.Errorf("its name is longer than %d bytes", MaxName)
	case hidden(d.Name) || strings.TrimSpace(d.Name) != d.Name:
		return errors.New("its name holds control or bidirectional characters, or spaces around it")
	}
	return nil
}

// hidden reports whether a text contains invisible characters.
func hidden(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError
	})
}

// Shown returns a text without invisible characters: controls except line breaks and tabs,
// zero-width characters and those that change the direction of text. The joiner of emoji
// and of some scripts stays.
func Shown(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\u200d':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, s)
}

// publish returns the definition as agents see it: raw itself, if nothing must be removed.
func publish(raw json.RawMessage, in *declared, description string) (json.RawMessage, error) {
	out := raw
	if in.Description != description {
		text, err := jsonx.Marshal(description)
		if err != nil {
			return nil, errors.New("its description is not text")
		}
		if out, err = replace(out, "description", text); err != nil {
			return nil, err
		}
	}
	if len(in.Meta) == 0 || in.Meta.Kind() == 'n' {
		return out, nil
	}
	meta, stripped, err := without(in.Meta, func(name string) bool { return strings.HasPrefix(name, ownPrefix) })
	if err != nil {
		return nil, errors.New("its _meta is not an object")
	}
	if stripped {
		return replace(out, "_meta", meta)
	}
	return out, nil
}

// without returns an object without the unwanted members, and whether there were any. The
// bytes of other members are unchanged.
func without(doc []byte, unwanted func(name string) bool) (out []byte, stripped bool, err error) {
	out = append(out, '{')
	err = members(doc, func(name string, value []byte) {
		if unwanted(name) {
			stripped = true
			return
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		quoted, _ := jsontext.AppendQuote(nil, name) // name was decoded from a JSON string
		out = append(append(append(out, quoted...), ':'), value...)
	})
	return append(out, '}'), stripped, err
}

// members calls each for every member of an object in order. value aliases doc.
func members(doc []byte, each func(name string, value []byte)) error {
	dec := jsontext.NewDecoder(bytes.NewReader(doc))
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '{' {
		return errors.New("it is not a JSON object")
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		text := name.String()
		from := dec.InputOffset()
		if err := dec.SkipValue(); err != nil {
			return err
		}
		each(text, bytes.TrimLeft(doc[from:dec.InputOffset()], ": \t\r\n"))
	}
	_, err := dec.ReadToken()
	return err
}

// replace replaces the value of a member; every other byte is unchanged.
func replace(doc []byte, member string, value []byte) (out []byte, err error) {
	err = members(doc, func(name string, old []byte) {
		if name != member || out != nil {
			return
		}
		at := cap(doc) - cap(old) // old is a slice of doc
		out = append(append(append(make([]byte, 0, len(doc)+len(value)), doc[:at]...), value...), doc[at+len(old):]...)
	})
	if out == nil && err == nil {
		err = fmt.Errorf("it has no member %s", member)
	}
	return out, err
}

// bounded returns an error unless doc is one JSON object without repeated members, within
// the limits of depth and number of objects.
func bounded(doc []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(doc))
	objects := 0
	for objects == 0 || dec.StackDepth() > 0 {
		t, err := dec.ReadToken()
		if err != nil {
			return fmt.Errorf("its definition is not sound JSON: %s", text.CutBytes(Shown(err.Error()), 200))
		}
		switch {
		case t.Kind() == '{':
			objects++
		case objects == 0:
			return errors.New("its definition is not a JSON object")
		}
		if dec.StackDepth() > maxDepth || objects > maxObjects {
			return fmt.Errorf("its definition is deeper than %d or has more than %d objects", maxDepth, maxObjects)
		}
	}
	if dec.InputOffset() != int64(len(doc)) {
		return errors.New("its definition is not sound JSON: something follows it")
	}
	return nil
}

// nameOf returns the name of a dropped definition for display, if it is readable.
func nameOf(kind Kind, raw []byte) string {
	member := "name"
	switch kind {
	case Resource:
		member = "uri"
	case Template:
		member = "uriTemplate"
	}
	name := ""
	_ = members(raw, func(found string, value []byte) { // the members before an error are enough
		if found == member {
			_ = json.Unmarshal(value, &name)
		}
	})
	return name
}
