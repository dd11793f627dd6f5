-- +goose Up
-- Times are Unix nanoseconds, 0 for none; lists and objects are JSON. The rowid
-- columns are the order of arrival, which SQLite counts by itself. Triggers tell
-- the other gateways which table has changed (store.DB.Watch).
-- +goose StatementBegin
CREATE FUNCTION junctor_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('junctor_changed', TG_TABLE_NAME);
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TABLE tokens (
    rowid   BIGINT GENERATED ALWAYS AS IDENTITY,
    id      TEXT   PRIMARY KEY,
    name    TEXT   NOT NULL,
    role    TEXT   NOT NULL,
    hash    TEXT   NOT NULL UNIQUE,
    labels  TEXT   NOT NULL,
    view    TEXT   NOT NULL,
    created BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    revoked BIGINT NOT NULL
);
CREATE INDEX tokens_name ON tokens (name);
CREATE TRIGGER tokens_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON tokens
    FOR EACH STATEMENT EXECUTE FUNCTION junctor_changed();

CREATE TABLE approvals (
    rowid        BIGINT GENERATED ALWAYS AS IDENTITY,
    id           TEXT   PRIMARY KEY,
    kind         TEXT   NOT NULL,
    principal    TEXT   NOT NULL,
    capability   TEXT   NOT NULL,
    content_hash TEXT   NOT NULL,
    input_digest TEXT   NOT NULL,
    module       TEXT   NOT NULL,
    session      TEXT   NOT NULL,
    permissions  TEXT   NOT NULL,
    effect       TEXT   NOT NULL,
    summary      TEXT   NOT NULL,
    channel      TEXT   NOT NULL,
    state        TEXT   NOT NULL,
    decision     TEXT   NOT NULL,
    decided_by   TEXT   NOT NULL,
    asked        BIGINT NOT NULL,
    decided      BIGINT NOT NULL,
    expires      BIGINT NOT NULL,
    usable_until BIGINT NOT NULL,
    consumed     BIGINT NOT NULL
);
CREATE INDEX approvals_binding ON approvals (principal, capability, state);
CREATE INDEX approvals_state ON approvals (state, asked);

CREATE TABLE grants (
    rowid        BIGINT GENERATED ALWAYS AS IDENTITY,
    id           TEXT   PRIMARY KEY,
    principal    TEXT   NOT NULL,
    role         TEXT   NOT NULL,
    module       TEXT   NOT NULL,
    action       TEXT   NOT NULL,
    capability   TEXT   NOT NULL,
    permissions  TEXT   NOT NULL,
    scope        TEXT   NOT NULL,
    scope_id     TEXT   NOT NULL,
    content_hash TEXT   NOT NULL,
    channel      TEXT   NOT NULL,
    granted_by   TEXT   NOT NULL,
    approval     TEXT   NOT NULL,
    created      BIGINT NOT NULL,
    expires      BIGINT NOT NULL,
    max_uses     BIGINT NOT NULL,
    uses         BIGINT NOT NULL,
    state        TEXT   NOT NULL,
    effect       TEXT   NOT NULL,
    revoked      BIGINT NOT NULL DEFAULT 0
);
-- A use is no news: uses are counted in the statement that asks (UseGrant).
CREATE TRIGGER grants_changed AFTER INSERT OR UPDATE OF principal, role, module, action, capability, permissions,
    scope, scope_id, content_hash, expires, max_uses, state, effect OR DELETE OR TRUNCATE ON grants
    FOR EACH STATEMENT EXECUTE FUNCTION junctor_changed();

CREATE TABLE outcomes (
    rowid      BIGINT GENERATED ALWAYS AS IDENTITY,
    principal  TEXT   NOT NULL,
    key        TEXT   NOT NULL,
    digest     TEXT   NOT NULL,
    invocation TEXT   NOT NULL,
    state      TEXT   NOT NULL,
    terminal   BIGINT NOT NULL,
    provider   TEXT   NOT NULL,
    capability TEXT   NOT NULL,
    at         BIGINT NOT NULL,
    error      BYTEA,
    result     BYTEA,
    PRIMARY KEY (principal, key)
);
CREATE INDEX outcomes_age ON outcomes (principal, at);
CREATE INDEX outcomes_at ON outcomes (at);

-- +goose Down
DROP TABLE outcomes;
DROP TABLE grants;
DROP TABLE approvals;
DROP TABLE tokens;
DROP FUNCTION junctor_changed();
