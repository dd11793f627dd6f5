package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

type desk struct {
	*ScratchKeeper
	t   *testing.T
	cfg ScratchConfig
	now time.Time
}

func newDesk(t *testing.T, r Retention) *desk {
	t.Helper()
	dir := t.TempDir()
	d := &desk{t: t, now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	d.cfg = ScratchConfig{
		Base: filepath.Join(dir, "scratch"), State: filepath.Join(dir, "state"), Retention: r,
		Now: func() time.Time { return d.now },
	}
	d.open()
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func (d *desk) open() {
	d.t.Helper()
	k, err := OpenScratch(d.cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	d.ScratchKeeper = k
}

func (d *desk) create(session string) ScratchRecord {
	d.t.Helper()
	r, err := d.Create(session, "label of "+session)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.Path, "work.txt"), []byte("x"), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return r
}

func (d *desk) record(session string) ScratchRecord {
	d.t.Helper()
	for _, r := range d.List() {
		if r.SessionID == session {
			return r
		}
	}
	d.t.Fatalf("no record of %s", session)
	return ScratchRecord{}
}

func TestWhatBecomesOfAFolderAtTheEnd(t *testing.T) {
	t.Parallel()
	tests := []struct {
		retention Retention
		atEnd     ScratchStatus
		expires   bool
		afterTTL  ScratchStatus
	}{
		{Ephemeral, ScratchDeleted, false, ""}, // the record is forgotten by then
		{AskFirst, ScratchPending, true, ScratchDeleted},
		{"", ScratchPending, true, ScratchDeleted},
		{Persistent, ScratchKept, false, ScratchKept},
		{"keep", ScratchKept, false, ScratchKept},
	}
	for _, tt := range tests {
		t.Run(string(tt.retention), func(t *testing.T) {
			d := newDesk(t, tt.retention)
			r := d.create("s")
			if r.Status != ScratchPending || !r.ExpiresAt.IsZero() || r.Label != "label of s" {
				t.Errorf(`at first: %+v; want r.Status = %v, r.ExpiresAt.IsZero(), r.Label = "label of s"`, r, ScratchPending)
			}
			d.now = d.now.Add(100 * time.Hour)
			if gone, err := d.Sweep(); err != nil || len(gone) != 0 || !exists(r.Path) {
				t.Errorf("a folder went while its session lived: %v, %v; want no error, len(gone) = 0, exists(r.Path)", gone, err)
			}
			if err := d.SessionEnded("s", "stopped"); err != nil {
				t.Fatal(err)
			}
			got := d.record("s")
			if got.Status != tt.atEnd || got.TerminalEvent != "stopped" || got.ExpiresAt.IsZero() == tt.expires ||
				exists(r.Path) != (tt.atEnd != ScratchDeleted) {
				t.Errorf(`at the end: %+v; want got.Status = %v, got.TerminalEvent = "stopped", got.ExpiresAt.IsZero() other `+
					"than %v, exists(r.Path) = (tt.atEnd != ScratchDeleted)", got, tt.atEnd, tt.expires)
			}
			if tt.expires && !got.ExpiresAt.Equal(d.now.Add(24*time.Hour)) {
				t.Errorf("expires %v; want not (tt.expires && !got.ExpiresAt.Equal(d.now.Add(24*time.Hour)))", got.ExpiresAt)
			}
			if err := d.SessionEnded("s", "again"); err != nil || d.record("s").TerminalEvent != "stopped" {
				t.Errorf(`a second end counted: %v; want no error, d.record("s").TerminalEvent = "stopped"`, err)
			}
			d.now = d.now.Add(24*time.Hour - time.Second)
			if gone, err := d.Sweep(); err != nil || len(gone) != 0 {
				t.Errorf("too early: %v, %v; want no error, len(gone) = 0", gone, err)
			}
			d.now = d.now.Add(time.Second)
			if _, err := d.Sweep(); err != nil {
				t.Fatal(err)
			}
			if tt.afterTTL == "" {
				if len(d.List()) != 0 {
					t.Errorf("%+v; want len(d.List()) = 0", d.List())
				}
			} else if got := d.record("s"); got.Status != tt.afterTTL || exists(r.Path) != (tt.afterTTL != ScratchDeleted) {
				t.Errorf("after the TTL: %+v; want got.Status = %v, exists(r.Path) = (tt.afterTTL != ScratchDeleted)", got, tt.afterTTL)
			}
		})
	}
	_, err := OpenScratch(ScratchConfig{Base: t.TempDir(), State: t.TempDir(), Retention: "sometimes"})
	wantReason(t, err, "invalid_retention")
}

func TestPeopleDecide(t *testing.T) {
	t.Parallel()
	d := newDesk(t, AskFirst)
	kept, deleted, promoted := d.create("kept"), d.create("deleted"), d.create("promoted")
	_, err := d.Create("kept", "")
	wantReason(t, err, "exists")
	_, err = d.Create("", "")
	wantReason(t, err, "invalid_session")
	wantReason(t, d.Delete("deleted"), "session_live")
	_, err = d.Promote("promoted", "x")
	wantReason(t, err, "session_live")
	if r, err := d.Keep("kept"); err != nil || r.Status != ScratchKept { // while it lives
		t.Errorf("%+v, %v; want no error, r.Status = %v", r, err, ScratchKept)
	}
	for _, s := range []string{"kept", "deleted", "promoted"} {
		if err := d.SessionEnded(s, ""); err != nil {
			t.Fatal(err)
		}
	}
	_ = d.Close()
	d.open() // a restart in between
	wantReason(t, d.Delete("deleted"), "")
	wantReason(t, d.Delete("deleted"), "no_scratch")
	wantReason(t, d.Delete("nobody"), "no_scratch")
	r, err := d.Promote("promoted", " My Tool! (v2) ")
	if err != nil || r.Status != ScratchPromoted || filepath.Base(r.Path) != "my-tool-v2" || !exists(filepath.Join(r.Path, "work.txt")) ||
		exists(promoted.Path) {
		t.Errorf(`%+v, %v; want no error, r.Status = %v, filepath.Base(r.Path) = "my-tool-v2", exists(filepath.Join(r.Path, `+
			`"work.txt")), not exists(promoted.Path)`, r, err, ScratchPromoted)
	}
	_, err = d.Promote("promoted", "again")
	wantReason(t, err, "wrong_state")
	wantReason(t, d.Delete("promoted"), "wrong_state")
	d.now = d.now.Add(1000 * time.Hour)
	if _, err := d.Sweep(); err != nil {
		t.Fatal(err)
	}
	if !exists(kept.Path) || exists(deleted.Path) || !exists(r.Path) || len(d.List()) != 1 {
		t.Errorf("after a long time: %+v; want exists(kept.Path), not exists(deleted.Path), exists(r.Path), len(d.List()) = 1",
			d.List())
	}
	wantReason(t, d.Delete("kept"), "") // the user has changed their mind
	if exists(kept.Path) {
		t.Error("it is still there")
	}
	if _, err := d.Create("kept", ""); err != nil {
		t.Errorf("a session may have another one then: %v", err)
	}
}

func TestNamesThatAreTaken(t *testing.T) {
	t.Parallel()
	d := newDesk(t, AskFirst)
	for i := range maxScratchSuffix {
		name := "site"
		if i > 0 {
			name += "-" + strconv.Itoa(i+1)
		}
		if i == 998 {
			continue
		}
		if err := os.Mkdir(filepath.Join(d.cfg.Base, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []string{"a", "b"} {
		d.create(s)
		if err := d.SessionEnded(s, "stopped"); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := d.Promote("a", "site"); err != nil || filepath.Base(r.Path) != "site-999" {
		t.Errorf(`%+v, %v; want no error, filepath.Base(r.Path) = "site-999"`, r, err)
	}
	_, err := d.Promote("b", "Site")
	wantReason(t, err, "name_taken")
	for name, want := range map[string]string{
		"../../etc": "etc", "": "kept", "///": "kept", "scratch-x": "kept-scratch-x", "É b": "b",
		"a--b": "a-b",
	} {
		if got := scratchSlug(name); got != want {
			t.Errorf("%q: %q; want got = %v", name, got, want)
		}
	}
}

func TestOnlyWhatWasMadeHereIsRemoved(t *testing.T) {
	t.Parallel()
	d := newDesk(t, Ephemeral)
	victim := t.TempDir()
	if err := os.WriteFile(filepath.Join(victim, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := d.create("s")
	if err := errors.Join(os.RemoveAll(r.Path), os.Symlink(victim, r.Path)); err != nil {
		t.Fatal(err)
	}
	if err := d.SessionEnded("s", "stopped"); err != nil {
		t.Error(err)
	}
	if exists(r.Path) || !exists(filepath.Join(victim, "precious")) {
		t.Error("it followed the link, or left it")
	}
	// A record that names another folder, independent of its writer.
	_ = d.Close()
	files, _, _, err := OpenRecords[ScratchRecord](d.cfg.State)
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(d.cfg.Base, "somebodys")
	if err := errors.Join(os.Mkdir(own, 0o700), files.Put("other",
		ScratchRecord{SessionID: "o", Folder: "somebodys", Path: own, Status: ScratchPending, TerminalEvent: "stopped"})); err != nil {
		t.Fatal(err)
	}
	d.open()
	wantReason(t, d.Delete("o"), "security_violation")
	if !exists(own) {
		t.Error("it is gone")
	}
}

func TestAPromotionSurvivesACrash(t *testing.T) {
	t.Parallel()
	d := newDesk(t, AskFirst)
	r := d.create("s")
	if err := d.SessionEnded("s", "stopped"); err != nil {
		t.Fatal(err)
	}
	_ = d.Close()
	// As it is after the record was written and before the folder was moved.
	files, all, _, err := OpenRecords[ScratchRecord](d.cfg.State)
	if err != nil {
		t.Fatal(err)
	}
	half := all[r.Folder]
	half.Status, half.Path = ScratchPromoted, filepath.Join(filepath.Dir(r.Path), "site")
	if err := files.Put(r.Folder, half); err != nil {
		t.Fatal(err)
	}
	d.open()
	if exists(r.Path) || !exists(filepath.Join(half.Path, "work.txt")) {
		t.Error("it was not moved")
	}
	if sessions := d.List(); len(sessions) != 1 || !slices.Equal([]ScratchStatus{sessions[0].Status}, []ScratchStatus{ScratchPromoted}) {
		t.Errorf("%+v; want len(sessions) = 1, []ScratchStatus{sessions[0].Status} = []ScratchStatus{ScratchPromoted}", sessions)
	}
}
