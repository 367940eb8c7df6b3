-- How much organisations use the service, in hours and days of UTC, and how far each session is counted (docs/decisions/0076).
SET LOCAL ROLE oc_owner;

-- How far an organisation's sessions are known to be counted: a snapshot of Postgres, as readers of session_change keep it.
CREATE TABLE usage_cursor (
    org_id uuid PRIMARY KEY REFERENCES organisation,
    next_xid xid8 NOT NULL,
    running xid8[] NOT NULL,
    -- When that was read, by the database's clock.
    read_ms bigint NOT NULL
);

-- The events of each session that are counted: those above `first`, up to `last`. What an import brought was used
-- elsewhere, so it is below `first`.
CREATE TABLE usage_through (
    incarnation bigint PRIMARY KEY,
    org_id uuid NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL
);

-- Sums by all dimensions, for each hour.
CREATE TABLE usage_hourly (
    org_id uuid NOT NULL,
    -- The beginning of the hour.
    starts_ms bigint NOT NULL,
    -- The author of the newest prompt then: a person or service account, else a key; '' when nobody knows.
    person text COLLATE "C" NOT NULL,
    project text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    provider text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    sessions bigint NOT NULL,
    prompts bigint NOT NULL,
    turns bigint NOT NULL,
    -- Turns that failed, and those that were interrupted.
    failed bigint NOT NULL,
    interrupted bigint NOT NULL,
    -- The time from the beginning to the end of turns.
    turn_ms bigint NOT NULL,
    -- Wire requests, those that were made again after a failure, and those whose model has no price.
    requests bigint NOT NULL,
    retries bigint NOT NULL,
    unpriced bigint NOT NULL,
    compactions bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    cost_nanos bigint NOT NULL,
    tool_calls bigint NOT NULL,
    tool_failures bigint NOT NULL,
    lines_added bigint NOT NULL,
    lines_removed bigint NOT NULL,
    PRIMARY KEY (org_id, starts_ms, person, project, agent, provider, model)
);
-- The same for each day. A person's or a project's days are few rows of many: each has its order.
CREATE TABLE usage_daily (
    LIKE usage_hourly INCLUDING ALL,
    UNIQUE (org_id, person, starts_ms, project, agent, provider, model),
    UNIQUE (org_id, project, starts_ms, person, agent, provider, model)
);
-- The part of it that came from sessions which are deleted: a recount cannot see those.
CREATE TABLE usage_gone (LIKE usage_hourly INCLUDING ALL);

-- Days by model and agent, by person, and by project: what most questions need, in a few rows.
CREATE TABLE usage_model (
    org_id uuid NOT NULL,
    starts_ms bigint NOT NULL,
    provider text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    sessions bigint NOT NULL, prompts bigint NOT NULL, turns bigint NOT NULL, failed bigint NOT NULL,
    interrupted bigint NOT NULL, turn_ms bigint NOT NULL, requests bigint NOT NULL, retries bigint NOT NULL,
    unpriced bigint NOT NULL, compactions bigint NOT NULL, input_tokens bigint NOT NULL, output_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL, cache_read_tokens bigint NOT NULL, cache_write_tokens bigint NOT NULL,
    cost_nanos bigint NOT NULL, tool_calls bigint NOT NULL, tool_failures bigint NOT NULL, lines_added bigint NOT NULL,
    lines_removed bigint NOT NULL,
    PRIMARY KEY (org_id, starts_ms, provider, model, agent)
);
CREATE TABLE usage_person (
    org_id uuid NOT NULL,
    starts_ms bigint NOT NULL,
    person text COLLATE "C" NOT NULL,
    sessions bigint NOT NULL, prompts bigint NOT NULL, turns bigint NOT NULL, failed bigint NOT NULL,
    interrupted bigint NOT NULL, turn_ms bigint NOT NULL, requests bigint NOT NULL, retries bigint NOT NULL,
    unpriced bigint NOT NULL, compactions bigint NOT NULL, input_tokens bigint NOT NULL, output_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL, cache_read_tokens bigint NOT NULL, cache_write_tokens bigint NOT NULL,
    cost_nanos bigint NOT NULL, tool_calls bigint NOT NULL, tool_failures bigint NOT NULL, lines_added bigint NOT NULL,
    lines_removed bigint NOT NULL,
    PRIMARY KEY (org_id, starts_ms, person)
);
CREATE TABLE usage_project (
    org_id uuid NOT NULL,
    starts_ms bigint NOT NULL,
    project text COLLATE "C" NOT NULL,
    sessions bigint NOT NULL, prompts bigint NOT NULL, turns bigint NOT NULL, failed bigint NOT NULL,
    interrupted bigint NOT NULL, turn_ms bigint NOT NULL, requests bigint NOT NULL, retries bigint NOT NULL,
    unpriced bigint NOT NULL, compactions bigint NOT NULL, input_tokens bigint NOT NULL, output_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL, cache_read_tokens bigint NOT NULL, cache_write_tokens bigint NOT NULL,
    cost_nanos bigint NOT NULL, tool_calls bigint NOT NULL, tool_failures bigint NOT NULL, lines_added bigint NOT NULL,
    lines_removed bigint NOT NULL,
    PRIMARY KEY (org_id, starts_ms, project)
);

-- Days by tool, and by the end of turns. `code` is the error's.
CREATE TABLE usage_tool (
    org_id uuid NOT NULL,
    starts_ms bigint NOT NULL,
    tool text COLLATE "C" NOT NULL,
    outcome text COLLATE "C" NOT NULL,
    calls bigint NOT NULL,
    -- The time that their bodies ran.
    run_ms bigint NOT NULL,
    PRIMARY KEY (org_id, starts_ms, tool, outcome)
);
CREATE TABLE usage_outcome (
    org_id uuid NOT NULL,
    starts_ms bigint NOT NULL,
    provider text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    -- The end of a turn, or 'retried': a wire request that was made again.
    outcome text COLLATE "C" NOT NULL,
    code text COLLATE "C" NOT NULL,
    turns bigint NOT NULL,
    turn_ms bigint NOT NULL,
    PRIMARY KEY (org_id, starts_ms, provider, model, outcome, code)
);

-- The facts that some events of a session add, by everything that sums are kept by.
CREATE TYPE usage_fact AS (
    starts_ms bigint, person text, project text, agent text, provider text, model text,
    -- Of ended calls and turns only.
    tool text, outcome text, code text, run_ms bigint,
    sessions bigint, prompts bigint, turns bigint, failed bigint, interrupted bigint, turn_ms bigint, requests bigint,
    retries bigint, unpriced bigint, compactions bigint, input_tokens bigint, output_tokens bigint,
    reasoning_tokens bigint, cache_read_tokens bigint, cache_write_tokens bigint, cost_nanos bigint, tool_calls bigint,
    tool_failures bigint, lines_added bigint, lines_removed bigint
);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['usage_cursor', 'usage_through', 'usage_hourly', 'usage_daily', 'usage_gone',
        'usage_model', 'usage_person', 'usage_project', 'usage_tool', 'usage_outcome'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY tenant ON %I TO oc_app
                USING (org_id = nullif(current_setting(''oc.org'', true), '''')::uuid)
                WITH CHECK (org_id = nullif(current_setting(''oc.org'', true), '''')::uuid)', name);
        EXECUTE format('CREATE POLICY migrate ON %I TO oc_migrate USING (true) WITH CHECK (true)', name);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO oc_app, oc_migrate', name);
    END LOOP;
END $$;
CREATE POLICY sched ON usage_cursor FOR SELECT TO oc_sched USING (true);
GRANT SELECT ON usage_cursor TO oc_sched;
RESET ROLE;
