-- +goose Up
CREATE TABLE memory_items (
	rowid     INTEGER PRIMARY KEY AUTOINCREMENT,
	id        TEXT NOT NULL UNIQUE,
	workspace TEXT NOT NULL,
	text      TEXT NOT NULL,
	tags      TEXT NOT NULL,
	created   INTEGER NOT NULL
);
CREATE TABLE memory_workspaces (
	workspace TEXT PRIMARY KEY,
	items     INTEGER NOT NULL
) WITHOUT ROWID;
-- Its text is made by us: every word is [a-z0-9]+, so that no tokenizer and no
-- query syntax ever sees what a stranger wrote.
CREATE VIRTUAL TABLE memory_index USING fts5 (
	workspace, tags, words,
	content = '', contentless_delete = 1, tokenize = 'ascii'
);

-- +goose Down
DROP TABLE memory_index;
DROP TABLE memory_workspaces;
DROP TABLE memory_items;
