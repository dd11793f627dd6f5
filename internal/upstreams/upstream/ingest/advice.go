package ingest

import (
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
)

// suspicious lists patterns of texts that address a model instead of describing a tool. A
// match is only advice for the reader of a diff, because no such list is complete. Every
// match contains one of keys; searching for these first is cheap and excludes most texts.
var suspicious = []struct {
	keys    []string
	pattern *regexp.Regexp
	says    string
}{
	{
		[]string{"instruction", "prompt", "rule", "guideline", "previous", "prior", "above"},
		regexp.MustCompile(`(?i)\b(ignore|disregard|forget|override)\b.{0,40}\b(instruction|prompt|rule|guideline|previous|prior|above)`),
		"asks the reader to disregard its instructions",
	},
	{[]string{"user"}, regexp.MustCompile(`(?i)\b(do not|don't|never|without)\b.{0,30}\b(tell|mention|inform|reveal|show|notify|ask)\w*\b.{0,30}\buser`), "wants something kept from the user"},
	{
		[]string{"<"},
		regexp.MustCompile(`(?i)<\s*/?\s*(important|system|secret|instructions?|hidden|admin)\s*>`),
		"holds marks that pretend to be instructions",
	},
	{
		[]string{"system prompt", "developer message"},
		regexp.MustCompile(`(?i)\b(system prompt|developer message)\b`),
		"speaks of the system prompt",
	},
	{[]string{"tool"}, regexp.MustCompile(`(?i)\b(before|after|instead of|whenever|prior to)\b.{0,30}\b(using|calling|invoking|any|other)\b.{0,30}\btools?\b.{0,60}\b(must|always|first|call|read|send)`), "steers the use of other tools"},
	{
		[]string{"~/", ".ssh", "id_rsa", ".env", "passwd", "credential", "private key", "api"},
		regexp.MustCompile(`(?i)(~/\.|\.ssh/|id_rsa|\.env\b|/etc/passwd|credentials?\.json|private key|api[_ -]?key)`),
		"names places where secrets are kept",
	},
	{
		[]string{"http"},
		regexp.MustCompile(`(?i)\b(send|post|forward|upload|exfiltrate)s?\b.{0,60}\bhttps?://`),
		"asks for something to be sent to an address",
	},
}

// advice returns the suspicious points in the texts of a definition.
func advice(in *declared) (list []string) {
	texts := []string{in.Description, in.Title, in.Annotations.Title, string(in.InputSchema)}
	lower := make([]string, len(texts))
	for i := range texts {
		texts[i] = text.CutBytes(texts[i], maxAdvised)
		lower[i] = strings.ToLower(texts[i])
	}
	for _, s := range suspicious {
		for i, content := range texts {
			if slices.ContainsFunc(s.keys, func(key string) bool { return strings.Contains(lower[i], key) }) && s.pattern.MatchString(content) {
				where := "it "
				if i == 3 {
					where = "its input schema "
				}
				list = append(list, where+s.says)
				break
			}
		}
	}
	if content := in.Title + in.Description; Shown(content) != content {
		list = append(list, "it holds characters that are not shown; they are left out")
	}
	if strings.Contains(string(in.InputSchema), "x-mcp-header") {
		list = append(list, "it asks for arguments to be copied into headers")
	}
	return list
}
