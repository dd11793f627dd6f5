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
			t.Fatal("it is not recorded")
		}
		w.Add(time.Now(), cast.Output, []byte("hello"))
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := os.ReadDir(a.recordings()); err != nil || len(list) != maxRecordings {
		t.Errorf("%d are kept: %v", len(list), err)
	}
	if _, err := a.Recording(id(0)); capability.AsError(err).Reason != "no_recording" {
		t.Errorf("the oldest: %v", err)
	}
	file, err := a.Recording(id(50))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(file)
	if err != nil || !strings.HasPrefix(string(data), `{"version":1,"cols":120,"rows":40,"cli":"claude 2.1.197"}`) || file.Close() != nil {
		t.Errorf("%s %v", data, err)
	}
	if info, err := os.Stat(a.recordings() + "/" + id(50) + recordingSuffix); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if w := a.record(sessions.Spec{ID: id(50)}); w != nil {
		t.Error("a recording is written over")
	}
	if _, err := a.Recording("../" + id(50)); capability.AsError(err).Reason != "no_recording" {
		t.Errorf("a path: %v", err)
	}
	a.cfg.Record = false
	if w := a.record(sessions.Spec{ID: id(999)}); w != nil {
		t.Error("it records where it is switched off")
	}
}
