-- +goose Up
CREATE TABLE agent_usage (
	person      TEXT NOT NULL,
	day         TEXT NOT NULL,
	model_calls INTEGER NOT NULL,
	tool_calls  INTEGER NOT NULL,
	tokens      INTEGER NOT NULL,
	cost        INTEGER NOT NULL,
	PRIMARY KEY (person, day)
);
CREATE INDEX agent_usage_day ON agent_usage (day);

-- +goose Down
DROP TABLE agent_usage;
