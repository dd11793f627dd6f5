package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestEveryRecordHasASubjectAndAReason reads records as the server writes them. A member that occurs twice is one of earlier versions.
func TestEveryRecordHasASubjectAndAReason(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ record, what, why string }{
		{
			`{"event":"capability_executed","action":"ext.mcp.files.write_file","metadata":{"decision":{"effect":"permit","policy_ids":["r"]}}}`,
			"files/write_file", "rule r",
		},
		{
			`{"event":"capability_failed","action":"fs.list","error":"no folder","metadata":{"decision":{"effect":"permit","policy_ids":["a","b"]}}}`,
			"fs.list", "rules a, b, no folder",
		},
		{`{"event":"grant_used","action":"fs.list","metadata":{"grant":"grt_1"}}`, "fs.list", "grant grt_1"},
		{`{"event":"policy_changed","metadata":{"change":"deny tool files/x","files":"2","file":"tools.cedar"}}`, "tools.cedar", "deny tool files/x"},
		{`{"event":"policy_changed","metadata":{"change":"deny tool files/x","files":"2"}}`, "deny tool files/x", "-"},
		{`{"event":"confirmation_answered","metadata":{"approval":"apr_1","answer":"once","asked_by":"agent:a",` +
			`"capability_id":"mcp.files/w#ext.mcp.files.w@files"}}`, "files/w", "answer once, asked by agent:a, approval apr_1"},
		{`{"event":"token_created","metadata":{"token":"tok_1","name":"ann","role":"agent"}}`, "token ann", "role agent"},
		{`{"event":"upstream_failed","extension_id":"mcp.files","metadata":{"upstream":"files","cause":"it ended"}}`, "files", "cause it ended"},
		{`{"event":"permission_denied","metadata":{"op":"GET /api/v1/tokens"}}`, "GET /api/v1/tokens", "-"},
		{`{"event":"extension_enabled","extension_id":"tools.machine","metadata":{}}`, "tools.machine", "-"},
		{`{"event":"node_joined","metadata":{"node":{"id":"laptop"}}}`, "laptop", "-"},
		{`{"event":"grant_created","metadata":{"principal":{"id":"admin:x"},"principal":"agent:a","grant":"grt_1"}}`, "grant grt_1", "principal agent:a"},
		{`{"event":"audit_verified","metadata":{"records":"3"}}`, "audit", "records 3"},
		{`{"event":"login","metadata":null}`, "login", "-"},
	} {
		var row auditRow
		if err := json.Unmarshal([]byte(tt.record), &row); err != nil {
			t.Errorf("reading %s: %v", tt.record, err)
			continue
		}
		r := reasons{short: func(id string) string { return id }, deciders: map[string]string{}}
		if got, _ := row.subject(); got != tt.what {
			t.Errorf("subject of %s: got %q, want %q", tt.record, got, tt.what)
		}
		if got := r.cell(row); got != tt.why {
			t.Errorf("reason of %s: got %q, want %q", tt.record, got, tt.why)
		}
		if got := row.narrow(tt.why); strings.Contains(strings.Join(got, " "), "capability_") || len(got) != len(narrowHead()) {
			t.Errorf("narrow row of %s: got %q, want %d short cells", tt.record, got, len(narrowHead()))
		}
	}
}
