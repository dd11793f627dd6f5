-- +goose Up
CREATE TABLE task_threads (
	seq                      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id                       TEXT NOT NULL UNIQUE,
	agent_id                 TEXT NOT NULL,
	room_id                  TEXT NOT NULL,
	world_id                 TEXT NOT NULL,
	owner_user_id            TEXT NOT NULL,
	scenario_id              TEXT NOT NULL,
	batch_id                 TEXT NOT NULL,
	title                    TEXT NOT NULL,
	kind                     TEXT NOT NULL,
	status                   TEXT NOT NULL,
	original_request         TEXT NOT NULL,
	summary                  TEXT NOT NULL,
	acceptance_criteria_json TEXT NOT NULL,
	current_plan_json        TEXT NOT NULL,
	search_text              TEXT NOT NULL,
	created_at               BIGINT NOT NULL,
	updated_at               BIGINT NOT NULL,
	closed_at                BIGINT NOT NULL,
	archived_at              BIGINT NOT NULL,
	last_user_turn_at        BIGINT NOT NULL,
	last_coordinator_turn_at BIGINT NOT NULL,
	metadata_json            TEXT NOT NULL
);
CREATE TABLE task_sessions (
	seq                      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	transcript_bytes         BIGINT NOT NULL DEFAULT 0,
	id                       TEXT NOT NULL UNIQUE,
	thread_id                TEXT NOT NULL REFERENCES task_threads (id),
	agent_id                 TEXT NOT NULL,
	session_id               TEXT NOT NULL UNIQUE,
	framework                TEXT NOT NULL,
	provider_source          TEXT NOT NULL,
	label                    TEXT NOT NULL,
	original_task            TEXT NOT NULL,
	workdir                  TEXT NOT NULL,
	repo                     TEXT NOT NULL,
	status                   TEXT NOT NULL,
	decision_count           BIGINT NOT NULL,
	auto_resolved_count      BIGINT NOT NULL,
	registered_at            BIGINT NOT NULL,
	last_activity_at         BIGINT NOT NULL,
	idle_check_count         BIGINT NOT NULL,
	task_delivered           BIGINT NOT NULL,
	completion_summary       TEXT NOT NULL,
	last_seen_decision_index BIGINT NOT NULL,
	last_input_sent_at       BIGINT NOT NULL,
	stopped_at               BIGINT NOT NULL,
	created_at               BIGINT NOT NULL,
	updated_at               BIGINT NOT NULL,
	metadata_json            TEXT NOT NULL
);
CREATE TABLE task_nodes (
	seq                        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id                         TEXT NOT NULL UNIQUE,
	thread_id                  TEXT NOT NULL REFERENCES task_threads (id),
	parent_node_id             TEXT REFERENCES task_nodes (id),
	kind                       TEXT NOT NULL,
	status                     TEXT NOT NULL,
	title                      TEXT NOT NULL,
	instructions               TEXT NOT NULL,
	acceptance_criteria_json   TEXT NOT NULL,
	required_capabilities_json TEXT NOT NULL,
	expected_artifacts_json    TEXT NOT NULL,
	assigned_session_id        TEXT REFERENCES task_sessions (session_id),
	assigned_label             TEXT NOT NULL,
	agent_type                 TEXT NOT NULL,
	workdir                    TEXT NOT NULL,
	repo                       TEXT NOT NULL,
	priority                   BIGINT NOT NULL,
	depth                      BIGINT NOT NULL,
	sequence                   BIGINT NOT NULL,
	created_from               TEXT NOT NULL,
	metadata_json              TEXT NOT NULL,
	created_at                 BIGINT NOT NULL,
	updated_at                 BIGINT NOT NULL,
	started_at                 BIGINT NOT NULL,
	completed_at               BIGINT NOT NULL
);
CREATE INDEX task_nodes_thread ON task_nodes (thread_id, seq);
CREATE TABLE task_dependencies (
	seq             BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id              TEXT NOT NULL UNIQUE,
	thread_id       TEXT NOT NULL REFERENCES task_threads (id),
	from_node_id    TEXT NOT NULL REFERENCES task_nodes (id),
	to_node_id      TEXT NOT NULL REFERENCES task_nodes (id),
	dependency_kind TEXT NOT NULL,
	required_status TEXT NOT NULL,
	metadata_json   TEXT NOT NULL,
	created_at      BIGINT NOT NULL
);
CREATE INDEX task_dependencies_thread ON task_dependencies (thread_id, seq);
CREATE TABLE task_claims (
	seq           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id            TEXT NOT NULL UNIQUE,
	thread_id     TEXT NOT NULL REFERENCES task_threads (id),
	node_id       TEXT NOT NULL REFERENCES task_nodes (id),
	session_id    TEXT NOT NULL REFERENCES task_sessions (session_id),
	claim_type    TEXT NOT NULL,
	status        TEXT NOT NULL,
	claimed_at    BIGINT NOT NULL,
	released_at   BIGINT NOT NULL,
	metadata_json TEXT NOT NULL
);
CREATE INDEX task_claims_thread ON task_claims (thread_id, seq);
CREATE TABLE task_decisions (
	seq           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id            TEXT NOT NULL UNIQUE,
	thread_id     TEXT NOT NULL REFERENCES task_threads (id),
	session_id    TEXT NOT NULL REFERENCES task_sessions (session_id),
	timestamp     BIGINT NOT NULL,
	event_type    TEXT NOT NULL,
	prompt_text   TEXT NOT NULL,
	decision      TEXT NOT NULL,
	response      TEXT NOT NULL,
	reasoning     TEXT NOT NULL,
	metadata_json TEXT NOT NULL,
	created_at    BIGINT NOT NULL
);
CREATE INDEX task_decisions_thread ON task_decisions (thread_id, seq);
CREATE TABLE task_events (
	seq        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id         TEXT NOT NULL UNIQUE,
	thread_id  TEXT NOT NULL REFERENCES task_threads (id),
	session_id TEXT REFERENCES task_sessions (session_id),
	event_type TEXT NOT NULL,
	timestamp  BIGINT NOT NULL,
	summary    TEXT NOT NULL,
	data_json  TEXT NOT NULL,
	created_at BIGINT NOT NULL
);
CREATE INDEX task_events_thread ON task_events (thread_id, seq);
CREATE TABLE task_artifacts (
	seq           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id            TEXT NOT NULL UNIQUE,
	thread_id     TEXT NOT NULL REFERENCES task_threads (id),
	session_id    TEXT REFERENCES task_sessions (session_id),
	artifact_type TEXT NOT NULL,
	title         TEXT NOT NULL,
	path          TEXT NOT NULL,
	uri           TEXT NOT NULL,
	mime_type     TEXT NOT NULL,
	metadata_json TEXT NOT NULL,
	created_at    BIGINT NOT NULL
);
CREATE INDEX task_artifacts_thread ON task_artifacts (thread_id, seq);
CREATE TABLE task_transcripts (
	seq           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	bytes         BIGINT NOT NULL,
	id            TEXT NOT NULL UNIQUE,
	thread_id     TEXT NOT NULL REFERENCES task_threads (id),
	session_id    TEXT NOT NULL REFERENCES task_sessions (session_id),
	timestamp     BIGINT NOT NULL,
	direction     TEXT NOT NULL,
	content       TEXT NOT NULL,
	metadata_json TEXT NOT NULL,
	created_at    BIGINT NOT NULL
);
CREATE INDEX task_transcripts_thread ON task_transcripts (thread_id, seq);
CREATE TABLE task_pending_decisions (
	seq               BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	session_id        TEXT NOT NULL UNIQUE REFERENCES task_sessions (session_id),
	thread_id         TEXT NOT NULL REFERENCES task_threads (id),
	prompt_text       TEXT NOT NULL,
	recent_output     TEXT NOT NULL,
	llm_decision_json TEXT NOT NULL,
	task_context_json TEXT NOT NULL,
	created_at        BIGINT NOT NULL,
	updated_at        BIGINT NOT NULL
);
CREATE INDEX task_pending_decisions_thread ON task_pending_decisions (thread_id, seq);
CREATE TABLE task_mailbox (
	seq            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id             TEXT NOT NULL UNIQUE,
	thread_id      TEXT NOT NULL REFERENCES task_threads (id),
	node_id        TEXT REFERENCES task_nodes (id),
	session_id     TEXT REFERENCES task_sessions (session_id),
	sender         TEXT NOT NULL,
	recipient      TEXT NOT NULL,
	subject        TEXT NOT NULL,
	body           TEXT NOT NULL,
	delivery_state TEXT NOT NULL,
	metadata_json  TEXT NOT NULL,
	created_at     BIGINT NOT NULL,
	delivered_at   BIGINT NOT NULL
);
CREATE INDEX task_mailbox_thread ON task_mailbox (thread_id, seq);
CREATE TABLE task_verifier_jobs (
	seq           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id            TEXT NOT NULL UNIQUE,
	thread_id     TEXT NOT NULL REFERENCES task_threads (id),
	node_id       TEXT REFERENCES task_nodes (id),
	status        TEXT NOT NULL,
	verifier_type TEXT NOT NULL,
	title         TEXT NOT NULL,
	instructions  TEXT NOT NULL,
	config_json   TEXT NOT NULL,
	metadata_json TEXT NOT NULL,
	created_at    BIGINT NOT NULL,
	started_at    BIGINT NOT NULL,
	completed_at  BIGINT NOT NULL
);
CREATE INDEX task_verifier_jobs_thread ON task_verifier_jobs (thread_id, seq);
CREATE TABLE task_evidence (
	seq             BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id              TEXT NOT NULL UNIQUE,
	thread_id       TEXT NOT NULL REFERENCES task_threads (id),
	node_id         TEXT REFERENCES task_nodes (id),
	session_id      TEXT REFERENCES task_sessions (session_id),
	verifier_job_id TEXT REFERENCES task_verifier_jobs (id),
	evidence_type   TEXT NOT NULL,
	title           TEXT NOT NULL,
	summary         TEXT NOT NULL,
	path            TEXT NOT NULL,
	uri             TEXT NOT NULL,
	content_json    TEXT NOT NULL,
	metadata_json   TEXT NOT NULL,
	created_at      BIGINT NOT NULL
);
CREATE INDEX task_evidence_thread ON task_evidence (thread_id, seq);
CREATE INDEX task_threads_updated ON task_threads (updated_at);
CREATE INDEX task_sessions_thread ON task_sessions (thread_id, last_activity_at);
CREATE INDEX task_sessions_status ON task_sessions (status);
CREATE INDEX task_transcripts_session ON task_transcripts (session_id, seq);

-- +goose Down
DROP TABLE task_evidence;
DROP TABLE task_verifier_jobs;
DROP TABLE task_mailbox;
DROP TABLE task_pending_decisions;
DROP TABLE task_transcripts;
DROP TABLE task_artifacts;
DROP TABLE task_events;
DROP TABLE task_decisions;
DROP TABLE task_claims;
DROP TABLE task_dependencies;
DROP TABLE task_nodes;
DROP TABLE task_sessions;
DROP TABLE task_threads;
