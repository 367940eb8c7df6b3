-- What gateways read with a prompt and show of a session: one statement each, so that a read is one round
-- trip and no transaction of several. Like read_log, they raise OC003 for what is not there.
SET LOCAL ROLE oc_owner;

-- A session with how far it has come and whether it has work.
CREATE FUNCTION read_session(p_org uuid, p_session text)
RETURNS TABLE (location_id text, project_id text, directory text, title text, agent text, provider text,
    model text, created_ms bigint, updated_ms bigint, outcome text, input_tokens bigint, output_tokens bigint,
    reasoning_tokens bigint, cache_read_tokens bigint, cache_write_tokens bigint, ready boolean, next_seq bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT s.location_id, s.project_id, s.directory, s.title, s.agent, s.provider, s.model,
        s.created_ms, s.updated_ms, s.outcome, s.input_tokens, s.output_tokens, s.reasoning_tokens,
        s.cache_read_tokens, s.cache_write_tokens, h.ready, h.next_seq
    FROM session_head h JOIN session s ON s.org_id = h.org_id AND s.id = h.id
    WHERE h.org_id = p_org AND h.id = p_session;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no session %', p_session USING ERRCODE = 'OC003';
    END IF;
END $$;

-- The newest messages of a session, or one of them: a row for each part with its call, in order; one row
-- without a part for a message that has none.
CREATE FUNCTION read_messages(p_org uuid, p_session text, p_message text, p_limit bigint)
RETURNS TABLE (id text, seq bigint, role text, parent_id text, turn_id text, agent text, provider text,
    model text, created_ms bigint, completed_ms bigint, finish text, error_code text, error_message text,
    input_tokens bigint, output_tokens bigint, reasoning_tokens bigint, cache_read_tokens bigint,
    cache_write_tokens bigint, part_id text, kind text, text text, call_id text, provider_call text, tool text,
    state text, arguments text, called_ms bigint, outcome text, title text, bounded_text text, structured text,
    managed_path text, truncated boolean, started_ms bigint, ended_ms bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    ids text[];
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    IF p_message IS NULL THEN
        ids := ARRAY(SELECT m.id FROM message m WHERE m.org_id = p_org AND m.session_id = p_session
            ORDER BY m.seq DESC LIMIT p_limit);
    ELSIF EXISTS (SELECT FROM message m WHERE m.org_id = p_org AND m.id = p_message
        AND m.session_id || '' = p_session) THEN -- by its id alone: the session's index has all of its messages
        ids := ARRAY[p_message];
    END IF;
    -- By their ids alone, for the same reason.
    RETURN QUERY SELECT m.id, m.seq, m.role, m.parent_id, m.turn_id, m.agent, m.provider, m.model, m.created_ms,
        m.completed_ms, m.finish, m.error_code, m.error_message, m.input_tokens, m.output_tokens,
        m.reasoning_tokens, m.cache_read_tokens, m.cache_write_tokens, p.id, p.kind, p.text, c.id,
        c.provider_call, c.tool, c.state, c.arguments, c.called_ms, c.outcome, c.title, c.bounded_text,
        c.structured, c.managed_path, c.truncated, c.started_ms, c.ended_ms
    FROM message m
        LEFT JOIN part p ON p.org_id = m.org_id AND p.session_id = p_session AND p.message_id = m.id
        LEFT JOIN tool_result c ON c.org_id = p.org_id AND c.id = p.call_id
    WHERE m.org_id = p_org AND m.id = ANY (ids)
    ORDER BY m.seq, p.place, p.seq, p.id;
    -- A session without a message is there all the same.
    IF NOT FOUND AND (p_message IS NOT NULL OR NOT EXISTS (
        SELECT FROM session_head h WHERE h.org_id = p_org AND h.id = p_session)) THEN
        RAISE EXCEPTION 'no session or message %', p_session USING ERRCODE = 'OC003';
    END IF;
END $$;

REVOKE ALL ON FUNCTION read_session(uuid, text), read_messages(uuid, text, text, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION read_session(uuid, text), read_messages(uuid, text, text, bigint) TO oc_app, oc_migrate;
RESET ROLE;
