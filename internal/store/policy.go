package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/policy"
)

const tokenColumns = `id, name, role, hash, labels, view, created, expires, revoked, on_behalf_of, per_minute, per_day, most, used`

func scanToken(s Scanner) (t policy.Token, err error) {
	err = s.Scan(&t.ID, &t.Name, &t.Role, &t.Hash, wordList{&t.Labels}, &t.View, instant{&t.Created}, instant{&t.Expires},
		instant{&t.Revoked}, delegation{&t.OnBehalfOf}, &t.Limits.PerMinute, &t.Limits.PerDay, &t.Most, instant{&t.Used})
	return t, err
}

// delegation stores the bound of a token's rights.
type delegation struct{ of **policy.Delegation }

func (d delegation) Scan(v any) error {
	s, ok := v.(string)
	if !ok {
		return fmt.Errorf("a delegation is stored as %T", v)
	}
	if s == "" {
		return nil
	}
	*d.of = new(policy.Delegation)
	return jsonx.Unmarshal([]byte(s), *d.of)
}

// CreateToken adds t unless a live token, at the time t was created, has its name.
func (d *DB) CreateToken(ctx context.Context, t policy.Token) error {
	behalf := ""
	if t.OnBehalfOf != nil {
		raw, err := jsonx.Marshal(t.OnBehalfOf)
		if err != nil {
			return err
		}
		behalf = string(raw)
	}
	return d.InTx(ctx, "token "+t.Name, func(tx *sql.Tx) error {
		ok, err := changed(tx.ExecContext(ctx, `
			INSERT INTO tokens (`+tokenColumns+`)
			SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14
			WHERE NOT EXISTS (SELECT 1 FROM tokens WHERE name = ?2 AND revoked = 0 AND (expires = 0 OR expires > ?7))
			ON CONFLICT DO NOTHING`,
			t.ID, t.Name, t.Role, t.Hash, words(t.Labels), t.View, Nanos(t.Created), Nanos(t.Expires), Nanos(t.Revoked), behalf,
			t.Limits.PerMinute, t.Limits.PerDay, t.Most, Nanos(t.Used)))
		if err == nil && !ok {
			err = capability.Errorf(capability.CodeConflict, "store", "a live token named %q exists", t.Name).With("",
				"choose another name, or revoke that one with: junctor tokens revoke "+t.Name)
		}
		return err
	})
}

// Tokens returns every token, oldest first.
func (d *DB) Tokens(ctx context.Context) ([]policy.Token, error) {
	rows, err := d.sql.QueryContext(ctx, `SELECT `+tokenColumns+` FROM tokens ORDER BY created, rowid`)
	return Collect(rows, err, scanToken)
}

// UseToken moves the last use of a token to at, unless it is later already.
func (d *DB) UseToken(ctx context.Context, id string, at time.Time) error {
	_, err := d.sql.ExecContext(ctx, `UPDATE tokens SET used = ?2 WHERE id = ?1 AND used < ?2`, id, Nanos(at))
	return err
}

// RevokeToken ends the token with that id, otherwise the newest with that name. A missing or already
// revoked one is not_found.
func (d *DB) RevokeToken(ctx context.Context, idOrName string, at time.Time) (policy.Token, error) {
	t, err := scanToken(d.sql.QueryRowContext(ctx, `
		UPDATE tokens SET revoked = ?2
		WHERE revoked = 0 AND id = (
			SELECT id FROM tokens WHERE revoked = 0 AND (id = ?1 OR name = ?1)
			ORDER BY id = ?1 DESC, created DESC LIMIT 1)
		RETURNING `+tokenColumns, idOrName, Nanos(at)))
	if errors.Is(err, sql.ErrNoRows) {
		err = notFound("live token", idOrName, "tokens list")
	}
	return t, err
}

// ProlongToken moves the end of an unrevoked token to until, unless it is later already.
func (d *DB) ProlongToken(ctx context.Context, id string, until time.Time) (policy.Token, error) {
	t, err := scanToken(d.sql.QueryRowContext(ctx, `
		UPDATE tokens SET expires = CASE WHEN expires > 0 AND expires < ?2 THEN ?2 ELSE expires END
		WHERE id = ?1 AND revoked = 0 RETURNING `+tokenColumns, id, Nanos(until)))
	if errors.Is(err, sql.ErrNoRows) {
		err = notFound("live token", id, "tokens list")
	}
	return t, err
}

const approvalColumns = `id, kind, principal, capability, content_hash, input_digest, module, session, permissions,
	effect, summary, channel, state, decision, decided_by, asked, decided, expires, usable_until, consumed, shown, barred`

func scanApproval(s Scanner) (a policy.Approval, err error) {
	err = s.Scan(&a.ID, &a.Kind, &a.Principal, &a.Capability, &a.ContentHash, &a.InputDigest, &a.Module, &a.Session,
		wordList{&a.Permissions}, &a.Effect, &a.Summary, &a.Channel, &a.State, &a.Decision, &a.DecidedBy,
		instant{&a.Asked}, instant{&a.Decided}, instant{&a.Expires}, instant{&a.UsableUntil}, instant{&a.Consumed},
		shown{&a.Shown}, &a.Barred)
	return a, err
}

// shown stores what an approver is shown.
type shown struct{ of *policy.Shown }

func (s shown) Scan(v any) error {
	raw, ok := v.(string)
	if !ok {
		return fmt.Errorf("what an approval shows is stored as %T", v)
	}
	if raw == "" {
		return nil
	}
	return jsonx.Unmarshal([]byte(raw), s.of)
}

// AskApproval adds a or returns the open question about the same call.
func (d *DB) AskApproval(ctx context.Context, a policy.Approval, maxOpen int) (got policy.Approval, created bool, err error) {
	view, err := jsonx.Marshal(a.Shown)
	if err != nil {
		return policy.Approval{}, false, err
	}
	err = d.InTx(ctx, "approvals "+a.Principal, func(tx *sql.Tx) error {
		var err error
		got, err = scanApproval(tx.QueryRowContext(ctx, `
			SELECT `+approvalColumns+` FROM approvals
			WHERE principal = ? AND capability = ? AND content_hash = ? AND input_digest = ? AND channel = ?
				AND state = 'pending' AND (expires = 0 OR expires > ?)
			ORDER BY asked LIMIT 1`, a.Principal, a.Capability, a.ContentHash, a.InputDigest, a.Channel, Nanos(a.Asked)))
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		var open int
		if err := tx.QueryRowContext(ctx, `
			SELECT count(*) FROM approvals
			WHERE principal = ? AND kind = ? AND state = 'pending' AND (expires = 0 OR expires > ?)`,
			a.Principal, a.Kind, Nanos(a.Asked)).Scan(&open); err != nil {
			return err
		}
		if open >= maxOpen {
			return policy.TooManyOpen(a.Principal, maxOpen)
		}
		created, err = changed(tx.ExecContext(ctx, `
			INSERT INTO approvals (`+approvalColumns+`, input)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			a.ID, a.Kind, a.Principal, a.Capability, a.ContentHash, a.InputDigest, a.Module, a.Session, words(a.Permissions),
			a.Effect, a.Summary, a.Channel, a.State, a.Decision, a.DecidedBy,
			Nanos(a.Asked), Nanos(a.Decided), Nanos(a.Expires), Nanos(a.UsableUntil), Nanos(a.Consumed),
			string(view), a.Barred, append([]byte{}, a.Input...)))
		if err == nil && !created {
			err = conflict("an approval %s exists", a.ID)
		}
		got = a
		got.Input = nil
		return err
	})
	if err != nil {
		return policy.Approval{}, false, err
	}
	return got, created, nil
}

// Approval returns one approval.
func (d *DB) Approval(ctx context.Context, id string) (policy.Approval, error) {
	a, err := scanApproval(d.sql.QueryRowContext(ctx, `SELECT `+approvalColumns+` FROM approvals WHERE id = ?`, id))
	if errors.Is(err, sql.ErrNoRows) {
		err = notFound("approval", id, "approvals list")
	}
	return a, err
}

// ApprovalInput returns the input of a pending approval.
func (d *DB) ApprovalInput(ctx context.Context, id string) (input []byte, err error) {
	err = d.sql.QueryRowContext(ctx, `SELECT input FROM approvals WHERE id = ?`, id).Scan(&input)
	if errors.Is(err, sql.ErrNoRows) {
		err = notFound("approval", id, "approvals list")
	}
	return input, err
}

// Approvals returns the newest approvals in a state, or of all states, behind the one with the id
// after.
func (d *DB) Approvals(ctx context.Context, state policy.ApprovalState, after string, limit int) ([]policy.Approval, error) {
	rows, err := d.sql.QueryContext(ctx, `
		SELECT `+approvalColumns+` FROM approvals WHERE (?1 = '' OR state = ?1)
			AND (?2 = '' OR (asked, id) < (SELECT asked, id FROM approvals WHERE id = ?2))
		ORDER BY asked DESC, id DESC LIMIT ?3`, state, after, limit)
	return Collect(rows, err, scanApproval)
}

// DeniedApproval returns a denied approval of this call that would not have expired yet.
func (d *DB) DeniedApproval(ctx context.Context, b policy.Binding, now time.Time) (policy.Approval, bool, error) {
	return one(scanApproval(d.sql.QueryRowContext(ctx, `
		SELECT `+approvalColumns+` FROM approvals
		WHERE principal = ? AND capability = ? AND content_hash = ? AND input_digest = ? AND state = 'denied' AND expires > ?
		ORDER BY asked DESC, id DESC LIMIT 1`, b.Principal, b.Capability, b.ContentHash, b.InputDigest, Nanos(now))))
}

// DecideApproval answers a pending approval. The statement itself checks the state, so that of two
// concurrent decisions one is a conflict.
func (d *DB) DecideApproval(ctx context.Context, id string, dec policy.Decision, by string, at,
	usableUntil time.Time,
) (policy.Approval, error) {
	state := policy.ApprovalApproved
	if dec == policy.DecideDeny {
		state = policy.ApprovalDenied
	}
	if dec != policy.DecideOnce {
		usableUntil = time.Time{}
	}
	a, err := scanApproval(d.sql.QueryRowContext(ctx, `
		UPDATE approvals SET state = ?2, decision = ?3, decided_by = ?4, decided = ?5, usable_until = ?6, input = ''
		WHERE id = ?1 AND state = 'pending' AND (expires = 0 OR expires > ?5)
		RETURNING `+approvalColumns, id, state, dec, by, Nanos(at), Nanos(usableUntil)))
	if !errors.Is(err, sql.ErrNoRows) {
		return a, err
	}
	a, err = d.Approval(ctx, id)
	if err != nil {
		return a, err
	}
	if a.State == policy.ApprovalPending {
		a.State = policy.ApprovalExpired // past its time but not yet marked
	}
	if a.DecidedBy != "" {
		return policy.Approval{}, conflict("the approval %s was %s already, by %s", id, a.State, a.DecidedBy)
	}
	return policy.Approval{}, conflict("the approval %s is %s and can no longer be answered", id, a.State)
}

// ConsumeApproval spends an approved once. If two callers compete, one succeeds.
func (d *DB) ConsumeApproval(ctx context.Context, b policy.Binding, now time.Time) (id string, ok bool, err error) {
	err = d.sql.QueryRowContext(ctx, `
		UPDATE approvals SET consumed = ?5
		WHERE consumed = 0 AND id = (
			SELECT id FROM approvals
			WHERE principal = ?1 AND capability = ?2 AND content_hash = ?3 AND input_digest = ?4
				AND state = 'approved' AND decision = 'once' AND consumed = 0 AND usable_until > ?5 AND (channel <> 'client' OR ?6)
			ORDER BY asked LIMIT 1)
		RETURNING id`, b.Principal, b.Capability, b.ContentHash, b.InputDigest, Nanos(now), b.Client).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return id, err == nil, err
}

// ReturnApproval makes a consumed approval usable again until it expires.
func (d *DB) ReturnApproval(ctx context.Context, id string, now time.Time) (bool, error) {
	return changed(d.sql.ExecContext(ctx, `
		UPDATE approvals SET consumed = 0
		WHERE id = ? AND state = 'approved' AND decision = 'once' AND consumed != 0 AND usable_until > ?`, id, Nanos(now)))
}

// SupersedeApprovals ends the pending approvals for content that was replaced or removed.
func (d *DB) SupersedeApprovals(ctx context.Context, module, content string) (int, error) {
	n, err := d.exec(ctx, `
		UPDATE approvals SET state = 'superseded', input = '' WHERE state = 'pending' AND module = ? AND content_hash != ?`, module, content)
	return int(n), err
}

// EndApprovals ends the pending approvals whose program went on.
func (d *DB) EndApprovals(ctx context.Context, module, id string, at time.Time) (int, error) {
	n, err := d.exec(ctx, `
		UPDATE approvals SET state = 'ended', decided = ?3, input = ''
		WHERE state = 'pending' AND module = ?1 AND (?2 = '' OR id = ?2)`, module, id, Nanos(at))
	return int(n), err
}

// ExpireApprovals expires the pending approvals that are overdue and returns their ids.
func (d *DB) ExpireApprovals(ctx context.Context, now time.Time) ([]string, error) {
	rows, err := d.sql.QueryContext(ctx, `
		UPDATE approvals SET state = 'expired', input = '' WHERE state = 'pending' AND expires != 0 AND expires <= ? RETURNING id`, Nanos(now))
	return Collect(rows, err, func(s Scanner) (id string, err error) { return id, s.Scan(&id) })
}

const grantColumns = `id, principal, role, module, action, capability, permissions, scope, scope_id, content_hash,
	channel, granted_by, approval, created, expires, max_uses, uses, state, effect`

func scanGrant(s Scanner) (g policy.Grant, err error) {
	err = s.Scan(&g.ID, &g.Principal, &g.Role, &g.Module, &g.Action, &g.Capability, wordList{&g.Permissions}, &g.Scope,
		&g.ScopeID, &g.ContentHash, &g.Channel, &g.GrantedBy, &g.Approval, instant{&g.Created}, instant{&g.Expires},
		&g.MaxUses, &g.Uses, &g.State, &g.Effect)
	return g, err
}

// CreateGrant adds g.
func (d *DB) CreateGrant(ctx context.Context, g policy.Grant) error {
	ok, err := changed(d.sql.ExecContext(ctx, `
		INSERT INTO grants (`+grantColumns+`)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		g.ID, g.Principal, g.Role, g.Module, g.Action, g.Capability, words(g.Permissions), g.Scope,
		g.ScopeID, g.ContentHash, g.Channel, g.GrantedBy, g.Approval, Nanos(g.Created), Nanos(g.Expires),
		g.MaxUses, g.Uses, g.State, g.Effect))
	if err == nil && !ok {
		err = conflict("a grant %s exists", g.ID)
	}
	return err
}

// Grants returns every grant, newest first.
func (d *DB) Grants(ctx context.Context) ([]policy.Grant, error) {
	rows, err := d.sql.QueryContext(ctx, `SELECT `+grantColumns+` FROM grants ORDER BY created DESC, rowid DESC`)
	return Collect(rows, err, scanGrant)
}

// RevokeGrant ends an active grant. The error is conflict if it has ended already.
func (d *DB) RevokeGrant(ctx context.Context, id string, at time.Time) (policy.Grant, error) {
	g, err := scanGrant(d.sql.QueryRowContext(ctx, `
		UPDATE grants SET state = 'revoked', revoked = ?2 WHERE id = ?1 AND state = 'active'
		RETURNING `+grantColumns, id, Nanos(at)))
	if !errors.Is(err, sql.ErrNoRows) {
		return g, err
	}
	var state string
	err = d.sql.QueryRowContext(ctx, `SELECT state FROM grants WHERE id = ?`, id).Scan(&state)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		err = notFound("grant", id, "grants list")
	case err == nil:
		err = conflict("the grant %s is %s", id, state)
	}
	return policy.Grant{}, err
}

// UseGrant checks and counts in one statement, so that a grant for n uses is used
// n times for any number of concurrent callers.
func (d *DB) UseGrant(ctx context.Context, id string, now time.Time) (bool, error) {
	return changed(d.sql.ExecContext(ctx, `
		UPDATE grants SET uses = uses + 1
		WHERE id = ? AND state = 'active' AND (expires = 0 OR expires > ?) AND (max_uses = 0 OR uses < max_uses)`, id, Nanos(now)))
}

// AddUses adds uses that were counted in memory.
func (d *DB) AddUses(ctx context.Context, id string, uses int) error {
	_, err := d.sql.ExecContext(ctx, `UPDATE grants SET uses = uses + ? WHERE id = ?`, uses, id)
	return err
}
