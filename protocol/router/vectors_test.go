package router

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

type vector struct {
	ID     string          `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Expect struct {
		OK    bool            `json:"ok"`
		Value json.RawMessage `json:"value"`
		Sent  json.RawMessage `json:"sent"`
		Code  string          `json:"code"`
		At    string          `json:"at"`
	} `json:"expect"`
}

func readVectors(t testing.TB) []vector {
	t.Helper()
	f, err := os.Open("testdata/vectors.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []vector
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	ca, err := jsonx.Canonical(a)
	if err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	cb, err := jsonx.Canonical(b)
	if err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return bytes.Equal(ca, cb)
}

// check plays the client's part of one vector and states how the outcome differs
// from what the original client did.
func (v vector) check(t *testing.T) string {
	var sent json.RawMessage
	value, err := DecodeParams(v.Method, v.Params)
	if err == nil {
		sent = value
		value, err = DecodeResult(v.Method, v.Result)
	}
	e := asWire(err, v.Method)
	switch {
	case v.Expect.OK && err != nil:
		return "refused: " + err.Error()
	case !v.Expect.OK && err == nil:
		return "accepted: " + string(value)
	case (v.Expect.Sent != nil) != (sent != nil):
		return "sent " + string(sent) + ", want " + string(v.Expect.Sent)
	case sent != nil && !sameJSON(t, sent, v.Expect.Sent):
		return "sent " + string(sent) + ", want " + string(v.Expect.Sent)
	case v.Expect.OK && !sameJSON(t, value, v.Expect.Value):
		return "decoded " + string(value) + ", want " + string(v.Expect.Value)
	case !v.Expect.OK && (e.Code != v.Expect.Code || e.Method != v.Expect.At):
		return e.Code + " at " + e.Method + ", want " + v.Expect.Code + " at " + v.Expect.At
	}
	return ""
}

// The list is exact: a vector fails exactly when deviations.txt names it.
func TestCodecAgreesWithTheOriginalClient(t *testing.T) {
	text, err := os.ReadFile("testdata/deviations.txt")
	if err != nil {
		t.Fatal(err)
	}
	reasons := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, ok := strings.Cut(line, " ")
		if !ok {
			t.Fatalf("deviation %q has no reason; want ok = true", id)
		}
		if reasons[id] != "" {
			t.Errorf(`deviation %s is listed twice; want reasons[id] = ""`, id)
		}
		reasons[id] = reason
	}
	vectors := readVectors(t)
	if len(vectors) != 726 {
		t.Fatalf("%d vectors, want 726", len(vectors))
	}
	seen := make(map[string]bool)
	for _, v := range vectors {
		if seen[v.ID] {
			t.Errorf("two vectors have the id %s", v.ID)
		}
		seen[v.ID] = true
		t.Run(v.ID, func(t *testing.T) {
			diff := v.check(t)
			_, listed := reasons[v.ID]
			delete(reasons, v.ID)
			switch {
			case diff != "" && !listed:
				t.Errorf("vector differs (-want +got):\n%s", diff)
			case diff == "" && listed:
				t.Error("passes but is listed as a deviation")
			case listed && (!v.Expect.OK || !strings.HasPrefix(diff, "refused: ")):
				// Being stricter is all that a reason may excuse.
				t.Errorf("deviates otherwise than by refusing what the original takes: %s", diff)
			}
		})
	}
	for id := range reasons {
		t.Errorf("deviation %s names no vector", id)
	}
}
