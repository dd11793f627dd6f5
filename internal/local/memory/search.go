package memory

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// search implements memory.search: it finds the items that contain at least one word of the
// query, the best first. The index selects candidates by how rare their words are among the
// items that the caller can see; the scores are computed from the candidates' texts alone.
// Neither reveals anything about other items, and both are the same on every machine.
func (m *memory) search(ctx context.Context, by caller, input json.RawMessage) (any, error) {
	const op = "memory.search"
	var p struct {
		Query  string                     `json:"query"`
		Limit  *float64                   `json:"limit"`
		Filter map[string]json.RawMessage `json:"filter"`
	}
	if err := decode(op, input, &p); err != nil {
		return nil, err
	}
	limit := defaultLimit
	if p.Limit != nil {
		if *p.Limit < 1 || *p.Limit != math.Trunc(*p.Limit) {
			return nil, invalid(op, "the limit is a whole number of at least 1")
		}
		limit = int(min(*p.Limit, MaxLimit))
	}
	if len(p.Query) > maxQuery {
		return nil, invalid(op, "the query has %d bytes; the limit is %d", len(p.Query), maxQuery)
	}
	var tags []string
	for name, value := range p.Filter {
		if name != "tags" {
			return nil, invalid(op, "the filter knows tags, not %q", short(name))
		}
		if err := decode(op, value, &tags); err != nil {
			return nil, err
		}
	}
	tags, err := checkTags(op, tags)
	if err != nil {
		return nil, err
	}
	terms := queryTerms(p.Query)
	items := []item{}
	if len(terms) > 0 {
		if items, err = m.candidates(ctx, by, tags, terms, max(minCandidates, 2*limit)); err != nil {
			return nil, err
		}
	}
	rank(items, terms)
	if len(items) > limit {
		items = items[:limit]
	}
	return map[string][]item{"items": items}, nil
}

// queryTerms returns the first maxTerms distinct words of a query.
func queryTerms(query string) []string {
	var out []string
	for _, w := range words(query) {
		if !slices.Contains(out, w) {
			if out = append(out, w); len(out) == maxTerms {
				break
			}
		}
	}
	return out
}

// match returns the query of the SQLite index for the items that the caller can see, with all
// of the tags and, unless term is "", that word. It needs no escaping, because its words have
// the form that words and mark produce.
func match(by caller, tags []string, term string) string {
	var b strings.Builder
	b.WriteString(`workspace : ("` + strings.Join(hashed("w", by.places()), `" OR "`) + `")`)
	for _, tag := range tags {
		b.WriteString(` AND tags : "` + mark("t", tag) + `"`)
	}
	if term != "" {
		b.WriteString(` AND words : "` + term + `"`)
	}
	return b.String()
}

// lexemes returns the same query for Postgres.
func lexemes(by caller, tags []string, term string) string {
	var b strings.Builder
	b.WriteString(`('` + strings.Join(hashed("w:", by.places()), `' | '`) + `')`)
	for _, tag := range tags {
		b.WriteString(` & '` + mark("t:", tag) + `'`)
	}
	if term != "" {
		b.WriteString(` & '` + term + `'`)
	}
	return b.String()
}

// index adds the item stored as row to the full-text index. place is one of [caller.places].
func (m *memory) index(ctx context.Context, tx *sql.Tx, row int64, place string, tags, words []string) error {
	if m.cfg.DB.Shared() {
		all := []string{mark("w:", place)}
		for _, tag := range tags {
			all = append(all, mark("t:", tag))
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO memory_index (rowid, words) VALUES (?, array_to_tsvector(string_to_array(?, ' ')))`,
			row, strings.Join(append(all, words...), " "))
		return err
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO memory_index (rowid, workspace, tags, words) VALUES (?, ?, ?, ?)`,
		row, mark("w", place), strings.Join(hashed("t", tags), " "), strings.Join(words, " "))
	return err
}

// candidates returns at most most items that match: those with the rarest words, the newest
// first where these are equal.
func (m *memory) candidates(ctx context.Context, by caller, tags, terms []string, most int) ([]item, error) {
	matching, query := `memory_index MATCH ?`, match
	if m.cfg.DB.Shared() {
		matching, query = `words @@ CAST(CAST(? AS text) AS tsquery)`, lexemes
	}
	count := func(term string) (n float64, err error) {
		err = m.cfg.DB.SQL().QueryRowContext(ctx, `SELECT count(*) FROM memory_index WHERE `+matching, query(by, tags, term)).Scan(&n)
		return n, err
	}
	all, err := count("")
	if err != nil {
		return nil, err
	}
	var parts []string
	var args []any
	for _, term := range terms {
		n, err := count(term)
		if err != nil {
			return nil, err
		}
		if n > 0 { // the weight is an integer, so that sums do not depend on the order
			parts = append(parts, `SELECT rowid AS r, CAST(? AS BIGINT) AS weight FROM memory_index WHERE `+matching)
			args = append(args, int64(1e6*rarity(n, all)), query(by, tags, term))
		}
	}
	if len(parts) == 0 {
		return []item{}, nil
	}
	rows, err := m.cfg.DB.SQL().QueryContext(ctx, `SELECT i.id, i.text, i.tags, i.shared <> 0 FROM (
			SELECT r FROM (`+strings.Join(parts, ` UNION ALL `)+`) AS m GROUP BY r ORDER BY sum(weight) DESC, r DESC LIMIT ?
		) AS c JOIN memory_items i ON i.rowid = r WHERE `+visible, append(append(args, most), by.sees()...)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := []item{}
	for rows.Next() {
		var it item
		var tags string
		if err := rows.Scan(&it.ID, &it.Text, &tags, &it.Shared); err != nil {
			return nil, err
		}
		if err := jsonx.Unmarshal([]byte(tags), &it.Tags); err != nil {
			return nil, err
		}
		out = append(out, it)
	}
	return out, rows.Err()
}

// rarity returns the weight of a word that holders of all items contain.
func rarity(holders, all float64) float64 {
	return math.Log(1 + (max(all-holders, 0)+0.5)/(holders+0.5))
}

// rank sorts items by their BM25 score, computed over these items, the best first; items
// with equal scores are sorted by id.
func rank(items []item, terms []string) {
	const k1, b = 1.2, 0.75
	counts := make([]map[string]int, len(items))
	lengths := make([]float64, len(items))
	holders := make(map[string]float64)
	total := 0.0
	for i := range items {
		list := words(items[i].Text)
		counts[i] = make(map[string]int)
		for _, w := range list {
			if slices.Contains(terms, w) {
				if counts[i][w] == 0 {
					holders[w]++
				}
				counts[i][w]++
			}
		}
		lengths[i] = float64(len(list))
		total += lengths[i]
	}
	n := float64(len(items))
	for i := range items {
		score := 0.0
		for _, term := range terms { // in the order of the query, because sums of floats depend on the order
			tf := float64(counts[i][term])
			score += rarity(holders[term], n) * tf * (k1 + 1) / (tf + k1*(1-b+b*lengths[i]*n/max(total, 1)))
		}
		score = math.Round(score*1e6) / 1e6
		items[i].Score = &score
	}
	slices.SortFunc(items, func(x, y item) int { return cmp.Or(cmp.Compare(*y.Score, *x.Score), cmp.Compare(x.ID, y.ID)) })
}
