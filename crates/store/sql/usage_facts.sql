-- The facts that the events of a session above `p_first`, up to `p_last`, add to the sums of usage, by hour. Only the log and rows that are
-- made of it are read, so the sums of any two spans are those of both together. The copied events of a Fork add nothing:
-- the other session had them.
--
-- An event counts for the author of the newest prompt that was promoted before it, or of the session before there is one;
-- and for the project that the session was in. Both are found in one walk along the log, so the work grows with it.
--
-- A limit makes a look-up of what would be a join: a planner that knows nothing of the number of rows, as in a new database,
-- makes a loop in a loop of a join.
CREATE OR REPLACE FUNCTION usage_facts(p_org uuid, p_number bigint, p_first bigint, p_last bigint)
RETURNS SETOF usage_fact LANGUAGE plpgsql STABLE SET search_path = public, pg_temp AS $$
DECLARE
    copied bigint;
    created json;
    -- Nothing that a provider or a catalog says makes a sum too large for its column.
    tokens_most CONSTANT bigint := 1000000000000;
    cost_most CONSTANT bigint := 1000000000000000;
    -- The events that are summed begin after this one.
    start bigint;
    place bigint;
    input text;
    -- Who wrote the newest prompt up to `start`, and where the session was.
    creator text;
    author text;
    at_project text;
BEGIN
    SELECT e.payload::json INTO created FROM session_event e
    WHERE e.org_id = p_org AND e.incarnation = p_number AND e.seq = 1;
    SELECT 2 + (e.payload::json->>'copied')::bigint INTO copied FROM session_event e
    WHERE e.org_id = p_org AND e.incarnation = p_number AND e.seq = 2 AND e.kind = 'session.forked';
    start := greatest(p_first, copied);
    creator := coalesce(created#>>'{by,actor}', created#>>'{by,key}', '');
    -- Backwards from there, one after the other: of a long log, nothing older is read.
    place := start + 1;
    LOOP
        SELECT e.seq, e.payload::json->>'message' INTO place, input FROM session_event e
        WHERE e.org_id = p_org AND e.incarnation = p_number AND e.seq < place AND e.kind = 'prompt.promoted'
        ORDER BY e.seq DESC LIMIT 1;
        EXIT WHEN NOT FOUND;
        -- None for what the service itself has said.
        SELECT coalesce(a.payload::json#>>'{by,actor}', a.payload::json#>>'{by,key}', '') INTO author
        FROM session_input i
        JOIN session_event a ON a.org_id = p_org AND a.incarnation = p_number AND a.seq = i.admitted_seq
        WHERE i.org_id = p_org AND i.id = input AND i.incarnation = p_number AND i.kind = 'prompt';
        EXIT WHEN FOUND;
    END LOOP;
    IF EXISTS (SELECT FROM left_location l WHERE l.org_id = p_org AND l.incarnation = p_number) THEN
        SELECT e.payload::json->>'project' INTO at_project FROM session_event e
        WHERE e.org_id = p_org AND e.incarnation = p_number AND e.seq <= start AND e.kind = 'session.moved'
        ORDER BY e.seq DESC LIMIT 1;
    END IF;
    RETURN QUERY
    WITH event AS MATERIALIZED (
        -- What is summed, and no more: a payload may be large.
        SELECT e.seq, e.time_ms, e.kind, d.p->>'agent' AS agent, d.p#>>'{model,provider}' AS provider,
            d.p#>>'{model,model}' AS model, d.p->>'outcome' AS outcome, d.p#>>'{error,code}' AS code,
            CASE WHEN e.kind NOT IN ('session.created', 'prompt.promoted') THEN d.p->>'turn' END AS turn,
            CASE WHEN e.kind = 'tool.settled' THEN d.p->>'call' END AS call,
            CASE WHEN e.kind = 'tool.settled' THEN (d.p->>'ended')::bigint - (d.p->>'started')::bigint END AS run_ms,
            d.p->'usage' AS used,
            e.kind = 'prompt.promoted' AND d.p->>'synthetic' IS NULL AS is_asked,
            e.kind = 'attempt.started' AND d.p->'pricing' IS NULL AS is_unpriced,
            CASE WHEN e.kind = 'workspace.snapshotted' AND d.p->'base' IS NULL THEN d.p->'files' END AS files,
            CASE e.kind WHEN 'session.moved' THEN coalesce(d.p->>'project', '') COLLATE "C" END AS project
        FROM session_event e CROSS JOIN LATERAL (SELECT e.payload::jsonb AS p OFFSET 0) AS d
        WHERE e.org_id = p_org AND e.incarnation = p_number AND e.seq > p_first AND e.seq <= p_last
            AND (e.seq < 3 OR e.seq > start)
            AND e.kind = ANY (ARRAY['session.created', 'session.moved', 'prompt.promoted', 'turn.settled',
                'compaction.ended', 'title.ended', 'attempt.started', 'retry.scheduled', 'tool.settled',
                'workspace.snapshotted'])
    ),
    -- A key is the number of a promotion or of a Move in 19 digits, and what it says: so the largest is the newest.
    writer AS (
        SELECT i.promoted_seq AS seq, lpad(i.promoted_seq::text, 19, '0')
            || coalesce(a.payload::json#>>'{by,actor}', a.payload::json#>>'{by,key}', '') AS key
        FROM session_input i
        JOIN session_event a ON a.org_id = p_org AND a.incarnation = p_number AND a.seq = i.admitted_seq
        WHERE i.org_id = p_org AND i.incarnation = p_number AND i.kind = 'prompt' AND i.admitted_seq < p_last
            AND i.promoted_seq > start AND i.promoted_seq <= p_last
            -- Without a promotion here, no prompt of the session is looked at.
            AND EXISTS (SELECT FROM event e WHERE e.kind = 'prompt.promoted')
    ),
    -- One walk along writers and events, in the order of their numbers. A writer comes before the event of the same promotion.
    attributed AS (
        SELECT u.*,
            coalesce(substr(max(u.writer) OVER along, 20), CASE WHEN u.seq > start THEN author END, creator) AS person,
            coalesce(substr(max(CASE WHEN u.project IS NOT NULL THEN lpad(u.seq::text, 19, '0') || u.project END) OVER along, 20),
                CASE WHEN u.seq > start THEN at_project END, created->>'project', '') AS stood_in
        FROM (
            SELECT 1 AS rank, NULL COLLATE "C" AS writer, e.* FROM event e
            UNION ALL SELECT 0, w.key, w.seq, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                NULL, NULL, NULL, NULL FROM writer w
        ) AS u
        WINDOW along AS (ORDER BY u.seq, u.rank ROWS UNBOUNDED PRECEDING)
    ),
    fact AS (
        SELECT e.time_ms - e.time_ms % 3600000 AS starts_ms, e.person, e.stood_in AS project,
            coalesce(t.agent, e.agent, '') AS agent,
            coalesce(t.provider, e.provider, '') AS provider,
            coalesce(t.model, e.model, '') AS model,
            -- A model may call anything a tool.
            CASE e.kind WHEN 'tool.settled' THEN coalesce(left(r.tool, 64), '') END AS tool,
            CASE WHEN e.kind IN ('turn.settled', 'tool.settled') THEN coalesce(e.outcome, '')
                WHEN e.kind = 'retry.scheduled' THEN 'retried' END AS outcome,
            CASE WHEN e.kind IN ('turn.settled', 'retry.scheduled') THEN coalesce(e.code, '') END AS code,
            greatest(coalesce(e.run_ms, 0), 0) AS run_ms,
            (e.kind = 'session.created')::integer AS sessions,
            e.is_asked::integer AS prompts,
            (e.kind = 'turn.settled')::integer AS turns,
            (e.kind = 'turn.settled' AND e.outcome = 'failed')::integer AS failed,
            (e.kind = 'turn.settled' AND e.outcome = 'interrupted')::integer AS interrupted,
            CASE e.kind WHEN 'turn.settled' THEN greatest(e.time_ms - t.started_ms, 0) ELSE 0 END AS turn_ms,
            (e.kind = 'attempt.started')::integer AS requests,
            (e.kind = 'retry.scheduled')::integer AS retries,
            e.is_unpriced::integer AS unpriced,
            (e.kind = 'compaction.ended')::integer AS compactions,
            least(coalesce((e.used->>'input')::bigint, 0), tokens_most) AS input_tokens,
            least(coalesce((e.used->>'output')::bigint, 0), tokens_most) AS output_tokens,
            least(coalesce((e.used->>'reasoning')::bigint, 0), tokens_most) AS reasoning_tokens,
            least(coalesce((e.used->>'cache_read')::bigint, 0), tokens_most) AS cache_read_tokens,
            least(coalesce((e.used->>'cache_write')::bigint, 0), tokens_most) AS cache_write_tokens,
            least(coalesce((e.used->>'cost')::bigint, 0), cost_most) AS cost_nanos,
            (e.kind = 'tool.settled')::integer AS tool_calls,
            (e.kind = 'tool.settled' AND e.outcome <> 'completed')::integer AS tool_failures,
            CASE WHEN e.files IS NULL THEN 0 ELSE coalesce((SELECT sum(f.additions)
                FROM jsonb_to_recordset(e.files) AS f (additions bigint)), 0) END AS lines_added,
            CASE WHEN e.files IS NULL THEN 0 ELSE coalesce((SELECT sum(f.deletions)
                FROM jsonb_to_recordset(e.files) AS f (deletions bigint)), 0) END AS lines_removed
        FROM attributed e
        LEFT JOIN LATERAL (SELECT * FROM provider_turn t
            WHERE e.turn IS NOT NULL AND t.org_id = p_org AND t.id = e.turn LIMIT 1) AS t ON true
        LEFT JOIN LATERAL (SELECT * FROM tool_result r
            WHERE e.call IS NOT NULL AND r.org_id = p_org AND r.id = e.call LIMIT 1) AS r ON true
        WHERE e.kind <> 'session.moved' -- and no writer
    )
    SELECT f.starts_ms, f.person, f.project, f.agent, f.provider, f.model, f.tool, f.outcome, f.code,
        coalesce(sum(f.run_ms), 0)::bigint, coalesce(sum(f.sessions), 0)::bigint, coalesce(sum(f.prompts), 0)::bigint,
        coalesce(sum(f.turns), 0)::bigint, coalesce(sum(f.failed), 0)::bigint,
        coalesce(sum(f.interrupted), 0)::bigint, coalesce(sum(f.turn_ms), 0)::bigint,
        coalesce(sum(f.requests), 0)::bigint, coalesce(sum(f.retries), 0)::bigint,
        coalesce(sum(f.unpriced), 0)::bigint, coalesce(sum(f.compactions), 0)::bigint,
        coalesce(sum(f.input_tokens), 0)::bigint, coalesce(sum(f.output_tokens), 0)::bigint,
        coalesce(sum(f.reasoning_tokens), 0)::bigint, coalesce(sum(f.cache_read_tokens), 0)::bigint,
        coalesce(sum(f.cache_write_tokens), 0)::bigint, coalesce(sum(f.cost_nanos), 0)::bigint,
        coalesce(sum(f.tool_calls), 0)::bigint, coalesce(sum(f.tool_failures), 0)::bigint,
        coalesce(sum(f.lines_added), 0)::bigint, coalesce(sum(f.lines_removed), 0)::bigint
    FROM fact f
    GROUP BY f.starts_ms, f.person, f.project, f.agent, f.provider, f.model, f.tool, f.outcome, f.code;
END $$;
