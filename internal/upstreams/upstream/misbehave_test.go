package upstream_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/testkit/programfile"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/upstreamsql"
)

// script returns a record of a shell script, which may take a third of a second to connect.
func script(t *testing.T, text string) record.Record {
	t.Helper()
	file := filepath.Join(t.TempDir(), "server.sh")
	programfile.Write(t, file, "#!/bin/sh\n"+text+"\n", 0o700)
	rec := recordOf("bad")
	rec.Command, rec.ConnectTimeoutMS = []string{file}, 300
	return rec
}

// logged returns the lines of a log, each after its source.
func logged(t *testing.T, r *rig, name string) (lines []string, page upstream.LogPage) {
	t.Helper()
	page, err := r.Logs(name, 0, 0)
	if err != nil {
		t.Fatalf("read the log of %s: got %v, want no error", name, err)
	}
	for _, l := range page.Lines {
		lines = append(lines, l.Source+": "+l.Text)
	}
	return lines, page
}

func TestAddReportsWhatIsWrongWithAProgram(t *testing.T) {
	for name, c := range map[string]struct {
		program, reason, message, stderr string
		settle                           int64 // the timeout of connecting, in ms
	}{
		"never answers": {
			program: "echo still starting >&2; exec sleep 600", reason: "connection_failed", message: "did not answer within 300ms",
			stderr: "still starting", settle: 300,
		},
		"ends at once": {
			program: "echo no licence >&2; exit 3", reason: "connection_failed", message: "ended without having spoken MCP",
			stderr: "no licence", settle: 20000,
		},
		"prints something else": {
			program: "while echo hello; do :; done", reason: "connection_failed", message: "prints something else than MCP", settle: 20000,
		},
		"has no interpreter": {program: "", reason: "program_missing", message: "interpreter", settle: 20000},
	} {
		t.Run(name, func(t *testing.T) {
			r := realRig(t)
			rec := script(t, c.program)
			rec.ConnectTimeoutMS = c.settle
			if c.program == "" {
				programfile.Write(t, rec.Command[0], "#!/no/such/interpreter\n", 0o700)
			}
			_, err := r.Add(t.Context(), admin(), rec)
			e := fails(t, err, capability.CodeUnavailable, c.reason)
			if !strings.Contains(e.Message, c.message) {
				t.Errorf("the message is %q, want %q in it", e.Message, c.message)
			}
			if stderr := fmt.Sprint(e.Details["stderr"]); c.stderr != "" && !strings.Contains(stderr, c.stderr) {
				t.Errorf("the error has the lines %q, want %q in them", stderr, c.stderr)
			}
			lines, _ := logged(t, r, "bad") // also after the failure
			if text := strings.Join(lines, "\n"); !strings.Contains(text, "junctor: not connected: ") || !strings.Contains(text, c.stderr) {
				t.Errorf("the log is %q, want %q and why it is not connected", text, c.stderr)
			}
			if _, err := r.Show("bad"); err == nil {
				t.Error("the upstream is there after a failed attempt, want an error")
			}
		})
	}
}

func TestMissingProgramIsNotCountedAsOneThatEnds(t *testing.T) {
	r := realRig(t)
	rec := recordOf("far")
	program("sdk", nil)(&rec)
	copied := filepath.Join(t.TempDir(), "server")
	if err := os.Symlink(os.Args[0], copied); err != nil {
		t.Fatalf("link the test program: got %v, want no error", err)
	}
	rec.Command = []string{copied}
	if _, err := r.Add(t.Context(), admin(), rec); err != nil {
		t.Fatalf("add the upstream: got %v, want no error", err)
	}
	if err := os.Remove(copied); err != nil {
		t.Fatalf("remove the program: got %v, want no error", err)
	}
	for range 6 {
		_, err := r.Restart(t.Context(), admin(), "far")
		if err == nil {
			t.Fatal("a restart without the program: got no error, want one")
		}
		if text := capability.AsError(err).Message; !strings.Contains(text, "the program server of far is not on this machine") {
			t.Errorf("the restart fails with %q, want that the program is not on this machine", text)
		}
	}
	if s, err := r.Show("far"); err != nil || s.Failed || strings.Contains(s.Reason, "ended") {
		t.Errorf("the state is %+v, %v, want one that says nothing of ends", s, err)
	}
}

func TestLogHasNeitherSecretsNorMoreThanItsLimits(t *testing.T) {
	const key = "-----BEGIN KEY-----\nfirst-line-of-it\nsecond-line-of-it"
	r := newRig(t, func(c *upstream.Config) {
		c.Dial = upstream.DialMCP
		c.Environment = []string{"PATH=" + os.Getenv("PATH")}
		c.Secrets = vault{"key": "s3cret", "pem": key}
	})
	rec := script(t, strings.Join([]string{
		`printf 'token %s and the rest\n' "$KEY" >&2`,
		`printf '%s\n' "$PEM" >&2`,
		`printf 'on output %s\n' "$KEY"`,
		`i=0; while [ $i -lt 1023 ]; do printf '12345678' >&2; i=$((i+1)); done; printf '3456%s' "$KEY" >&2; printf '\n' >&2`, // 6 bytes over the cut
		`i=0; while [ $i -lt 5000 ]; do echo "line $i of many" >&2; i=$((i+1)); done`,
		`echo last >&2`,
	}, "\n"))
	rec.ConnectTimeoutMS = 20000
	rec.EnvSecrets = map[string]string{"KEY": "key", "PEM": "pem"}
	_, err := r.Add(t.Context(), admin(), rec)
	fails(t, err, capability.CodeUnavailable, "connection_failed")
	lines, page := logged(t, r, "bad")
	text, size := strings.Join(lines, "\n"), 0
	for _, l := range page.Lines {
		size += len(l.Text)
	}
	if len(lines) > 1000 || size > 128<<10 || page.Dropped == 0 {
		t.Errorf("the log has %d lines of %d bytes, and %d were dropped; want at most 1000 of 131072 bytes, and some dropped",
			len(lines), size, page.Dropped)
	}
	for _, bad := range []string{"s3cr", "first-line", "second-line"} {
		if strings.Contains(text, bad) {
			t.Errorf("the log has %q of a secret:\n%s", bad, text)
		}
	}
	for _, want := range []string{"stderr: token [secret key] and the rest", "stdout: on output [secret key]"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log is\n%.2000s\nwant %q in it", text, want)
		}
	}
}

func TestSettingsOfAnUpstreamAreChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer("tool", def("t", `"annotations":{"readOnlyHint":true}`))
	r.add("far", func(rec *record.Record) { rec.Trust = record.Untrusted })
	if _, err := r.Approve(t.Context(), admin(), "far", upstream.Selection{}); err != nil {
		t.Fatalf("approve the tool: got %v, want no error", err)
	}
	yes, timeout := true, int64(1234)
	s, err := r.Set(t.Context(), admin(), "far", upstream.Settings{HintsTrusted: &yes, ConnectTimeoutMS: &timeout})
	if err != nil || !s.HintsTrusted || s.ConnectTimeoutMS != timeout || s.Counts.Quarantined != 0 {
		t.Fatalf("set = %+v, %v, want trusted hints, the timeout, and nothing in quarantine", s, err)
	}
	r.eventually("the tool is a read", func() bool {
		for e := range r.catalog.Snapshot().Entries() {
			if e.Contribution.Tool == "t" {
				return e.Effect == capability.EffectRead
			}
		}
		return false
	})
	saved, err := r.stored("far")
	if err != nil || !saved.HintsTrusted || saved.ConnectTimeoutMS != timeout {
		t.Errorf("stored = %+v, %v, want the changed record", saved, err)
	}
	bad := "sometimes"
	if _, err := r.Set(t.Context(), admin(), "far", upstream.Settings{ChangedPin: &bad}); err == nil {
		t.Error("an unknown word: got no error, want invalid_input")
	}
	if s, err := r.Set(t.Context(), admin(), "far", upstream.Settings{Disabled: &yes}); err != nil || s.State != capability.StateUnavailable {
		t.Errorf("disabled = %+v, %v, want it unavailable", s, err)
	}
	no := false
	if s, err := r.Set(t.Context(), admin(), "far", upstream.Settings{Disabled: &no}); err != nil || s.State != capability.StateReady {
		t.Errorf("enabled again = %+v, %v, want it ready", s, err)
	}
}

// stored returns the record of an upstream in the store.
func (r *rig) stored(name string) (record.Record, error) {
	all, err := upstreamsql.New(r.db).Upstreams(r.Context())
	for _, s := range all {
		if s.Record.Name == name {
			return s.Record, err
		}
	}
	return record.Record{}, fmt.Errorf("no record %s: %w", name, err)
}
