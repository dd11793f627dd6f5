-- +goose Up
CREATE TABLE tasks (
	id      TEXT PRIMARY KEY,
	owner   TEXT NOT NULL,
	gateway TEXT NOT NULL,
	surface TEXT NOT NULL,
	context TEXT NOT NULL,
	state   TEXT NOT NULL,
	ended   INTEGER NOT NULL,
	updated INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	version INTEGER NOT NULL,
	doc     BLOB NOT NULL,
	history BLOB NOT NULL,
	input   BLOB NOT NULL,
	result  BLOB NOT NULL
);
CREATE INDEX tasks_owner ON tasks (owner, updated);
CREATE INDEX tasks_open ON tasks (ended, gateway);

-- +goose Down
DROP TABLE tasks;
