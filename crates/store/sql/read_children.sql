-- A session's children, newest first.
-- For the build before: list_children takes its place.
CREATE OR REPLACE FUNCTION read_children(p_org uuid, p_session text)
RETURNS TABLE (id text, location_id text, project_id text, directory text, title text, agent text, provider text,
    model text, created_ms bigint, updated_ms bigint, outcome text, input_tokens bigint, output_tokens bigint,
    reasoning_tokens bigint, cache_read_tokens bigint, cache_write_tokens bigint, ready boolean, next_seq bigint,
    cost_nanos bigint, parent_id text, compacting_ms bigint, fork_of text, revert text,
    variant text, notices text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT s.id, s.location_id, s.project_id, s.directory, s.title, s.agent, s.provider, s.model,
        s.created_ms, s.updated_ms, s.outcome, s.input_tokens, s.output_tokens, s.reasoning_tokens,
        s.cache_read_tokens, s.cache_write_tokens, h.ready OR h.open, h.next_seq, s.cost_nanos, s.parent_id, s.compacting_ms,
        s.fork_of, s.revert, s.variant, s.notices
    FROM session s JOIN session_head h ON h.org_id = s.org_id AND h.id = s.id
    WHERE s.org_id = p_org AND s.parent_id = p_session ORDER BY s.created_ms DESC, s.id;
    IF NOT FOUND AND NOT EXISTS (SELECT FROM session_head h WHERE h.org_id = p_org AND h.id = p_session) THEN
        RAISE EXCEPTION 'no session %', p_session USING ERRCODE = 'OC003';
    END IF;
END $$;
