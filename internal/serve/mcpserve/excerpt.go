package mcpserve

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

const (
	// shownResult is how much of a result that is too large goes into the answer.
	shownResult = 32 << 10
	// shownValue is the longest member or element of it that is shown whole.
	shownValue = 1 << 10
)

// excerpt returns what is shown of a result that is too large: of MCP content the text, of other JSON
// the members or elements that are short. It never ends inside a JSON value.
func excerpt(value json.RawMessage, isMCP bool) string {
	var b strings.Builder
	add := func(line string) error {
		if b.Len() >= shownResult {
			return errors.New("full")
		}
		b.WriteString(text.CutBytes(strings.ToValidUTF8(line, "\uFFFD"), shownResult-b.Len()))
		b.WriteByte('\n')
		return nil
	}
	short := func(v []byte) string {
		if len(v) > shownValue {
			return fmt.Sprintf("… (%d bytes)", len(v))
		}
		return string(v)
	}
	content := mcpwire.At(value, []string{"content"})
	switch words, isText := jsonx.Text(value); {
	case isMCP && len(content) > 0 && content[0] == '[':
		_ = jsonx.Elements(content, func(block []byte) error {
			kind, _ := jsonx.Text(mcpwire.At(block, []string{"type"}))
			if words, ok := jsonx.Text(mcpwire.At(block, []string{"text"})); ok && kind == "text" {
				return add(words)
			}
			return add(fmt.Sprintf("[%.32s, %d bytes]", kind, len(block)))
		})
	case value[0] == '{':
		_ = jsonx.Members(value, func(name string, v []byte) { _ = add(name + ": " + short(v)) })
	case value[0] == '[':
		_ = jsonx.Elements(value, func(v []byte) error { return add(short(v)) })
	case isText:
		_ = add(words)
	}
	return b.String()
}
