package lifecycle

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/store"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Tables returns the package's tables, which must run before a Registry is used.
func Tables() store.Tables { return store.Tables{Owner: "extensions", Files: migrations} }

// Status is the state of an installed extension.
type Status string

// The states of an extension.
const (
	Installed   Status = "INSTALLED"
	Installing  Status = "INSTALLING"
	FailedState Status = "FAILED"
	Uninstalled Status = "UNINSTALLED"
)

// Extension is one row of the registry.
type Extension struct {
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Version      string          `json:"version"`
	Description  string          `json:"description,omitempty"`
	Icon         string          `json:"icon_path,omitempty"`
	InstalledAt  time.Time       `json:"installed_at"`
	Enabled      bool            `json:"enabled"`
	Status       Status          `json:"status"`
	SHA256       string          `json:"sha256"` // of the archive; of a folder, its tree hash
	Source       string          `json:"source"` // upload, url or folder
	SourceURL    string          `json:"source_url,omitempty"`
	Permissions  []string        `json:"permissions_required"`
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
	Metadata     Metadata        `json:"metadata"`
	TreeHash     string          `json:"tree_hash"`
	Consent      json.RawMessage `json:"consent,omitempty"` // package consent's Given
	AgentVisible []string        `json:"agent_visible,omitempty"`
	Generation   int64           `json:"generation"` // of the registry when the row last changed
}

// Metadata is information for display only.
type Metadata struct {
	Author    string   `json:"author,omitempty"`
	License   string   `json:"license,omitempty"`
	Platforms []string `json:"platforms,omitempty"`
}

// Operation is the kind of change that a record describes.
type Operation string

// The operations.
const (
	OpInstall   Operation = "install"
	OpUpgrade   Operation = "upgrade"
	OpUninstall Operation = "uninstall"
)

// Progress is the state of an install record.
type Progress string

// The states of a record.
const (
	Running      Progress = "INSTALLING"
	Completed    Progress = "COMPLETED"
	Failed       Progress = "FAILED"
	Uninstalling Progress = "UNINSTALLING"
)

// Record is one install, upgrade or removal.
type Record struct {
	ID         string    `json:"install_id"`
	Extension  string    `json:"extension_id,omitempty"` // known once the package is validated
	Operation  Operation `json:"operation"`
	Status     Progress  `json:"status"`
	Progress   int       `json:"progress"` // 0 to 100
	Step       string    `json:"current_step,omitempty"`
	Started    time.Time `json:"started_at"`
	Ended      time.Time `json:"ended_at,omitzero"`
	Error      string    `json:"error,omitempty"`
	Code       string    `json:"error_code,omitempty"` // the reason, lower_snake
	Hint       string    `json:"hint,omitempty"`
	FailedStep string    `json:"failed_step,omitempty"`
	Steps      []string  `json:"completed_steps"`
	WasEnabled bool      `json:"-"` // before the removal; an undo restores it
	KeepWork   bool      `json:"-"` // of a removal: keep the working folder
}

// Registry stores in SQL the installed extensions and the record of each install,
// upgrade and removal. A change of the catalog and the increase of the generation are
// one transaction. It is safe for concurrent use.
type Registry struct{ db *sql.DB }

// NewRegistry returns a registry in db, where [Tables] have run. The caller closes db.
func NewRegistry(db *sql.DB) *Registry { return &Registry{db} }

const extensionColumns = `id, name, version, description, icon_path, installed_at, enabled, status, sha256, source, source_url,
	permissions_required, capabilities, metadata, tree_hash, consent, agent_visible, generation`

func scanExtension(s store.Scanner) (x Extension, err error) {
	var at int64
	var permissions, capabilities, metadata, consent, visible string
	err = s.Scan(&x.ID, &x.Name, &x.Version, &x.Description, &x.Icon, &at, &x.Enabled, &x.Status, &x.SHA256, &x.Source, &x.SourceURL,
		&permissions, &capabilities, &metadata, &x.TreeHash, &consent, &visible, &x.Generation)
	if err != nil {
		return x, err
	}
	x.InstalledAt = instant(at)
	if consent != "" {
		x.Consent = json.RawMessage(consent)
	}
	x.Capabilities = json.RawMessage(capabilities)
	return x, errors.Join(jsonx.Unmarshal([]byte(permissions), &x.Permissions), jsonx.Unmarshal([]byte(metadata), &x.Metadata),
		jsonx.Unmarshal([]byte(visible), &x.AgentVisible))
}

func instant(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func jsonText(v any) string {
	data, err := jsonx.Marshal(v)
	if err != nil { // only text that is not UTF-8, which validation refuses
		return "null"
	}
	return string(data)
}

// All returns every row, ordered by id.
func (r *Registry) All(ctx context.Context) (list []Extension, err error) {
	rows, err := r.db.QueryContext(ctx, `SELECT `+extensionColumns+` FROM extensions ORDER BY id`)
	if list, err = store.Collect(rows, err, scanExtension); err != nil {
		return nil, fmt.Errorf("read extensions: %w", err)
	}
	return list, nil
}

// Get returns an extension by its id, ignoring case, or not_found, reason extension_not_found.
func (r *Registry) Get(ctx context.Context, id string) (Extension, error) {
	x, err := scanExtension(r.db.QueryRowContext(ctx, `SELECT `+extensionColumns+` FROM extensions WHERE folded = ?`, fold(id)))
	if errors.Is(err, sql.ErrNoRows) {
		return x, capability.Errorf(capability.CodeNotFound, "extensions", "there is no extension %.130q", id).With("extension_not_found",
			"list them with: junctor extensions list")
	}
	if err != nil {
		return x, fmt.Errorf("read extension: %w", err)
	}
	return x, nil
}

// fold returns the lookup key of an id. Lower case is sufficient because ids are ASCII.
func fold(id string) string { return strings.ToLower(id) }

// Generation returns a number that increases with each change of the catalog.
func (r *Registry) Generation(ctx context.Context) (n int64, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT value FROM extension_meta WHERE key = 'generation'`).Scan(&n)
	return n, err
}

// Change is one transaction; a nil field changes nothing.
type Change struct {
	Put    *Extension                 // added or replaced
	Delete string                     // id of a row to delete, with its settings
	Config map[string]json.RawMessage // settings of Put; existing ones are not replaced
	Record *Record                    // added or replaced
	// Raise increases the generation and sets it in Put.
	Raise bool
}

// Apply makes a change in one transaction. It sets c.Put.Generation if Raise is set.
func (r *Registry) Apply(ctx context.Context, c Change) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after Commit
	if c.Raise {
		var n int64
		if err := tx.QueryRowContext(ctx, `UPDATE extension_meta SET value = value + 1 WHERE key = 'generation' RETURNING value`).
			Scan(&n); err != nil {
			return err
		}
		if c.Put != nil {
			c.Put.Generation = n
		}
	}
	if c.Put != nil {
		if err := putExtension(ctx, tx, c.Put); err != nil {
			return err
		}
		if len(c.Config) > 0 {
			if err := mergeConfig(ctx, tx, c.Put.ID, c.Config); err != nil {
				return err
			}
		}
	}
	if c.Delete != "" {
		for _, q := range []string{`DELETE FROM extensions WHERE folded = ?`, `DELETE FROM extension_configs WHERE extension_id = ?`} {
			if _, err := tx.ExecContext(ctx, q, fold(c.Delete)); err != nil {
				return err
			}
		}
	}
	if c.Record != nil {
		if err := putRecord(ctx, tx, c.Record); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func putExtension(ctx context.Context, tx *sql.Tx, x *Extension) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO extensions (folded, `+extensionColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
	?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, version = excluded.version, description = excluded.description,
		icon_path = excluded.icon_path,
		installed_at = excluded.installed_at, enabled = excluded.enabled, status = excluded.status, sha256 = excluded.sha256,
		source = excluded.source,
		source_url = excluded.source_url, permissions_required = excluded.permissions_required,
		capabilities = excluded.capabilities, metadata = excluded.metadata,
		tree_hash = excluded.tree_hash, consent = excluded.consent, agent_visible = excluded.agent_visible, generation = excluded.generation`,
		fold(x.ID), x.ID, x.Name, x.Version, x.Description, x.Icon, store.Nanos(x.InstalledAt), x.Enabled, string(x.Status), x.SHA256, x.Source,
		x.SourceURL,
		jsonText(x.Permissions), jsonText(x.Capabilities), jsonText(x.Metadata), x.TreeHash, string(x.Consent), jsonText(x.AgentVisible),
		x.Generation)
	if err != nil {
		return fmt.Errorf("save extension %s: %w", x.ID, err)
	}
	return nil
}

// mergeConfig adds the settings that a plan wrote. Existing ones stay, so that an
// upgrade does not undo the operator's changes.
func mergeConfig(ctx context.Context, tx *sql.Tx, id string, add map[string]json.RawMessage) error {
	var doc string
	err := tx.QueryRowContext(ctx, `SELECT config_json FROM extension_configs WHERE extension_id = ?`, fold(id)).Scan(&doc)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	all := make(map[string]json.RawMessage)
	if doc != "" {
		if err := jsonx.Unmarshal([]byte(doc), &all); err != nil {
			return err
		}
	}
	for k, v := range add {
		if _, there := all[k]; !there {
			all[k] = v
		}
	}
	return putConfig(ctx, tx, id, []byte(jsonText(all)), time.Now())
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func putConfig(ctx context.Context, db execer, id string, doc []byte, at time.Time) error {
	_, err := db.ExecContext(ctx, `INSERT INTO extension_configs (extension_id, config_json, secrets_ref, updated_at) VALUES (?, ?, '', ?)
		ON CONFLICT (extension_id) DO UPDATE SET config_json = excluded.config_json, updated_at = excluded.updated_at`, fold(id),
		string(doc), store.Nanos(at))
	return err
}

// Config returns an extension's settings, an object; {} when none are stored.
func (r *Registry) Config(ctx context.Context, id string) (json.RawMessage, error) {
	var doc string
	err := r.db.QueryRowContext(ctx, `SELECT config_json FROM extension_configs WHERE extension_id = ?`, fold(id)).Scan(&doc)
	if errors.Is(err, sql.ErrNoRows) {
		return json.RawMessage("{}"), nil
	}
	return json.RawMessage(doc), err
}

// SetConfig replaces an extension's settings.
func (r *Registry) SetConfig(ctx context.Context, id string, doc json.RawMessage, at time.Time) error {
	return putConfig(ctx, r.db, id, doc, at)
}

// Users is the number of operating system users for extensions; further extensions share them.
const Users = 2048

// User returns the number, below Users, of the user that runs the programs of an
// extension if the server is root. It never changes.
func (r *Registry) User(ctx context.Context, id string) (number int, err error) {
	err = r.db.QueryRowContext(ctx, `INSERT INTO extension_users (folded, number) SELECT ?1, COUNT(*) % ?2 FROM extension_users WHERE true
		ON CONFLICT (folded) DO UPDATE SET number = number RETURNING number`, fold(id), Users).Scan(&number)
	return number, err
}
