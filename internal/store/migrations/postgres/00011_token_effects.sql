-- +goose Up
-- The strongest effect of calls with a token; empty: they are not bounded.
ALTER TABLE tokens ADD COLUMN most TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE tokens DROP COLUMN most;
