-- +goose Up
-- Times are Unix nanoseconds, 0 for none; lists and objects are JSON.
CREATE TABLE tokens (
    id      TEXT    PRIMARY KEY,
    name    TEXT    NOT NULL,
    role    TEXT    NOT NULL,
    hash    TEXT    NOT NULL UNIQUE,
    labels  TEXT    NOT NULL,
    view    TEXT    NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    revoked INTEGER NOT NULL
);
CREATE INDEX tokens_name ON tokens (name);

CREATE TABLE approvals (
    id           TEXT    PRIMARY KEY,
    kind         TEXT    NOT NULL,
    principal    TEXT    NOT NULL,
    capability   TEXT    NOT NULL,
    content_hash TEXT    NOT NULL,
    input_digest TEXT    NOT NULL,
    module       TEXT    NOT NULL,
    session      TEXT    NOT NULL,
    permissions  TEXT    NOT NULL,
    effect       TEXT    NOT NULL,
    summary      TEXT    NOT NULL,
    channel      TEXT    NOT NULL,
    state        TEXT    NOT NULL,
    decision     TEXT    NOT NULL,
    decided_by   TEXT    NOT NULL,
    asked        INTEGER NOT NULL,
    decided      INTEGER NOT NULL,
    expires      INTEGER NOT NULL,
    usable_until INTEGER NOT NULL,
    consumed     INTEGER NOT NULL
);
CREATE INDEX approvals_binding ON approvals (principal, capability, state);
CREATE INDEX approvals_state ON approvals (state, asked);

CREATE TABLE grants (
    id           TEXT    PRIMARY KEY,
    principal    TEXT    NOT NULL,
    role         TEXT    NOT NULL,
    module       TEXT    NOT NULL,
    action       TEXT    NOT NULL,
    capability   TEXT    NOT NULL,
    permissions  TEXT    NOT NULL,
    scope        TEXT    NOT NULL,
    scope_id     TEXT    NOT NULL,
    content_hash TEXT    NOT NULL,
    channel      TEXT    NOT NULL,
    granted_by   TEXT    NOT NULL,
    approval     TEXT    NOT NULL,
    created      INTEGER NOT NULL,
    expires      INTEGER NOT NULL,
    max_uses     INTEGER NOT NULL,
    uses         INTEGER NOT NULL,
    state        TEXT    NOT NULL,
    effect       TEXT    NOT NULL,
    revoked      INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE outcomes (
    principal  TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    digest     TEXT    NOT NULL,
    invocation TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    terminal   INTEGER NOT NULL,
    provider   TEXT    NOT NULL,
    capability TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    error      BLOB,
    result     BLOB, -- last, so that no other column lies behind its overflow pages
    PRIMARY KEY (principal, key)
);
CREATE INDEX outcomes_age ON outcomes (principal, at);
CREATE INDEX outcomes_at ON outcomes (at);

-- +goose Down
DROP TABLE outcomes;
DROP TABLE grants;
DROP TABLE approvals;
DROP TABLE tokens;
