-- +goose Up
-- Only gateways that share a database keep leases and leave notes.
ALTER TABLE agent_runs ADD COLUMN term INTEGER NOT NULL DEFAULT 0;
CREATE TABLE agent_gateways (
	gateway     TEXT PRIMARY KEY,
	lease_until INTEGER NOT NULL
);
CREATE TABLE agent_notes (
	id      INTEGER PRIMARY KEY AUTOINCREMENT,
	run     TEXT NOT NULL,
	created INTEGER NOT NULL,
	doc     BLOB NOT NULL
);

-- +goose Down
DROP TABLE agent_notes;
DROP TABLE agent_gateways;
ALTER TABLE agent_runs DROP COLUMN term;
