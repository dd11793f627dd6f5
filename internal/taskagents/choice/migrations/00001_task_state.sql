-- +goose Up
CREATE TABLE task_state (
	name TEXT PRIMARY KEY,
	doc  BLOB NOT NULL
);
