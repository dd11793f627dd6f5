package checkup

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/store"
)

func TestTheClockIsComparedWithTheLastWholeRecord(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	record := func(at time.Time) string { return `{"timestamp":"` + at.Format(time.RFC3339) + `"}` + "\n" }
	past, future := record(now.Add(-time.Hour)), record(now.Add(time.Hour))
	for name, c := range map[string]struct {
		segments []string
		ok       bool
		says     string
	}{
		"nothing":                       {nil, true, "nothing to compare"},
		"an empty log":                  {[]string{""}, true, "nothing to compare"},
		"later than the last":           {[]string{future, future + past}, true, "later than the last"},
		"gone back":                     {[]string{past, past + future}, false, "1h0m0s from now"},
		"gone back, a torn line behind": {[]string{past + future + `{"timest`}, false, "1h0m0s from now"},
		"gone back, a long torn line":   {[]string{past + future + strings.Repeat("x", audit.MaxLine)}, false, "1h0m0s from now"},
		"gone back, an empty segment":   {[]string{future, ""}, false, "1h0m0s from now"},
		"gone back, a torn segment":     {[]string{future, `{"ti`}, false, "1h0m0s from now"},
		"no JSON":                       {[]string{past, "none\n"}, true, "unknown"},
		"no time":                       {[]string{past, "{}\n"}, true, "unknown"},
		"a line without an end":         {[]string{strings.Repeat("x", 3*audit.MaxLine)}, true, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			if err := os.Mkdir(filepath.Join(home, "audit"), 0o700); err != nil {
				t.Fatal(err)
			}
			for i, text := range c.segments {
				if err := os.WriteFile(filepath.Join(home, "audit", "audit-0000000"+string(rune('1'+i))+".jsonl"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got := Config{Home: home, Now: now}.clock()
			if got.OK != c.ok || got.OK == (got.Remedy != "") || !strings.Contains(got.Detail, c.says) {
				t.Errorf(`%+v; want got.OK = %v, got.OK other than (got.Remedy != ""), got.Detail with %v`, got, c.ok, c.says)
			}
		})
	}
}

// A database that takes too long is not called damaged, with a server or without.
func TestADatabaseTooLargeToLookThroughIsNoFault(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	home := t.TempDir()
	db, err := store.Open(t.Context(), filepath.Join(home, "state", "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	look := func(ctx context.Context) error {
		return db.SQL().QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(new(sql.NullString))
	}
	if c := Database(over, look); !c.OK || !strings.Contains(c.Detail, "junctor backup") {
		t.Errorf(`%+v; want c.OK = true, c.Detail with "junctor backup"`, c)
	}
	if c := (Config{Home: home}).database(over); !c.OK || !strings.Contains(c.Detail, "junctor backup") {
		t.Errorf(`%+v; want c.OK = true, c.Detail with "junctor backup"`, c)
	}
	if c := Database(t.Context(), look); !c.OK || c.Detail != "answers" {
		t.Errorf(`%+v; want c.OK = true, c.Detail = "answers"`, c)
	}
	if c := Database(t.Context(), func(context.Context) error { return errors.New("page 7 is not a page") }); c.OK || c.Remedy == "" ||
		!strings.Contains(c.Detail, "page 7") {
		t.Errorf(`%+v; want c.OK = false, c.Remedy other than "", c.Detail with "page 7"`, c)
	}
}
