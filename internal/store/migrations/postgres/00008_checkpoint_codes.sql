-- +goose Up
-- The first record that has a code, and the code of the checkpoint itself.
ALTER TABLE audit_checkpoints ADD COLUMN coded BIGINT NOT NULL DEFAULT 0;
ALTER TABLE audit_checkpoints ADD COLUMN mac TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE audit_checkpoints DROP COLUMN mac;
ALTER TABLE audit_checkpoints DROP COLUMN coded;
