-- The tables, rows' owners and functions that every role of the service starts from.
--
-- Run as oc_migrate; everything made here belongs to oc_owner. `store::provision` made the roles:
--   oc_owner    owns, cannot log in
--   oc_migrate  runs migrations and backfills; sees every tenant
--   oc_app      gateways and workers; sees the tenant named by the setting oc.org, nothing without it
--   oc_sched    sees ids, counters and key hashes of all tenants, and can change nothing
SET LOCAL ROLE oc_owner;

CREATE TABLE cluster (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    -- The high bits of every fencing token: raised by `placement init`, a restore, a promoted standby.
    generation integer NOT NULL DEFAULT 0 CHECK (generation BETWEEN 0 AND 8388607),
    -- What every running build understands; new event and command versions wait for it.
    feature_level integer NOT NULL DEFAULT 1
);
INSERT INTO cluster DEFAULT VALUES;

CREATE TABLE organisation (
    org_id uuid PRIMARY KEY,
    name text NOT NULL,
    created_ms bigint NOT NULL
);

CREATE TABLE api_key (
    org_id uuid NOT NULL REFERENCES organisation,
    id text COLLATE "C" NOT NULL,
    hash bytea NOT NULL UNIQUE,
    name text NOT NULL,
    scopes text[] NOT NULL,
    created_ms bigint NOT NULL,
    expires_ms bigint,
    revoked_ms bigint,
    PRIMARY KEY (org_id, id)
);

CREATE TABLE project (
    org_id uuid NOT NULL REFERENCES organisation,
    id text COLLATE "C" NOT NULL,
    -- The directory that clients know the project by; unique, so that initialising it twice is one project.
    worktree text NOT NULL,
    created_ms bigint NOT NULL,
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, worktree)
);

CREATE TABLE location (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    project_id text COLLATE "C" NOT NULL,
    -- 'local': a path of the machine; 'managed': a folder that workers keep for it.
    kind text NOT NULL CHECK (kind IN ('local', 'managed')),
    directory text NOT NULL,
    -- The highest fencing token that has acted here. Only compared with tokens of this Location.
    fence bigint NOT NULL DEFAULT 0,
    created_ms bigint NOT NULL,
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, project_id, directory),
    FOREIGN KEY (org_id, project_id) REFERENCES project
);

-- The hot row. Narrow, updated in place; no index but the key and `ready`.
CREATE TABLE session_head (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    location_id text COLLATE "C" NOT NULL,
    -- The sequence number that the next event gets; the log is 1 .. next_seq - 1 without holes.
    next_seq bigint NOT NULL DEFAULT 1,
    claim bigint NOT NULL DEFAULT 0,
    -- Admitted inputs that are not promoted yet: a counter, since a sub-select would lose wakes.
    pending integer NOT NULL DEFAULT 0 CHECK (pending >= 0),
    -- A drain has taken work up and not ended.
    open boolean NOT NULL DEFAULT false,
    -- The last drain stopped on purpose (a graceful hand-over), so taking over is no recovery.
    handed_over boolean NOT NULL DEFAULT false,
    -- Takeovers in a row without a settled turn or call.
    recoveries smallint NOT NULL DEFAULT 0,
    -- The newest wake, the newest wake that is spent or parked, the newest interrupt: sequence numbers.
    wake_seq bigint NOT NULL DEFAULT 0,
    parked_seq bigint NOT NULL DEFAULT 0,
    interrupt_seq bigint NOT NULL DEFAULT 0,
    -- The highest id stamp that the session has seen (milliseconds * 4096 + counter).
    last_id bigint NOT NULL DEFAULT 0,
    ready boolean NOT NULL GENERATED ALWAYS AS ((wake_seq > parked_seq AND pending > 0) OR open) STORED,
    PRIMARY KEY (org_id, id),
    FOREIGN KEY (org_id, location_id) REFERENCES location
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
CREATE INDEX session_head_ready ON session_head (org_id, location_id, id) WHERE ready;
-- Raising a fence looks for a Location's sessions.
CREATE INDEX session_head_location ON session_head (org_id, location_id);

-- The durable log: the truth. Never rewritten, dropped only with its session.
CREATE TABLE session_event (
    org_id uuid NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    time_ms bigint NOT NULL,
    -- The claim it was written under, NULL for a gateway's writes: for audit, nothing refers to it.
    claim bigint,
    -- JSON as text: jsonb would reorder keys and rewrite numbers.
    payload text NOT NULL,
    PRIMARY KEY (org_id, session_id, seq)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

-- What requests are made of besides history, by content (design §3, Explain).
CREATE TABLE request_component (
    org_id uuid NOT NULL,
    hash bytea NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (org_id, hash)
);

-- ── Projections: only what the events hold, so that a rebuild gives the same bytes ────────────────

CREATE TABLE session (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    project_id text COLLATE "C" NOT NULL,
    location_id text COLLATE "C" NOT NULL,
    directory text NOT NULL,
    title text NOT NULL,
    agent text NOT NULL,
    provider text,
    model text,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL,
    outcome text,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    reasoning_tokens bigint NOT NULL DEFAULT 0,
    cache_read_tokens bigint NOT NULL DEFAULT 0,
    cache_write_tokens bigint NOT NULL DEFAULT 0,
    projector_version smallint NOT NULL,
    PRIMARY KEY (org_id, id)
) WITH (fillfactor = 80);
CREATE INDEX session_project ON session (org_id, project_id, id);

CREATE TABLE session_input (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    delivery text NOT NULL CHECK (delivery IN ('steer', 'queue')),
    status text NOT NULL CHECK (status IN ('admitted', 'promoted', 'cancelled')),
    -- The `prompt.admitted` payload.
    payload text NOT NULL,
    admitted_seq bigint NOT NULL,
    admitted_ms bigint NOT NULL,
    promoted_seq bigint,
    projector_version smallint NOT NULL,
    PRIMARY KEY (org_id, id)
) WITH (fillfactor = 80);
CREATE INDEX session_input_pending ON session_input (org_id, session_id, admitted_seq) WHERE status = 'admitted';
CREATE INDEX session_input_session ON session_input (org_id, session_id);

CREATE TABLE context_epoch (
    org_id uuid NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    epoch integer NOT NULL,
    baseline text NOT NULL,
    snapshot text NOT NULL,
    started_seq bigint NOT NULL,
    projector_version smallint NOT NULL,
    PRIMARY KEY (org_id, session_id, epoch)
);

CREATE TABLE mid_conversation_system_message (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    rendered text NOT NULL,
    seq bigint NOT NULL,
    projector_version smallint NOT NULL,
    PRIMARY KEY (org_id, id)
);
CREATE INDEX mid_conversation_system_message_session ON mid_conversation_system_message (org_id, session_id);

CREATE TABLE message (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    role text NOT NULL CHECK (role IN ('user', 'assistant', 'notice')),
    parent_id text COLLATE "C",
    turn_id text COLLATE "C",
    agent text,
    provider text,
    model text,
    created_ms bigint NOT NULL,
    completed_ms bigint,
    finish text,
    error_code text,
    error_message text,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    reasoning_tokens bigint NOT NULL DEFAULT 0,
    cache_read_tokens bigint NOT NULL DEFAULT 0,
    cache_write_tokens bigint NOT NULL DEFAULT 0,
    projector_version smallint NOT NULL,
    PRIMARY KEY (org_id, id)
) WITH (fillfactor = 80);
CREATE INDEX message_session ON message (org_id, session_id, seq);

CREATE TABLE part (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    -- The place in its message; while a reply is being written, the order of arrival.
    place integer NOT NULL,
    kind text NOT NULL CHECK (kind IN ('text', 'reasoning', 'tool')),
    text text,
    call_id text COLLATE "C",
    projector_version smallint NOT NULL,
    PRIMARY KEY (org_id, id)
) WITH (fillfactor = 80);
CREATE INDEX part_message ON part (org_id, session_id, message_id);

CREATE TABLE provider_turn (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    agent text NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    epoch integer NOT NULL,
    step integer NOT NULL,
    status text NOT NULL CHECK (status IN ('open', 'replied', 'settled')),
    outcome text,
    finish text,
    error_code text,
    error_message text,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    reasoning_tokens bigint NOT NULL DEFAULT 0,
    cache_read_tokens bigint NOT NULL DEFAULT 0,
    cache_write_tokens bigint NOT NULL DEFAULT 0,
    started_ms bigint NOT NULL,
    ended_ms bigint,
    projector_version smallint NOT NULL,
    PRIMARY KEY (org_id, id)
) WITH (fillfactor = 80);
CREATE INDEX provider_turn_session ON provider_turn (org_id, session_id, seq);

CREATE TABLE provider_attempt (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    ordinal integer NOT NULL,
    seq bigint NOT NULL,
    wire_version integer NOT NULL,
    body_hash text NOT NULL,
    epoch integer NOT NULL,
    through_seq bigint NOT NULL,
    components text NOT NULL,
    outcome text,
    error_code text,
    error_message text,
    input_tokens bigint,
    output_tokens bigint,
    started_ms bigint NOT NULL,
    ended_ms bigint,
    projector_version smallint NOT NULL,
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, turn_id, ordinal)
) WITH (fillfactor = 80);
CREATE INDEX provider_attempt_session ON provider_attempt (org_id, session_id);

CREATE TABLE tool_result (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    part_id text COLLATE "C" NOT NULL,
    provider_call text NOT NULL,
    tool text NOT NULL,
    class text NOT NULL CHECK (class IN ('pure', 'keyed', 'probe', 'unsafe')),
    state text NOT NULL CHECK (state IN ('intended', 'started', 'settled')),
    bodies integer NOT NULL,
    arguments text NOT NULL,
    called_seq bigint NOT NULL,
    called_ms bigint NOT NULL,
    settled_seq bigint,
    outcome text,
    title text,
    structured text,
    bounded_text text,
    managed_path text,
    truncated boolean,
    started_ms bigint,
    ended_ms bigint,
    projector_version smallint NOT NULL,
    PRIMARY KEY (org_id, id)
) WITH (fillfactor = 80);
CREATE INDEX tool_result_session ON tool_result (org_id, session_id, called_seq);

-- ── Who sees what ────────────────────────────────────────────────────────────────────────────────

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['organisation', 'api_key', 'project', 'location', 'session_head',
        'session_event', 'request_component', 'session', 'session_input', 'context_epoch',
        'mid_conversation_system_message', 'message', 'part', 'provider_turn', 'provider_attempt',
        'tool_result']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        -- A pooled connection that has served a tenant holds '' afterwards, not NULL.
        EXECUTE format(
            'CREATE POLICY tenant ON %I TO oc_app
                USING (org_id = nullif(current_setting(''oc.org'', true), '''')::uuid)
                WITH CHECK (org_id = nullif(current_setting(''oc.org'', true), '''')::uuid)', name);
        EXECUTE format('CREATE POLICY migrate ON %I TO oc_migrate USING (true) WITH CHECK (true)', name);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO oc_migrate', name);
        EXECUTE format('GRANT SELECT, INSERT, DELETE ON %I TO oc_app', name);
        IF name NOT IN ('session_event', 'request_component') THEN
            EXECUTE format('GRANT UPDATE ON %I TO oc_app', name);
        END IF;
    END LOOP;
END $$;

CREATE POLICY sched ON session_head FOR SELECT TO oc_sched USING (true);
CREATE POLICY sched ON location FOR SELECT TO oc_sched USING (true);
CREATE POLICY sched ON api_key FOR SELECT TO oc_sched USING (true);
GRANT SELECT (org_id, id, location_id, next_seq, claim, interrupt_seq, ready) ON session_head TO oc_sched;
GRANT SELECT (org_id, id, fence) ON location TO oc_sched;
GRANT SELECT (org_id, id, hash, scopes, expires_ms, revoked_ms) ON api_key TO oc_sched;
GRANT SELECT ON cluster TO oc_app, oc_sched, oc_migrate;
GRANT UPDATE ON cluster TO oc_migrate;
RESET ROLE;

-- Every role may ask which schema it meets. (The table is the migrator's own; a check of queries has none.)
DO $$
BEGIN
    IF to_regclass('public._sqlx_migrations') IS NOT NULL THEN
        GRANT SELECT ON _sqlx_migrations TO oc_app, oc_sched;
    END IF;
END $$;
