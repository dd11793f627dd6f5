package interop

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestA2A tests the A2A endpoint with the official JavaScript SDK: both bindings of
// A2A 1, and the older version by its compatibility transport.
func TestA2A(t *testing.T) {
	w := newWorld(t)
	for _, kind := range []string{"1.0-rpc", "1.0-rest", "0.3"} {
		t.Run(kind, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			defer cancel()
			cmd := w.command(ctx, "a2a.mjs", kind)
			cmd.Env = append(cmd.Env, "INTEROP_BASE="+strings.TrimSuffix(w.url, "/mcp"))
			cmd.Stderr = logWriter{t, kind}
			out, err := cmd.Output()
			steps := make(map[string]a2aStep)
			for line := range strings.Lines(string(out)) {
				var s a2aStep
				ok(t, json.Unmarshal([]byte(line), &s))
				steps[s.Step] = s
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if _, verified := steps["verified"]; !verified {
				t.Error("the card's signature does not fit")
			}
			for _, name := range []string{"sent", "got"} {
				if s := steps[name]; s.State != "TASK_STATE_COMPLETED" || !strings.Contains(s.Text, "here.txt") {
					t.Errorf(`%s: %+v; want s.State = "TASK_STATE_COMPLETED", s.Text with "here.txt"`, name, s)
				}
			}
			if s := steps["streamed"]; len(s.Names) == 0 || s.Names[0] != "task" {
				t.Errorf(`streamed: %+v; want len(s.Names) other than 0, s.Names[0] = "task"`, s)
			}
			if s := steps["listed"]; kind != "0.3" && (len(s.Names) != 1 || s.Text == "0") {
				t.Errorf(`listed: %+v; want not (kind != "0.3" && (len(s.Names) != 1 || s.Text == "0"))`, s)
			}
			if s := steps["asked"]; s.State != "TASK_STATE_INPUT_REQUIRED" {
				t.Errorf(`asked: %+v; want s.State = "TASK_STATE_INPUT_REQUIRED"`, s)
			}
			if s := steps["cancelled"]; s.State != "TASK_STATE_CANCELED" {
				t.Errorf(`cancelled: %+v; want s.State = "TASK_STATE_CANCELED"`, s)
			}
			if s := steps["subscribed"]; len(s.Names) < 2 || s.Names[0] != "task" || !slices.Contains(s.Names, "statusUpdate") {
				t.Errorf(`subscribed: %+v; want len(s.Names) at least 2, s.Names[0] = "task", s.Names with "statusUpdate"`, s)
			}
			if s := steps["unknown"]; !strings.Contains(s.Text, "TaskNotFound") && !strings.Contains(s.Text, "there is no task") {
				t.Errorf(`unknown: %+v; want not (!strings.Contains(s.Text, "TaskNotFound") && !strings.Contains(s.Text, "there `+
					`is no task"))`, s)
			}
		})
	}
}

// a2aStep is one line of a2a.mjs.
type a2aStep struct {
	Step, ID, State, Text string
	Names                 []string
}
