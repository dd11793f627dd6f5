package row

// Table implements [Row].
func (*Thread) Table() string { return "task_threads" }

// Columns implements [Row].
func (r *Thread) Columns() []Column {
	return []Column{
		id("id", &r.ID), text("agent_id", &r.AgentID, MaxName), text("room_id", &r.RoomID, MaxName), text("world_id", &r.WorldID, MaxName),
		text("owner_user_id", &r.OwnerUserID, MaxName), text("scenario_id", &r.ScenarioID, MaxName), text("batch_id", &r.BatchID, MaxName),
		must("title", &r.Title, MaxName), oneOf("kind", &r.Kind), oneOf("status", &r.Status),
		text("original_request", &r.OriginalRequest, MaxText), text("summary", &r.Summary, MaxText),
		list("acceptance_criteria_json", &r.AcceptanceCriteria), object("current_plan_json", &r.CurrentPlan),
		text("search_text", &r.SearchText, 4*MaxText), // folding case lengthens some letters
		moment("created_at", &r.CreatedAt, true), moment("updated_at", &r.UpdatedAt, true), moment("closed_at", &r.ClosedAt, false),
		moment("archived_at", &r.ArchivedAt, false), moment("last_user_turn_at", &r.LastUserTurnAt, false),
		moment("last_coordinator_turn_at", &r.LastCoordinatorTurnAt, false), object("metadata_json", &r.Metadata),
	}
}

// Table implements [Row].
func (*Session) Table() string { return "task_sessions" }

// Columns implements [Row].
func (r *Session) Columns() []Column {
	return []Column{
		id("id", &r.ID), id("thread_id", &r.ThreadID), text("agent_id", &r.AgentID, MaxName), id("session_id", &r.SessionID),
		text("framework", &r.Framework, MaxName), text("provider_source", &r.ProviderSource, MaxName), text("label", &r.Label, MaxName),
		text("original_task", &r.OriginalTask, MaxText), text("workdir", &r.Workdir, MaxPath), text("repo", &r.Repo, MaxPath),
		oneOf("status", &r.Status),
		count("decision_count", &r.DecisionCount), count("auto_resolved_count", &r.AutoResolvedCount),
		millis("registered_at", &r.RegisteredAt, true),
		millis("last_activity_at", &r.LastActivityAt, true), count("idle_check_count", &r.IdleCheckCount),
		flag("task_delivered", &r.TaskDelivered),
		text("completion_summary", &r.CompletionSummary, MaxText), count("last_seen_decision_index", &r.LastSeenDecisionIndex),
		millis("last_input_sent_at", &r.LastInputSentAt, false), millis("stopped_at", &r.StoppedAt, false),
		moment("created_at", &r.CreatedAt, true), moment("updated_at", &r.UpdatedAt, true), object("metadata_json", &r.Metadata),
	}
}

// Table implements [Row].
func (*Decision) Table() string { return "task_decisions" }

// Columns implements [Row].
func (r *Decision) Columns() []Column {
	return []Column{
		id("id", &r.ID), id("thread_id", &r.ThreadID), id("session_id", &r.SessionID), millis("timestamp", &r.Timestamp, true),
		must("event_type", &r.EventType, MaxName), text("prompt_text", &r.PromptText, MaxText), oneOf("decision", &r.Decision),
		text("response", &r.Response, MaxText), text("reasoning", &r.Reasoning, MaxText), object("metadata_json", &r.Metadata),
		moment("created_at", &r.CreatedAt, true),
	}
}

// Table implements [Row].
func (*Event) Table() string { return "task_events" }

// Columns implements [Row].
func (r *Event) Columns() []Column {
	return []Column{
		id("id", &r.ID), id("thread_id", &r.ThreadID), ref("session_id", &r.SessionID), must("event_type", &r.EventType, MaxName),
		millis("timestamp", &r.Timestamp, true), text("summary", &r.Summary, MaxText), object("data_json", &r.Data),
		moment("created_at", &r.CreatedAt, true),
	}
}

// Table implements [Row].
func (*Artifact) Table() string { return "task_artifacts" }

// Columns implements [Row].
func (r *Artifact) Columns() []Column {
	return []Column{
		id("id", &r.ID), id("thread_id", &r.ThreadID), ref("session_id", &r.SessionID), must("artifact_type", &r.ArtifactType, MaxName),
		text("title", &r.Title, MaxName), text("path", &r.Path, MaxPath), text("uri", &r.URI, MaxPath), text("mime_type", &r.MimeType, MaxName),
		object("metadata_json", &r.Metadata), moment("created_at", &r.CreatedAt, true),
	}
}

// Table implements [Row].
func (*TranscriptItem) Table() string { return "task_transcripts" }

// Columns implements [Row].
func (r *TranscriptItem) Columns() []Column {
	return []Column{
		id("id", &r.ID), id("thread_id", &r.ThreadID), id("session_id", &r.SessionID), millis("timestamp", &r.Timestamp, true),
		oneOf("direction", &r.Direction), text("content", &r.Content, MaxText), object("metadata_json", &r.Metadata),
		moment("created_at", &r.CreatedAt, true),
	}
}

// Table implements [Row].
func (*PendingDecision) Table() string { return "task_pending_decisions" }

// Columns implements [Row].
func (r *PendingDecision) Columns() []Column {
	return []Column{
		id("session_id", &r.SessionID), id("thread_id", &r.ThreadID), text("prompt_text", &r.PromptText, MaxText),
		text("recent_output", &r.RecentOutput, MaxText),
		object("llm_decision_json", &r.LLMDecision), object("task_context_json", &r.TaskContext), millis("created_at", &r.CreatedAt, true),
		moment("updated_at", &r.UpdatedAt, true),
	}
}

// Table implements [Row].
func (*Node) Table() string { return "task_nodes" }

// Columns implements [Row].
func (r *Node) Columns() []Column {
	return []Column{
		id("id", &r.ID), id("thread_id", &r.ThreadID), ref("parent_node_id", &r.ParentNodeID), oneOf("kind", &r.Kind), oneOf("status", &r.Status),
		must("title", &r.Title, MaxName), text("instructions", &r.Instructions, MaxText), list("acceptance_criteria_json", &r.AcceptanceCriteria),
		list("required_capabilities_json", &r.RequiredCapabilities), list("expected_artifacts_json", &r.ExpectedArtifacts),
		ref("assigned_session_id", &r.AssignedSessionID), text("assigned_label", &r.AssignedLabel, MaxName),
		text("agent_type", &r.AgentType, MaxName),
		text("workdir", &r.Workdir, MaxPath), text("repo", &r.Repo, MaxPath), count("priority", &r.Priority), count("depth", &r.Depth),
		count("sequence", &r.Sequence),
		text("created_from", &r.CreatedFrom, MaxName), object("metadata_json", &r.Metadata), moment("created_at", &r.CreatedAt, true),
		moment("updated_at", &r.UpdatedAt, true), moment("started_at", &r.StartedAt, false), moment("completed_at", &r.CompletedAt, false),
	}
}

// Table implements [Row].
func (*Dependency) Table() string { return "task_dependencies" }

// Columns implements [Row].
func (r *Dependency) Columns() []Column {
	return []Column{
		id("id", &r.ID), id("thread_id", &r.ThreadID), id("from_node_id", &r.FromNodeID), id("to_node_id", &r.ToNodeID),
		oneOf("dependency_kind", &r.DependencyKind),
		&word[NodeStatus]{
			named: "required_status", at: &r.RequiredStatus, limit: maxID, must: true,
			ok: func(s NodeStatus) bool { return s == NodeCompleted },
		},
		object("metadata_json", &r.Metadata), moment("created_at", &r.CreatedAt, true),
	}
}

// Table implements [Row].
func (*Claim) Table() string { return "task_claims" }

// Columns implements [Row].
func (r *Claim) Columns() []Column {
	return []Column{
		id("id", &r.ID), id("thread_id", &r.ThreadID), id("node_id", &r.NodeID), id("session_id", &r.SessionID),
		oneOf("claim_type", &r.ClaimType),
		oneOf("status", &r.Status), moment("claimed_at", &r.ClaimedAt, true), moment("released_at", &r.ReleasedAt, false),
		object("metadata_json", &r.Metadata),
	}
}

// Table implements [Row].
func (*MailboxItem) Table() string { return "task_mailbox" }

// Columns implements [Row].
func (r *MailboxItem) Columns() []Column {
	return []Column{
		id("id", &r.ID), id("thread_id", &r.ThreadID), ref("node_id", &r.NodeID), ref("session_id", &r.SessionID),
		text("sender", &r.Sender, MaxName),
		text("recipient", &r.Recipient, MaxName), text("subject", &r.Subject, MaxName), text("body", &r.Body, MaxText),
		oneOf("delivery_state", &r.DeliveryState),
		object("metadata_json", &r.Metadata), moment("created_at", &r.CreatedAt, true), moment("delivered_at", &r.DeliveredAt, false),
	}
}

// Table implements [Row].
func (*VerifierJob) Table() string { return "task_verifier_jobs" }

// Columns implements [Row].
func (r *VerifierJob) Columns() []Column {
	return []Column{
		id("id", &r.ID), id("thread_id", &r.ThreadID), ref("node_id", &r.NodeID), oneOf("status", &r.Status),
		must("verifier_type", &r.VerifierType, MaxName),
		text("title", &r.Title, MaxName), text("instructions", &r.Instructions, MaxText), object("config_json", &r.Config),
		object("metadata_json", &r.Metadata),
		moment("created_at", &r.CreatedAt, true), moment("started_at", &r.StartedAt, false), moment("completed_at", &r.CompletedAt, false),
	}
}

// Table implements [Row].
func (*Evidence) Table() string { return "task_evidence" }

// Columns implements [Row].
func (r *Evidence) Columns() []Column {
	return []Column{
		id("id", &r.ID), id("thread_id", &r.ThreadID), ref("node_id", &r.NodeID), ref("session_id", &r.SessionID),
		ref("verifier_job_id", &r.VerifierJobID),
		must("evidence_type", &r.EvidenceType, MaxName), text("title", &r.Title, MaxName), text("summary", &r.Summary, MaxText),
		text("path", &r.Path, MaxPath),
		text("uri", &r.URI, MaxPath), object("content_json", &r.Content), object("metadata_json", &r.Metadata),
		moment("created_at", &r.CreatedAt, true),
	}
}
