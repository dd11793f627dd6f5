-- +goose Up
CREATE TABLE blob_refs (
	id        INTEGER PRIMARY KEY AUTOINCREMENT, -- the order in which they were kept
	principal TEXT NOT NULL,
	run       TEXT NOT NULL,
	name      TEXT NOT NULL,
	digest    TEXT NOT NULL, -- SHA-256, lower-case hex: the file's name
	size      INTEGER NOT NULL,
	mime      TEXT NOT NULL,
	kept      INTEGER NOT NULL,
	expires   INTEGER NOT NULL,
	UNIQUE (run, name)
);
CREATE INDEX blob_refs_digest ON blob_refs (digest);
CREATE INDEX blob_refs_expires ON blob_refs (expires);

-- +goose Down
DROP TABLE blob_refs;
