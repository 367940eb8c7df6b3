-- The facts that the events of a session above `p_first`, up to `p_last`, add to the sums of usage, by hour. Only the log and rows that are
-- made of it are read, so the sums of any two spans are those of both together. The copied events of a Fork add nothing:
-- the other session had them.
--
-- An event counts for the author of the newest prompt that was promoted before it, or of the session before there is one;
-- and for the project that the session was in.
CREATE OR REPLACE FUNCTION usage_facts(p_org uuid, p_number bigint, p_first bigint, p_last bigint)
RETURNS SETOF usage_fact LANGUAGE plpgsql STABLE SET search_path = public, pg_temp AS $$
DECLARE
    copied bigint;
    created json;
    -- Nothing that a provider or a catalog says makes a sum too large for its column.
    tokens_most CONSTANT bigint := 1000000000000;
    cost_most CONSTANT bigint := 1000000000000000;
    since bigint;
    has_moved CONSTANT boolean := EXISTS (
        SELECT FROM left_location l WHERE l.org_id = p_org AND l.incarnation = p_number);
BEGIN
    SELECT e.payload::json INTO created FROM session_event e
    WHERE e.org_id = p_org AND e.incarnation = p_number AND e.seq = 1;
    SELECT 2 + (e.payload::json->>'copied')::bigint INTO copied FROM session_event e
    WHERE e.org_id = p_org AND e.incarnation = p_number AND e.seq = 2 AND e.kind = 'session.forked';
    SELECT max(i.promoted_seq) INTO since FROM session_input i
    WHERE i.org_id = p_org AND i.incarnation = p_number AND i.kind = 'prompt' AND i.promoted_seq <= p_first;
    RETURN QUERY
    WITH event AS MATERIALIZED (
        SELECT e.seq, e.time_ms, e.kind, e.payload::json AS p,
            CASE WHEN e.kind NOT IN ('session.created', 'prompt.promoted') THEN e.payload::json->>'turn' END AS turn,
            CASE WHEN e.kind = 'tool.settled' THEN e.payload::json->>'call' END AS call,
            e.payload::json->'usage' AS used
        FROM session_event e
        WHERE e.org_id = p_org AND e.incarnation = p_number AND e.seq > p_first AND e.seq <= p_last
            AND (e.seq < 3 OR e.seq > coalesce(copied, 0))
            AND e.kind = ANY (ARRAY['session.created', 'prompt.promoted', 'turn.settled', 'compaction.ended',
                'title.ended', 'attempt.started', 'retry.scheduled', 'tool.settled', 'workspace.snapshotted'])
    ),
    writer AS MATERIALIZED (
        SELECT 0 AS seq, coalesce(created#>>'{by,actor}', created#>>'{by,key}', '') AS person
        UNION ALL
        SELECT i.promoted_seq, coalesce(a.payload::json#>>'{by,actor}', a.payload::json#>>'{by,key}', '')
        FROM session_input i
        JOIN session_event a ON a.org_id = p_org AND a.incarnation = p_number AND a.seq = i.admitted_seq
        WHERE i.org_id = p_org AND i.incarnation = p_number AND i.kind = 'prompt' AND i.promoted_seq <= p_last
            AND i.promoted_seq >= coalesce(since, 0)
    ),
    place AS MATERIALIZED (
        SELECT 0 AS seq, created->>'project' AS project
        UNION ALL
        SELECT e.seq, e.payload::json->>'project' FROM session_event e
        WHERE has_moved AND e.org_id = p_org AND e.incarnation = p_number AND e.seq <= p_last
            AND e.kind = 'session.moved'
    ),
    fact AS (
        SELECT e.time_ms - e.time_ms % 3600000 AS starts_ms,
            (SELECT w.person FROM writer w WHERE w.seq <= e.seq ORDER BY w.seq DESC LIMIT 1) AS person,
            coalesce((SELECT w.project FROM place w WHERE w.seq <= e.seq ORDER BY w.seq DESC LIMIT 1), '') AS project,
            coalesce(t.agent, e.p->>'agent', '') AS agent,
            coalesce(t.provider, e.p#>>'{model,provider}', '') AS provider,
            coalesce(t.model, e.p#>>'{model,model}', '') AS model,
            -- A model may call anything a tool.
            CASE e.kind WHEN 'tool.settled' THEN coalesce(left(r.tool, 64), '') END AS tool,
            CASE WHEN e.kind IN ('turn.settled', 'tool.settled') THEN coalesce(e.p->>'outcome', '')
                WHEN e.kind = 'retry.scheduled' THEN 'retried' END AS outcome,
            CASE WHEN e.kind IN ('turn.settled', 'retry.scheduled') THEN coalesce(e.p#>>'{error,code}', '') END AS code,
            CASE e.kind WHEN 'tool.settled'
                THEN greatest((e.p->>'ended')::bigint - (e.p->>'started')::bigint, 0) ELSE 0 END AS run_ms,
            (e.kind = 'session.created')::integer AS sessions,
            (e.kind = 'prompt.promoted' AND e.p->>'synthetic' IS NULL)::integer AS prompts,
            (e.kind = 'turn.settled')::integer AS turns,
            (e.kind = 'turn.settled' AND e.p->>'outcome' = 'failed')::integer AS failed,
            (e.kind = 'turn.settled' AND e.p->>'outcome' = 'interrupted')::integer AS interrupted,
            CASE e.kind WHEN 'turn.settled' THEN greatest(e.time_ms - t.started_ms, 0) ELSE 0 END AS turn_ms,
            (e.kind = 'attempt.started')::integer AS requests,
            (e.kind = 'retry.scheduled')::integer AS retries,
            (e.kind = 'attempt.started' AND e.p->'pricing' IS NULL)::integer AS unpriced,
            (e.kind = 'compaction.ended')::integer AS compactions,
            least(coalesce((e.used->>'input')::bigint, 0), tokens_most) AS input_tokens,
            least(coalesce((e.used->>'output')::bigint, 0), tokens_most) AS output_tokens,
            least(coalesce((e.used->>'reasoning')::bigint, 0), tokens_most) AS reasoning_tokens,
            least(coalesce((e.used->>'cache_read')::bigint, 0), tokens_most) AS cache_read_tokens,
            least(coalesce((e.used->>'cache_write')::bigint, 0), tokens_most) AS cache_write_tokens,
            least(coalesce((e.used->>'cost')::bigint, 0), cost_most) AS cost_nanos,
            (e.kind = 'tool.settled')::integer AS tool_calls,
            (e.kind = 'tool.settled' AND e.p->>'outcome' <> 'completed')::integer AS tool_failures,
            coalesce(lines.added, 0) AS lines_added, coalesce(lines.removed, 0) AS lines_removed
        FROM event e
        LEFT JOIN provider_turn t ON t.org_id = p_org AND t.id = e.turn
        LEFT JOIN tool_result r ON r.org_id = p_org AND r.id = e.call
        LEFT JOIN LATERAL (
            SELECT sum(f.additions) AS added, sum(f.deletions) AS removed
            FROM json_to_recordset(e.p->'files') AS f (additions bigint, deletions bigint)
            WHERE e.kind = 'workspace.snapshotted' AND e.p->'base' IS NULL
        ) AS lines ON e.kind = 'workspace.snapshotted'
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
