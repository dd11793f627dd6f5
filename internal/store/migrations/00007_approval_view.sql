-- +goose Up
-- What an approver is shown, as JSON; who may not answer; and the whole input while it is pending.
ALTER TABLE approvals ADD COLUMN shown TEXT NOT NULL DEFAULT '';
ALTER TABLE approvals ADD COLUMN barred TEXT NOT NULL DEFAULT '';
ALTER TABLE approvals ADD COLUMN input BLOB NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE approvals DROP COLUMN input;
ALTER TABLE approvals DROP COLUMN barred;
ALTER TABLE approvals DROP COLUMN shown;
