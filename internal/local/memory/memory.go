// Package memory carries memory.search, memory.store, memory.get and
// memory.forget: the built-in memory, which is full text in the server's own
// database, apart for each workspace. Gateways that share a Postgres database
// share their memories.
//
// What is found, and in which order, follows from the items of the caller's own
// workspace alone: neither scores nor counts tell anything of another's.
package memory

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

//go:embed migrations/*.sql migrations/postgres/*.sql
var migrations embed.FS

// Owner names the package's tables for [store.DB.Migrate].
const Owner = "memory"

// Migrations are the package's tables, to be brought up to date before
// [Functions] are called.
func Migrations() (fs.FS, error) { return fs.Sub(migrations, "migrations") }

// Kind and Claim are what the functions are in the catalog: contributions of this
// kind that claim the slot "memory" as its default provider "builtin". A host
// function cannot say so itself.
const Kind = "capability.memory"

// Claim is the claim on the slot; the provider key follows from it as
// memory:builtin:default.
func Claim() capability.Arbitration {
	return capability.Arbitration{Slot: "memory", SelectorID: "builtin"}
}

// Limits.
const (
	MaxText       = 64 << 10 // bytes of an item
	MaxItems      = 100_000  // of a workspace
	MaxLimit      = 100      // items of one answer; more may be asked for, not had
	defaultLimit  = 10
	maxTags       = 16
	maxTag        = 64 // bytes
	maxQuery      = 4 << 10
	handleTimeout = 30 * time.Second
)

// Database is what the memory needs of [store.DB].
type Database interface {
	SQL() *sql.DB
	// Shared reports that it is Postgres, not a SQLite file.
	Shared() bool
	// InTx runs f in a transaction that holds from its beginning what key names; f
	// may run more than once.
	InTx(ctx context.Context, key string, f func(*sql.Tx) error) error
}

// Config states where memories are kept and whose they are.
type Config struct {
	// DB is the server's database; nil makes the functions unavailable.
	DB Database
	// Workspace states whose memory a call is about. nil takes the principal's own.
	// An empty answer is refused.
	Workspace func(ctx context.Context, c capability.Call) string
	// Limit bounds the items of a workspace; 0 is [MaxItems].
	Limit int
	// Now is the clock; nil is [time.Now].
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
		handle func(context.Context, string, json.RawMessage) (any, error),
	) host.Function {
		return host.Function{
			ID: string(id), Action: id, Effect: effect, Permissions: []string{permission}, Timeout: handleTimeout, Unavailable: unavailable,
			Handle: func(ctx context.Context, c capability.Call) (capability.Result, error) {
				workspace := m.cfg.Workspace(ctx, c)
				if workspace == "" {
					return capability.Result{}, capability.Errorf(capability.CodeInvalidInput, string(id),
						"the call belongs to no workspace, so there is no memory for it")
				}
				value, err := handle(ctx, workspace, c.Input)
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

// explain gives an error of the database a code; its text stays inside.
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

// item is one memory on the wire.
type item struct {
	ID    string   `json:"id"`
	Text  string   `json:"text"`
	Score *float64 `json:"score,omitempty"`
	Tags  []string `json:"tags,omitempty"`
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

func (m *memory) store(ctx context.Context, workspace string, input json.RawMessage) (any, error) {
	const op = "memory.store"
	var p struct {
		Text string   `json:"text"`
		Tags []string `json:"tags"`
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
	err = m.cfg.DB.InTx(ctx, "memory "+workspace, func(tx *sql.Tx) error {
		// Counted by the statement that admits it, so that no two callers share the last place.
		res, err := tx.ExecContext(ctx, `INSERT INTO memory_workspaces (workspace, items) VALUES (?, 1)
			ON CONFLICT (workspace) DO UPDATE SET items = memory_workspaces.items + 1 WHERE memory_workspaces.items < ?`, workspace, m.cfg.Limit)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return cmpErr(err, capability.Errorf(capability.CodeTooLarge, op, "the workspace holds %d memories, which is the limit", m.cfg.Limit).
				With("memory_full", "forget some that are no longer needed"))
		}
		var row int64
		err = tx.QueryRowContext(ctx, `INSERT INTO memory_items (id, workspace, text, tags, created) VALUES (?, ?, ?, ?, ?) RETURNING rowid`,
			id, workspace, p.Text, string(doc), m.cfg.Now().UnixNano()).Scan(&row)
		if err != nil {
			return err
		}
		return m.index(ctx, tx, row, workspace, tags, words(p.Text))
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

// checkTags trims and sorts tags.
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

func (m *memory) get(ctx context.Context, workspace string, input json.RawMessage) (any, error) {
	const op = "memory.get"
	id, err := idOf(op, input)
	if err != nil {
		return nil, err
	}
	var it item
	var tags string
	err = m.cfg.DB.SQL().QueryRowContext(ctx, `SELECT id, text, tags FROM memory_items WHERE id = ? AND workspace = ?`, id,
		workspace).Scan(&it.ID, &it.Text, &tags)
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

// forget answers ok: false for a memory that is not there; asking twice is no
// mistake.
func (m *memory) forget(ctx context.Context, workspace string, input json.RawMessage) (any, error) {
	const op = "memory.forget"
	id, err := idOf(op, input)
	if err != nil {
		return nil, err
	}
	ok := false
	err = m.cfg.DB.InTx(ctx, "memory "+workspace, func(tx *sql.Tx) error {
		var row int64
		ok = false
		err := tx.QueryRowContext(ctx, `DELETE FROM memory_items WHERE id = ? AND workspace = ? RETURNING rowid`, id, workspace).Scan(&row)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		ok = true
		if _, err := tx.ExecContext(ctx, `DELETE FROM memory_index WHERE rowid = ?`, row); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE memory_workspaces SET items = items - 1 WHERE workspace = ?`, workspace)
		return err
	})
	if err != nil {
		return nil, err
	}
	return map[string]bool{"ok": ok}, nil
}

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
	const most = 64
	if len(s) <= most {
		return s
	}
	return text.CutBytes(s, most) + "…"
}
