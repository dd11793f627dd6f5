package store

import (
	"database/sql"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/testkit/pgtest"
	"github.com/junctor-run/junctor/secret"
)

// relay passes bytes on to a port until it is frozen: then it takes them and says
// nothing, as a machine that hangs.
type relay struct {
	net.Listener
	frozen atomic.Bool
	wg     sync.WaitGroup
	mu     sync.Mutex
	open   []net.Conn
}

func relayTo(t *testing.T, port string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l}
	pass := func(to, from net.Conn) {
		buf := make([]byte, 4096)
		for {
			n, err := from.Read(buf)
			if n > 0 && !r.frozen.Load() {
				_, _ = to.Write(buf[:n])
			}
			if err != nil {
				to.Close()
				return
			}
		}
	}
	r.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", "127.0.0.1:"+port)
			if err != nil {
				in.Close()
				continue
			}
			r.mu.Lock()
			r.open = append(r.open, in, out)
			r.mu.Unlock()
			r.wg.Go(func() { pass(out, in) })
			r.wg.Go(func() { pass(in, out) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.mu.Lock()
		for _, c := range r.open {
			c.Close()
		}
		r.mu.Unlock()
		r.wg.Wait()
	})
	return r
}

func TestAServerThatNeverAnswersIsGivenUp(t *testing.T) {
	server := pgtest.Start(t)
	between := relayTo(t, server.Port)
	_, port, _ := net.SplitHostPort(between.Addr().String())
	url := strings.Replace(server.Database(t), server.Port, port, 1)
	db, err := openServer(t.Context(), Postgres{URL: url, Password: secret.New(pgtest.Password)}, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	given := func(what string, err error) {
		t.Helper()
		if e := capability.AsError(err); e.Code != capability.CodeUnavailable || e.Reason != ReasonUnavailable {
			t.Errorf("%s: %v; want e.Code = capability.CodeUnavailable, e.Reason = %v", what, err, ReasonUnavailable)
		}
	}
	freeze := func(tx *sql.Tx) error {
		between.frozen.Store(true)
		_, err := tx.ExecContext(t.Context(), `DELETE FROM grants`)
		return err
	}
	given("a statement in a transaction", db.InTx(t.Context(), "key", freeze))
	between.frozen.Store(false)
	if _, err := db.Tokens(t.Context()); err != nil { // on a new connection
		t.Fatal(err)
	}
	between.frozen.Store(true)
	_, err = db.Tokens(t.Context())
	given("a question", err)
	between.frozen.Store(false)
	if _, err := db.UseGrant(t.Context(), "g", time.Now()); err != nil {
		t.Fatal(err)
	}
	between.frozen.Store(true)
	_, err = db.UseGrant(t.Context(), "g", time.Now())
	given("a change", err)
}

func TestPlaceholdersAreNumberedOutsideOfQuotes(t *testing.T) {
	for in, want := range map[string]string{
		`SELECT 1`:                               `SELECT 1`,
		`a = ? AND b = ?`:                        `a = $1 AND b = $2`,
		`a = ?2 AND b = ?1 AND c = ?12`:          `a = $2 AND b = $1 AND c = $12`,
		`a = '?' AND "b?" = ? -- why?` + "\n, ?": `a = '?' AND "b?" = $1 -- why?` + "\n, $2",
		`/* ? */ ? /* ?`:                         `/* ? */ $1 /* ?`,
		`it''s = 'a''?' || ?`:                    `it''s = 'a''?' || $1`,
		`?`:                                      `$1`,
		`CAST(?1 AS text) || '`:                  `CAST($1 AS text) || '`,
		`INSERT INTO t (a) VALUES (?), (?), (?)`: `INSERT INTO t (a) VALUES ($1), ($2), ($3)`,
		`SELECT $1, 'x'`:                         `SELECT $1, 'x'`,
	} {
		if got := numbered(in); got != want {
			t.Errorf("%s: %s, not %s; want got = %v", in, got, want, want)
		}
	}
}

func TestURLs(t *testing.T) {
	for url, want := range map[string]address{
		"postgres://u@h/d":                             {"h", "d", "u", 5432, "verify-full", ""},
		"postgresql://u@127.0.0.1:5433/d":              {"127.0.0.1", "d", "u", 5433, "disable", ""},
		"postgres://u@localhost/d?sslmode=verify-full": {"localhost", "d", "u", 5432, "verify-full", ""},
		"postgres://u@h/d?sslmode=require":             {"h", "d", "u", 5432, "require", ""},
		"postgres://u@h/d?sslrootcert=/ca.pem":         {"h", "d", "u", 5432, "verify-full", "/ca.pem"},
		"postgres://u@/d?host=/run/postgresql":         {"/run/postgresql", "d", "u", 5432, "disable", ""},
		"postgres://u@[::1]/d":                         {"::1", "d", "u", 5432, "disable", ""},
	} {
		if got, err := readURL(url); err != nil || got != want {
			t.Errorf("%s: %+v %v; want no error, got = %v", url, got, err, want)
		}
	}
	for url, want := range map[string]string{
		"":                                "scheme",
		"sqlite:///x":                     "scheme",
		"postgres://u:geheim@h/d":         "password",
		"postgres://h/d":                  "no user",
		"postgres://u@h":                  "no database",
		"postgres://u@h/d/e":              "no database",
		"postgres://u@/d":                 "no host",
		"postgres://u@a,b/d":              "no host",
		"postgres://u@h:0/d":              "port",
		"postgres://u@h/d?sslmode=prefer": "three settings",
		"postgres://u@h/d?sslmode=disable&sslmode=require": "twice",
		"postgres://u@h/d?sslrootcert=ca.pem":              "three settings",
		"postgres://u@h/d?host=/other":                     "three settings",
		"postgres://u@h/d?passfile=/x":                     "three settings",
		"postgres://u@h/d#x":                               "no host",
		"postgres://u@h/" + strings.Repeat("d", 3000):      "cannot be read",
	} {
		err := CheckURL(url)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf(`%.60s: %v, not %s; want an error, err.Error() with %v, err.Error() without "geheim"`, url, err, want, want)
		}
	}
	for _, p := range []Postgres{{URL: "mysql://x"}, {URL: "postgres://u@h/d?sslrootcert=/no/such/file"}} {
		if _, err := OpenPostgres(t.Context(), p); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%s: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", p.URL, err)
		}
	}
}
