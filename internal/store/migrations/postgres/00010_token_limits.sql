-- +goose Up
-- How many calls a token's principal may make; 0: no bound.
ALTER TABLE tokens ADD COLUMN per_minute INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tokens ADD COLUMN per_day INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE tokens DROP COLUMN per_day;
ALTER TABLE tokens DROP COLUMN per_minute;
