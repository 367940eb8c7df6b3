-- The newest messages of a session, those before one of them, or one of them: a row for each part with its call, in
-- order; one row without a part for a message that has none. At most `p_limit` messages, and about four times
-- page_bytes() bytes of text: the message that goes past it is the oldest of the page.
CREATE OR REPLACE FUNCTION read_message_page(
    p_org uuid, p_session text, p_message text, p_before text, p_limit bigint)
RETURNS TABLE (id text, seq bigint, role text, parent_id text, turn_id text, agent text, provider text,
    model text, created_ms bigint, completed_ms bigint, finish text, error_code text, error_message text,
    input_tokens bigint, output_tokens bigint, reasoning_tokens bigint, cache_read_tokens bigint,
    cache_write_tokens bigint, part_id text, kind text, text text, call_id text, provider_call text, tool text,
    state text, arguments text, called_ms bigint, outcome text, title text, bounded_text text, structured text,
    managed_path text, truncated boolean, started_ms bigint, ended_ms bigint,
    cost_nanos bigint, synthetic text, variant text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    ids text[];
    number bigint;
    before_seq bigint := 9223372036854775807;
    first_seq bigint := 0;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.incarnation INTO number FROM session_head h WHERE h.org_id = p_org AND h.id = p_session;
    IF p_before IS NOT NULL THEN
        before_seq := (SELECT m.seq FROM message m WHERE m.org_id = p_org AND m.id = p_before
            AND m.incarnation + 0 = number); -- by its id alone: the session's index has all of its messages
        IF before_seq IS NULL THEN
            RAISE EXCEPTION 'no message %', p_before USING ERRCODE = 'OC003';
        END IF;
    END IF;
    IF p_message IS NULL THEN
        ids := ARRAY(SELECT m.id FROM message m WHERE m.org_id = p_org AND m.incarnation = number
            AND m.seq < before_seq ORDER BY m.seq DESC LIMIT p_limit);
    ELSIF EXISTS (SELECT FROM message m WHERE m.org_id = p_org AND m.id = p_message
        AND m.incarnation + 0 = number) THEN
        ids := ARRAY[p_message];
    END IF;
    IF p_message IS NULL AND cardinality(ids) > 50 AND NOT EXISTS (SELECT FROM message m
        WHERE m.org_id = p_org AND m.incarnation = number AND m.seq <
            (SELECT o.seq FROM message o WHERE o.org_id = p_org AND o.id = ids[cardinality(ids)])) THEN
        -- All of a long session: its messages, parts and calls are read in one go each and hashed. Joins that look each of them
        -- up would prove the tenant to row security again with every row, which costs more than the rows.
        PERFORM set_config('enable_nestloop', 'off', true);
        -- Few sessions have more text than a page: only those are added up message by message.
        IF (SELECT coalesce(sum(octet_length(p.text)), 0) FROM part p WHERE p.org_id = p_org AND p.incarnation = number)
            + (SELECT coalesce(sum(coalesce(octet_length(c.arguments), 0) + coalesce(octet_length(c.bounded_text), 0)
                    + coalesce(octet_length(c.structured), 0)), 0)
                FROM tool_result c WHERE c.org_id = p_org AND c.incarnation = number) >= 4 * page_bytes() THEN
            SELECT min(r.seq) INTO first_seq
            FROM (SELECT m.seq, sum(coalesce(octet_length(p.text), 0) + coalesce(octet_length(c.arguments), 0)
                    + coalesce(octet_length(c.bounded_text), 0) + coalesce(octet_length(c.structured), 0))
                    OVER (ORDER BY m.seq DESC GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newer_bytes
                FROM (SELECT w.* FROM message w
                    WHERE w.org_id = p_org AND w.incarnation = number AND w.seq < before_seq) m
                LEFT JOIN (SELECT w.* FROM part w WHERE w.org_id = p_org AND w.incarnation = number) p
                    ON p.message_id = m.id
                LEFT JOIN (SELECT w.* FROM tool_result w WHERE w.org_id = p_org AND w.incarnation = number) c
                    ON c.id = p.call_id) AS r
            WHERE coalesce(r.newer_bytes, 0) < 4 * page_bytes();
        END IF;
        RETURN QUERY SELECT m.id, m.seq::bigint, m.role, m.parent_id, m.turn_id, m.agent, m.provider, m.model, m.created_ms,
            m.completed_ms, m.finish, m.error_code, m.error_message, coalesce(m.input_tokens, 0), coalesce(m.output_tokens, 0),
            coalesce(m.reasoning_tokens, 0), coalesce(m.cache_read_tokens, 0), coalesce(m.cache_write_tokens, 0), p.id,
            p.kind, p.text, c.id, c.provider_call, c.tool, c.state, c.arguments, c.called_ms, c.outcome, c.title,
            c.bounded_text, c.structured, c.managed_path, c.truncated, c.started_ms, c.ended_ms, coalesce(m.cost_nanos, 0),
            m.synthetic, m.variant
        FROM (SELECT w.* FROM message w WHERE w.org_id = p_org AND w.incarnation = number
            AND w.seq < before_seq AND w.seq >= first_seq) m
        LEFT JOIN (SELECT w.* FROM part w WHERE w.org_id = p_org AND w.incarnation = number) p ON p.message_id = m.id
        LEFT JOIN (SELECT w.* FROM tool_result w WHERE w.org_id = p_org AND w.incarnation = number) c ON c.id = p.call_id
        ORDER BY m.seq, p.place, p.seq, p.id;
        PERFORM set_config('enable_nestloop', 'on', true);
        RETURN;
    END IF;
    -- By their ids alone: the session's index has all of its messages.
    RETURN QUERY SELECT r.id, r.seq, r.role, r.parent_id, r.turn_id, r.agent, r.provider, r.model, r.created_ms, r.completed_ms,
        r.finish, r.error_code, r.error_message, r.input_tokens, r.output_tokens, r.reasoning_tokens,
        r.cache_read_tokens, r.cache_write_tokens, r.part_id, r.kind, r.text, r.call_id, r.provider_call,
        r.tool, r.state, r.arguments, r.called_ms, r.outcome, r.title, r.bounded_text, r.structured,
        r.managed_path, r.truncated, r.started_ms, r.ended_ms, r.cost_nanos, r.synthetic, r.variant
    FROM (SELECT m.id, m.seq::bigint AS seq, m.role, m.parent_id, m.turn_id, m.agent, m.provider, m.model, m.created_ms,
            m.completed_ms, m.finish, m.error_code, m.error_message, coalesce(m.input_tokens, 0) AS input_tokens, coalesce(m.output_tokens, 0) AS output_tokens,
            coalesce(m.reasoning_tokens, 0) AS reasoning_tokens, coalesce(m.cache_read_tokens, 0) AS cache_read_tokens, coalesce(m.cache_write_tokens, 0) AS cache_write_tokens, p.id AS part_id, p.kind, p.text,
            c.id AS call_id, c.provider_call, c.tool, c.state, c.arguments, c.called_ms, c.outcome, c.title,
            c.bounded_text, c.structured, c.managed_path, c.truncated, c.started_ms, c.ended_ms, coalesce(m.cost_nanos, 0) AS cost_nanos,
            m.synthetic, m.variant, p.place, p.seq AS part_seq,
            sum(coalesce(octet_length(p.text), 0) + coalesce(octet_length(c.arguments), 0)
                + coalesce(octet_length(c.bounded_text), 0) + coalesce(octet_length(c.structured), 0))
                OVER (ORDER BY m.seq DESC GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newer_bytes
        FROM message m
        LEFT JOIN part p ON p.org_id = m.org_id AND p.incarnation = number AND p.message_id = m.id
        LEFT JOIN tool_result c ON c.org_id = p.org_id AND c.id = p.call_id
        WHERE m.org_id = p_org AND m.id = ANY (ids)) AS r
    WHERE coalesce(r.newer_bytes, 0) < 4 * page_bytes()
    ORDER BY r.seq, r.place, r.part_seq, r.part_id;
    -- A session without a message is there all the same.
    IF NOT FOUND AND (p_message IS NOT NULL OR number IS NULL) THEN
        RAISE EXCEPTION 'no session or message %', p_session USING ERRCODE = 'OC003';
    END IF;
END $$;
