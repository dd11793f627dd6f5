-- +goose Up
CREATE TABLE agent_usage (
	person      TEXT NOT NULL,
	day         TEXT NOT NULL,
	model_calls BIGINT NOT NULL,
	tool_calls  BIGINT NOT NULL,
	tokens      BIGINT NOT NULL,
	cost        BIGINT NOT NULL,
	PRIMARY KEY (person, day)
);
CREATE INDEX agent_usage_day ON agent_usage (day);

-- +goose Down
DROP TABLE agent_usage;
