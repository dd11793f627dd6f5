package invoke

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Text returns the result as text: the texts of an MCP result, which A2A agents have as well, a
// string without its quotes, and any other JSON as it is.
func (r Reply) Text() string {
	if _, kind, _ := r.Provider.Parts(); kind == "mcp" || kind == "a2a" {
		var out struct {
			Content           []struct{ Type, Text, MimeType string }
			StructuredContent json.RawMessage
		}
		if json.Unmarshal(r.Result, &out) == nil && (len(out.Content) > 0 || len(out.StructuredContent) > 0) {
			var parts []string
			for _, c := range out.Content {
				if c.Type == "text" {
					parts = append(parts, c.Text)
				} else {
					parts = append(parts, strings.TrimSpace(fmt.Sprintf("[%s %s, not shown]", c.Type, c.MimeType)))
				}
			}
			if len(parts) == 0 {
				return string(out.StructuredContent)
			}
			return strings.Join(parts, "\n")
		}
	}
	var s string
	if json.Unmarshal(r.Result, &s) == nil {
		return s
	}
	return string(r.Result)
}
