package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
)

func put(t *testing.T, home, name, text string, mode fs.FileMode) {
	t.Helper()
	path := filepath.Join(home, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// aHome has a real database, a real chain, and a file of each kind. Both stay open.
func aHome(t *testing.T) (home string, db *store.DB, log *audit.Log) {
	t.Helper()
	home = filepath.Join(t.TempDir(), "home")
	db, err := store.Open(t.Context(), filepath.Join(home, database))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	segments, err := segment.Open(filepath.Join(home, "audit"), segment.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if log, err = audit.Open(t.Context(), audit.Config{Segments: segments, Index: db.Audit(""), Key: make([]byte, 32)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	note(t, log)
	for name, text := range map[string]string{
		"config.yaml": "listen: 127.0.0.1:0\n", "policy/default.cedar": "permit(principal, action, resource);", "secrets/key": "s3cret",
		"state/audit.key": "k", "run/admin.token": "t", "run/lock": "1", "run/server.json": "{}", "logs/capabilities.log": "l", "cache/x": "x",
		"state/nats/store": "n", "workspaces/repositories/r/f": "f", "agents/swarm-history.jsonl": "{}\n", "agents/sessions/s/settings": "s",
		"blobs/sha256/" + strings.Repeat("a", 64): "blob", "node/key": "nk", "node/lock": "1", "upstreams/memory/notes.json": "[]",
		"secrets/~tmp": "half",
	} {
		put(t, home, name, text, 0o600)
	}
	put(t, home, "extensions/tools.x/bin/x", "#!/bin/sh\n", 0o755)
	if err := errors.Join(os.Chmod(filepath.Join(home, "extensions", "tools.x"), 0o755),
		os.Symlink("/etc/passwd", filepath.Join(home, "extensions/tools.x/link"))); err != nil {
		t.Fatal(err)
	}
	return home, db, log
}

func note(t *testing.T, log *audit.Log) {
	t.Helper()
	if _, err := log.Append(context.WithoutCancel(t.Context()), audit.Record{Logger: "server", Event: audit.ServerStarted},
		audit.Synced); err != nil {
		t.Error(err)
	}
}

func backUp(t *testing.T, home string) (file string, m Manifest) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "b.tar.gz")
	m, err := Make(t.Context(), Options{Home: home, File: file, Version: "test", Now: time.Unix(1e9, 0)})
	if err != nil {
		t.Fatal(err)
	}
	return file, m
}

func wants(t *testing.T, err error, code capability.Code, reason string) {
	t.Helper()
	e := capability.AsError(err)
	if e == nil || e.Code != code || e.Reason != reason || e.Message == "" || reason != "" && e.Hint == "" {
		t.Errorf("got %v (%+v), want %s, %s", err, e, code, reason)
	}
}

func TestARestoredHomeHoldsWhatTheFirstDid(t *testing.T) {
	home, _, _ := aHome(t)
	file, m := backUp(t, home)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v %v; want no error, info.Mode().Perm() = 0o600", info, err)
	}
	if m.Schemas["core"] == 0 || m.Audit.Records != 1 {
		t.Errorf(`the manifest: %+v; want m.Schemas["core"] other than 0, m.Audit.Records = 1`, m)
	}
	checked, err := Check(t.Context(), file, m.Schemas)
	if err != nil || len(checked.Files) != len(m.Files) {
		t.Fatalf("%v; want no error, len(checked.Files) = %v", err, len(m.Files))
	}
	to := filepath.Join(t.TempDir(), "a", "new home")
	if _, err := Restore(t.Context(), file, to, m.Schemas); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{
		".": 0o700, "config.yaml": 0o600, "secrets/key": 0o600, "run/admin.token": 0o600, "extensions/tools.x": 0o755,
		"extensions/tools.x/bin/x":   0o755,
		"agents/swarm-history.jsonl": 0o600, "node/key": 0o600, "upstreams/memory/notes.json": 0o600, "state/audit.key": 0o600,
		"policy/default.cedar": 0o600,
	} {
		info, err := os.Stat(filepath.Join(to, name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v; want no error, info.Mode().Perm() = %v", name, info, err, mode)
			continue
		}
		if info.Mode().IsRegular() {
			was, _ := os.ReadFile(filepath.Join(home, name))
			if is, err := os.ReadFile(filepath.Join(to, name)); err != nil || !bytes.Equal(is, was) {
				t.Errorf("%s is %q, was %q (%v); want no error, is = %v", name, is, was, err, was)
			}
		}
	}
	for _, name := range []string{
		"run/lock", "run/server.json", "logs", "cache", "state/nats", "workspaces", "agents/sessions", "node/lock",
		"secrets/~tmp", "extensions/tools.x/link", "state/junctor.db-wal",
	} {
		if _, err := os.Lstat(filepath.Join(to, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was restored (%v); want err is fs.ErrNotExist", name, err)
		}
	}
	var left []string
	for _, l := range m.LeftOut {
		left = append(left, l.Path)
	}
	slices.Sort(left)
	if want := "agents cache extensions/tools.x/link logs run state/nats workspaces"; strings.Join(left, " ") != want {
		t.Errorf(`left out: %s; want strings.Join(left, " ") = %v`, left, want)
	}
	for _, dir := range []string{filepath.Dir(file), filepath.Dir(to)} {
		if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
			t.Errorf("something is left in %s: %v %v; want no error, len(names) = 1", dir, names, err)
		}
	}
}

// While others write, what a backup holds is of one moment: each row was written before
// its record, so the chain never knows of a row that the database has not, and of what
// was acknowledged before, nothing is missing.
func TestABackupUnderWritesIsOfOneMoment(t *testing.T) {
	home, db, log := aHome(t)
	if _, err := db.SQL().ExecContext(t.Context(), "CREATE TABLE rows_written (n INTEGER)"); err != nil {
		t.Fatal(err)
	}
	acknowledged := make(chan int, 1)
	acknowledged <- 0
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := db.SQL().ExecContext(context.WithoutCancel(t.Context()), "INSERT INTO rows_written VALUES (?)", n); err != nil {
				t.Error(err)
				return
			}
			note(t, log)
			<-acknowledged
			acknowledged <- n
		}
	}()
	for range 4 {
		before := <-acknowledged
		acknowledged <- before
		file, m := backUp(t, home)
		to := filepath.Join(t.TempDir(), "home")
		if _, err := Restore(t.Context(), file, to, nil); err != nil {
			t.Fatal(err)
		}
		var rows int
		if err := store.Look(filepath.Join(to, database), func(d *sql.DB) error {
			return d.QueryRowContext(t.Context(), "SELECT count(*) FROM rows_written").Scan(&rows)
		}); err != nil {
			t.Fatal(err)
		}
		records := int(m.Audit.Records) - 1 // the one of aHome
		if rows < before || records < before || records > rows || records < rows-1 {
			t.Errorf("%d rows and %d records, %d were acknowledged before; want rows at least %v, records at least %v, records "+
				"at most %v, records at least rows - 1", rows, records, before, before, before, rows)
		}
	}
	close(stop)
	<-done
}

func TestNothingIsReplacedOrLeftHalf(t *testing.T) {
	home, db, _ := aHome(t)
	file, _ := backUp(t, home)
	opts := Options{Home: home, File: file, Version: "test"}
	_, err := Make(t.Context(), opts)
	wants(t, err, capability.CodeConflict, ReasonExists)
	opts.Force = true
	if _, err := Make(t.Context(), opts); err != nil {
		t.Error(err)
	}
	opts.File = filepath.Join(home, "blobs", "b.tar.gz")
	_, err = Make(t.Context(), opts)
	wants(t, err, capability.CodeInvalidInput, "")
	_, err = Make(t.Context(), Options{Home: t.TempDir(), File: file})
	wants(t, err, capability.CodeNotFound, ReasonNoHome)

	_, err = Restore(t.Context(), file, home, nil)
	wants(t, err, capability.CodeConflict, ReasonOccupied)
	_, err = Restore(t.Context(), file+"x", filepath.Join(t.TempDir(), "h"), nil)
	wants(t, err, capability.CodeNotFound, "")
	_, err = Restore(t.Context(), file, filepath.Join(t.TempDir(), "h"), map[string]int64{"core": 1})
	wants(t, err, capability.CodeConflict, ReasonNewer)

	// The remains of a kill do not prevent a backup, but a running one does.
	dir := t.TempDir()
	to := filepath.Join(dir, "home")
	put(t, to+".part", "home/state/half", "x", 0o600)
	put(t, to+".part", mark, "", 0o600)
	p, err := openPart(to + ".part")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Restore(t.Context(), file, to, nil)
	wants(t, err, capability.CodeConflict, ReasonBusy)
	_ = p.lock.Close()
	put(t, to+".part", "home/state/half", "x", 0o600)
	if _, err := Restore(t.Context(), file, to, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(to, "state/half")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("what a kill left is in the home")
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("left beside the home: %v; want len(names) = 1", names)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	none := filepath.Join(t.TempDir(), "n")
	_, err = Make(ctx, Options{Home: home, File: none})
	wants(t, err, capability.CodeCancelled, "")
	_, err = Restore(ctx, file, none, nil)
	wants(t, err, capability.CodeCancelled, "")
	if names, _ := os.ReadDir(filepath.Dir(none)); len(names) != 0 {
		t.Errorf("left by what was cancelled: %v; want len(names) = 0", names)
	}

	// A damaged database is not backed up as if it were whole.
	if _, err := db.SQL().ExecContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(home, database), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, 4096), 4096)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = Make(t.Context(), Options{Home: home, File: none})
	wants(t, err, capability.CodeFailed, "")
	if names, _ := os.ReadDir(filepath.Dir(none)); len(names) != 0 {
		t.Errorf("left by what failed: %v; want len(names) = 0", names)
	}
}

// A program can put a link where a folder was, between the look and the copy.
func TestNoLinkIsFollowedOnTheWayToAFile(t *testing.T) {
	home, _, _ := aHome(t)
	if err := os.Symlink("../../secrets", filepath.Join(home, "extensions/tools.x/d")); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for _, name := range []string{"extensions/tools.x/d/key", "extensions/tools.x/link", "extensions/../secrets/../../x", "extensions"} {
		if f, err := openPlain(dir, name); err == nil {
			t.Errorf("%s is opened: %s; want an error", name, f.Name())
		}
	}
	if f, err := openPlain(dir, "secrets/key"); err != nil || f.Close() != nil {
		t.Errorf("%v; want no error, f.Close() = nil", err)
	}
	if _, m := backUp(t, home); slices.ContainsFunc(m.Files, func(f File) bool { return strings.HasPrefix(f.Path, "extensions/tools.x/d") }) {
		t.Error("what a link leads to is in the backup")
	}
}

// A chain that was broken already is backed up, and said to be broken.
func TestABrokenChainIsKeptAndTold(t *testing.T) {
	home, _, log := aHome(t)
	note(t, log)
	path := filepath.Join(home, "audit", "audit-00000001.jsonl")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(data, []byte(`server_started`), []byte(`server_stopped`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	file, m := backUp(t, home)
	if m.Audit.FirstBad == nil {
		t.Fatal("nothing is said of it; want m.Audit.FirstBad not nil")
	}
	if again, err := Restore(t.Context(), file, filepath.Join(t.TempDir(), "h"), nil); err != nil || again.Audit.FirstBad == nil {
		t.Errorf("again.Audit = %v, err = %v, want err == nil && again.Audit.FirstBad != nil", again.Audit, err)
	}
}

// deepFiles are files in folders that are not listed, 40 of them each.
func deepFiles(n int) (out []entry) {
	out = []entry{{name: database, text: "not looked at here"}}
	for i := range n {
		out = append(out, entry{name: fmt.Sprintf("policy/%d/%sf", i, strings.Repeat("d/", 38)), text: "x"})
	}
	return out
}

type entry struct {
	name string
	kind byte // 0: a file
	text string
}

// pack writes an archive by hand: the files, and the manifest as edit leaves it.
func pack(entries []entry, edit func(*Manifest)) []byte {
	m := Manifest{Format: format, Version: "v", Schemas: map[string]int64{}, LeftOut: []LeftOut{}, Files: []File{}}
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	w := tar.NewWriter(gz)
	for _, e := range entries {
		name := e.name
		if !strings.HasPrefix(name, prefix) {
			name = root() + "home/" + name
		}
		kind := e.kind
		if kind == 0 {
			kind = tar.TypeReg
		}
		h := &tar.Header{Name: name, Typeflag: kind, Size: int64(len(e.text)), Mode: 0o600}
		if kind == tar.TypeSymlink || kind == tar.TypeLink {
			h.Linkname, h.Size = e.text, 0
		}
		_ = w.WriteHeader(h)
		if h.Size > 0 {
			_, _ = io.WriteString(w, e.text)
		}
		f := File{Path: e.name, Mode: 0o600, Size: h.Size}
		if kind != tar.TypeDir {
			f.SHA256 = digest(e.text)
		}
		m.Files = append(m.Files, f)
	}
	if edit != nil {
		edit(&m)
	}
	if m.Format >= 0 {
		data, _ := json.Marshal(m)
		_ = w.WriteHeader(&tar.Header{Name: root() + manifest, Typeflag: tar.TypeReg, Size: int64(len(data)), Mode: 0o600})
		_, _ = w.Write(data)
	}
	_, _ = w.Close(), gz.Close()
	return b.Bytes()
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func TestAnArchiveThatWasTamperedWithIsRefusedWhole(t *testing.T) {
	home, _, _ := aHome(t)
	file, _ := backUp(t, home)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	db := entry{name: database, text: "not looked at here"}
	cut := func(n int) []byte { return good[:n] }
	flip := func(at int) []byte {
		b := slices.Clone(good)
		b[at] ^= 0x10
		return b
	}
	const conf = "config.yaml"
	cases := map[string][]byte{
		"nothing":                     nil,
		"no archive":                  []byte("hello"),
		"a gzip of something else":    pack([]entry{{name: prefix + "x"}}, nil),
		"cut in the middle":           cut(len(good) / 2),
		"cut before its end":          cut(len(good) - 5),
		"something behind its end":    append(slices.Clone(good), 'x'),
		"another stream behind it":    append(slices.Clone(good), good...),
		"a bit of its head":           flip(0),
		"a bit of its middle":         flip(len(good) / 2),
		"a bit of its checksum":       flip(len(good) - 6),
		"no manifest":                 pack([]entry{db}, func(m *Manifest) { m.Format = -1 }),
		"no database":                 pack([]entry{{name: conf, text: "a"}}, nil),
		"a file that is not listed":   pack([]entry{db, {name: conf, text: "a"}}, func(m *Manifest) { m.Files = m.Files[:1] }),
		"a file that is missing":      pack([]entry{db}, func(m *Manifest) { m.Files = append(m.Files, File{Path: conf, Mode: 0o600}) }),
		"another digest":              pack([]entry{db}, func(m *Manifest) { m.Files[0].SHA256 = digest("x") }),
		"another size":                pack([]entry{db}, func(m *Manifest) { m.Files[0].Size++ }),
		"another name":                pack([]entry{db, {name: conf, text: "a"}}, func(m *Manifest) { m.Files[1].Path = "catalog.yaml" }),
		"a mode of nothing":           pack([]entry{db}, func(m *Manifest) { m.Files[0].Mode = 0o4777 }),
		"a file twice":                pack([]entry{db, db}, nil),
		"a file that is a folder too": pack([]entry{db, {name: "policy", text: "x"}, {name: "policy/", kind: tar.TypeDir}}, nil),
		"a way out":                   pack([]entry{db, {name: "../../etc/cron.d/x", text: "a"}}, nil),
		"a way out in the middle":     pack([]entry{db, {name: "policy/../../x", text: "a"}}, nil),
		"an absolute name":            pack([]entry{db, {name: "/etc/cron.d/x", text: "a"}}, nil),
		"a name with a line end":      pack([]entry{db, {name: "policy/a\nb", text: "a"}}, nil),
		"a deep name":                 pack([]entry{db, {name: strings.Repeat("a/", maxDepth+1) + "b", text: "a"}}, nil),
		"more folders than files":     pack(deepFiles(3), nil),
		"a symbolic link":             pack([]entry{db, {name: "policy/x", kind: tar.TypeSymlink, text: "/etc"}}, nil),
		"a hard link":                 pack([]entry{db, {name: "policy/x", kind: tar.TypeLink, text: database}}, nil),
		"a device":                    pack([]entry{db, {name: "policy/x", kind: tar.TypeChar}}, nil),
		"a pipe":                      pack([]entry{db, {name: "policy/x", kind: tar.TypeFifo}}, nil),
		"a journal for the database":  pack([]entry{db, {name: database + "-wal", text: "a"}}, nil),
		"a journal for a copy of it":  pack([]entry{db, {name: database + ".before-upgrade.tmp-journal", text: "a"}}, nil),
		"a lock":                      pack([]entry{db, {name: "run/lock", text: "a"}}, nil),
		"too many files":              pack(slices.Repeat([]entry{{name: "policy/" + conf}}, 200), nil),
		"too many bytes":              pack([]entry{db, {name: conf, text: strings.Repeat("0", 3<<20)}}, nil),
	}
	for name, archive := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := read(t.Context(), bytes.NewReader(archive), bounds{100, 2 << 20}, nil)
			wants(t, err, capability.CodeInvalidInput, ReasonDamaged)
			dir := t.TempDir()
			file, to := filepath.Join(dir, "b"), filepath.Join(dir, "home")
			if err := os.WriteFile(file, archive, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Restore(t.Context(), file, to, nil); err == nil {
				t.Error("it was restored; want an error")
			}
			if names, _ := os.ReadDir(dir); len(names) != 1 {
				t.Errorf("left behind: %v; want len(names) = 1", names)
			}
		})
	}
	later := pack([]entry{{name: fmt.Sprintf("%s%d/home/x", prefix, format+1)}}, nil)
	_, err = read(t.Context(), bytes.NewReader(later), limits(), nil)
	wants(t, err, capability.CodeConflict, ReasonNewer)

	// Right in every digest, and still no home: the database and the chain are asked.
	_, err = Check(t.Context(), written(t, pack([]entry{db}, nil)), nil)
	wants(t, err, capability.CodeInvalidInput, ReasonDamaged)
}

// TestDatabaseWithProgramsOfOthersIsRefused restores archives whose digests are right, and whose database
// acts by itself.
func TestDatabaseWithProgramsOfOthersIsRefused(t *testing.T) {
	for name, statement := range map[string]string{
		"a trigger that approves": `CREATE TRIGGER help AFTER INSERT ON approvals BEGIN UPDATE approvals SET state = 'approved' WHERE id = new.id; END`,
		"a view without end": `CREATE VIEW schema_more AS WITH RECURSIVE n(version_id) AS (SELECT 1 UNION ALL SELECT version_id + 1 FROM n)
			SELECT version_id FROM n`,
		"a trigger of a name that hides it": `CREATE TRIGGER "sqlite" AFTER UPDATE ON tokens BEGIN UPDATE tokens SET revoked = NULL; END`,
	} {
		t.Run(name, func(t *testing.T) {
			home, db, log := aHome(t)
			if _, err := db.SQL().ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: got %v, want no error", statement, err)
			}
			if err := errors.Join(log.Close(), db.Close()); err != nil {
				t.Fatalf("Close: got %v, want no error", err)
			}
			data, err := os.ReadFile(filepath.Join(home, database))
			if err != nil {
				t.Fatalf("ReadFile: got %v, want no error", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			to := filepath.Join(t.TempDir(), "home")
			_, err = Restore(ctx, written(t, pack([]entry{{name: database, text: string(data)}}, nil)), to, nil)
			wants(t, err, capability.CodeInvalidInput, ReasonDamaged)
			if _, err := os.Stat(to); err == nil {
				t.Errorf("the home after a refused restore: got one, want none")
			}
		})
	}
}

func written(t *testing.T, data []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "b")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// FuzzRead: whatever a file holds, reading it ends within its bounds, and what is
// accepted has nothing but plain paths of a home, each once.
func FuzzRead(f *testing.F) {
	f.Add(pack([]entry{{name: database, text: "x"}, {name: "policy/", kind: tar.TypeDir}, {name: "policy/a", text: "y"}}, nil))
	f.Add(pack([]entry{{name: database, text: "x"}, {name: "../a", text: "y"}}, nil))
	f.Add(pack([]entry{{name: database, text: "x"}}, func(m *Manifest) { m.Format = -1 }))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var archive bytes.Buffer
		gz := gzip.NewWriter(&archive)
		_, _ = gz.Write(data) // so that the fuzzer gets past the checksum
		_ = gz.Close()
		for _, in := range [][]byte{data, archive.Bytes()} {
			var got int64
			m, err := read(t.Context(), bytes.NewReader(in), bounds{50, 1 << 20}, func(_ File, r io.Reader) error {
				n, err := io.Copy(io.Discard, r)
				got += n
				return err
			})
			if got > 1<<20 {
				t.Fatalf("%d bytes of files were given out; want got at most 1 << 20", got)
			}
			if err != nil {
				continue
			}
			seen := map[string]bool{}
			for _, file := range m.Files {
				name := strings.TrimSuffix(file.Path, "/")
				if !filepath.IsLocal(name) || seen[name] || file.Mode&^0o755 != 0 {
					t.Fatalf("%+v was accepted", file)
				}
				seen[name] = true
			}
		}
	})
}

// Entries that are deep, long or have a name that is not text are in a backup or are
// reported: a name that a program chooses never fails it.
func TestNoNameEndsABackup(t *testing.T) {
	home, _, _ := aHome(t)
	deepest := "upstreams/memory" + strings.Repeat("/d", maxDepth-1)
	put(t, home, deepest+"/d/too/deep", "x", 0o600)
	long := "upstreams/memory" + strings.Repeat("/"+strings.Repeat("n", 200), 5) + "/"
	long += strings.Repeat("m", maxName-len(long))
	put(t, home, long+"/f", "x", 0o600)
	put(t, home, "upstreams/memory/\xff\xfe", "x", 0o600)
	if err := os.Symlink("/etc", filepath.Join(home, "upstreams/memory/link\xff")); err != nil {
		t.Fatal(err)
	}
	file, m := backUp(t, home)
	for _, p := range []string{deepest + "/", long + "/"} {
		if !slices.ContainsFunc(m.Files, func(f File) bool { return f.Path == p }) {
			t.Errorf("%.40s… is not in it", p)
		}
	}
	for _, p := range []string{deepest + "/d", long + "/f", "upstreams/memory/\xff\xfe", "upstreams/memory/link\xff"} {
		if !slices.ContainsFunc(m.LeftOut, func(l LeftOut) bool { return l.Path == p }) {
			t.Errorf("%.40s… is not told", p)
		}
	}
	if _, err := Restore(t.Context(), file, filepath.Join(t.TempDir(), "h"), m.Schemas); err != nil {
		t.Error(err)
	}
}
