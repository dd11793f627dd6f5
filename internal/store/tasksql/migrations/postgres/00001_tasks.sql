-- +goose Up
CREATE TABLE tasks (
	id      TEXT PRIMARY KEY,
	owner   TEXT NOT NULL,
	gateway TEXT NOT NULL,
	surface TEXT NOT NULL,
	context TEXT NOT NULL,
	state   TEXT NOT NULL,
	ended   BIGINT NOT NULL,
	updated BIGINT NOT NULL,
	expires BIGINT NOT NULL,
	version BIGINT NOT NULL,
	doc     BYTEA NOT NULL,
	history BYTEA NOT NULL,
	input   BYTEA NOT NULL,
	result  BYTEA NOT NULL
);
CREATE INDEX tasks_owner ON tasks (owner, updated);
CREATE INDEX tasks_open ON tasks (ended, gateway);

-- +goose Down
DROP TABLE tasks;
