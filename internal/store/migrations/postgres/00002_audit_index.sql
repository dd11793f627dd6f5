-- +goose Up
-- Copies of what the audit segments of every gateway hold; those of one gateway may
-- be emptied at any time, it fills them again. Each gateway has a chain of its own.
CREATE TABLE audit_index (
    gateway    TEXT   NOT NULL,
    seq        BIGINT NOT NULL,
    segment    BIGINT NOT NULL,
    start      BIGINT NOT NULL,
    length     BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    level      BIGINT NOT NULL,
    event      TEXT   NOT NULL,
    extension  TEXT   NOT NULL,
    action     TEXT   NOT NULL,
    capability TEXT   NOT NULL,
    session    TEXT   NOT NULL,
    principal  TEXT   NOT NULL,
    run        TEXT   NOT NULL,
    success    BOOLEAN,
    PRIMARY KEY (gateway, seq)
);
CREATE INDEX audit_index_run ON audit_index (run, seq);
CREATE INDEX audit_index_session ON audit_index (session, seq);
CREATE INDEX audit_index_event ON audit_index (event, seq);
CREATE INDEX audit_index_at ON audit_index (at);

CREATE TABLE audit_position (
    gateway TEXT   PRIMARY KEY,
    seq     BIGINT NOT NULL,
    hash    TEXT   NOT NULL,
    segment BIGINT NOT NULL,
    start   BIGINT NOT NULL
);

-- Not a copy: the proof that a record was logged.
CREATE TABLE audit_checkpoints (
    gateway TEXT   NOT NULL,
    seq     BIGINT NOT NULL,
    hash    TEXT   NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (gateway, seq)
);

-- +goose Down
DROP TABLE audit_checkpoints;
DROP TABLE audit_position;
DROP TABLE audit_index;
