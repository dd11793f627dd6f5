-- +goose Up
-- Filters by provider, parent and approval. The index is emptied, and filled again from the
-- segments when it is next used.
ALTER TABLE audit_index ADD COLUMN provider TEXT NOT NULL DEFAULT '';
ALTER TABLE audit_index ADD COLUMN parent TEXT NOT NULL DEFAULT '';
ALTER TABLE audit_index ADD COLUMN approval TEXT NOT NULL DEFAULT '';
DELETE FROM audit_index;
DELETE FROM audit_position;

-- +goose Down
ALTER TABLE audit_index DROP COLUMN approval;
ALTER TABLE audit_index DROP COLUMN parent;
ALTER TABLE audit_index DROP COLUMN provider;
