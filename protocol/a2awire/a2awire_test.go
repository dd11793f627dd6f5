package a2awire

import (
	"encoding/json"
	"testing"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Documents of A2A 1.0 that A2A 0.3 can hold survive both conversions byte by byte.
func TestConversionKeepsDocuments(t *testing.T) {
	for name, doc := range map[string]string{
		"message":  `{"message":{"messageId":"m","contextId":"c","taskId":"t","role":"ROLE_AGENT","parts":[{"text":"hi"},{"data":{"n":9007199254740993}},{"raw":"AA==","filename":"f","mediaType":"text/plain"},{"url":"https://x.example/y"}],"metadata":{"k":1.10}}}`,
		"task":     `{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED","message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"which?"}]},"timestamp":"2026-01-02T03:04:05Z"},"artifacts":[{"artifactId":"a","parts":[{"text":"x"}]}],"history":[{"messageId":"h","role":"ROLE_USER","parts":[{"text":"go"}]}]}}`,
		"status":   `{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}`,
		"artifact": `{"artifactUpdate":{"taskId":"t","contextId":"c","append":true,"artifact":{"artifactId":"a","name":"n","parts":[{"text":"x"}]},"lastChunk":true}}`,
	} {
		var e Event
		if err := Decode([]byte(doc), &e); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		older, err := jsonx.Marshal(e.V03())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		back, err := DecodeEvent03(older)
		if err != nil {
			t.Fatalf("%s: %v in %s", name, err, older)
		}
		got, err := jsonx.Marshal(back)
		if err != nil || string(got) != doc {
			t.Errorf("%s: got %s, %v\nwant %s\nas A2A 0.3: %s", name, got, err, doc, older)
		}
	}
}

func TestDataThatIsNotAnObjectIsWrapped(t *testing.T) {
	p := Part{Data: jsonx.Raw(`[1]`)}
	older := p.V03()
	if got, want := string(older.Data), `{"value":[1]}`; got != want {
		t.Errorf("data = %s, want %s", got, want)
	}
	if got, want := string(older.Metadata), `{"data_part_compat":true}`; got != want {
		t.Errorf("metadata = %s, want %s", got, want)
	}
}

// Neither decoder fails otherwise than with an error, and what it accepts can be encoded.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"task":{"status":{"message":{"parts":[{"data":[1]}]}}}}`))
	f.Add([]byte(`{"kind":"task","artifacts":[{"parts":[{"kind":"file","file":{}}]}]}`))
	f.Add([]byte(`{"kind":"status-update","status":{"state":"\ud800"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e Event
		if Decode(data, &e) == nil && json.Valid(data) {
			if _, err := jsonx.Marshal(e); err != nil {
				t.Errorf("%q was decoded and cannot be encoded: %v", data, err)
			}
		}
		if older, err := DecodeEvent03(data); err == nil {
			_ = older.V03()
		}
	})
}
