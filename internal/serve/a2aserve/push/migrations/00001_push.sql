-- +goose Up
CREATE TABLE a2a_push (
	task        TEXT NOT NULL,
	id          TEXT NOT NULL,
	owner       TEXT NOT NULL,
	url         TEXT NOT NULL,
	token       TEXT NOT NULL,
	scheme      TEXT NOT NULL,
	credentials TEXT NOT NULL,
	legacy      INTEGER NOT NULL,
	delivered   INTEGER NOT NULL,
	PRIMARY KEY (task, id)
);

-- +goose Down
DROP TABLE a2a_push;
