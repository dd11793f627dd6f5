-- +goose Up
-- A number for each extension that ever ran programs here: under a server that is
-- root it makes their user. It stays when the extension goes, so that nobody
-- inherits what was left behind.
CREATE TABLE extension_users (
    folded TEXT    PRIMARY KEY,
    number INTEGER NOT NULL
);

-- +goose Down
DROP TABLE extension_users;
