-- +goose Up
ALTER TABLE agent_runs ADD COLUMN term BIGINT NOT NULL DEFAULT 0;
CREATE TABLE agent_gateways (
	gateway     TEXT PRIMARY KEY,
	lease_until BIGINT NOT NULL
);
CREATE TABLE agent_notes (
	id      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	run     TEXT NOT NULL,
	created BIGINT NOT NULL,
	doc     BYTEA NOT NULL
);
CREATE TRIGGER agent_notes_changed AFTER INSERT ON agent_notes
	FOR EACH STATEMENT EXECUTE FUNCTION junctor_changed();

-- +goose Down
DROP TABLE agent_notes;
DROP TABLE agent_gateways;
ALTER TABLE agent_runs DROP COLUMN term;
