-- +goose Up
CREATE TABLE session_sessions (
	id        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	principal TEXT NOT NULL,
	session   TEXT NOT NULL,
	created   BIGINT NOT NULL,
	active    BIGINT NOT NULL,
	last      BIGINT NOT NULL, -- the Seq of its last message: the order of sessions
	messages  BIGINT NOT NULL,
	UNIQUE (principal, session)
);
CREATE INDEX session_sessions_last ON session_sessions (principal, last);
CREATE INDEX session_sessions_active ON session_sessions (active);
CREATE TABLE session_messages (
	seq      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	owner    BIGINT NOT NULL REFERENCES session_sessions (id) ON DELETE CASCADE,
	role     TEXT NOT NULL,
	text     TEXT NOT NULL,
	metadata BYTEA,
	time     BIGINT NOT NULL
);
CREATE INDEX session_messages_owner ON session_messages (owner, seq);
-- A result may belong to a session that has no messages: a call over the API.
CREATE TABLE session_results (
	id        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order in which they were saved
	principal TEXT NOT NULL,
	session   TEXT NOT NULL,
	extension TEXT NOT NULL,
	text      TEXT NOT NULL,
	bytes     BIGINT NOT NULL,
	about     BYTEA NOT NULL, -- the rest of the result, as JSON
	saved     BIGINT NOT NULL,
	used      BIGINT NOT NULL, -- counts up with every use
	UNIQUE (principal, session, extension)
);
CREATE INDEX session_results_saved ON session_results (saved);
CREATE INDEX session_results_used ON session_results (used, bytes);

-- +goose Down
DROP TABLE session_results;
DROP TABLE session_messages;
DROP TABLE session_sessions;
