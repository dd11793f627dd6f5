package dialect_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

// TestWhatCodexAsksBeyondCommandsReachesTheUser: requests for a wider sandbox, calls of MCP tools and questions of
// MCP servers, in the form of Codex 0.169, are questions with options, and are answered in the form that it reads.
func TestWhatCodexAsksBeyondCommandsReachesTheUser(t *testing.T) {
	t.Parallel()
	elicit := func(rest string) string {
		return `{"id":7,"method":"mcpServer/elicitation/request","params":{"threadId":"th","turnId":"tu","serverName":"files",` + rest + `}}`
	}
	form := `"mode":"form","message":"Where to?","requestedSchema":{"type":"object","required":["city","nights"],"properties":{` +
		`"city":{"type":"string","oneOf":[{"const":"LIS","title":"Lisbon"},{"const":"OPO","title":"Porto"}]},` +
		`"nights":{"type":"integer"},"breakfast":{"type":"boolean"},"extras":{"type":"array","items":{"enum":["sea","sun"]}},"note":{"type":"string"}}}`
	for name, c := range map[string]struct {
		line, kind, tool, shown string
		labels                  string
		answers                 map[int]string // what Codex receives, by the option
	}{
		"a wider sandbox": {
			line: `{"id":7,"method":"item/permissions/requestApproval","params":{"threadId":"th","turnId":"tu","itemId":"i","startedAtMs":1,` +
				`"cwd":"/w","reason":"to install","permissions":{"network":{"enabled":true},"fileSystem":{"write":["/opt"]}}}}`,
			kind: "question", tool: "request_permissions", shown: `/opt`, labels: "Allow for this turn|Allow in this session|Deny",
			answers: map[int]string{
				0: `{"permissions":{"fileSystem":{"write":["/opt"]},"network":{"enabled":true}},"scope":"turn"}`,
				1: `{"permissions":{"fileSystem":{"write":["/opt"]},"network":{"enabled":true}},"scope":"session"}`,
				2: `{"permissions":{},"scope":"turn"}`,
			},
		},
		"a call of an MCP tool": {
			line: elicit(`"mode":"form","message":"Allow it?","requestedSchema":{"type":"object","properties":{}},` +
				`"_meta":{"codex_approval_kind":"mcp_tool_call","tool_name":"remove","tool_params":{"path":"/w/a"},"persist":["session","always"]}`),
			kind: "permission", tool: "mcp__files__remove", shown: `/w/a`, labels: "Allow|Always allow in this session|Deny|Stop the turn",
			answers: map[int]string{
				0: `{"action":"accept","content":{}}`, 1: `{"_meta":{"persist":"session"},"action":"accept","content":{}}`,
				2: `{"action":"decline"}`, 3: `{"action":"cancel"}`,
			},
		},
		"an address": {
			line: elicit(`"mode":"url","message":"Sign in.","url":"https://example.org/in","elicitationId":"e","_meta":{"codex_approval_kind":"mcp_tool_call"}`), kind: "question",
			tool: "elicitation of files", shown: "https://example.org/in", labels: "I agree to open this address|Decline",
			answers: map[int]string{0: `{"action":"accept"}`, 1: `{"action":"decline"}`},
		},
		"a form": {
			line: elicit(form), kind: "question", tool: "elicitation of files", shown: "Lisbon", labels: "Decline",
			answers: map[int]string{0: `{"action":"decline"}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := opened(t, programs.Codex)
			s := handleLine(t, d, c.line)
			if len(s.Told) != 1 || s.Told[0].Question == nil || len(s.Out) != 0 {
				t.Fatalf("told %+v and sent %d messages, want a question and no answer", s.Told, len(s.Out))
			}
			q := s.Told[0].Question
			if got := strings.Join(q.Labels(), "|"); q.Type != c.kind || q.Tool != c.tool || got != c.labels || !strings.Contains(string(q.Input), c.shown) {
				t.Errorf("question = %s of %s with %s about %s, want %s of %s with %s about %s", q.Type, q.Tool, got, q.Input,
					c.kind, c.tool, c.labels, c.shown)
			}
			for i, want := range c.answers {
				got := result(t, d.Answer(q, i, "").Out)
				if got != canonical(t, want) {
					t.Errorf("the answer %s sends %s, want %s", q.Labels()[i], got, want)
				}
			}
			if name != "a form" {
				return
			}
			values := map[string][]string{"city": {"Porto"}, "nights": {"9007199254740993"}, "breakfast": {"No"}, "extras": {"sun", "sea"}}
			want := `{"action":"accept","content":{"breakfast":false,"city":"OPO","extras":["sun","sea"],"nights":9007199254740993}}`
			if got := result(t, d.Fill(q, values).Out); got != want {
				t.Errorf("the form sends %s, want %s", got, want)
			}
		})
	}
}

// TestWhatCannotBeShownIsRefused: what Codex asks in another form, or at too great a length, is refused and reported.
func TestWhatCannotBeShownIsRefused(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"an unknown form": `{"id":7,"method":"mcpServer/elicitation/request","params":{"serverName":"s","mode":"openai/userVerification","title":"x"}}`,
		"a long form": `{"id":7,"method":"mcpServer/elicitation/request","params":{"serverName":"s","mode":"form","message":"x","requestedSchema":` +
			`{"properties":{"a":{"type":"string","title":"` + strings.Repeat("x", 3_000) + `"}}}}}`,
		"no permissions": `{"id":7,"method":"item/permissions/requestApproval","params":{"threadId":"th","itemId":"i","permissions":[]}}`,
	} {
		s := handleLine(t, opened(t, programs.Codex), line)
		refused, warned := false, false
		for _, told := range s.Told {
			refused, warned = refused || told.Call != "" || told.Tool != "", warned || told.Text != ""
		}
		if len(s.Out) != 1 || !strings.Contains(string(s.Out[0]), `"error"`) || !refused || !warned {
			t.Errorf("%s: sent %q and told %+v, want an error, a refusal and a warning", name, s.Out, s.Told)
		}
	}
}

// result returns the result of a single answer, with sorted members.
func result(t *testing.T, out [][]byte) string {
	t.Helper()
	var m struct {
		ID     int             `json:"id"`
		Result json.RawMessage `json:"result"`
	}
	if len(out) != 1 || json.Unmarshal(out[0], &m) != nil || m.ID != 7 {
		t.Fatalf("sent %q, want one answer to request 7", out)
	}
	return canonical(t, string(m.Result))
}

func canonical(t *testing.T, text string) string {
	t.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("parsing %s: %v", text, err)
	}
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("writing %s: %v", text, err)
	}
	return string(data)
}
