// Package upstreamsql implements [upstream.Store] in SQL: it stores upstreams and the pins
// of their definitions in the server's database, which several gateways may share.
package upstreamsql

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"fmt"
	"time"

	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

//go:embed migrations/*.sql migrations/postgres/*.sql
var migrations embed.FS

// Tables returns the package's tables, which must run before a Store is used.
func Tables() store.Tables { return store.Tables{Owner: "upstream", Files: migrations} }

// Database is the part of [store.DB] that a Store uses.
type Database interface {
	SQL() *sql.DB
	// InTx runs f in a transaction that locks key from its beginning. f may run more than once.
	InTx(ctx context.Context, key string, f func(*sql.Tx) error) error
}

// Store implements [upstream.Store].
type Store struct{ db Database }

// New returns a store in db. The caller closes db.
func New(db Database) *Store { return &Store{db} }

// sortable is a time format whose texts sort by time.
const sortable = "2006-01-02T15:04:05.000000000Z07:00"

// Save implements [upstream.Store].
func (s *Store) Save(ctx context.Context, u upstream.Saved) error {
	doc, err := json.Marshal(u.Record)
	if err != nil {
		return err
	}
	return s.tx(ctx, u.Record.Name, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO upstreams (name, doc, added) VALUES (?, ?, ?)
			ON CONFLICT (name) DO UPDATE SET doc = excluded.doc, added = excluded.added`, u.Record.Name, string(doc), u.Added.UTC().Format(sortable))
		if err == nil {
			_, err = tx.ExecContext(ctx, `DELETE FROM upstream_pins WHERE upstream = ?`, u.Record.Name)
		}
		if err != nil {
			return err
		}
		return savePins(ctx, tx, u.Record.Name, u.Pins)
	})
}

// SavePins implements [upstream.Store].
func (s *Store) SavePins(ctx context.Context, upstream string, save, forget []ingest.Pin) error {
	if len(save)+len(forget) == 0 {
		return nil
	}
	return s.tx(ctx, upstream, func(tx *sql.Tx) error {
		var one int
		err := tx.QueryRowContext(ctx, `SELECT 1 FROM upstreams WHERE name = ?`, upstream).Scan(&one)
		if err == sql.ErrNoRows { //nolint:errorlint // Scan returns it unwrapped
			return nil
		}
		for _, p := range forget {
			if err == nil {
				_, err = tx.ExecContext(ctx, `DELETE FROM upstream_pins WHERE upstream = ? AND kind = ? AND name = ?`, upstream, string(p.Kind), p.Name)
			}
		}
		if err != nil {
			return err
		}
		return savePins(ctx, tx, upstream, save)
	})
}

func savePins(ctx context.Context, tx *sql.Tx, upstream string, pins []ingest.Pin) error {
	for _, p := range pins {
		listed := 0
		if p.Listed {
			listed = 1
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO upstream_pins (upstream, kind, name, state, pin, definition, offered, offered_definition, listed, seen)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (upstream, kind, name) DO UPDATE SET state = excluded.state, pin = excluded.pin, definition = excluded.definition,
				offered = excluded.offered, offered_definition = excluded.offered_definition, listed = excluded.listed, seen = excluded.seen`,
			upstream, string(p.Kind), p.Name, string(p.State), p.Pin, string(p.Definition), p.Offered, string(p.OfferedDefinition), listed,
			p.Seen.UTC().Format(sortable))
		if err != nil {
			return err
		}
	}
	return nil
}

// Upstreams implements [upstream.Store], in the order of their names.
func (s *Store) Upstreams(ctx context.Context) ([]upstream.Saved, error) {
	pins, err := s.pins(ctx)
	if err != nil {
		return nil, fmt.Errorf("read pins: %w", err)
	}
	rows, err := s.db.SQL().QueryContext(ctx, `SELECT name, doc, added FROM upstreams ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("read upstreams: %w", err)
	}
	defer rows.Close()
	var out []upstream.Saved
	for rows.Next() {
		var name, doc, added string
		if err := rows.Scan(&name, &doc, &added); err != nil {
			return nil, err
		}
		u := upstream.Saved{Pins: pins[name]}
		u.Added, _ = time.Parse(sortable, added)
		err := json.Unmarshal([]byte(doc), &u.Record)
		if err == nil && u.Record.Name != name {
			err = fmt.Errorf("it is the record of %q", u.Record.Name)
		}
		if err != nil { // a damaged record must neither hide the others nor count as unrestricted
			u.Record, u.Damaged = record.Record{Name: name, Disabled: true}, err.Error()
		}
		out = append(out, u)
	}
	return out, rows.Err()
}

func (s *Store) pins(ctx context.Context) (map[string][]ingest.Pin, error) {
	rows, err := s.db.SQL().QueryContext(ctx, `SELECT upstream, kind, name, state, pin, definition, offered, offered_definition, listed, seen FROM upstream_pins`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := make(map[string][]ingest.Pin)
	for rows.Next() {
		var upstream, kind, state, definition, offered, seen string
		var p ingest.Pin
		var listed int
		if err := rows.Scan(&upstream, &kind, &p.Name, &state, &p.Pin, &definition, &p.Offered, &offered, &listed, &seen); err != nil {
			return nil, err
		}
		p.Kind, p.State, p.Definition, p.Listed = ingest.Kind(kind), ingest.PinState(state), json.RawMessage(definition), listed == 1
		if offered != "" {
			p.OfferedDefinition = json.RawMessage(offered)
		}
		p.Seen, _ = time.Parse(sortable, seen)
		out[upstream] = append(out[upstream], p)
	}
	return out, rows.Err()
}

// Delete implements [upstream.Store].
func (s *Store) Delete(ctx context.Context, name string) error {
	return s.tx(ctx, name, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM upstream_pins WHERE upstream = ?`, name)
		if err == nil {
			_, err = tx.ExecContext(ctx, `DELETE FROM upstreams WHERE name = ?`, name)
		}
		return err
	})
}

func (s *Store) tx(ctx context.Context, upstream string, f func(*sql.Tx) error) error {
	if err := s.db.InTx(ctx, "upstream "+upstream, f); err != nil {
		return fmt.Errorf("save upstream %s: %w", upstream, err)
	}
	return nil
}
