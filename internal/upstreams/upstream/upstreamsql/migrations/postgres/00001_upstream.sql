-- +goose Up
-- doc is the record's own JSON; secrets are in it by name only.
CREATE TABLE upstreams (
	name  TEXT PRIMARY KEY,
	doc   TEXT NOT NULL,
	added TEXT NOT NULL
);
-- What agents were shown of each definition, and what the upstream offers now.
CREATE TABLE upstream_pins (
	upstream           TEXT NOT NULL,
	kind               TEXT NOT NULL,
	name               TEXT NOT NULL,
	state              TEXT NOT NULL,
	pin                TEXT NOT NULL,
	definition         TEXT NOT NULL,
	offered            TEXT NOT NULL DEFAULT '',
	offered_definition TEXT NOT NULL DEFAULT '',
	listed             BIGINT NOT NULL,
	seen               TEXT NOT NULL,
	PRIMARY KEY (upstream, kind, name)
);
CREATE TRIGGER upstreams_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON upstreams
	FOR EACH STATEMENT EXECUTE FUNCTION junctor_changed();
CREATE TRIGGER upstream_pins_changed AFTER UPDATE OF state, pin OR DELETE OR TRUNCATE ON upstream_pins
	FOR EACH STATEMENT EXECUTE FUNCTION junctor_changed();

-- +goose Down
DROP TABLE upstream_pins;
DROP TABLE upstreams;
