-- +goose Up
-- Whose rights bound a token's, as JSON; '' for a token of its own.
ALTER TABLE tokens ADD COLUMN on_behalf_of TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE tokens DROP COLUMN on_behalf_of;
