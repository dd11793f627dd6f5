-- +goose Up
CREATE TABLE channel_accounts (
	kind    TEXT NOT NULL,
	account TEXT NOT NULL,
	doc     BLOB NOT NULL,
	cursor  TEXT NOT NULL,
	tries   INTEGER NOT NULL,
	locked  INTEGER NOT NULL,
	PRIMARY KEY (kind, account)
);
CREATE TABLE channel_people (
	kind    TEXT NOT NULL,
	account TEXT NOT NULL,
	person  TEXT NOT NULL,
	doc     BLOB NOT NULL,
	PRIMARY KEY (kind, account, person)
);
CREATE TABLE channel_codes (
	kind    TEXT NOT NULL,
	account TEXT NOT NULL,
	hash    TEXT NOT NULL,
	doc     BLOB NOT NULL,
	expires INTEGER NOT NULL,
	PRIMARY KEY (kind, account, hash)
);
CREATE TABLE channel_updates (
	seq      INTEGER PRIMARY KEY AUTOINCREMENT,
	kind     TEXT NOT NULL,
	account  TEXT NOT NULL,
	id       TEXT NOT NULL,
	doc      BLOB NOT NULL,
	handled  INTEGER NOT NULL,
	received INTEGER NOT NULL,
	UNIQUE (kind, account, id)
);
CREATE INDEX channel_updates_open ON channel_updates (kind, account, seq) WHERE handled <> 1;
CREATE INDEX channel_updates_age ON channel_updates (received);
CREATE TABLE channel_sends (
	id           INTEGER PRIMARY KEY AUTOINCREMENT,
	kind         TEXT NOT NULL,
	account      TEXT NOT NULL,
	sendkey      TEXT NOT NULL,
	conversation TEXT NOT NULL,
	message      TEXT NOT NULL,
	about        TEXT NOT NULL,
	state        TEXT NOT NULL,
	doc          BLOB NOT NULL,
	fault        BLOB NOT NULL,
	created      INTEGER NOT NULL,
	changed      INTEGER NOT NULL,
	UNIQUE (kind, account, sendkey)
);
CREATE INDEX channel_sends_open ON channel_sends (kind, account, id) WHERE state IN ('pending', 'begun');
CREATE INDEX channel_sends_about ON channel_sends (about) WHERE about <> '';
CREATE INDEX channel_sends_age ON channel_sends (changed);

-- +goose Down
DROP TABLE channel_sends;
DROP TABLE channel_updates;
DROP TABLE channel_codes;
DROP TABLE channel_people;
DROP TABLE channel_accounts;
