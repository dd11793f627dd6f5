package db_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/exec/db"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

func TestMain(m *testing.M) {
	if sandbox.IsHelper(os.Args) {
		syscall.Exit(sandbox.HelperMain(os.Args)) // os.Exit waits a second with the race detector
	}
	if db.IsWorker(os.Args) {
		syscall.Exit(db.WorkerMain(os.Stdin, os.Stdout)) // os.Exit waits a second with the race detector
	}
	goleak.VerifyTestMain(m)
}

// shop is a working folder with a database, and an executor.
type shop struct {
	*db.Executor
	work string
}

func open(t *testing.T, statements ...string) shop {
	t.Helper()
	box := sandbox.New(sandbox.Config{})
	if box.Facts().Tier < sandbox.T2 {
		t.Skip("no tier above T1 here: ", box.Facts().NoT2)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := shop{db.New(db.Config{Walls: box, Program: program}), filepath.Join(t.TempDir(), "work")}
	if err := os.Mkdir(s.work, 0o700); err != nil {
		t.Fatal(err)
	}
	if len(statements) > 0 {
		s.fill(t, "data.db", statements...)
	}
	return s
}

// fill writes to a database as a program of the extension would.
func (s shop) fill(t *testing.T, name string, statements ...string) {
	t.Helper()
	path := filepath.Join(s.work, name)
	pool, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, text := range statements {
		if _, err := pool.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(path, sandbox.DefaultUID, sandbox.DefaultUID); err != nil {
			t.Fatal(err)
		}
	}
}

func (s shop) request(action db.Action, text string, params ...string) db.Request {
	req := db.Request{Action: action, SQL: text, File: "data.db", Room: sandbox.Confinement{MinTier: sandbox.T2, Work: s.work}}
	for _, typed := range params {
		p, err := db.ReadParam(typed)
		if err != nil {
			panic(err)
		}
		req.Params = append(req.Params, p)
	}
	return req
}

func (s shop) do(t *testing.T, action db.Action, text string, params ...string) (db.Result, error) {
	t.Helper()
	return s.Do(t.Context(), s.request(action, text, params...))
}

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	e := capability.AsError(err)
	return string(e.Code) + " " + e.Reason
}

func fruit() []string {
	return []string{
		"CREATE TABLE fruit (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price REAL, picked DATE, raw BLOB)",
		"INSERT INTO fruit VALUES (1, 'apple', 1.5, '2026-01-02', x'00ff'), (2, 'pear', NULL, NULL, NULL), (10, 'wide 日本', 12.25, NULL, NULL)",
	}
}

func TestAnswersAreTablesOrJSON(t *testing.T) {
	t.Parallel()
	s := open(t, fruit()...)
	got, err := s.do(t, db.Query, "SELECT id, name, price, picked, raw FROM fruit WHERE id < :most OR name = :name -- all", "most:=5",
		"name=wide 日本")
	if err != nil {
		t.Fatal(err)
	}
	want := "" +
		"id  name     price  picked      raw\n" +
		"--  -------  -----  ----------  ------\n" +
		" 1  apple      1.5  2026-01-02  \\x00ff\n" +
		" 2  pear      NULL  NULL        NULL\n" +
		"10  wide 日本  12.25  NULL        NULL\n" +
		"(3 rows)\n"
	if got.Output != want {
		t.Errorf("got\n%s\nwant got.Output = %v", got.Output, want)
	}
	if got.Metadata["rows"] != 3 || got.Metadata["truncated"] != false || got.Metadata["statement_kind"] != "select" ||
		fmt.Sprint(got.Metadata["columns"]) != "[id name price picked raw]" {
		t.Errorf(`%v; want got.Metadata["rows"] = 3, got.Metadata["truncated"] = false, got.Metadata["statement_kind"] = `+
			`"select", fmt.Sprint(got.Metadata["columns"]) = "[id name price picked raw]"`, got.Metadata)
	}
	req := s.request(db.Query, "SELECT id, name, price FROM fruit ORDER BY id LIMIT 2")
	req.JSON = true
	if got, err = s.Do(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if got.Output != "[\n  {\"id\": 1, \"name\": \"apple\", \"price\": 1.5},\n  {\"id\": 2, \"name\": \"pear\", \"price\": null}\n]\n" ||
		!json.Valid([]byte(got.Output)) {
		t.Errorf("output = %q, want two rows as valid JSON", got.Output)
	}
}

func TestValuesAreNeverPartOfTheStatement(t *testing.T) {
	t.Parallel()
	s := open(t, fruit()...)
	got, err := s.do(t, db.Query, "SELECT count(*) AS n FROM fruit WHERE name = :name", "name=x' OR '1'='1")
	if err != nil || !strings.Contains(got.Output, "\n0\n") {
		t.Errorf(`%q %v; want no error, got.Output with "\n0\n"`, got.Output, err)
	}
	for _, params := range [][]string{nil, {"other=1"}, {"name=1", "other=2"}, {"name=1", "name=2"}} {
		if _, err := s.do(t, db.Query, "SELECT :name", params...); reasonOf(err) != "invalid_input invalid_args" {
			t.Errorf(`%v: %v; want reasonOf(err) = "invalid_input invalid_args"`, params, err)
		}
	}
}

func TestWritingNeedsExec(t *testing.T) {
	t.Parallel()
	s := open(t, fruit()...)
	for _, text := range []string{
		"INSERT INTO fruit(name) VALUES ('x')", "DELETE FROM fruit", "WITH x AS (SELECT 1) DELETE FROM fruit",
		"CREATE TEMP TRIGGER t AFTER INSERT ON fruit BEGIN SELECT 1; END",
		"DROP TABLE fruit", "PRAGMA journal_mode = DELETE", "PRAGMA query_only = 0", "ATTACH 'other.db' AS o", "VACUUM INTO 'copy.db'", "BEGIN",
		"SELECT 1; DELETE FROM fruit", "REINDEX",
	} {
		if _, err := s.do(t, db.Query, text); reasonOf(err) != "invalid_input invalid_args" {
			t.Errorf(`%s: %v; want reasonOf(err) = "invalid_input invalid_args"`, text, err)
		}
	}
	got, err := s.do(t, db.Exec, "UPDATE fruit SET price = :p WHERE price IS NULL", "p:=0.5")
	if err != nil || got.Output != "1 row changed\n" || got.Metadata["rows_affected"] != int64(1) {
		t.Errorf(`%+v %v; want no error, got.Output = "1 row changed\n", got.Metadata["rows_affected"] = int64(1)`, got, err)
	}
	if got, err = s.do(t, db.Exec, "DELETE FROM fruit WHERE id = 2 RETURNING name"); err != nil || !strings.Contains(got.Output, "pear") {
		t.Errorf(`%+v %v; want no error, got.Output with "pear"`, got, err)
	}
	if got, err = s.do(t, db.Query, "SELECT group_concat(name) AS all_of_them FROM fruit"); err != nil ||
		!strings.Contains(got.Output, "apple,wide 日本") {
		t.Errorf(`%+v %v; want no error, got.Output with "apple,wide 日本"`, got, err)
	}
	for _, text := range []string{
		"ATTACH 'other.db' AS o", "PRAGMA writable_schema = 1", "VACUUM", "BEGIN",
		"DELETE FROM fruit; DELETE FROM fruit",
	} {
		if _, err := s.do(t, db.Exec, text); reasonOf(err) != "invalid_input invalid_args" {
			t.Errorf(`%s: %v; want reasonOf(err) = "invalid_input invalid_args"`, text, err)
		}
	}
	if _, err := s.do(t, db.Exec, "UPDATE sqlite_schema SET sql = 'x'"); reasonOf(err) != "failed execution_failed" {
		t.Errorf(`%v; want reasonOf(err) = "failed execution_failed"`, err)
	}
}

func TestSchemaAndPlan(t *testing.T) {
	t.Parallel()
	s := open(t, append(fruit(), "CREATE INDEX by_name ON fruit(name)")...)
	got, err := s.do(t, db.Schema, "")
	if err != nil || !strings.Contains(got.Output, "by_name") || !strings.Contains(got.Output, "CREATE TABLE fruit") {
		t.Errorf(`%s %v; want no error, got.Output with "by_name", got.Output with "CREATE TABLE fruit"`, got.Output, err)
	}
	if got, err = s.do(t, db.Schema, "fruit"); err != nil || !strings.Contains(got.Output, "price") || !strings.Contains(got.Output, "REAL") {
		t.Errorf(`%s %v; want no error, got.Output with "price", got.Output with "REAL"`, got.Output, err)
	}
	if _, err = s.do(t, db.Schema, "nothing'; DROP TABLE fruit"); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
	if got, err = s.do(t, db.Explain, "DELETE FROM fruit WHERE name = :n", "n=apple"); err != nil || !strings.Contains(got.Output, "by_name") {
		t.Errorf(`%s %v; want no error, got.Output with "by_name"`, got.Output, err)
	}
	if got, err = s.do(t, db.Query, "SELECT count(*) AS n FROM fruit"); err != nil || !strings.Contains(got.Output, "\n3\n") {
		t.Errorf(`explaining changed it: %s %v; want no error, got.Output with "\n3\n"`, got.Output, err)
	}
	if _, err = s.do(t, db.Explain, "DROP TABLE fruit"); reasonOf(err) != "invalid_input invalid_args" {
		t.Errorf(`%v; want reasonOf(err) = "invalid_input invalid_args"`, err)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	s := open(t, fruit()...)
	got, err := s.do(t, db.Query, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n")
	if err != nil || got.Metadata["rows"] != db.MaxRows || got.Metadata["truncated"] != true ||
		!strings.Contains(got.Output, "there is more than is shown") {
		t.Errorf(`%v %v; want no error, got.Metadata["rows"] = db.MaxRows, got.Metadata["truncated"] = true, got.Output with `+
			`"there is more than is shown"`, got.Metadata, err)
	}
	if got, err = s.do(t, db.Query, "SELECT hex(zeroblob(100000)) AS x, 1 AS y UNION ALL SELECT '', 2"); err != nil ||
		got.Metadata["rows"] != 2 || got.Metadata["truncated"] != true || len(got.Output) > 3*db.MaxCell {
		t.Errorf(`%v %d %v; want no error, got.Metadata["rows"] = 2, got.Metadata["truncated"] = true, len(got.Output) at most `+
			"3 * db.MaxCell", got.Metadata, len(got.Output), err)
	}
	if got, err = s.do(t, db.Query, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 900) SELECT i, hex(zeroblob(2000)) FROM n"); err != nil || got.Metadata["truncated"] != true || len(got.Output) > 2<<20 {
		t.Errorf(`%v %d %v; want no error, got.Metadata["truncated"] = true, len(got.Output) at most 2 << 20`,
			got.Metadata, len(got.Output), err)
	}
	req := s.request(db.Query, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")
	req.Timeout = 300 * time.Millisecond
	if _, err := s.Do(t.Context(), req); reasonOf(err) != "timeout timeout" {
		t.Errorf(`%v; want reasonOf(err) = "timeout timeout"`, err)
	}
	if _, err := s.do(t, db.Query, "SELECT '"+strings.Repeat("x", db.MaxStatement)+"'"); capability.CodeOf(err) != capability.CodeTooLarge {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeTooLarge", err)
	}
}

func TestFilesThatAreNoDatabaseOfTheFolder(t *testing.T) {
	t.Parallel()
	s := open(t, fruit()...)
	outside := filepath.Join(t.TempDir(), "outside.db")
	pool, err := sql.Open("sqlite", outside)
	if err == nil {
		_, err = pool.Exec("CREATE TABLE secret AS SELECT 'treasure' AS x")
		pool.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(s.work, name) }
	for _, err := range []error{
		os.Symlink(outside, at("link.db")), os.Symlink("data.db", at("inner.db")), os.Link(at("data.db"), at("hard.db")),
		unix.Mkfifo(at("fifo.db"), 0o666),
		os.Mkdir(at("dir.db"), 0o755), os.WriteFile(at("text.db"), []byte(strings.Repeat("no database ", 100)), 0o666),
		os.Symlink(filepath.Dir(outside), at("way")),
		os.WriteFile(at("log.db"), nil, 0o666), os.Symlink(outside, at("log.db-journal")), os.WriteFile(at("wal.db"), nil, 0o666),
		unix.Mkfifo(at("wal.db-wal"), 0o666),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		// it has a second name
		"link.db": "denied security_violation", "inner.db": "denied security_violation", "hard.db": "denied security_violation",
		"data.db": "denied security_violation",
		"fifo.db": "denied security_violation", "dir.db": "denied security_violation", "text.db": "failed execution_failed",
		"log.db": "denied security_violation", "wal.db": "denied security_violation",
		"missing.db": "not_found not_found", "way/outside.db": "not_found not_found", // the worker cannot reach other files
		"../outside.db": "invalid_input invalid_args", outside: "invalid_input invalid_args", "": "invalid_input invalid_args",
		"x?mode=rwc":  "invalid_input invalid_args",
		"data.db-wal": "invalid_input invalid_args", "a\x00b": "invalid_input invalid_args", "./data.db": "invalid_input invalid_args",
		".": "denied security_violation",
	} {
		req := s.request(db.Query, "SELECT * FROM secret")
		req.File = name
		got, err := s.Do(t.Context(), req)
		if reasonOf(err) != want || strings.Contains(fmt.Sprint(got, err), "treasure") || err != nil && strings.Contains(err.Error(), s.work) {
			t.Errorf(`%q: %v; want reasonOf(err) = %v, fmt.Sprint(got, err) without "treasure", not (err != nil && `+
				"strings.Contains(err.Error(), s.work))", name, err, want)
		}
	}
}

func TestADatabaseWithALogIsRead(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.fill(t, "data.db", "PRAGMA journal_mode = WAL", "CREATE TABLE t AS SELECT 7 AS x")
	if got, err := s.do(t, db.Query, "SELECT x FROM t"); err != nil || !strings.Contains(got.Output, "7") {
		t.Errorf(`closed: %s %v; want no error, got.Output with "7"`, got.Output, err)
	}
	if got, err := s.do(t, db.Exec, "INSERT INTO t VALUES (8)"); err != nil || got.Output != "1 row changed\n" {
		t.Errorf(`written: %s %v; want no error, got.Output = "1 row changed\n"`, got.Output, err)
	}
	pool, err := sql.Open("sqlite", filepath.Join(s.work, "data.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec("INSERT INTO t VALUES (9)"); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"-wal", "-shm"} { // as a program of the extension would have left them
		_ = os.Chown(filepath.Join(s.work, "data.db"+suffix), sandbox.DefaultUID, sandbox.DefaultUID)
	}
	if got, err := s.do(t, db.Query, "SELECT sum(x) AS s FROM t"); err != nil || !strings.Contains(got.Output, "24") {
		t.Errorf(`open elsewhere: %s %v; want no error, got.Output with "24"`, got.Output, err)
	}
}

func TestExecMakesADatabase(t *testing.T) {
	t.Parallel()
	s := open(t)
	if _, err := s.do(t, db.Exec, "CREATE TABLE t (x); "); err != nil {
		t.Fatal(err)
	}
	got, err := s.do(t, db.Exec, "CREATE TRIGGER twice AFTER INSERT ON t WHEN new.x < 5 BEGIN INSERT INTO t VALUES (new.x + 10); SELECT 1; END;")
	if err != nil {
		t.Fatal(err)
	}
	if got, err = s.do(t, db.Exec, "INSERT INTO t VALUES (1)"); err != nil || got.Metadata["rows_affected"] != int64(2) {
		t.Errorf(`%+v %v; want no error, got.Metadata["rows_affected"] = int64(2)`, got, err)
	}
	if info, err := os.Stat(filepath.Join(s.work, "data.db")); err != nil || info.Size() == 0 {
		t.Errorf("%v; want no error, info.Size() other than 0", err)
	}
	if _, err := s.do(t, db.Query, "SELECT * FROM absent"); reasonOf(err) != "failed execution_failed" ||
		!strings.Contains(err.Error(), "no such table: absent") {
		t.Errorf(`%v; want reasonOf(err) = "failed execution_failed", err.Error() with "no such table: absent"`, err)
	}
}
