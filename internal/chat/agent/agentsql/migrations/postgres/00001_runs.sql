-- +goose Up
CREATE TABLE agent_runs (
	id      TEXT PRIMARY KEY,
	person  TEXT NOT NULL,
	session TEXT NOT NULL,
	gateway TEXT NOT NULL,
	state   TEXT NOT NULL,
	ended   BIGINT NOT NULL,
	created BIGINT NOT NULL,
	updated BIGINT NOT NULL,
	doc     BYTEA NOT NULL
);
CREATE INDEX agent_runs_person ON agent_runs (person, session, created);
CREATE INDEX agent_runs_open ON agent_runs (ended, gateway);
CREATE TABLE agent_journal (
	run  TEXT NOT NULL,
	seq  BIGINT NOT NULL,
	kind TEXT NOT NULL,
	time BIGINT NOT NULL,
	doc  BYTEA NOT NULL,
	PRIMARY KEY (run, seq)
);

-- +goose Down
DROP TABLE agent_journal;
DROP TABLE agent_runs;
