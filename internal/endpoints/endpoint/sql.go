package endpoint

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
)

// SQLStore is Store on the server's database; its table is made by the store's
// migrations.
type SQLStore struct{ db *sql.DB }

// sortable is a time whose text sorts as the time does: every digit is written.
const sortable = "2006-01-02T15:04:05.000000000Z07:00"

// NewSQLStore uses db, which stays the caller's.
func NewSQLStore(db *sql.DB) *SQLStore { return &SQLStore{db} }

// SaveEndpoint adds or replaces.
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

// SaveOffer replaces the document of the same connect.
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

// Endpoints returns all, in the order they were connected.
func (s *SQLStore) Endpoints(ctx context.Context) ([]Saved, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT id, doc FROM endpoints ORDER BY connected, id`)
	if err != nil {
		return nil, fmt.Errorf("read endpoints: %w", err)
	}
	defer rows.Close()
	var out []Saved
	for rows.Next() {
		var id, doc string
		if err := rows.Scan(&id, &doc); err != nil {
			return nil, err
		}
		out = append(out, readSaved(id, []byte(doc)))
	}
	return out, rows.Err()
}

// readSaved reads one record. Of a damaged one it takes what is needed to list
// the endpoint; neither may it hide the others, nor its own restrictions be
// taken for absent.
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
	_ = json.Unmarshal(doc, &rest) // what is left of it
	return Saved{ID: id, BaseURL: rest.BaseURL, Provider: rest.Provider, TokenName: rest.TokenName, Damaged: err.Error()}
}

// DeleteEndpoint forgets one; an absent one is not an error.
func (s *SQLStore) DeleteEndpoint(ctx context.Context, id string) error {
	_, err := s.db.ExecContext(ctx, `DELETE FROM endpoints WHERE id = ?`, id)
	return err
}
