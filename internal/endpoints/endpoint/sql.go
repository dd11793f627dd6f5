package endpoint

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/junctor-run/junctor/internal/store"
)

// SQLStore implements Store on the server's database, whose migrations create its table.
type SQLStore struct{ db *sql.DB }

// sortable is a time format with all digits, whose texts sort in order of time.
const sortable = "2006-01-02T15:04:05.000000000Z07:00"

// NewSQLStore returns a store on db, which the caller continues to own.
func NewSQLStore(db *sql.DB) *SQLStore { return &SQLStore{db} }

// SaveEndpoint inserts or replaces the record of e.ID.
func (s *SQLStore) SaveEndpoint(ctx context.Context, e Saved) error {
	doc, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = s.db.ExecContext(ctx, `INSERT INTO endpoints (id, doc, connected) VALUES (?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET doc = excluded.doc, connected = excluded.connected`,
		e.ID, string(doc), e.Connected.UTC().Format(sortable))
	if err != nil {
		return fmt.Errorf("save endpoint %s: %w", e.ID, err)
	}
	return nil
}

// SaveOffer implements Store.
func (s *SQLStore) SaveOffer(ctx context.Context, e Saved) error {
	doc, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = s.db.ExecContext(ctx, `UPDATE endpoints SET doc = ? WHERE id = ? AND connected = ?`, string(doc), e.ID,
		e.Connected.UTC().Format(sortable))
	if err != nil {
		return fmt.Errorf("save what endpoint %s offers: %w", e.ID, err)
	}
	return nil
}

// Endpoints returns all endpoints in the order in which they were connected.
func (s *SQLStore) Endpoints(ctx context.Context) ([]Saved, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT id, doc FROM endpoints ORDER BY connected, id`)
	list, err := store.Collect(rows, err, func(row store.Scanner) (Saved, error) {
		var id, doc string
		err := row.Scan(&id, &doc)
		return readSaved(id, []byte(doc)), err
	})
	if err != nil {
		return nil, fmt.Errorf("read endpoints: %w", err)
	}
	return list, nil
}

// readSaved decodes one record. For a damaged record it returns the data needed to list
// the endpoint and sets Damaged, so that its restrictions are not taken for absent.
func readSaved(id string, doc []byte) Saved {
	var e Saved
	err := json.Unmarshal(doc, &e)
	if err == nil {
		return e
	}
	var rest struct {
		BaseURL   string `json:"base_url"`
		Provider  string `json:"provider"`
		TokenName string `json:"token_name"`
	}
	_ = json.Unmarshal(doc, &rest) // the members that can be read
	return Saved{ID: id, BaseURL: rest.BaseURL, Provider: rest.Provider, TokenName: rest.TokenName, Damaged: err.Error()}
}

// DeleteEndpoint deletes the record of an endpoint. A missing one is not an error.
func (s *SQLStore) DeleteEndpoint(ctx context.Context, id string) error {
	_, err := s.db.ExecContext(ctx, `DELETE FROM endpoints WHERE id = ?`, id)
	return err
}
