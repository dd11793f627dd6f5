-- +goose Up
CREATE TABLE nodes (
	id         TEXT PRIMARY KEY,
	public_key TEXT NOT NULL DEFAULT '',
	token      TEXT NOT NULL,
	created    INTEGER NOT NULL
);
CREATE UNIQUE INDEX nodes_key ON nodes (public_key) WHERE public_key <> '';

-- +goose Down
DROP TABLE nodes;
