package agents

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programs/cast"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

func TestRecordingsAreBounded(t *testing.T) {
	a := &Agents{cfg: Config{Dir: t.TempDir(), Record: true, Logger: slog.New(slog.DiscardHandler)}}
	id := func(n int) string { return fmt.Sprintf("pty-%d-ab", 1_700_000_000_000+n) }
	for n := range maxRecordings + 5 {
		w := a.record(sessions.Spec{ID: id(n), Framework: "claude", Version: "2.1.197"})
		if w == nil {
			t.Fatal("it is not recorded; want w not nil")
		}
		w.Add(time.Now(), cast.Output, []byte("hello"))
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := os.ReadDir(a.recordings()); err != nil || len(list) != maxRecordings {
		t.Errorf("%d are kept: %v; want no error, len(list) = %v", len(list), err, maxRecordings)
	}
	if _, err := a.Recording(id(0)); capability.AsError(err).Reason != "no_recording" {
		t.Errorf(`the oldest: %v; want capability.AsError(err).Reason = "no_recording"`, err)
	}
	file, err := a.Recording(id(50))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(file)
	if err != nil || !strings.HasPrefix(string(data), `{"version":1,"cols":120,"rows":40,"cli":"claude 2.1.197"}`) || file.Close() != nil {
		t.Errorf(`%s %v; want no error, string(data) beginning with "{\"version\":1,\"cols\":120,\"rows\":40,\"cli\":\"claude `+
			`2.1.197\"}", file.Close() = nil`, data, err)
	}
	if info, err := os.Stat(a.recordings() + "/" + id(50) + recordingSuffix); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v; want no error, info.Mode().Perm() = 0o600", info, err)
	}
	if w := a.record(sessions.Spec{ID: id(50)}); w != nil {
		t.Errorf("a recording is written over; got w = %v; want w = nil", w)
	}
	if _, err := a.Recording("../" + id(50)); capability.AsError(err).Reason != "no_recording" {
		t.Errorf(`a path: %v; want capability.AsError(err).Reason = "no_recording"`, err)
	}
	a.cfg.Record = false
	if w := a.record(sessions.Spec{ID: id(999)}); w != nil {
		t.Errorf("it records where it is switched off; got w = %v; want w = nil", w)
	}
}
