-- +goose Up
CREATE TABLE agent_runs (
	id      TEXT PRIMARY KEY,
	person  TEXT NOT NULL,
	session TEXT NOT NULL,
	gateway TEXT NOT NULL,
	state   TEXT NOT NULL,
	ended   INTEGER NOT NULL,
	created INTEGER NOT NULL,
	updated INTEGER NOT NULL,
	doc     BLOB NOT NULL
);
CREATE INDEX agent_runs_person ON agent_runs (person, session, created);
CREATE INDEX agent_runs_open ON agent_runs (ended, gateway);
CREATE TABLE agent_journal (
	run  TEXT NOT NULL,
	seq  INTEGER NOT NULL,
	kind TEXT NOT NULL,
	time INTEGER NOT NULL,
	doc  BLOB NOT NULL,
	PRIMARY KEY (run, seq)
);

-- +goose Down
DROP TABLE agent_journal;
DROP TABLE agent_runs;
