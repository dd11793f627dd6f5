-- +goose Up
-- The principal that stored an item; '' for items from before there were owners, which
-- belong to the operators. An item with shared <> 0 is found by the whole workspace.
ALTER TABLE memory_items ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE memory_items ADD COLUMN shared BIGINT NOT NULL DEFAULT 0;
CREATE TABLE memory_owners (
	workspace TEXT NOT NULL,
	owner     TEXT NOT NULL,
	items     BIGINT NOT NULL,
	PRIMARY KEY (workspace, owner)
);
INSERT INTO memory_owners (workspace, owner, items) SELECT workspace, '', items FROM memory_workspaces;
DROP TABLE memory_workspaces;

-- +goose Down
CREATE TABLE memory_workspaces (
	workspace TEXT PRIMARY KEY,
	items     BIGINT NOT NULL
);
INSERT INTO memory_workspaces (workspace, items) SELECT workspace, sum(items) FROM memory_owners GROUP BY workspace;
DROP TABLE memory_owners;
ALTER TABLE memory_items DROP COLUMN shared;
ALTER TABLE memory_items DROP COLUMN owner;
