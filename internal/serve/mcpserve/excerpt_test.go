package mcpserve

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestExcerptNeverEndsInsideAValue(t *testing.T) {
	long := strings.Repeat("ä", 1<<20)
	for _, tt := range []struct {
		name, value  string
		isMCP        bool
		has, without string
	}{
		{"text of MCP content", `{"content":[{"type":"text","text":"first\nline"},{"type":"text","text":"` + long + `"}]}`, true, "first\nline\näää", `"type"`},
		{"an image", `{"content":[{"type":"image","data":"` + long + `"},{"type":"text","text":"after"}]}`, true, "bytes]\nafter", "ää"},
		{"MCP without content", `{"contents":[{"text":"` + long + `"}],"a":1}`, true, "\na: 1", "ää"},
		{"an object", `{"a":{"b":[1,2]},"long":"` + long + `","z":true}`, false, "a: {\"b\":[1,2]}\nlong: … (2097154 bytes)\nz: true", "ää"},
		{"an array", `[{"a":1},"` + long + `",{"z":2}]`, false, "{\"a\":1}\n… (2097154 bytes)\n{\"z\":2}", "ää"},
		{"many elements", `[` + strings.Repeat(`{"a":1},`, 1<<17) + `2]`, false, "{\"a\":1}\n{\"a\":1}", "2]"},
		{"a string", `"` + long + `"`, false, "ää", `"`},
		{"content of another kind", `{"content":"` + long + `"}`, true, "content: … (", "ää"},
		{"a name without end", `{"` + long + `":1}`, false, "ä", "}"},
		{"broken", `{"a":1,"b":` + long, false, "a: 1", "ää"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := excerpt(json.RawMessage(tt.value), tt.isMCP)
			if !strings.Contains(got, tt.has) || strings.Contains(got, tt.without) {
				t.Errorf("excerpt = %.200q, want it with %q and without %q", got, tt.has, tt.without)
			}
			if len(got) > shownResult+utf8.UTFMax || !utf8.ValidString(got) {
				t.Errorf("excerpt has %d bytes, valid %v, want at most %d valid ones", len(got), utf8.ValidString(got), shownResult)
			}
		})
	}
}
