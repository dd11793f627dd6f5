package db_test

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/exec/db"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
	"github.com/junctor-run/junctor/internal/testkit/pgtest"
	"github.com/junctor-run/junctor/secret"
)

const password = pgtest.Password

// postgres starts a server of its own on loopback and returns its port.
func postgres(t *testing.T) string { return pgtest.Start(t).Port }

// remote asks one server.
type remote struct {
	*db.Executor
	dsn    string
	policy egress.Policy
	mu     sync.Mutex
	heard  []string
}

func (r *remote) do(t *testing.T, action db.Action, text string, params ...string) (db.Result, error) {
	t.Helper()
	req := db.Request{Action: action, Extension: "tools.shop", SQL: text, DSN: secret.New(r.dsn), Policy: r.policy, Timeout: 20 * time.Second}
	if strings.HasPrefix(text, "slow ") {
		req.SQL, req.Timeout = strings.TrimPrefix(text, "slow "), 300*time.Millisecond
	}
	for _, typed := range params {
		p, err := db.ReadParam(typed)
		if err != nil {
			t.Fatal(err)
		}
		req.Params = append(req.Params, p)
	}
	got, err := r.Do(t.Context(), req)
	if strings.Contains(fmt.Sprintf("%+v %+v", got, err), password) {
		t.Errorf(`the password is shown: %+v %v; want fmt.Sprintf("%%+v %%+v", got, err) without %v`, got, err, password)
	}
	return got, err
}

func dial(t *testing.T, dsn, port string) *remote {
	r := &remote{dsn: dsn, policy: egress.Policy{
		Allow:     []string{"127.0.0.1:" + port},
		Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	}}
	r.Executor = db.New(db.Config{OnDecision: func(id string, d egress.Decision) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.heard = append(r.heard, id+" "+d.Event()+" "+d.Host)
	}})
	return r
}

func TestPostgres(t *testing.T) {
	t.Setenv("PGHOST", "elsewhere.example")
	t.Setenv("PGPASSWORD", "another")
	t.Setenv("PGOPTIONS", "-c search_path=nowhere")
	port := postgres(t)
	r := dial(t, "postgres://boss:"+password+"@127.0.0.1:"+port+"/postgres?sslmode=disable", port)

	got, err := r.do(t, db.Exec, "CREATE TABLE fruit (id int8 PRIMARY KEY, name text, ok bool, at date, price numeric)")
	if err != nil {
		t.Fatal(err)
	}
	if got, err = r.do(t, db.Exec, "INSERT INTO fruit VALUES (1, :a, true, '2026-01-02', 1.50), (:n, NULL, false, NULL, NULL)",
		"a=x' OR '1'='1", "n:=2"); err != nil || got.Output != "2 rows changed\n" || got.Metadata["rows_affected"] != int64(2) {
		t.Errorf(`%+v %v; want no error, got.Output = "2 rows changed\n", got.Metadata["rows_affected"] = int64(2)`, got, err)
	}
	if got, err = r.do(t, db.Query, "SELECT * FROM fruit WHERE id < :most ORDER BY id", "most:=9"); err != nil || got.Output != ""+
		"id  name          ok     at          price\n"+
		"--  ------------  -----  ----------  -----\n"+
		" 1  x' OR '1'='1  true   2026-01-02  1.50\n"+
		" 2  NULL          false  NULL        NULL\n"+
		"(2 rows)\n" {
		t.Errorf("%q %v", got.Output, err)
	}
	if got, err = r.do(t, db.Query, "SELECT count(*) FROM fruit WHERE name = :a", "a=x' OR '1'='1"); err != nil ||
		!strings.Contains(got.Output, "\n    1\n") {
		t.Errorf(`%s %v; want no error, got.Output with "\n 1\n"`, got.Output, err)
	}
	if got, err = r.do(t, db.Schema, ""); err != nil || !strings.Contains(got.Output, "public") || !strings.Contains(got.Output, "fruit") {
		t.Errorf(`%s %v; want no error, got.Output with "public", got.Output with "fruit"`, got.Output, err)
	}
	if got, err = r.do(t, db.Schema, "public.fruit"); err != nil || !strings.Contains(got.Output, "numeric") {
		t.Errorf(`%s %v; want no error, got.Output with "numeric"`, got.Output, err)
	}
	if got, err = r.do(t, db.Explain, "DELETE FROM fruit WHERE id = :n", "n:=1"); err != nil || !strings.Contains(got.Output, "fruit_pkey") {
		t.Errorf(`%s %v; want no error, got.Output with "fruit_pkey"`, got.Output, err)
	}
	if got, err = r.do(t, db.Query, "SELECT generate_series(1, 100000000) AS n"); err != nil || got.Metadata["rows"] != db.MaxRows ||
		got.Metadata["truncated"] != true {
		t.Errorf(`%+v %v; want no error, got.Metadata["rows"] = db.MaxRows, got.Metadata["truncated"] = true`, got.Metadata, err)
	}
	for text, want := range map[string]string{
		"WITH gone AS (DELETE FROM fruit RETURNING id) SELECT * FROM gone": "failed execution_failed",
		"SELECT * INTO copy FROM fruit":                                    "failed execution_failed",
		"SELECT nextval('pg_catalog.nothing')":                             "failed execution_failed",
		"SELECT * FROM fruit FOR UPDATE":                                   "failed execution_failed",
		"slow SELECT count(*) FROM generate_series(1, 10000000000)":        "timeout timeout",
		"SELECT pg_read_file('/etc/passwd')":                               "denied security_violation",
		"SELECT '" + password + "'::int":                                   "failed execution_failed",
		"SELECT missing":                                                   "failed execution_failed",
	} {
		if _, err := r.do(t, db.Query, text); reasonOf(err) != want {
			t.Errorf("%s: %v; want reasonOf(err) = %v", text, err, want)
		}
	}
	if got, err = r.do(t, db.Query, "SELECT '"+password+"' AS word, count(*) AS n FROM fruit"); err != nil ||
		!strings.Contains(got.Output, "[redacted]") || !strings.Contains(got.Output, "2\n") {
		t.Errorf(`%s %v; want no error, got.Output with "[redacted]", got.Output with "2\n"`, got.Output, err)
	}

	for name, other := range map[string]struct {
		dsn, want string
	}{
		"a wrong password":     {"postgres://boss:wrong-word@127.0.0.1:" + port + "/postgres?sslmode=disable", "failed execution_failed"},
		"a server without TLS": {"postgres://boss:" + password + "@127.0.0.1:" + port + "/postgres", "unavailable "},
		"a host that is not listed": {
			"postgres://boss:" + password + "@localhost:" + port + "/postgres?sslmode=disable",
			"denied security_violation",
		},
		"a port that is not listed": {"postgres://boss:" + password + "@127.0.0.1:5433/postgres?sslmode=disable", "denied security_violation"},
	} {
		o := dial(t, other.dsn, port)
		_, err := o.do(t, db.Query, "SELECT 1")
		if reasonOf(err) != other.want || strings.Contains(err.Error(), "boss") || strings.Contains(err.Error(), "wrong-word") {
			t.Errorf(`%s: %v; want reasonOf(err) = %v, err.Error() without "boss", err.Error() without "wrong-word"`,
				name, err, other.want)
		}
	}
	if len(r.heard) == 0 || r.heard[0] != "tools.shop egress_allowed 127.0.0.1" {
		t.Errorf(`%q; want len(r.heard) other than 0, r.heard[0] = "tools.shop egress_allowed 127.0.0.1"`, r.heard)
	}
	inside := dial(t, "postgres://boss:"+password+"@127.0.0.1:"+port+"/postgres?sslmode=disable", port)
	inside.policy.Addresses = nil
	if _, err := inside.do(t, db.Query, "SELECT 1"); reasonOf(err) != "denied security_violation" ||
		inside.heard[0] != "tools.shop egress_denied 127.0.0.1" {
		t.Errorf(`a loopback address without the operator: %v %q; want reasonOf(err) = "denied security_violation", `+
			`inside.heard[0] = "tools.shop egress_denied 127.0.0.1"`, err, inside.heard)
	}
}

func TestAddressesOfDatabases(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"mysql://u:p@h/d", "postgres://h/d", "postgres://u@/d", "postgres://u@h/", "postgres://u@h:0/d", "postgres://u@h:x/d",
		"postgres://u:p@h1,h2/d", "postgres:///d?host=/run", "postgres://u:p@%2Frun%2Fpg/d",
		"postgres://u:p@h/d?host=/run", "postgres://u:p@h/d?passfile=/etc/passwd", "postgres://u:p@h/d?servicefile=x&service=y",
		"postgres://u:p@h/d?sslmode=prefer", "postgres://u:p@h/d?options=-c%20x",
		"host=h user=u dbname=d", "/var/run/postgresql", "postgres://u:p@h/d#x", "postgres://u:" + strings.Repeat("x", 3000) + "@h/d",
		"postgres://u:p\x00@h/d",
	} {
		r := dial(t, dsn, "5432")
		_, err := r.do(t, db.Query, "SELECT 1")
		if capability.CodeOf(err) != capability.CodeInvalidInput || strings.Contains(err.Error(), dsn) {
			t.Errorf("%.60s: %v; want capability.CodeOf(err) = capability.CodeInvalidInput, err.Error() without %v", dsn, err, dsn)
		}
	}
}
