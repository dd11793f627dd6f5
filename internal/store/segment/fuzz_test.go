package segment

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/junctor-run/junctor/internal/core/audit"
)

// Whatever lies in the directory, opening it cuts nothing but an unfinished last
// line, and the log can go on.
func FuzzHostileFilesNeverPanic(f *testing.F) {
	f.Add([]byte("{}\n"), []byte("half"), []byte("{}"))
	f.Add([]byte(`{"audit_segment":1,"first_seq":1,"prev_hash":"`+string(bytes.Repeat([]byte("0"), 64))+`","gateway":""}`+"\n"),
		[]byte("\n\n\x00"), []byte(nil))
	f.Fuzz(func(t *testing.T, first, second, head []byte) {
		dir := t.TempDir()
		for name, data := range map[string][]byte{"audit-00000001.jsonl": first, "audit-00000002.jsonl": second, "head": head} {
			ok(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		}
		s, err := Open(dir, Config{})
		ok(t, err)
		l, err := audit.Open(context.Background(), audit.Config{Segments: s})
		ok(t, err)
		_, err = l.Append(context.Background(), record(audit.CapabilityExecuted, "run_1", "write"), audit.Synced)
		ok(t, err)
		if _, err := l.Verify(context.Background()); err != nil {
			t.Fatal(err)
		}
		ok(t, l.Close())
		got, err := os.ReadFile(filepath.Join(dir, "audit-00000001.jsonl"))
		if err == nil && bytes.LastIndexByte(second, '\n') >= 0 && !bytes.Equal(got, first) {
			t.Fatal(`a segment before the last was changed; want not (err == nil && bytes.LastIndexByte(second, '\n') >= 0 && ` +
				"!bytes.Equal(got, first))")
		}
	})
}
