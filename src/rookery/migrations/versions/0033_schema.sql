-- The schema of revision 0033. Types and keys in braces differ between the dialects: 0033_schema.py.

CREATE TABLE jobs (
    id TEXT NOT NULL, kind TEXT NOT NULL, workspace_id BIGINT NOT NULL, payload TEXT NOT NULL, attempts BIGINT NOT NULL,
    run_at BIGINT NOT NULL, owner TEXT, created_at BIGINT NOT NULL, failed_at BIGINT, last_error TEXT,
    CONSTRAINT pk_jobs PRIMARY KEY (id)
);
CREATE INDEX ix_jobs_ready ON jobs (kind, run_at);
CREATE INDEX ix_jobs_workspace ON jobs (workspace_id, kind, run_at);

CREATE TABLE workspaces (
    id {counted} NOT NULL CONSTRAINT pk_workspaces PRIMARY KEY{never_reused}, name TEXT NOT NULL, parent_id BIGINT, created_at BIGINT NOT NULL,
    CONSTRAINT uq_workspaces_name UNIQUE (name),
    CONSTRAINT uq_workspaces_parent_id UNIQUE (parent_id)
);

CREATE TABLE access_once (
    name TEXT NOT NULL, at BIGINT NOT NULL,
    CONSTRAINT pk_access_once PRIMARY KEY (name)
);

CREATE TABLE access_keys (
    id TEXT NOT NULL, kind TEXT NOT NULL, lookup TEXT NOT NULL, key_hash TEXT, workspace_id BIGINT NOT NULL, acts_in BIGINT NOT NULL,
    name TEXT NOT NULL, hint TEXT NOT NULL, environment TEXT NOT NULL, scopes TEXT NOT NULL, tier TEXT, rate_limit BIGINT, agent_id TEXT,
    servers TEXT, tools TEXT, orgs TEXT, projects TEXT, tool_limits TEXT NOT NULL, ip_restriction BIGINT NOT NULL, ip_list TEXT NOT NULL,
    created_at BIGINT NOT NULL, expires_at BIGINT, suspended_at BIGINT, revoked_at BIGINT, delete_after BIGINT,
    call_count BIGINT DEFAULT '0' NOT NULL, last_used_at BIGINT, last_used_ip TEXT, expiry_due BIGINT,
    CONSTRAINT pk_access_keys PRIMARY KEY (id)
);
CREATE INDEX ix_access_keys_lookup ON access_keys (lookup);
CREATE INDEX ix_access_keys_workspace_id_kind_id ON access_keys (workspace_id, kind, id);
CREATE INDEX ix_access_keys_delete_after ON access_keys (delete_after);
CREATE INDEX ix_access_keys_expiry_due ON access_keys (expiry_due);

CREATE TABLE access_calls (
    id {counted} NOT NULL, key_id TEXT NOT NULL, workspace_id BIGINT NOT NULL, at BIGINT NOT NULL, method TEXT NOT NULL,
    route TEXT NOT NULL, status BIGINT NOT NULL, duration_ms {double} NOT NULL, address TEXT NOT NULL, request_id TEXT NOT NULL,
    CONSTRAINT pk_access_calls PRIMARY KEY (id)
);
CREATE INDEX ix_access_calls_workspace_id_key_id_at ON access_calls (workspace_id, key_id, at);
CREATE INDEX ix_access_calls_at ON access_calls (at);

CREATE TABLE access_days (
    workspace_id BIGINT NOT NULL, key_id TEXT NOT NULL, day TEXT NOT NULL, method TEXT NOT NULL, route TEXT NOT NULL,
    status BIGINT NOT NULL, calls BIGINT NOT NULL, total_ms {double} NOT NULL,
    CONSTRAINT pk_access_days PRIMARY KEY (workspace_id, key_id, day, method, route, status)
);

CREATE TABLE memories (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, org TEXT, project TEXT, agent_id TEXT, session_id TEXT, memory_scope TEXT NOT NULL,
    type TEXT NOT NULL, tags TEXT NOT NULL, confidence {double} NOT NULL, base_confidence {double} NOT NULL,
    source TEXT NOT NULL, content TEXT NOT NULL, fingerprint TEXT NOT NULL, supersedes_id TEXT, expires_at BIGINT, archived_at BIGINT,
    index_failed_at BIGINT, indexed_at BIGINT, indexed_model TEXT, recalled_at BIGINT, content_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, superseded_by TEXT, metadata TEXT,
    CONSTRAINT pk_memories PRIMARY KEY (id)
);
CREATE INDEX ix_memories_newest ON memories (workspace_id, created_at, id);
CREATE INDEX ix_memories_fingerprint ON memories (fingerprint);
CREATE INDEX ix_memories_expiry ON memories (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX ix_memories_failed ON memories (index_failed_at) WHERE index_failed_at IS NOT NULL;
CREATE INDEX ix_memories_session_id ON memories (session_id) WHERE memory_scope = 'session';
CREATE INDEX ix_memories_live ON memories (workspace_id, memory_scope, agent_id, org, project, expires_at, session_id, type)
    WHERE archived_at IS NULL{any_scope};
CREATE INDEX ix_memories_session_order ON memories (workspace_id, session_id, created_at, id)
    WHERE session_id IS NOT NULL AND archived_at IS NULL;

CREATE TABLE memory_tags (
    workspace_id BIGINT NOT NULL, tag TEXT NOT NULL, memory_id TEXT NOT NULL,
    CONSTRAINT pk_memory_tags PRIMARY KEY (workspace_id, tag, memory_id)
){clustered};

CREATE TABLE memory_tombstones (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, supersedes_id TEXT, superseded_by TEXT, created_at BIGINT NOT NULL,
    ended_at BIGINT NOT NULL,
    CONSTRAINT pk_memory_tombstones PRIMARY KEY (id)
);

CREATE TABLE recalls (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, key_id TEXT NOT NULL, memory_ids TEXT NOT NULL, created_at BIGINT NOT NULL,
    asked TEXT,
    CONSTRAINT pk_recalls PRIMARY KEY (id)
);
CREATE INDEX ix_recalls_created_at ON recalls (created_at);

CREATE TABLE tool_catalogue (
    server_id TEXT NOT NULL, fingerprint TEXT NOT NULL, offer TEXT NOT NULL, seen_at BIGINT NOT NULL,
    CONSTRAINT pk_tool_catalogue PRIMARY KEY (server_id)
);

CREATE TABLE tool_calls (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, server_id TEXT NOT NULL, tool TEXT NOT NULL, key_id TEXT NOT NULL,
    key_kind TEXT NOT NULL, agent_id TEXT, session_id TEXT, success BIGINT NOT NULL, code TEXT, duration_ms {double} NOT NULL,
    arguments_bytes BIGINT NOT NULL, result_bytes BIGINT NOT NULL, request_id TEXT NOT NULL, called_at BIGINT NOT NULL,
    cached BIGINT DEFAULT '0' NOT NULL, error TEXT, arguments TEXT, upstream_ms {double},
    CONSTRAINT pk_tool_calls PRIMARY KEY (id)
);
CREATE INDEX ix_tool_calls_workspace_id_server_id_tool_called_at ON tool_calls (workspace_id, server_id, tool, called_at);
CREATE INDEX ix_tool_calls_called_at ON tool_calls (called_at);
CREATE INDEX ix_tool_calls_workspace_id_called_at ON tool_calls (workspace_id, called_at);
CREATE INDEX ix_tool_calls_session_id ON tool_calls (session_id) WHERE session_id IS NOT NULL;

CREATE TABLE access_audit (
    workspace_id BIGINT NOT NULL, seq BIGINT NOT NULL, at BIGINT NOT NULL, actor_kind TEXT NOT NULL, actor_id TEXT,
    actor_name TEXT NOT NULL, address TEXT, request_id TEXT, action TEXT NOT NULL, subject_kind TEXT NOT NULL, subject_id TEXT NOT NULL,
    subject_name TEXT NOT NULL, environment TEXT NOT NULL, "before" TEXT, "after" TEXT, previous TEXT NOT NULL, hash TEXT NOT NULL,
    CONSTRAINT pk_access_audit PRIMARY KEY (workspace_id, seq)
);
CREATE INDEX ix_access_audit_workspace_id_subject_id ON access_audit (workspace_id, subject_id);

CREATE TABLE access_audit_ends (
    workspace_id BIGINT NOT NULL, seq BIGINT NOT NULL, hash TEXT NOT NULL,
    CONSTRAINT pk_access_audit_ends PRIMARY KEY (workspace_id)
);

CREATE TABLE access_former_keys (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, kind TEXT NOT NULL, environment TEXT NOT NULL, name TEXT NOT NULL,
    deleted_at BIGINT NOT NULL,
    CONSTRAINT pk_access_former_keys PRIMARY KEY (id)
);
CREATE INDEX ix_access_former_keys_workspace_id ON access_former_keys (workspace_id);

CREATE TABLE sealing (
    name TEXT NOT NULL, key_id TEXT NOT NULL, previous_id TEXT, since BIGINT NOT NULL,
    CONSTRAINT pk_sealing PRIMARY KEY (name)
);

CREATE TABLE kept_answers (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, owner TEXT, until BIGINT NOT NULL, sealed {bytes} NOT NULL,
    CONSTRAINT pk_kept_answers PRIMARY KEY (id)
);
CREATE INDEX ix_kept_answers_until ON kept_answers (until);
CREATE INDEX ix_kept_answers_workspace_id ON kept_answers (workspace_id);

CREATE TABLE tool_servers (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, server_id TEXT NOT NULL, entry TEXT NOT NULL, secrets {bytes},
    created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
    CONSTRAINT pk_tool_servers PRIMARY KEY (id)
);
CREATE UNIQUE INDEX uq_tool_servers_workspace_id_server_id ON tool_servers (workspace_id, server_id);

CREATE TABLE tool_stops (
    workspace_id BIGINT NOT NULL, server_id TEXT NOT NULL, tool TEXT NOT NULL, reason TEXT NOT NULL, stopped_at BIGINT NOT NULL,
    CONSTRAINT pk_tool_stops PRIMARY KEY (workspace_id, server_id, tool)
);

CREATE TABLE tool_revisions (
    name TEXT NOT NULL, revision BIGINT NOT NULL,
    CONSTRAINT pk_tool_revisions PRIMARY KEY (name)
);

CREATE TABLE tool_logins (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, server_key TEXT NOT NULL, sealed {bytes} NOT NULL, busy_until BIGINT,
    changed_at BIGINT NOT NULL,
    CONSTRAINT pk_tool_logins PRIMARY KEY (id)
);
CREATE INDEX ix_tool_logins_workspace_id_server_key ON tool_logins (workspace_id, server_key);

CREATE TABLE recall_feedback (
    recall_id TEXT NOT NULL, memory_id TEXT NOT NULL, workspace_id BIGINT NOT NULL, key_id TEXT NOT NULL, day BIGINT NOT NULL,
    used BIGINT NOT NULL,
    CONSTRAINT pk_recall_feedback PRIMARY KEY (recall_id, memory_id)
);
CREATE INDEX ix_recall_feedback_memory_id ON recall_feedback (memory_id);
CREATE INDEX ix_recall_feedback_day ON recall_feedback (day);

CREATE TABLE memory_merges (
    memory_id TEXT NOT NULL, workspace_id BIGINT NOT NULL, primary_id TEXT NOT NULL, run TEXT NOT NULL, seen_at BIGINT NOT NULL,
    length BIGINT NOT NULL, digest TEXT NOT NULL, tags TEXT NOT NULL, is_done BIGINT NOT NULL,
    CONSTRAINT pk_memory_merges PRIMARY KEY (memory_id)
);
CREATE INDEX ix_memory_merges_primary_id ON memory_merges (primary_id);

CREATE TABLE memory_runs (
    name TEXT NOT NULL, workspace_id BIGINT, cursor TEXT NOT NULL, done BIGINT NOT NULL, at BIGINT NOT NULL,
    CONSTRAINT pk_memory_runs PRIMARY KEY (name)
);

CREATE TABLE plans (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, slug TEXT NOT NULL, title TEXT NOT NULL, description TEXT NOT NULL,
    status TEXT NOT NULL, org TEXT, project TEXT, template TEXT, template_version TEXT, variables TEXT, metadata TEXT NOT NULL,
    created_by TEXT NOT NULL, archived_from TEXT, archive_reason TEXT, event_seq BIGINT NOT NULL, version BIGINT NOT NULL,
    created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, started_at BIGINT, completed_at BIGINT, archived_at BIGINT,
    CONSTRAINT pk_plans PRIMARY KEY (id)
);
CREATE UNIQUE INDEX ix_plans_slug ON plans (workspace_id, slug);
CREATE INDEX ix_plans_newest ON plans (workspace_id, created_at, id);
CREATE INDEX ix_plans_status ON plans (workspace_id, status, id);

CREATE TABLE plan_phases (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, plan_id TEXT NOT NULL, position BIGINT NOT NULL, name TEXT NOT NULL,
    description TEXT NOT NULL, status TEXT NOT NULL, hold_reason TEXT, acceptance_criteria TEXT NOT NULL, metadata TEXT NOT NULL,
    version BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, started_at BIGINT, completed_at BIGINT,
    CONSTRAINT pk_plan_phases PRIMARY KEY (id)
);
CREATE INDEX ix_plan_phases_position ON plan_phases (plan_id, position);

CREATE TABLE plan_tasks (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, plan_id TEXT NOT NULL, phase_id TEXT NOT NULL, position BIGINT NOT NULL,
    name TEXT NOT NULL, description TEXT NOT NULL, status TEXT NOT NULL, hold_reason TEXT, priority BIGINT NOT NULL, notes TEXT NOT NULL,
    result TEXT, error TEXT, acceptance_criteria TEXT NOT NULL, metadata TEXT NOT NULL, attempts BIGINT NOT NULL, claim_token TEXT,
    claim_key_id TEXT, claim_agent_id TEXT, claim_session_id TEXT, claimed_at BIGINT, claim_expires_at BIGINT, version BIGINT NOT NULL,
    created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, started_at BIGINT, completed_at BIGINT,
    CONSTRAINT pk_plan_tasks PRIMARY KEY (id)
);
CREATE INDEX ix_plan_tasks_next ON plan_tasks (phase_id, status, priority, position);
CREATE INDEX ix_plan_tasks_urgent ON plan_tasks (plan_id, status, priority);
CREATE INDEX ix_plan_tasks_counted ON plan_tasks (plan_id, phase_id, status);
CREATE INDEX ix_plan_tasks_newest ON plan_tasks (workspace_id, created_at, id);
CREATE INDEX ix_plan_tasks_leases ON plan_tasks (claim_expires_at) WHERE claim_expires_at IS NOT NULL;
CREATE INDEX ix_plan_tasks_session ON plan_tasks (claim_session_id) WHERE claim_session_id IS NOT NULL;

CREATE TABLE plan_needs (
    item_id TEXT NOT NULL, needs_id TEXT NOT NULL, workspace_id BIGINT NOT NULL, plan_id TEXT NOT NULL,
    CONSTRAINT pk_plan_needs PRIMARY KEY (item_id, needs_id)
){clustered};
CREATE INDEX ix_plan_needs_plan_id ON plan_needs (plan_id);
CREATE INDEX ix_plan_needs_needs_id ON plan_needs (needs_id);

CREATE TABLE phase_checkpoints (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, plan_id TEXT NOT NULL, phase_id TEXT NOT NULL, note TEXT NOT NULL,
    context TEXT NOT NULL, key_id TEXT NOT NULL, agent_id TEXT, created_at BIGINT NOT NULL,
    CONSTRAINT pk_phase_checkpoints PRIMARY KEY (id)
);
CREATE INDEX ix_phase_checkpoints_plan ON phase_checkpoints (plan_id, phase_id, id);

CREATE TABLE plan_events (
    plan_id TEXT NOT NULL, seq BIGINT NOT NULL, workspace_id BIGINT NOT NULL, type TEXT NOT NULL, at BIGINT NOT NULL,
    key_id TEXT NOT NULL, agent_id TEXT, session_id TEXT, phase_id TEXT, task_id TEXT, data TEXT NOT NULL,
    CONSTRAINT pk_plan_events PRIMARY KEY (plan_id, seq)
){clustered};
CREATE INDEX ix_plan_events_session_id ON plan_events (session_id) WHERE session_id IS NOT NULL;

CREATE TABLE agent_sessions (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, agent_id TEXT NOT NULL, agent_type TEXT NOT NULL, key_id TEXT NOT NULL, plan_id TEXT,
    org TEXT, project TEXT, status TEXT NOT NULL, goal TEXT, context TEXT NOT NULL, summary TEXT, resumed_from TEXT, resumed_by TEXT,
    offered_id TEXT, end_reason TEXT, started_at BIGINT NOT NULL, last_activity_at BIGINT NOT NULL, ended_at BIGINT, memories_due BIGINT,
    last_seq BIGINT NOT NULL, size BIGINT NOT NULL, tokens_in BIGINT NOT NULL, tokens_out BIGINT NOT NULL, version BIGINT NOT NULL,
    CONSTRAINT pk_agent_sessions PRIMARY KEY (id)
);
CREATE INDEX ix_agent_sessions_newest ON agent_sessions (workspace_id, started_at, id);
CREATE INDEX ix_agent_sessions_plan ON agent_sessions (plan_id);
CREATE UNIQUE INDEX uq_agent_sessions_open ON agent_sessions (workspace_id, plan_id, agent_id) WHERE ended_at IS NULL;
CREATE INDEX ix_agent_sessions_idle ON agent_sessions (last_activity_at) WHERE ended_at IS NULL;
CREATE INDEX ix_agent_sessions_due ON agent_sessions (memories_due) WHERE memories_due IS NOT NULL;
CREATE INDEX ix_agent_sessions_project ON agent_sessions (workspace_id, project, started_at, id);

CREATE TABLE agent_session_events (
    session_id TEXT NOT NULL, seq BIGINT NOT NULL, workspace_id BIGINT NOT NULL, type TEXT NOT NULL, message TEXT NOT NULL,
    data TEXT NOT NULL, state TEXT, task_id TEXT, tokens_in BIGINT NOT NULL, tokens_out BIGINT NOT NULL, created_at BIGINT NOT NULL,
    CONSTRAINT pk_agent_session_events PRIMARY KEY (session_id, seq)
){clustered};
CREATE INDEX ix_agent_session_events_checkpoints ON agent_session_events (session_id, seq) WHERE state IS NOT NULL;
CREATE INDEX ix_agent_session_events_workspace_id ON agent_session_events (workspace_id);

CREATE TABLE agent_handoffs (
    session_id TEXT NOT NULL, workspace_id BIGINT NOT NULL, plan_id TEXT, agent_id TEXT NOT NULL, notes TEXT NOT NULL,
    written_at BIGINT NOT NULL, taken_by TEXT, taken_at BIGINT, taken_how TEXT,
    CONSTRAINT pk_agent_handoffs PRIMARY KEY (session_id)
);
CREATE INDEX ix_agent_handoffs_plan_id ON agent_handoffs (plan_id, written_at);

CREATE TABLE plan_templates (
    workspace_id BIGINT NOT NULL, slug TEXT NOT NULL, version TEXT NOT NULL, name TEXT NOT NULL, description TEXT NOT NULL,
    category TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
    CONSTRAINT pk_plan_templates PRIMARY KEY (workspace_id, slug)
);

CREATE TABLE plan_template_versions (
    workspace_id BIGINT NOT NULL, slug TEXT NOT NULL, version TEXT NOT NULL, document TEXT NOT NULL, created_at BIGINT NOT NULL,
    CONSTRAINT pk_plan_template_versions PRIMARY KEY (workspace_id, slug, version)
);

CREATE TABLE training_workspaces (
    workspace_id BIGINT NOT NULL, since BIGINT NOT NULL,
    CONSTRAINT pk_training_workspaces PRIMARY KEY (workspace_id)
);

CREATE TABLE training_rows (
    memory_id TEXT NOT NULL, recall_id TEXT NOT NULL, workspace_id BIGINT NOT NULL, verdict TEXT NOT NULL, "query" TEXT, mode TEXT,
    place BIGINT, semantic_rank BIGINT, keyword_rank BIGINT, at BIGINT NOT NULL,
    CONSTRAINT pk_training_rows PRIMARY KEY (memory_id, recall_id)
);
CREATE INDEX ix_training_rows_workspace ON training_rows (workspace_id, memory_id, recall_id);

CREATE TABLE webhook_endpoints (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, shown_workspace_id BIGINT NOT NULL, url TEXT NOT NULL, events TEXT NOT NULL,
    description TEXT NOT NULL, include_content BIGINT NOT NULL, strict_order BIGINT NOT NULL, concurrency BIGINT NOT NULL,
    enabled BIGINT NOT NULL, enabled_at BIGINT NOT NULL, disabled_at BIGINT, disabled_reason TEXT, failures BIGINT NOT NULL,
    last_success_at BIGINT, secret {bytes}, previous_secret {bytes}, previous_until BIGINT, created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    CONSTRAINT pk_webhook_endpoints PRIMARY KEY (id)
);
CREATE INDEX ix_webhook_endpoints_workspace_id ON webhook_endpoints (workspace_id, id);

CREATE TABLE webhook_events (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, type TEXT NOT NULL, created_at BIGINT NOT NULL, body {bytes} NOT NULL,
    full_body {bytes}, about TEXT,
    CONSTRAINT pk_webhook_events PRIMARY KEY (id)
);
CREATE INDEX ix_webhook_events_created_at ON webhook_events (created_at);
CREATE INDEX ix_webhook_events_workspace_id ON webhook_events (workspace_id);
CREATE INDEX ix_webhook_events_about ON webhook_events (workspace_id, about) WHERE about IS NOT NULL;

CREATE TABLE webhook_deliveries (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, endpoint_id TEXT NOT NULL, event_id TEXT NOT NULL, event_type TEXT NOT NULL,
    kind TEXT NOT NULL, state TEXT NOT NULL, with_content BIGINT NOT NULL, attempts BIGINT NOT NULL, spent BIGINT NOT NULL,
    next_at BIGINT, owner TEXT, status BIGINT, error TEXT, created_at BIGINT NOT NULL, ended_at BIGINT, of_delivery TEXT,
    CONSTRAINT pk_webhook_deliveries PRIMARY KEY (id)
);
CREATE INDEX ix_webhook_deliveries_newest ON webhook_deliveries (endpoint_id, created_at, id);
CREATE INDEX ix_webhook_deliveries_event_id ON webhook_deliveries (event_id);
CREATE INDEX ix_webhook_deliveries_due ON webhook_deliveries (endpoint_id, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX ix_webhook_deliveries_order ON webhook_deliveries (endpoint_id, id) WHERE next_at IS NOT NULL;
CREATE INDEX ix_webhook_deliveries_owner ON webhook_deliveries (owner) WHERE owner IS NOT NULL;

CREATE TABLE webhook_attempts (
    delivery_id TEXT NOT NULL, number BIGINT NOT NULL, workspace_id BIGINT NOT NULL, started_at BIGINT NOT NULL, ended_at BIGINT,
    outcome TEXT, status BIGINT, error TEXT, response TEXT, duration_ms {double},
    CONSTRAINT pk_webhook_attempts PRIMARY KEY (delivery_id, number)
);

CREATE TABLE memory_labels (
    workspace_id BIGINT NOT NULL, label TEXT NOT NULL, memory_id TEXT NOT NULL,
    CONSTRAINT pk_memory_labels PRIMARY KEY (workspace_id, label, memory_id)
){clustered};

CREATE TABLE tool_deprecations (
    server_id TEXT NOT NULL, deprecated_at BIGINT NOT NULL,
    CONSTRAINT pk_tool_deprecations PRIMARY KEY (server_id)
);

CREATE TABLE memory_active_models (
    workspace_id BIGINT NOT NULL, model TEXT NOT NULL, dimension BIGINT NOT NULL,
    CONSTRAINT pk_memory_active_models PRIMARY KEY (workspace_id)
);

CREATE TABLE memory_vector_sets (
    workspace_id BIGINT NOT NULL, model TEXT NOT NULL, dimension BIGINT NOT NULL, is_retired BIGINT NOT NULL,
    CONSTRAINT pk_memory_vector_sets PRIMARY KEY (workspace_id, model, dimension)
){clustered};

CREATE TABLE notify_subscribers (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, external_id TEXT NOT NULL, locale TEXT, tags TEXT NOT NULL, attributes TEXT NOT NULL,
    created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
    CONSTRAINT pk_notify_subscribers PRIMARY KEY (id)
);
CREATE INDEX ix_notify_subscribers_workspace_id ON notify_subscribers (workspace_id, id);
CREATE UNIQUE INDEX uq_notify_subscribers_external_id ON notify_subscribers (workspace_id, external_id);

CREATE TABLE notify_tags (
    subscriber_id TEXT NOT NULL, tag TEXT NOT NULL, workspace_id BIGINT NOT NULL,
    CONSTRAINT pk_notify_tags PRIMARY KEY (subscriber_id, tag)
);
CREATE INDEX ix_notify_tags_tag ON notify_tags (workspace_id, tag, subscriber_id);

CREATE TABLE notify_channels (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, subscriber_id TEXT NOT NULL, position BIGINT NOT NULL, type TEXT NOT NULL,
    address TEXT NOT NULL, p256dh TEXT NOT NULL, auth TEXT NOT NULL, host TEXT NOT NULL, status TEXT NOT NULL, status_reason TEXT,
    last_confirmed_at BIGINT, created_at BIGINT NOT NULL,
    CONSTRAINT pk_notify_channels PRIMARY KEY (id)
);
CREATE INDEX ix_notify_channels_subscriber_id ON notify_channels (subscriber_id, position);
CREATE INDEX ix_notify_channels_type ON notify_channels (workspace_id, type, status, subscriber_id);

CREATE TABLE notify_campaigns (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, shown_workspace_id BIGINT NOT NULL, name TEXT NOT NULL, title TEXT NOT NULL,
    body TEXT NOT NULL, url TEXT, channels TEXT, audience TEXT NOT NULL, variables TEXT NOT NULL, rate_per_second {double},
    ttl_s BIGINT NOT NULL, scheduled_at BIGINT, schedule_local TEXT, time_zone TEXT, status TEXT NOT NULL, status_reason TEXT,
    test_of TEXT, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, started_at BIGINT, ended_at BIGINT, owner TEXT,
    lease_until BIGINT, final_counts TEXT,
    CONSTRAINT pk_notify_campaigns PRIMARY KEY (id)
);
CREATE INDEX ix_notify_campaigns_active ON notify_campaigns (status, id) WHERE status IN ('scheduled', 'sending');
CREATE INDEX ix_notify_campaigns_ended_at ON notify_campaigns (ended_at);
CREATE INDEX ix_notify_campaigns_workspace_id ON notify_campaigns (workspace_id, id);

CREATE TABLE notify_deliveries (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, campaign_id TEXT NOT NULL, subscriber_id TEXT NOT NULL, external_id TEXT,
    channel_id TEXT NOT NULL, channel_type TEXT NOT NULL, host TEXT NOT NULL, locale TEXT, attributes TEXT, state TEXT NOT NULL,
    attempts BIGINT NOT NULL, spent BIGINT NOT NULL, claimed_at BIGINT, next_at BIGINT, owner TEXT, expires_at BIGINT NOT NULL,
    status BIGINT, reason TEXT, provider_id TEXT, created_at BIGINT NOT NULL, ended_at BIGINT,
    CONSTRAINT pk_notify_deliveries PRIMARY KEY (id)
);
CREATE INDEX ix_notify_deliveries_due ON notify_deliveries (campaign_id, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX ix_notify_deliveries_id ON notify_deliveries (campaign_id, id);
CREATE INDEX ix_notify_deliveries_owner ON notify_deliveries (owner, next_at) WHERE owner IS NOT NULL;
CREATE INDEX ix_notify_deliveries_state ON notify_deliveries (campaign_id, state, channel_type, id);
CREATE INDEX ix_notify_deliveries_subscriber_id ON notify_deliveries (subscriber_id);
CREATE UNIQUE INDEX uq_notify_deliveries_channel ON notify_deliveries (campaign_id, subscriber_id, channel_id);

CREATE TABLE notify_attempts (
    delivery_id TEXT NOT NULL, number BIGINT NOT NULL, workspace_id BIGINT NOT NULL, started_at BIGINT NOT NULL, ended_at BIGINT,
    outcome TEXT NOT NULL, status BIGINT, reason TEXT, duration_ms {double},
    CONSTRAINT pk_notify_attempts PRIMARY KEY (delivery_id, number)
);

CREATE TABLE notify_outbox (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, campaign_id TEXT NOT NULL, delivery_id TEXT NOT NULL, external_id TEXT NOT NULL,
    channel_type TEXT NOT NULL, address TEXT NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL, url TEXT, created_at BIGINT NOT NULL,
    CONSTRAINT pk_notify_outbox PRIMARY KEY (id)
);
CREATE INDEX ix_notify_outbox_created_at ON notify_outbox (created_at);
CREATE INDEX ix_notify_outbox_workspace_id ON notify_outbox (workspace_id, id);

CREATE TABLE notify_secrets (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, secret {bytes}, previous_secret {bytes}, previous_until BIGINT,
    created_at BIGINT NOT NULL,
    CONSTRAINT pk_notify_secrets PRIMARY KEY (id)
);
CREATE UNIQUE INDEX uq_notify_secrets_workspace_id ON notify_secrets (workspace_id);

CREATE TABLE installation_keys (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, sealed {bytes} NOT NULL, created_at BIGINT NOT NULL,
    CONSTRAINT pk_installation_keys PRIMARY KEY (id)
);

CREATE TABLE generations (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, key_id TEXT NOT NULL, mode TEXT NOT NULL, status TEXT NOT NULL,
    is_canned BIGINT NOT NULL, batch_id TEXT, batch_index BIGINT, retry_of TEXT, model TEXT NOT NULL, provider_model TEXT, template TEXT,
    template_version BIGINT, messages TEXT NOT NULL, max_tokens BIGINT NOT NULL, temperature {double}, response_schema TEXT,
    metadata TEXT NOT NULL, output TEXT, schema_mode TEXT, finish_reason TEXT, input_tokens BIGINT, output_tokens BIGINT,
    is_estimated BIGINT NOT NULL, cost_nanos BIGINT, reserved_nanos BIGINT NOT NULL, reserved_on TEXT, attempts BIGINT NOT NULL,
    run_count BIGINT NOT NULL, error_code TEXT, error_message TEXT, latency_ms {double}, owner TEXT, lease_until BIGINT,
    created_at BIGINT NOT NULL, started_at BIGINT, ended_at BIGINT, wants_score BIGINT DEFAULT '0' NOT NULL, score TEXT,
    CONSTRAINT pk_generations PRIMARY KEY (id)
);
CREATE INDEX ix_generations_newest ON generations (workspace_id, created_at, id);
CREATE INDEX ix_generations_batch ON generations (batch_id, batch_index);
CREATE INDEX ix_generations_ended_at ON generations (ended_at);
CREATE INDEX ix_generations_lease ON generations (lease_until) WHERE owner IS NOT NULL;

CREATE TABLE generation_batches (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, key_id TEXT NOT NULL, total BIGINT NOT NULL, open_count BIGINT NOT NULL,
    metadata TEXT NOT NULL, created_at BIGINT NOT NULL, ended_at BIGINT,
    CONSTRAINT pk_generation_batches PRIMARY KEY (id)
);
CREATE INDEX ix_generation_batches_newest ON generation_batches (workspace_id, created_at, id);
CREATE INDEX ix_generation_batches_ended_at ON generation_batches (ended_at);

CREATE TABLE prompt_templates (
    workspace_id BIGINT NOT NULL, slug TEXT NOT NULL, version BIGINT NOT NULL,
    CONSTRAINT pk_prompt_templates PRIMARY KEY (workspace_id, slug)
);

CREATE TABLE prompt_template_versions (
    workspace_id BIGINT NOT NULL, slug TEXT NOT NULL, version BIGINT NOT NULL, name TEXT NOT NULL, description TEXT NOT NULL,
    variables TEXT NOT NULL, messages TEXT NOT NULL, model TEXT, max_tokens BIGINT, temperature {double}, response_schema TEXT,
    created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
    CONSTRAINT pk_prompt_template_versions PRIMARY KEY (workspace_id, slug, version)
);

CREATE TABLE content_budgets (
    workspace_id BIGINT NOT NULL, key_id TEXT NOT NULL, daily_nanos BIGINT, updated_at BIGINT NOT NULL,
    CONSTRAINT pk_content_budgets PRIMARY KEY (workspace_id, key_id)
);

CREATE TABLE content_spending (
    workspace_id BIGINT NOT NULL, key_id TEXT NOT NULL, day TEXT NOT NULL, reserved_nanos BIGINT NOT NULL, spent_nanos BIGINT NOT NULL,
    CONSTRAINT pk_content_spending PRIMARY KEY (workspace_id, key_id, day)
);

CREATE TABLE content_usage (
    workspace_id BIGINT NOT NULL, day TEXT NOT NULL, key_id TEXT NOT NULL, model TEXT NOT NULL, requests BIGINT NOT NULL,
    succeeded BIGINT NOT NULL, failed BIGINT NOT NULL, cancelled BIGINT NOT NULL, input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL, cost_nanos BIGINT NOT NULL,
    CONSTRAINT pk_content_usage PRIMARY KEY (workspace_id, day, key_id, model)
);

CREATE TABLE notify_hosts (
    host TEXT NOT NULL, paid_until BIGINT NOT NULL,
    CONSTRAINT pk_notify_hosts PRIMARY KEY (host)
);
CREATE INDEX ix_notify_hosts_paid_until ON notify_hosts (paid_until);

CREATE TABLE content_reservations (
    id TEXT NOT NULL, workspace_id BIGINT NOT NULL, key_id TEXT NOT NULL, day TEXT NOT NULL, amount_nanos BIGINT NOT NULL,
    owner TEXT NOT NULL, lease_until BIGINT NOT NULL,
    CONSTRAINT pk_content_reservations PRIMARY KEY (id)
);
CREATE INDEX ix_content_reservations_lease_until ON content_reservations (lease_until);

CREATE TABLE processes (
    id TEXT NOT NULL, kind TEXT NOT NULL, host TEXT NOT NULL, pid BIGINT NOT NULL, place TEXT NOT NULL, folder TEXT NOT NULL,
    url TEXT NOT NULL, engines TEXT NOT NULL, started_at BIGINT NOT NULL, until BIGINT NOT NULL,
    CONSTRAINT pk_processes PRIMARY KEY (id)
);

CREATE TABLE agent_client_sessions (
    workspace_id BIGINT NOT NULL, client_session TEXT NOT NULL, session_id TEXT NOT NULL, used_at BIGINT NOT NULL,
    CONSTRAINT pk_agent_client_sessions PRIMARY KEY (workspace_id, client_session)
){clustered};
CREATE INDEX ix_agent_client_sessions_used_at ON agent_client_sessions (used_at);

CREATE TABLE agent_hook_marks (
    workspace_id BIGINT NOT NULL, client_session TEXT NOT NULL, kind TEXT NOT NULL, mark TEXT NOT NULL, created_at BIGINT NOT NULL,
    CONSTRAINT pk_agent_hook_marks PRIMARY KEY (workspace_id, client_session, kind, mark)
){clustered};
CREATE INDEX ix_agent_hook_marks_created_at ON agent_hook_marks (created_at);
