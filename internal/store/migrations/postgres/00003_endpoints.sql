-- +goose Up
-- What provider/endpoint remembers of each endpoint; doc is its own JSON.
CREATE TABLE endpoints (
    id        TEXT PRIMARY KEY,
    doc       TEXT NOT NULL,
    connected TEXT NOT NULL
);
-- What an endpoint offers is asked by each gateway itself, so a saved offer is no news.
CREATE TRIGGER endpoints_changed AFTER INSERT OR UPDATE OF connected OR DELETE OR TRUNCATE ON endpoints
    FOR EACH STATEMENT EXECUTE FUNCTION junctor_changed();

-- +goose Down
DROP TABLE endpoints;
