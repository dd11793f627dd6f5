-- +goose Up
-- Times are Unix nanoseconds, 0 for none; lists and objects are JSON.
CREATE TABLE extensions (
    id                   TEXT    PRIMARY KEY,
    folded               TEXT    NOT NULL UNIQUE, -- ids differ in more than case
    name                 TEXT    NOT NULL,
    version              TEXT    NOT NULL,
    description          TEXT    NOT NULL,
    icon_path            TEXT    NOT NULL,
    installed_at         INTEGER NOT NULL,
    enabled              INTEGER NOT NULL,
    status               TEXT    NOT NULL,
    sha256               TEXT    NOT NULL,
    source               TEXT    NOT NULL,
    source_url           TEXT    NOT NULL,
    permissions_required TEXT    NOT NULL,
    capabilities         TEXT    NOT NULL,
    metadata             TEXT    NOT NULL,
    tree_hash            TEXT    NOT NULL,
    consent              TEXT    NOT NULL,
    agent_visible        TEXT    NOT NULL,
    generation           INTEGER NOT NULL
);

CREATE TABLE extension_installs (
    install_id    TEXT    PRIMARY KEY,
    extension_id  TEXT    NOT NULL,
    operation     TEXT    NOT NULL,
    status        TEXT    NOT NULL,
    progress      INTEGER NOT NULL,
    current_step  TEXT    NOT NULL,
    started_at    INTEGER NOT NULL,
    ended_at      INTEGER NOT NULL,
    error         TEXT    NOT NULL,
    error_code    TEXT    NOT NULL,
    hint          TEXT    NOT NULL,
    failed_step   TEXT    NOT NULL,
    completed     TEXT    NOT NULL, -- steps of the plan
    was_enabled   INTEGER NOT NULL,
    keep_work     INTEGER NOT NULL
);
CREATE INDEX extension_installs_started ON extension_installs (started_at);
CREATE INDEX extension_installs_status ON extension_installs (status);

CREATE TABLE extension_configs (
    extension_id TEXT    PRIMARY KEY,
    config_json  TEXT    NOT NULL,
    secrets_ref  TEXT    NOT NULL,
    updated_at   INTEGER NOT NULL
);

CREATE TABLE extension_meta (
    key   TEXT    PRIMARY KEY,
    value INTEGER NOT NULL
);
INSERT INTO extension_meta (key, value) VALUES ('generation', 0);

-- +goose Down
DROP TABLE extension_meta;
DROP TABLE extension_configs;
DROP TABLE extension_installs;
DROP TABLE extensions;
