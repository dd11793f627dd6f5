-- +goose Up
-- What provider/endpoint remembers of each endpoint; doc is its own JSON.
CREATE TABLE endpoints (
    id        TEXT PRIMARY KEY,
    doc       TEXT NOT NULL,
    connected TEXT NOT NULL
);

-- +goose Down
DROP TABLE endpoints;
