-- A session with how far it has come and whether it has work.
CREATE OR REPLACE FUNCTION show_session(p_org uuid, p_session text)
RETURNS TABLE (location_id text, project_id text, directory text, title text, agent text, provider text,
    model text, created_ms bigint, updated_ms bigint, outcome text, input_tokens bigint, output_tokens bigint,
    reasoning_tokens bigint, cache_read_tokens bigint, cache_write_tokens bigint, ready boolean, next_seq bigint,
    cost_nanos bigint, parent_id text, compacting_ms bigint, fork_of text, revert text,
    variant text, notices text, archived_ms bigint, metadata text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT s.location_id, s.project_id, s.directory, s.title, s.agent, s.provider, s.model,
        s.created_ms, s.updated_ms, s.outcome, s.input_tokens, s.output_tokens, s.reasoning_tokens,
        s.cache_read_tokens, s.cache_write_tokens, h.ready OR h.open, h.next_seq, s.cost_nanos, s.parent_id, s.compacting_ms,
        s.fork_of, s.revert, s.variant, s.notices, s.archived_ms, s.metadata
    FROM session_head h JOIN session s ON s.org_id = h.org_id AND s.id = h.id
    WHERE h.org_id = p_org AND h.id = p_session;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no session %', p_session USING ERRCODE = 'OC003';
    END IF;
END $$;
