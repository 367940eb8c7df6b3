-- The tables of the service, who may see their rows, and first statistics. Functions are in crates/store/sql.
--
-- Run as oc_migrate; everything made here belongs to oc_owner. `store::provision` made the roles:
--   oc_owner    owns everything, cannot log in
--   oc_migrate  runs migrations and backfills; sees every tenant
--   oc_app      gateways and workers; sees the tenant named by the setting oc.org, nothing without it
--   oc_sched    reads ids, counters and key hashes of all tenants, and can change nothing
SET LOCAL ROLE oc_owner;

-- ── The cluster and its tenants ──────────────────────────────────────────────────────────────────

CREATE TABLE cluster (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    -- The high bits of every fencing token: raised by `placement init`, a restore, a promoted standby.
    generation integer NOT NULL DEFAULT 0 CHECK (generation BETWEEN 0 AND 8388607),
    -- What every running build understands. No migration changes it (migrations/README.md).
    feature_level integer NOT NULL DEFAULT 1
);
INSERT INTO cluster DEFAULT VALUES;

-- Work that one process of the cluster does from time to time, and when a process last began it.
CREATE TABLE chore (
    name text COLLATE "C" PRIMARY KEY,
    begun_ms bigint NOT NULL
);

-- The last good catalogs of models, which belong to no tenant; a body is compressed.
CREATE TABLE catalog_snapshot (
    version text COLLATE "C" PRIMARY KEY,
    source text NOT NULL,
    fetched_ms bigint NOT NULL,
    body bytea NOT NULL
);

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

-- Instructions of an organisation for all its sessions: the layer above its projects' files.
CREATE TABLE organisation_instructions (
    org_id uuid PRIMARY KEY REFERENCES organisation,
    text text NOT NULL,
    updated_ms bigint NOT NULL
);

CREATE TABLE project (
    org_id uuid NOT NULL REFERENCES organisation,
    id text COLLATE "C" NOT NULL,
    -- The space that the project belongs to; '' is the organisation's own.
    space text COLLATE "C" NOT NULL DEFAULT '',
    -- The directory that clients know the project by; unique, so that initialising it twice gives one project.
    worktree text NOT NULL,
    created_ms bigint NOT NULL,
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, space, worktree)
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
    -- Whose files the Location begins with, and which snapshot of them: the copy of a Fork or a Move.
    seed_location text COLLATE "C",
    seed_tree text COLLATE "C",
    created_ms bigint NOT NULL,
    -- When it was first seen unused: no session is or was there, and no other Location began with its files.
    unused_ms bigint,
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, project_id, directory),
    FOREIGN KEY (org_id, project_id) REFERENCES project
);
-- Most Locations begin with no files, and pay nothing for it.
CREATE INDEX location_seed ON location (org_id, seed_location) WHERE seed_location IS NOT NULL;

-- Locations that were deleted because nothing used them: their packs go next, and then workers remove their folders.
CREATE TABLE gone_location (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    gone_ms bigint NOT NULL,
    -- Some rows of its packs may be left.
    packs boolean NOT NULL DEFAULT true,
    PRIMARY KEY (org_id, id)
);

-- ── Sessions: the head and the log are the truth ─────────────────────────────────────────────────

-- Numbers the sessions of the cluster in the order in which they were made. A session that is deleted and made
-- again under the same id has another number. Claims hold it in their high bits, so it has 31 bits.
CREATE SEQUENCE session_incarnation AS bigint MAXVALUE 2147483647;

-- The hot row. Narrow, updated in place. A turn changes `ready` twice, and writes every index of this table each time:
-- others belong to `session`.
CREATE TABLE session_head (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    -- From session_incarnation, and never changed: it tells this session from an earlier one with the same id.
    incarnation bigint NOT NULL,
    location_id text COLLATE "C" NOT NULL,
    -- The sequence number that the next event gets; the log is 1 .. next_seq - 1 without holes.
    next_seq bigint NOT NULL DEFAULT 1,
    -- Begins at `incarnation << 32` and only grows, so no claim of an earlier session with this id is ever equal.
    claim bigint NOT NULL,
    -- Raised when it changes who may see or use the session. Begins at `incarnation << 32` for the same reason.
    access_gen bigint NOT NULL,
    -- Admitted inputs that are not promoted yet: a counter, since a sub-select would lose wakes.
    pending integer NOT NULL DEFAULT 0,
    -- A drain has taken work up and not ended.
    open boolean NOT NULL DEFAULT false,
    -- The open drain waits for somebody's answer and needs no worker until it comes.
    asleep boolean NOT NULL DEFAULT false,
    -- The last drain stopped on purpose (a graceful hand-over), so taking over is no recovery.
    handed_over boolean NOT NULL DEFAULT false,
    -- Takeovers in a row without a settled turn or call.
    recoveries smallint NOT NULL DEFAULT 0,
    -- The newest wake, the newest wake that is spent or parked, the newest interrupt: sequence numbers.
    wake_seq bigint NOT NULL DEFAULT 0,
    parked_seq bigint NOT NULL DEFAULT 0,
    interrupt_seq bigint NOT NULL DEFAULT 0,
    -- The `revert.staged` that waits; 0 without one. Admission looks at nothing but the head.
    staged_seq bigint NOT NULL DEFAULT 0,
    -- The highest id stamp that the session has seen (milliseconds * 4096 + counter).
    last_id bigint NOT NULL DEFAULT 0,
    ready boolean NOT NULL GENERATED ALWAYS AS
        (((wake_seq > parked_seq AND pending > 0) OR open) AND NOT asleep) STORED,
    PRIMARY KEY (org_id, id),
    -- One check: Postgres reads the text of each anew for every statement that writes the row.
    CHECK (pending >= 0 AND (open OR NOT asleep))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
CREATE INDEX session_head_ready ON session_head (org_id, location_id, id) WHERE ready;

-- The rows of a session name it by its head's incarnation, which no other session of the cluster has. It is a number:
-- an eighth of an id's bytes in a row and in each index, and pages that fill up. Columns come in this order: fixed ones, so that
-- nothing is lost to alignment; text that stays; what changes, since the log of Postgres holds what comes after the first
-- change.

-- The durable log: the truth. Never rewritten, dropped only with its session.
CREATE TABLE session_event (
    incarnation integer NOT NULL,
    seq integer NOT NULL,
    time_ms bigint NOT NULL,
    -- The claim it was written under, NULL for a gateway's writes: for audit, nothing refers to it.
    claim bigint,
    -- The fencing token of a drain that begins with this event, for audit: `opencode-cloud check` shows a stale one.
    -- NULL of every other event, and of a start that wrote none.
    token bigint,
    version integer NOT NULL,
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    -- JSON as text: jsonb would reorder keys and rewrite numbers.
    payload text NOT NULL,
    PRIMARY KEY (incarnation, seq)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

-- The parts of requests besides history (System Context, tool descriptions), by content. A list of components, JSON of
-- name and hash, is a component too.
CREATE TABLE request_component (
    org_id uuid NOT NULL,
    hash bytea NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (org_id, hash)
);

-- The components of each list. They stay as long as it does.
CREATE TABLE component_member (
    org_id uuid NOT NULL,
    list bytea NOT NULL,
    member bytea NOT NULL,
    PRIMARY KEY (org_id, list, member),
    FOREIGN KEY (org_id, list) REFERENCES request_component ON DELETE CASCADE,
    CONSTRAINT component_member_named FOREIGN KEY (org_id, member) REFERENCES request_component
);
CREATE INDEX component_member_member ON component_member (org_id, member);

-- The snapshots of a Location's files, in the order of (token, ordinal). No projection: packs are stored before
-- their rows, and outlive the session whose drain made them. They go with their Location.
CREATE TABLE workspace_pack (
    org_id uuid NOT NULL,
    location_id text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    ordinal bigint NOT NULL,
    tree text COLLATE "C" NOT NULL,
    parent text COLLATE "C",
    -- The object that holds what is new in the tree; NULL when earlier packs hold all of it.
    pack text COLLATE "C",
    bytes bigint NOT NULL,
    created_ms bigint NOT NULL,
    PRIMARY KEY (org_id, location_id, token, ordinal)
);
-- Few rows have a pack of their own: the others cost nothing.
CREATE INDEX workspace_pack_pack ON workspace_pack (org_id, pack) WHERE pack IS NOT NULL;

-- Blobs that no row names, and since when that is known: they are deleted once no backup can need them.
CREATE TABLE unnamed_blob (
    org_id uuid NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('tool-output', 'snapshot')),
    name text COLLATE "C" NOT NULL,
    -- When that was seen first.
    since_ms bigint NOT NULL,
    PRIMARY KEY (org_id, kind, name)
);

-- ── Projections: only what the events hold, so that a rebuild gives the same bytes ────────────────
--
-- No checks of words such as `status`: Postgres reads a check's text anew for every statement that writes the
-- table, which was a tenth of a turn's CPU. Only the projector writes these columns, from types that have no
-- other values.

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
    variant text,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL,
    outcome text,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    reasoning_tokens bigint NOT NULL DEFAULT 0,
    cache_read_tokens bigint NOT NULL DEFAULT 0,
    cache_write_tokens bigint NOT NULL DEFAULT 0,
    cost_nanos bigint NOT NULL DEFAULT 0,
    parent_id text COLLATE "C",
    -- The session whose conversation it began with.
    fork_of text COLLATE "C",
    -- A user or a model has given it its title: none is generated.
    titled boolean NOT NULL DEFAULT false,
    -- When the compaction that runs began.
    compacting_ms bigint,
    -- The payload of the `revert.staged` that waits.
    revert text,
    -- A JSON list of {model, provider, text, time}: what the person who chose a model should know of it.
    notices text,
    projector_version smallint NOT NULL,
    -- Its head's; a turn changes no column that an index of this table has.
    incarnation bigint NOT NULL UNIQUE,
    PRIMARY KEY (org_id, id),
    FOREIGN KEY (org_id, location_id) REFERENCES location
) WITH (fillfactor = 80);
-- Raising a fence looks for a Location's sessions.
CREATE INDEX session_location ON session (org_id, location_id);
-- Lists of sessions, newest first: of the organisation, of a project, and of a directory.
CREATE INDEX session_created ON session (org_id, created_ms DESC, id);
CREATE INDEX session_project ON session (org_id, project_id, created_ms DESC, id);
-- An index entry has at most 2,704 bytes, and a directory may have 4,096.
CREATE INDEX session_directory ON session (org_id, left(directory, 512), created_ms DESC, id);
-- Most sessions have no parent, and pay nothing for it.
CREATE INDEX session_parent ON session (org_id, parent_id) WHERE parent_id IS NOT NULL;

-- Locations that a session has left. They stay as long as it does: its log names them, and a Fork may begin with the
-- files that it had there.
CREATE TABLE left_location (
    org_id uuid NOT NULL,
    incarnation bigint NOT NULL,
    location_id text COLLATE "C" NOT NULL,
    projector_version smallint NOT NULL,
    PRIMARY KEY (incarnation, location_id),
    FOREIGN KEY (org_id, location_id) REFERENCES location
);
CREATE INDEX left_location_location ON left_location (org_id, location_id);

CREATE TABLE session_entry (
    org_id uuid NOT NULL,
    incarnation bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    -- JSON text, the client's bytes.
    value text NOT NULL,
    seq bigint NOT NULL,
    projector_version smallint NOT NULL,
    PRIMARY KEY (incarnation, key)
);

-- What was admitted is in its event, `prompt.admitted` or `control.admitted`, and not again here.
CREATE TABLE session_input (
    incarnation integer NOT NULL,
    admitted_seq integer NOT NULL,
    admitted_ms bigint NOT NULL,
    projector_version smallint NOT NULL,
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    -- `prompt`, `synthetic` (no user wrote it) or the name of a control.
    kind text NOT NULL DEFAULT 'prompt',
    delivery text NOT NULL,
    -- The newest wake for it: 0 for an input that was only stored. It starts a drain while it is above the
    -- head's parked_seq.
    wake_seq integer NOT NULL DEFAULT 0,
    status text NOT NULL,
    promoted_seq integer,
    PRIMARY KEY (org_id, id)
) WITH (fillfactor = 85);
-- Of all, not of those that wait: a promotion would have to take its row out of such an index.
CREATE INDEX session_input_session ON session_input (incarnation, admitted_seq);

CREATE TABLE context_epoch (
    org_id uuid NOT NULL,
    incarnation bigint NOT NULL,
    epoch integer NOT NULL,
    -- Why it began.
    reason text,
    baseline text NOT NULL,
    snapshot text NOT NULL,
    started_seq bigint NOT NULL,
    projector_version smallint NOT NULL,
    PRIMARY KEY (incarnation, epoch)
);

CREATE TABLE mid_conversation_system_message (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    incarnation bigint NOT NULL,
    rendered text NOT NULL,
    seq bigint NOT NULL,
    projector_version smallint NOT NULL,
    PRIMARY KEY (org_id, id)
);
CREATE INDEX mid_conversation_system_message_session ON mid_conversation_system_message (incarnation, seq);

CREATE TABLE message (
    incarnation integer NOT NULL,
    seq integer NOT NULL,
    created_ms bigint NOT NULL,
    projector_version smallint NOT NULL,
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    role text NOT NULL,
    parent_id text COLLATE "C",
    turn_id text COLLATE "C",
    -- Set when no user wrote it: what it is, for people.
    synthetic text,
    agent text,
    provider text,
    model text,
    variant text,
    finish text,
    error_code text,
    error_message text,
    completed_ms bigint,
    -- What a turn used; NULL in a message without one.
    input_tokens bigint,
    output_tokens bigint,
    reasoning_tokens bigint,
    cache_read_tokens bigint,
    cache_write_tokens bigint,
    cost_nanos bigint,
    PRIMARY KEY (org_id, id)
) WITH (fillfactor = 85);
CREATE INDEX message_session ON message (incarnation, seq);

CREATE TABLE part (
    incarnation integer NOT NULL,
    seq integer NOT NULL,
    -- The place in its message; while a reply is being written, the order of arrival.
    place integer NOT NULL,
    projector_version smallint NOT NULL,
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    call_id text COLLATE "C",
    text text,
    -- One index for all that is asked: the parts of a session, of a message, and this one.
    PRIMARY KEY (incarnation, message_id, id)
);

CREATE TABLE provider_turn (
    incarnation integer NOT NULL,
    seq integer NOT NULL,
    started_ms bigint NOT NULL,
    epoch integer NOT NULL,
    step integer NOT NULL,
    projector_version smallint NOT NULL,
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    -- 'turn', 'compaction' or 'title'; `reason` says why a compaction began.
    kind text NOT NULL DEFAULT 'turn',
    reason text,
    agent text NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    status text NOT NULL,
    outcome text,
    finish text,
    error_code text,
    error_message text,
    ended_ms bigint,
    input_tokens bigint,
    output_tokens bigint,
    reasoning_tokens bigint,
    cache_read_tokens bigint,
    cache_write_tokens bigint,
    cost_nanos bigint,
    PRIMARY KEY (org_id, id)
) WITH (fillfactor = 85);
CREATE INDEX provider_turn_session ON provider_turn (incarnation, seq);

-- Where the log has an attempt, by its id: its request and its end are in its events, and not again here.
CREATE TABLE provider_attempt (
    incarnation integer NOT NULL,
    seq integer NOT NULL,
    -- The table of prices that the request is paid with, and the most that it was expected to cost.
    estimate_nanos bigint,
    projector_version smallint NOT NULL,
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    price_version text,
    PRIMARY KEY (org_id, id)
);
CREATE INDEX provider_attempt_session ON provider_attempt (incarnation, seq);

-- The components that a session's attempts name: their lists, most often one of a session. A component that is named
-- cannot be deleted: naming it locks it, and fails when it is gone.
CREATE TABLE session_component (
    incarnation integer NOT NULL,
    projector_version smallint NOT NULL,
    org_id uuid NOT NULL,
    hash bytea NOT NULL,
    PRIMARY KEY (incarnation, hash),
    CONSTRAINT session_component_named FOREIGN KEY (org_id, hash) REFERENCES request_component
);
CREATE INDEX session_component_hash ON session_component (org_id, hash);

CREATE TABLE tool_result (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    incarnation bigint NOT NULL,
    turn_id text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    part_id text COLLATE "C" NOT NULL,
    provider_call text NOT NULL,
    tool text NOT NULL,
    class text NOT NULL,
    state text NOT NULL,
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
CREATE INDEX tool_result_session ON tool_result (incarnation, called_seq);
-- Few results are too long for their row: the others cost nothing.
CREATE INDEX tool_result_managed ON tool_result (org_id, managed_path) WHERE managed_path IS NOT NULL;

-- The changes of a session's files between two snapshots.
CREATE TABLE workspace_change (
    org_id uuid NOT NULL,
    incarnation bigint NOT NULL,
    seq bigint NOT NULL,
    turn_id text COLLATE "C",
    -- The first snapshot of a Location: nothing has changed in it.
    base boolean NOT NULL,
    tree text COLLATE "C" NOT NULL,
    parent text COLLATE "C",
    -- JSON text: path, status, counted lines and a patch of each file.
    files text NOT NULL,
    -- How many files are left out.
    more bigint NOT NULL,
    projector_version smallint NOT NULL,
    PRIMARY KEY (incarnation, seq)
);

-- ── Model providers ──────────────────────────────────────────────────────────────────────────────

-- Data keys, each wrapped by a master key that the database never sees. A new master key rewraps these rows alone.
CREATE TABLE organisation_secret (
    org_id uuid NOT NULL REFERENCES organisation,
    id integer NOT NULL,
    -- The master key that wraps it.
    key_id text NOT NULL,
    wrapped bytea NOT NULL,
    created_ms bigint NOT NULL,
    PRIMARY KEY (org_id, id)
);

CREATE TABLE credential (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    -- A user's name, '' for the organisation's own.
    owner text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    label text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('api-key', 'oauth', 'aws')),
    -- The last characters, for people; '' when so much of it must not be shown.
    hint text NOT NULL,
    -- Bound to organisation, id and version: a row's secret opens nowhere else.
    sealed bytea NOT NULL,
    secret_id integer NOT NULL,
    version bigint NOT NULL,
    -- When its access token ends; NULL: never, or nobody knows.
    expires_ms bigint,
    -- Until when one process of the cluster may refresh it, by the database's clock.
    refresh_until_ms bigint NOT NULL DEFAULT 0,
    -- The one of its owner that turns use.
    active boolean NOT NULL,
    -- Why the provider does not take it any more; NULL while it does.
    fault text,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL,
    PRIMARY KEY (org_id, id),
    UNIQUE (org_id, provider, owner, label),
    FOREIGN KEY (org_id, secret_id) REFERENCES organisation_secret
);
CREATE UNIQUE INDEX credential_active ON credential (org_id, provider, owner) WHERE active;
CREATE INDEX credential_secret ON credential (org_id, secret_id);

-- A sign-in at a provider that somebody has begun.
CREATE TABLE oauth_attempt (
    org_id uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    label text NOT NULL,
    method text NOT NULL CHECK (method IN ('code', 'device')),
    -- The verifier, or the device code. Emptied when the attempt ends.
    sealed bytea NOT NULL,
    secret_id integer NOT NULL,
    status text NOT NULL CHECK (status IN ('pending', 'complete', 'failed')),
    -- Why it failed, for people.
    message text,
    -- The credential that it made.
    credential_id text COLLATE "C",
    expires_ms bigint NOT NULL,
    -- The provider is not asked before this, by the database's clock: a lease, and the device flow's interval.
    ask_after_ms bigint NOT NULL DEFAULT 0,
    created_ms bigint NOT NULL,
    PRIMARY KEY (org_id, id),
    FOREIGN KEY (org_id, secret_id) REFERENCES organisation_secret
);
CREATE INDEX oauth_attempt_expires ON oauth_attempt (org_id, expires_ms);
CREATE INDEX oauth_attempt_secret ON oauth_attempt (org_id, secret_id);

CREATE TABLE provider_setting (
    org_id uuid NOT NULL REFERENCES organisation,
    provider text COLLATE "C" NOT NULL,
    -- JSON, which the store does not read.
    settings text NOT NULL,
    -- The secret of its OAuth client, bound to organisation, provider and version; NULL without one.
    sealed bytea,
    secret_id integer,
    version bigint NOT NULL,
    updated_ms bigint NOT NULL,
    PRIMARY KEY (org_id, provider),
    FOREIGN KEY (org_id, secret_id) REFERENCES organisation_secret,
    CHECK ((sealed IS NULL) = (secret_id IS NULL))
);
CREATE INDEX provider_setting_secret ON provider_setting (org_id, secret_id);

-- The requests of an organisation to a provider in the last 66 seconds, newest first: the open second, the 60 of
-- a minute, and 5 for the way from here to the provider.
CREATE TABLE provider_rate (
    org_id uuid NOT NULL REFERENCES organisation,
    provider text COLLATE "C" NOT NULL,
    slots bigint[] NOT NULL DEFAULT array_fill(0::bigint, ARRAY[66]),
    tokens bigint[] NOT NULL DEFAULT array_fill(0::bigint, ARRAY[66]),
    -- The second of the first slot.
    at bigint NOT NULL DEFAULT 0,
    -- A provider that said "too many" is asked again after this.
    held_until_ms bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (org_id, provider)
) WITH (fillfactor = 50);

-- ── Who sees what ────────────────────────────────────────────────────────────────────────────────

-- Functions are replaced by `migrate` (crates/store/sql); these are the rights of each new one.
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO oc_app, oc_migrate;

DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT c.table_name FROM information_schema.columns c
        WHERE c.table_schema = 'public' AND c.column_name = 'org_id'
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
        IF name NOT IN ('session_head', 'session_event', 'request_component', 'workspace_pack') THEN
            EXECUTE format('GRANT UPDATE ON %I TO oc_app', name);
        END IF;
    END LOOP;
END $$;
-- All of the head but its key and its incarnation.
GRANT UPDATE (location_id, next_seq, claim, access_gen, pending, open, asleep, handed_over, recoveries, wake_seq,
    parked_seq, interrupt_seq, staged_seq, last_id) ON session_head TO oc_app;
-- Nobody changes it: who deletes a component locks it first, and Postgres wants this right for the lock.
GRANT UPDATE (hash) ON request_component TO oc_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON catalog_snapshot, chore TO oc_app, oc_migrate;
GRANT SELECT ON cluster TO oc_app, oc_sched, oc_migrate;
GRANT UPDATE ON cluster TO oc_migrate;
GRANT USAGE ON SEQUENCE session_incarnation TO oc_app;
-- A raised generation raises it too.
GRANT ALL ON SEQUENCE session_incarnation TO oc_migrate;

CREATE POLICY sched ON session_head FOR SELECT TO oc_sched USING (true);
CREATE POLICY sched ON location FOR SELECT TO oc_sched USING (true);
CREATE POLICY sched ON api_key FOR SELECT TO oc_sched USING (true);
-- A process that collects what nothing names goes through all organisations.
CREATE POLICY sched ON organisation FOR SELECT TO oc_sched USING (true);
-- A process that rewraps data keys asks which organisations still have one under another master key.
CREATE POLICY sched ON organisation_secret FOR SELECT TO oc_sched USING (true);
GRANT SELECT (org_id, id, incarnation, location_id, next_seq, claim, access_gen, interrupt_seq, ready)
    ON session_head TO oc_sched;
GRANT SELECT (org_id, id, fence) ON location TO oc_sched;
GRANT SELECT (org_id) ON organisation TO oc_sched;
GRANT SELECT (org_id, id, hash, scopes, expires_ms, revoked_ms) ON api_key TO oc_sched;
GRANT SELECT (org_id, id, key_id) ON organisation_secret TO oc_sched;
RESET ROLE;

-- Every role may ask which schema it meets. (The table is the migrator's own; a check of queries has none.)
DO $$
BEGIN
    IF to_regclass('public._sqlx_migrations') IS NOT NULL THEN
        GRANT SELECT ON _sqlx_migrations TO oc_app, oc_sched;
    END IF;
END $$;

-- ── Statistics for the planner before anything is stored ─────────────────────────────────────────
--
-- An organisation has many sessions, and a session has many rows. Without statistics the planner takes
-- `org_id = …` alone for as selective as a whole key, and an index that merely begins with org_id for as good as
-- the key's: every statement on a fresh database would read all rows of the organisation, with a plan that
-- connections keep. So some rows are put in, analysed, and taken out; their statistics stay until the tables have
-- rows of their own to analyse.
DO $$
DECLARE
    o CONSTANT uuid := 'ffffffff-0000-4000-8000-000000000000';
    -- 20 sessions of 50 rows each.
    sessions CONSTANT integer := 20;
    rows_each CONSTANT integer := 50;
BEGIN
    INSERT INTO organisation VALUES (o, 'statistics', 0);
    INSERT INTO project (org_id, id, worktree, created_ms) VALUES (o, 'p', '/', 0);
    INSERT INTO location (org_id, id, project_id, kind, directory, created_ms)
    SELECT o, 'l' || n, 'p', 'local', '/' || n, 0 FROM generate_series(1, sessions) AS n;
    INSERT INTO session_head (org_id, id, incarnation, claim, access_gen, location_id)
    SELECT o, 's' || n, n, n, n, 'l' || (n % sessions + 1) FROM generate_series(1, sessions * rows_each) AS n;
    INSERT INTO session (org_id, id, project_id, location_id, directory, title, agent, created_ms, updated_ms,
        projector_version, incarnation)
    SELECT o, 's' || n, 'p' || n % sessions, 'l' || (n % sessions + 1), '/', '', '', n, n, 0, n
    FROM generate_series(1, sessions * rows_each) AS n;
    CREATE TEMPORARY TABLE seed ON COMMIT DROP AS
    SELECT s AS session, 'r' || s || '-' || n AS row, s * rows_each + n AS seq
    FROM generate_series(1, sessions) AS s, generate_series(1, rows_each) AS n;
    INSERT INTO session_event (org_id, incarnation, seq, id, kind, version, time_ms, payload)
    SELECT o, session, seq, row, 'kind', 1, seq, row FROM seed;
    INSERT INTO session_input (org_id, id, incarnation, delivery, status, admitted_seq, admitted_ms,
        projector_version)
    SELECT o, row, session, 'steer', CASE seq % 50 WHEN 0 THEN 'admitted' ELSE 'promoted' END, seq, seq, 0
    FROM seed;
    INSERT INTO context_epoch (org_id, incarnation, epoch, baseline, snapshot, started_seq, projector_version)
    SELECT o, session, seq, '', '', seq, 0 FROM seed;
    INSERT INTO mid_conversation_system_message SELECT o, row, session, '', seq, 0 FROM seed;
    INSERT INTO message (org_id, id, incarnation, seq, role, created_ms, projector_version)
    SELECT o, row, session, seq, 'user', seq, 0 FROM seed;
    INSERT INTO part (org_id, id, incarnation, message_id, seq, place, kind, text, projector_version)
    SELECT o, row, session, row, seq, 1, 'text', row, 0 FROM seed;
    INSERT INTO provider_turn (org_id, id, incarnation, message_id, seq, agent, provider, model, epoch, step,
        status, started_ms, projector_version)
    SELECT o, row, session, row, seq, '', '', '', 1, 1, 'settled', seq, 0 FROM seed;
    INSERT INTO provider_attempt (org_id, id, incarnation, turn_id, seq, projector_version)
    SELECT o, row, session, row, seq, 0 FROM seed;
    INSERT INTO request_component SELECT o, row::bytea, '' FROM seed;
    INSERT INTO component_member SELECT o, ('r' || session || '-1')::bytea, row::bytea FROM seed;
    INSERT INTO session_component (org_id, incarnation, hash, projector_version)
    SELECT o, session, row::bytea, 0 FROM seed;
    INSERT INTO left_location SELECT o, session, 'l' || session, 0 FROM seed ON CONFLICT DO NOTHING;
    INSERT INTO tool_result (org_id, id, incarnation, turn_id, message_id, part_id, provider_call, tool, class,
        state, bodies, arguments, called_seq, called_ms, projector_version)
    SELECT o, row, session, row, row, row, row, 'read', 'pure', 'settled', 1, '{}', seq, seq, 0 FROM seed;
    INSERT INTO workspace_change (org_id, incarnation, seq, base, tree, files, more, projector_version)
    SELECT o, session, seq, false, row, '[]', 0, 0 FROM seed;
    INSERT INTO workspace_pack (org_id, location_id, token, ordinal, tree, bytes, created_ms)
    SELECT o, 'ls' || session, seq / 10, seq, row, seq, seq FROM seed;
END $$;
SET LOCAL ROLE oc_owner;
ANALYZE organisation, project, location, session_head, session, session_event, session_input, context_epoch,
    mid_conversation_system_message, message, part, provider_turn, provider_attempt, tool_result, workspace_change,
    workspace_pack, request_component, component_member, session_component, left_location;
RESET ROLE;
DO $$
DECLARE
    o CONSTANT uuid := 'ffffffff-0000-4000-8000-000000000000';
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['workspace_pack', 'workspace_change', 'tool_result', 'left_location',
        'session_component', 'component_member', 'request_component', 'provider_attempt', 'provider_turn', 'part',
        'message', 'mid_conversation_system_message', 'context_epoch', 'session_input', 'session_event',
        'session', 'session_head', 'location', 'project', 'organisation']
    LOOP
        EXECUTE format('DELETE FROM %I WHERE org_id = $1', name) USING o;
    END LOOP;
END $$;
