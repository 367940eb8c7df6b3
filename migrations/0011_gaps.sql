-- Reads that were two statements in a transaction: one statement each, so that nothing is held open between two
-- of them on a machine that is busy. They raise OC003 for a session that is not there.
SET LOCAL ROLE oc_owner;

-- What changed in a session's files, oldest first, without what was reverted for good: all of it, or what the turns
-- of one message changed.
CREATE FUNCTION read_changes(p_org uuid, p_session text, p_message text)
RETURNS TABLE (seq bigint, turn_id text, base boolean, tree text, parent text, files text, more bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT c.seq, c.turn_id, c.base, c.tree, c.parent, c.files, c.more FROM workspace_change c
    WHERE c.org_id = p_org AND c.session_id = p_session
        AND CASE WHEN c.turn_id IS NULL THEN p_message IS NULL ELSE EXISTS (
            SELECT FROM provider_turn t JOIN message m ON m.org_id = t.org_id AND m.id = t.message_id
            WHERE t.org_id = p_org AND t.id = c.turn_id
                AND (p_message IS NULL OR p_message IN (m.id, m.parent_id))) END
    ORDER BY c.seq;
    IF NOT FOUND AND NOT EXISTS (SELECT FROM session_head h WHERE h.org_id = p_org AND h.id = p_session) THEN
        RAISE EXCEPTION 'no session %', p_session USING ERRCODE = 'OC003';
    END IF;
END $$;

-- A session's children, newest first.
CREATE FUNCTION read_children(p_org uuid, p_session text)
RETURNS TABLE (id text, location_id text, project_id text, directory text, title text, agent text, provider text,
    model text, created_ms bigint, updated_ms bigint, outcome text, input_tokens bigint, output_tokens bigint,
    reasoning_tokens bigint, cache_read_tokens bigint, cache_write_tokens bigint, ready boolean, next_seq bigint,
    cost_nanos bigint, parent_id text, compacting_ms bigint, fork_of text, revert text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT s.id, s.location_id, s.project_id, s.directory, s.title, s.agent, s.provider, s.model,
        s.created_ms, s.updated_ms, s.outcome, s.input_tokens, s.output_tokens, s.reasoning_tokens,
        s.cache_read_tokens, s.cache_write_tokens, h.ready, h.next_seq, s.cost_nanos, s.parent_id, s.compacting_ms,
        s.fork_of, s.revert
    FROM session s JOIN session_head h ON h.org_id = s.org_id AND h.id = s.id
    WHERE s.org_id = p_org AND s.parent_id = p_session ORDER BY s.created_ms DESC, s.id;
    IF NOT FOUND AND NOT EXISTS (SELECT FROM session_head h WHERE h.org_id = p_org AND h.id = p_session) THEN
        RAISE EXCEPTION 'no session %', p_session USING ERRCODE = 'OC003';
    END IF;
END $$;

REVOKE ALL ON FUNCTION read_changes(uuid, text, text), read_children(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION read_changes(uuid, text, text), read_children(uuid, text) TO oc_app, oc_migrate;
RESET ROLE;
