-- +goose Up
CREATE TABLE memory_items (
	rowid     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id        TEXT NOT NULL UNIQUE,
	workspace TEXT NOT NULL,
	text      TEXT NOT NULL,
	tags      TEXT NOT NULL,
	created   BIGINT NOT NULL
);
CREATE TABLE memory_workspaces (
	workspace TEXT PRIMARY KEY,
	items     BIGINT NOT NULL
);
-- Its lexemes are made by us, and no text search configuration sees what a stranger
-- wrote: words are [a-z0-9]+, what stands for the workspace begins with "w:", for a
-- tag with "t:".
CREATE TABLE memory_index (
	rowid BIGINT PRIMARY KEY,
	words TSVECTOR NOT NULL
);
CREATE INDEX memory_index_words ON memory_index USING gin (words);

-- +goose Down
DROP TABLE memory_index;
DROP TABLE memory_workspaces;
DROP TABLE memory_items;
