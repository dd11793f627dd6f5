package programs_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

func TestEachProgramsRecordIsRead(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 26, 4, 21, 15, 0, time.UTC)
	for name, tt := range map[string]struct {
		line string
		want programs.Spent
		ok   bool
	}{
		"Claude Code": {
			`{"type":"assistant","uuid":"u","timestamp":"2026-11-26T04:21:15Z","message":{"id":"msg_1","role":"assistant","usage":` +
				`{"input_tokens":3,"cache_creation_input_tokens":20,"cache_read_input_tokens":100,"output_tokens":7}}}`,
			programs.Spent{At: at, ID: "msg_1u", Usage: programs.Usage{In: 123, Out: 7}},
			true,
		},
		"Codex": {
			`{"timestamp":"2026-11-26T04:21:15Z","ordinal":13,"type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":` +
				`{"input_tokens":50,"cached_input_tokens":40,"output_tokens":5,"reasoning_output_tokens":2,"total_tokens":55},"last_token_usage":` +
				`{"input_tokens":9,"output_tokens":1}}}}`,
			programs.Spent{At: at, Total: true, Usage: programs.Usage{In: 50, Out: 5}},
			true,
		},
		"another line of Codex": {`{"timestamp":"2026-11-26T04:21:15Z","type":"token_usage_record","payload":{"usage":{"input_tokens":1}}}`, programs.Spent{At: at}, false},
		"Gemini CLI": {
			`{"id":"g","timestamp":"2026-11-26T04:21:15Z","type":"gemini","tokens":{"input":10,"output":2,"cached":8,"thoughts":3,"tool":1,"total":16}}`,
			programs.Spent{At: at, ID: "g", Usage: programs.Usage{In: 11, Out: 5}},
			true,
		},
		"Qwen Code": {
			`{"uuid":"q","timestamp":"2026-11-26T04:21:15Z","type":"assistant","message":{"role":"model"},"usageMetadata":` +
				`{"promptTokenCount":10,"candidatesTokenCount":2,"thoughtsTokenCount":3,"totalTokenCount":15}}`,
			programs.Spent{At: at, ID: "q", Usage: programs.Usage{In: 10, Out: 5}},
			true,
		},
		"Pi": {
			`{"type":"message","id":"p","timestamp":"2026-11-26T04:21:15Z","message":{"role":"assistant","usage":{"input":1,"output":3,` +
				`"cacheRead":5,"cacheWrite":7,"totalTokens":16,"cost":{"input":0.1,"output":0.2,"total":0.25}},"timestamp":1795666903986}}`,
			programs.Spent{At: at, ID: "p", Usage: programs.Usage{In: 13, Out: 3, USD: 0.25}},
			true,
		},
		"figures below 0": {`{"timestamp":"2026-11-26T04:21:15Z","tokens":{"input":-5,"output":1}}`, programs.Spent{At: at, Usage: programs.Usage{Out: 1}}, true},
		"a text":          {`{"message":"how many tokens are left?"}`, programs.Spent{}, false},
		"not JSON":        {`token`, programs.Spent{}, false},
	} {
		got, ok := programs.ReadSpent([]byte(tt.line))
		if ok != tt.ok {
			t.Errorf("%s: ok = %v, want %v", name, ok, tt.ok)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s: diff (-want +got):\n%s", name, d)
		}
	}
}
