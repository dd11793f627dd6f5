-- +goose Up
-- When a token was last used, in nanoseconds; 0: never.
ALTER TABLE tokens ADD COLUMN used BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE tokens DROP COLUMN used;
