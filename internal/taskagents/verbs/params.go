package verbs

import (
	"encoding/json"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Texts is a list of texts. In JSON it is a list or one comma-separated text.
type Texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *Texts) UnmarshalJSON(data []byte) error {
	if text, ok := jsonx.Text(data); ok {
		*t = nil
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				*t = append(*t, part)
			}
		}
		return nil
	}
	var list []string
	err := jsonx.Unmarshal(data, &list)
	*t = list
	return err
}

// Params decodes a verb's parameters. Empty data means none. Unknown members are ignored.
func Params(data json.RawMessage, into any) error {
	if len(data) == 0 {
		return nil
	}
	if err := jsonx.Unmarshal(data, into); err != nil {
		return MissingParams.Errorf("the parameters do not fit: %.200s", err)
	}
	return nil
}

// First returns the first text that is not blank, trimmed, or "".
func First(texts ...string) string {
	for _, t := range texts {
		if t = strings.TrimSpace(t); t != "" {
			return t
		}
	}
	return ""
}
