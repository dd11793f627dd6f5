// Package memory implements memory.search, memory.store, memory.get and memory.forget: the
// built-in memory, a full-text store in the server's database, separate for each workspace and
// principal. Gateways that share a Postgres database share their memories.
//
// An item belongs to the principal that stored it and is visible only to it, unless it was
// stored as shared; then it is visible in its whole workspace. Results contain only items that
// the caller can see, and the choice and order of them is computed from these items alone, so
// that results, scores and counts reveal nothing about what others store.
package memory

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/store"
)

//go:embed migrations/*.sql migrations/postgres/*.sql
var migrations embed.FS

// Tables returns the package's tables, which must be applied before the [Functions] are called.
func Tables() store.Tables { return store.Tables{Owner: "memory", Files: migrations} }

// Kind is the kind of the functions' contributions in the catalog. A host function cannot
// declare it, nor the Claim, itself.
const Kind = "capability.memory"

// Claim returns the claim of the functions on the slot "memory" as its default provider
// "builtin"; the provider key is therefore memory:builtin:default.
func Claim() capability.Arbitration {
	return capability.Arbitration{Slot: "memory", SelectorID: "builtin"}
}

// Database is the part of [store.DB] that the memory uses.
type Database interface {
	SQL() *sql.DB
	// Shared reports whether the database is Postgres, not a SQLite file.
	Shared() bool
	// InTx runs f in a transaction that excludes others with the same key from its
	// beginning; f may run more than once.
	InTx(ctx context.Context, key string, f func(*sql.Tx) error) error
}

// Config configures Functions.
type Config struct {
	// DB is the server's database; nil makes the functions unavailable.
	DB Database
	// Workspace returns the workspace of a call; calls for which it returns "" are refused.
	// If nil, each principal has a workspace of its own.
	Workspace func(ctx context.Context, c capability.Call) string
	// Limit is the highest number of items of one principal in a workspace; 0 means [MaxItems].
	Limit int
	// Now returns the time; nil means [time.Now].
	Now func() time.Time
}

// Functions returns the functions of the family, to be registered on a host.
func Functions(cfg Config) []host.Function {
	m := &memory{cfg: cfg}
	if m.cfg.Workspace == nil {
		m.cfg.Workspace = func(_ context.Context, c capability.Call) string { return c.Principal.ID }
	}
	if m.cfg.Limit <= 0 {
		m.cfg.Limit = MaxItems
	}
	if m.cfg.Now == nil {
		m.cfg.Now = time.Now
	}
	unavailable := ""
	if cfg.DB == nil {
		unavailable = "this server has no database"
	}
	function := func(id capability.Action, effect capability.Effect, permission string,
		handle func(context.Context, caller, json.RawMessage) (any, error),
	) host.Function {
		return host.Function{
			ID: string(id), Action: id, Effect: effect, Permissions: []string{permission}, Timeout: handleTimeout, Unavailable: unavailable,
			Handle: func(ctx context.Context, c capability.Call) (capability.Result, error) {
				workspace := m.cfg.Workspace(ctx, c)
				if workspace == "" || c.Principal.ID == "" {
					return capability.Result{}, capability.Errorf(capability.CodeInvalidInput, string(id),
						"the call has no workspace or no principal, so it cannot use memories")
				}
				value, err := handle(ctx, callerOf(workspace, c.Principal), c.Input)
				if err != nil {
					return capability.Result{}, explain(ctx, string(id), err)
				}
				data, err := jsonx.Marshal(value)
				if err != nil {
					return capability.Result{}, capability.Wrap(capability.CodeFailed, string(id), "the result cannot be written as JSON", err)
				}
				return capability.Result{Value: data}, nil
			},
		}
	}
	return []host.Function{
		function("memory.forget", capability.EffectWrite, "db.write", m.forget),
		function("memory.get", capability.EffectRead, "db.read", m.get),
		function("memory.search", capability.EffectRead, "db.read", m.search),
		function("memory.store", capability.EffectWrite, "db.write", m.store),
	}
}

// explain returns err if it has a code, ctx's error if ctx ended, and else an error failed
// whose message omits the database's text.
func explain(ctx context.Context, op string, err error) error {
	if _, ok := errors.AsType[*capability.Error](err); ok {
		return err
	}
	if ctx.Err() != nil {
		return capability.AsError(ctx.Err())
	}
	return capability.Wrap(capability.CodeFailed, op, "the memory cannot be read or written", err)
}

type memory struct{ cfg Config }

// item is one memory in a result.
type item struct {
	ID    string   `json:"id"`
	Text  string   `json:"text"`
	Score *float64 `json:"score,omitempty"`
	Tags  []string `json:"tags,omitempty"`
	// Shared is true if the item is visible in the whole workspace.
	Shared bool `json:"shared,omitempty"`
}

func invalid(op, format string, args ...any) error {
	return capability.Errorf(capability.CodeInvalidInput, op, format, args...).With("invalid_args", "")
}

func decode(op string, input json.RawMessage, params any) error {
	if err := jsonx.Unmarshal(input, params); err != nil {
		return invalid(op, "the input does not fit: %v", err)
	}
	return nil
}

// store implements memory.store: it adds an item of the caller and its index. Errors:
// invalid_input for a blank text or bad tags; too_large, reason text_too_large, or
// memory_full if the caller has reached its limit.
func (m *memory) store(ctx context.Context, by caller, input json.RawMessage) (any, error) {
	const op = "memory.store"
	var p struct {
		Text   string   `json:"text"`
		Tags   []string `json:"tags"`
		Shared bool     `json:"shared"`
	}
	if err := decode(op, input, &p); err != nil {
		return nil, err
	}
	if len(p.Text) > MaxText {
		return nil, capability.Errorf(capability.CodeTooLarge, op, "the text has %d bytes; the limit is %d", len(p.Text),
			MaxText).With("text_too_large", "store a summary, or several items")
	}
	if strings.TrimSpace(p.Text) == "" {
		return nil, invalid(op, "there is nothing in the text to remember")
	}
	tags, err := checkTags(op, p.Tags)
	if err != nil {
		return nil, err
	}
	doc, err := jsonx.Marshal(tags)
	if err != nil {
		return nil, err
	}
	id := ids.Hex("mem_", 16)
	err = m.cfg.DB.InTx(ctx, "memory "+by.workspace, func(tx *sql.Tx) error {
		// One statement checks and increments the count, so that concurrent callers cannot exceed it.
		res, err := tx.ExecContext(ctx, `INSERT INTO memory_owners (workspace, owner, items) VALUES (?, ?, 1)
			ON CONFLICT (workspace, owner) DO UPDATE SET items = memory_owners.items + 1 WHERE memory_owners.items < ?`,
			by.workspace, by.id, m.cfg.Limit)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return cmpErr(err, capability.Errorf(capability.CodeTooLarge, op,
				"you have %d memories in this workspace, which is the limit", m.cfg.Limit).With("memory_full", "forget some that are no longer needed"))
		}
		var row int64
		err = tx.QueryRowContext(ctx, `INSERT INTO memory_items (id, workspace, owner, shared, text, tags, created)
			VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING rowid`,
			id, by.workspace, by.id, bit(p.Shared), p.Text, string(doc), m.cfg.Now().UnixNano()).Scan(&row)
		if err != nil {
			return err
		}
		return m.index(ctx, tx, row, by.place(p.Shared), tags, words(p.Text))
	})
	if err != nil {
		return nil, err
	}
	return map[string]string{"id": id}, nil
}

func cmpErr(err error, otherwise *capability.Error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// checkTags returns the tags trimmed and sorted. Error: invalid_input.
func checkTags(op string, tags []string) ([]string, error) {
	out := make([]string, 0, len(tags))
	for _, tag := range tags {
		tag = strings.TrimSpace(tag)
		if tag == "" || len(tag) > maxTag {
			return nil, invalid(op, "a tag has 1 to %d bytes", maxTag)
		}
		out = append(out, tag)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) > maxTags {
		return nil, invalid(op, "at most %d tags", maxTags)
	}
	return out, nil
}

// get implements memory.get. Error: not_found, reason memory_not_found, also for an item of
// another workspace or principal.
func (m *memory) get(ctx context.Context, by caller, input json.RawMessage) (any, error) {
	const op = "memory.get"
	id, err := idOf(op, input)
	if err != nil {
		return nil, err
	}
	var it item
	var tags string
	err = m.cfg.DB.SQL().QueryRowContext(ctx, `SELECT id, text, tags, shared <> 0 FROM memory_items i WHERE id = ? AND `+visible,
		append([]any{id}, by.sees()...)...).Scan(&it.ID, &it.Text, &tags, &it.Shared)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, capability.Errorf(capability.CodeNotFound, op, "there is no memory %q", short(id)).With("memory_not_found",
			"find its id with memory.search")
	}
	if err == nil {
		err = jsonx.Unmarshal([]byte(tags), &it.Tags)
	}
	if err != nil {
		return nil, err
	}
	return map[string]item{"item": it}, nil
}

// forget implements memory.forget: it deletes an item of the caller or, for an operator, one
// that is shared. For an item that does not exist for the caller, the result is ok: false,
// not an error. Error: denied, reason memory_of_another, for a shared item of another.
func (m *memory) forget(ctx context.Context, by caller, input json.RawMessage) (any, error) {
	const op = "memory.forget"
	id, err := idOf(op, input)
	if err != nil {
		return nil, err
	}
	ok := false
	err = m.cfg.DB.InTx(ctx, "memory "+by.workspace, func(tx *sql.Tx) error {
		var row int64
		var owner string
		ok = false
		err := tx.QueryRowContext(ctx, `SELECT rowid, owner FROM memory_items i WHERE id = ? AND `+visible,
			append([]any{id}, by.sees()...)...).Scan(&row, &owner)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if owner != by.id && !by.operator {
			return capability.Errorf(capability.CodeDenied, op, "another principal stored the memory %q", short(id)).With("memory_of_another",
				"only the principal that stored it, or an operator, can forget it")
		}
		res, err := tx.ExecContext(ctx, `DELETE FROM memory_items WHERE rowid = ?`, row)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err // a concurrent call has deleted it
		}
		ok = true
		if _, err := tx.ExecContext(ctx, `DELETE FROM memory_index WHERE rowid = ?`, row); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE memory_owners SET items = items - 1 WHERE workspace = ? AND owner = ?`, by.workspace, owner)
		return err
	})
	if err != nil {
		return nil, err
	}
	return map[string]bool{"ok": ok}, nil
}

// idOf returns the id in the input. Error: invalid_input if it is missing.
func idOf(op string, input json.RawMessage) (string, error) {
	var p struct {
		ID string `json:"id"`
	}
	if err := decode(op, input, &p); err != nil {
		return "", err
	}
	if p.ID == "" {
		return "", invalid(op, "the id of a memory is needed")
	}
	return p.ID, nil
}

func short(s string) string {
	if len(s) <= maxShort {
		return s
	}
	return text.CutBytes(s, maxShort) + "…"
}
