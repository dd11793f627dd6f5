-- +goose Up
-- A copy of what the audit segments hold; may be emptied at any time. Few
-- indexes on purpose: the rest of a query is a scan from the newest record.
CREATE TABLE audit_index (
    seq        INTEGER PRIMARY KEY,
    segment    INTEGER NOT NULL,
    start      INTEGER NOT NULL,
    length     INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    level      INTEGER NOT NULL,
    event      TEXT    NOT NULL,
    extension  TEXT    NOT NULL,
    action     TEXT    NOT NULL,
    capability TEXT    NOT NULL,
    session    TEXT    NOT NULL,
    principal  TEXT    NOT NULL,
    run        TEXT    NOT NULL,
    success    INTEGER
);
CREATE INDEX audit_index_run ON audit_index (run, seq);
CREATE INDEX audit_index_session ON audit_index (session, seq);
CREATE INDEX audit_index_event ON audit_index (event, seq);

CREATE TABLE audit_position (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    seq     INTEGER NOT NULL,
    hash    TEXT    NOT NULL,
    segment INTEGER NOT NULL,
    start   INTEGER NOT NULL
);

-- Not a copy: the proof that a record was logged.
CREATE TABLE audit_checkpoints (
    seq  INTEGER PRIMARY KEY,
    hash TEXT    NOT NULL,
    at   INTEGER NOT NULL
);

-- +goose Down
DROP TABLE audit_checkpoints;
DROP TABLE audit_position;
DROP TABLE audit_index;
