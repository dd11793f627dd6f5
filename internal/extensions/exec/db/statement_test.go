package db_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/extensions/exec/db"
)

func TestKindsOfStatements(t *testing.T) {
	t.Parallel()
	const lite, pg = "lite", "pg"
	for _, tt := range []struct{ dialects, sql, kind, params string }{
		{"lite pg", " select 1 ;; -- done\n", "select", ""},
		{"lite pg", "VALUES (1), (2)", "values", ""},
		{"lite pg", "/* DELETE */ SELECT 'a;b', \"c;d\", ';' FROM t", "select", ""},
		{"lite pg", "with a as (select 1), b as (delete from x returning 1) select * from a", "select", ""},
		{"lite pg", "WITH RECURSIVE a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "insert", ""},
		{pg, "WITH values AS (SELECT 1) DELETE FROM t", "delete", ""},
		{"lite pg", "select :a, :b_2, :a", "select", "a b_2"},
		{pg, "select x::text, a[1:2], a[:n] from t where y = :v", "select", "v"},
		{pg, "select $$ ; drop table x $$, $a$ $$ ; $a$, E'it\\'s ; ', 'a\\'", "select", ""},
		{pg, "/* /* nested */ ; */ select 1", "select", ""},
		{lite, "/* /* not nested */ select 1", "select", ""},
		{lite, "select [a;b], `c;d`, 'it''s'", "select", ""},
		{"lite pg", "select 1 --\r\n, 2", "select", ""},
		{"lite pg", "replace into t values (1)", "replace", ""},
		{lite, "CREATE TEMP TRIGGER t AFTER INSERT ON x BEGIN SELECT 1; END", "create", ""},
	} {
		for d, name := range map[db.Dialect]string{db.SQLite: lite, db.Postgres: pg} {
			if !strings.Contains(tt.dialects, name) {
				continue
			}
			s, err := db.Parse(tt.sql, d)
			if err != nil || s.Kind != tt.kind || strings.Join(s.Params, " ") != tt.params {
				t.Errorf(`%s %q: %+v %v; want no error, s.Kind = %v, strings.Join(s.Params, " ") = %v`,
					name, tt.sql, s, err, tt.kind, tt.params)
			}
		}
	}
}

func TestHostileStatements(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ dialects, sql string }{
		{"lite pg", ""},
		{"lite pg", " ; ; -- nothing"},
		{"lite pg", "SELECT 1; DROP TABLE x"},
		{"lite pg", "SELECT 1;;SELECT 2"},
		{"lite pg", "SELECT 1 /* ; */ ; /* */ SELECT 2"},
		{"lite pg", "SELECT 'a"},
		{"lite pg", "SELECT \"a"},
		{"lite pg", "SELECT 1 /* "},
		{"lite pg", "SELECT 1\x00; DROP TABLE x"},
		{"lite pg", "SELECT 1 \xff"},
		{"lite pg", "ATTACH 'x' AS y"},
		{"lite pg", "DETACH y"},
		{"lite pg", "PRAGMA user_version = 3"},
		{"lite pg", "VACUUM INTO 'x'"},
		{"lite pg", "BEGIN"},
		{"lite pg", "COMMIT"},
		{"lite pg", "EXPLAIN ANALYZE DELETE FROM t"},
		{"lite pg", "(SELECT 1)"},
		{"lite pg", "\"select\" 1"},
		{"lite pg", "SELECT 1 -- a\rDROP TABLE x"},
		{"lite", "SELECT load_extension('x')"},
		{"lite", "SELECT \"load_extension\" /* */ ('x')"},
		{"lite", "SELECT [LOAD_EXTENSION]('x')"},
		{"lite", "SELECT ?1"},
		{"lite", "SELECT @a, $b"},
		{"lite", "CREATE TRIGGER t AFTER INSERT ON x BEGIN SELECT 1; END; DROP TABLE x; END"},
		{"lite", "CREATE TABLE x (a); DROP TABLE y; END"},
		{"lite", "SELECT `a"},
		{"lite", "SELECT [a"},
		{"pg", "COPY t TO PROGRAM 'id'"},
		{"pg", "DO $$ BEGIN PERFORM 1; END $$"},
		{"pg", "CALL p()"},
		{"pg", "SET ROLE admin"},
		{"pg", "LOAD 'x'"},
		{"pg", "LISTEN x"},
		{"pg", "SELECT pg_read_file('/etc/passwd')"},
		{"pg", "SELECT pg_catalog.PG_READ_BINARY_FILE('/etc/passwd')"},
		{"pg", "SELECT \"pg_ls_dir\"('/')"},
		{"pg", "SELECT lo_import('/etc/passwd')"},
		{"pg", "SELECT * FROM dblink('host=x', 'select 1') AS t(a int)"},
		{"pg", "SELECT query_to_xml('select 1', true, true, '')"},
		{"pg", "SELECT set_config('transaction_read_only', 'off', false)"},
		{"pg", "SELECT U&\"\\0070g_read_file\"('/etc/passwd')"},
		{"pg", "SELECT pg_sleep(1000)"},
		{"pg", "SELECT $1"},
		{"pg", "SELECT $a$ x"},
		{"pg", "SELECT E'\\'"},
		{"pg", "SELECT 1 /* /* */ ; */ ; DROP TABLE x"},
	} {
		for d, name := range map[db.Dialect]string{db.SQLite: "lite", db.Postgres: "pg"} {
			if !strings.Contains(tt.dialects, name) {
				continue
			}
			if s, err := db.Parse(tt.sql, d); err == nil {
				t.Errorf("%s %q was taken for %+v; want an error", name, tt.sql, s)
			}
		}
	}
}

func TestParametersAsTyped(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"a=1": `"1"`, "a:=1": `1`, "a=": `""`, "a=b=c": `"b=c"`, "a:=null": `null`, "a:=\"x\"": `"x"`,
		"a:=[1]": "", "a:=1 2": "", "a": "", "=x": "", "1a=x": "", "a b=x": "", "a:=x": "",
	} {
		p, err := db.ReadParam(typed)
		if got := string(p.Value); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf(`%s: %s %v; want (err == nil) = (want != ""), not (err == nil && got != want)`, typed, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"select 1; select 2", "with a as (select 1) delete from t", "select E'\\'';' $$ $a$ :p", "/* /* */ */ -- x",
		"create trigger t begin select 1; end", "select [a] `b` \"c\" 'd'",
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, sql string, postgres bool) {
		d := db.SQLite
		if postgres {
			d = db.Postgres
		}
		s, err := db.Parse(sql, d)
		if err != nil {
			return
		}
		if !utf8.ValidString(s.Text) || !strings.HasPrefix(sql, s.Text) {
			t.Fatalf("%q became %q; want utf8.ValidString(s.Text), sql beginning with %v", sql, s.Text, s.Text)
		}
		again, err := db.Parse(s.Text, d)
		if err != nil || again.Kind != s.Kind || !cmp.Equal(again.Params, s.Params) {
			t.Fatalf("%q: %q and then %q (%v); want no error, again.Kind = %v, cmp.Equal(again.Params, s.Params)",
				sql, s.Kind, again.Kind, err, s.Kind)
		}
		// Whatever stands behind it is seen.
		if two, err := db.Parse(s.Text+"\n;DELETE FROM t", d); err == nil && two.Kind != "create" {
			t.Fatalf(`%q and a second statement were taken for one; want not (err == nil && two.Kind != "create")`, sql)
		}
	})
}
