-- +goose Up
CREATE TABLE held_calls (
	id         TEXT PRIMARY KEY,
	node       TEXT NOT NULL,
	function   TEXT NOT NULL,
	arguments  TEXT NOT NULL,
	principal  TEXT NOT NULL,
	timeout    BIGINT NOT NULL,
	state      TEXT NOT NULL,
	created    BIGINT NOT NULL,
	expires    BIGINT NOT NULL,
	claimed    BIGINT NOT NULL DEFAULT 0,
	ended      BIGINT NOT NULL DEFAULT 0,
	invocation TEXT NOT NULL DEFAULT '',
	result     TEXT NOT NULL DEFAULT '',
	error      TEXT NOT NULL DEFAULT ''
);
CREATE INDEX held_calls_node ON held_calls (node, state, created);
CREATE INDEX held_calls_principal ON held_calls (principal, state);

-- +goose Down
DROP TABLE held_calls;
