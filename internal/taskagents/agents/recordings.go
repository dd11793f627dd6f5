package agents

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programs/cast"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// The bounds of recordings.
const recordingSuffix = ".cast"

func (a *Agents) recordings() string { return filepath.Join(a.cfg.Dir, "recordings") }

// record creates the recording of a session in a terminal. It returns nil if recording is off
// or, after logging the cause, if the file cannot be created.
func (a *Agents) record(spec sessions.Spec) *cast.Writer {
	if !a.cfg.Record {
		return nil
	}
	err := os.MkdirAll(a.recordings(), 0o700)
	if err == nil {
		err = a.forgetRecordings()
	}
	var file *os.File
	if err == nil {
		file, err = os.OpenFile(filepath.Join(a.recordings(), spec.ID+recordingSuffix), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		a.cfg.Logger.Warn("a session is not recorded", "session", spec.ID, "err", err)
		return nil
	}
	cols, rows := spec.Cols, spec.Rows
	if cols == 0 || rows == 0 {
		cols, rows = sessions.Cols, sessions.Rows
	}
	return cast.NewWriter(file, time.Now(), cols, rows, strings.TrimSpace(string(spec.Framework)+" "+spec.Version), "", maxRecording)
}

// forgetRecordings removes the oldest recordings so that, with one more, at most maxRecordings
// exist.
func (a *Agents) forgetRecordings() error {
	entries, err := os.ReadDir(a.recordings())
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), recordingSuffix) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names) // ids begin with a time
	for _, name := range names[:max(0, len(names)-maxRecordings+1)] {
		if err := os.Remove(filepath.Join(a.recordings(), name)); err != nil {
			return err
		}
	}
	return nil
}

// Recording opens the recording of a session that runs or has ended. The caller closes it.
// Errors: not_found, reason no_recording; failed if it cannot be read.
func (a *Agents) Recording(id string) (io.ReadCloser, error) {
	err := fs.ErrNotExist
	var file *os.File
	if sessions.ValidID(id) {
		file, err = os.Open(filepath.Join(a.recordings(), id+recordingSuffix))
	}
	switch {
	case err == nil:
		return file, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, capability.Wrap(capability.CodeFailed, "tasks.recording", "the recording cannot be read", err)
	}
	hint := "sessions are recorded where agents.record is set in the configuration"
	if a.cfg.Record {
		hint = "sessions in terminals are recorded, and the last 100 recordings are kept"
	}
	return nil, capability.Errorf(capability.CodeNotFound, "tasks.recording", "there is no recording of session %.64q",
		id).With("no_recording", hint)
}
