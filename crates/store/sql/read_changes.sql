-- What changed in a session's files, oldest first, without what was reverted for good: all of it, or what the turns
-- of one message changed.
CREATE OR REPLACE FUNCTION read_changes(p_org uuid, p_session text, p_message text)
RETURNS TABLE (seq bigint, turn_id text, base boolean, tree text, parent text, files text, more bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT c.seq, c.turn_id, c.base, c.tree, c.parent, c.files, c.more FROM workspace_change c
    WHERE c.org_id = p_org AND c.incarnation =
            (SELECT h.incarnation FROM session_head h WHERE h.org_id = p_org AND h.id = p_session)
        AND CASE WHEN c.turn_id IS NULL THEN p_message IS NULL ELSE EXISTS (
            SELECT FROM provider_turn t JOIN message m ON m.org_id = t.org_id AND m.id = t.message_id
            WHERE t.org_id = p_org AND t.id = c.turn_id
                AND (p_message IS NULL OR p_message IN (m.id, m.parent_id))) END
    ORDER BY c.seq;
    IF NOT FOUND AND NOT EXISTS (SELECT FROM session_head h WHERE h.org_id = p_org AND h.id = p_session) THEN
        RAISE EXCEPTION 'no session %', p_session USING ERRCODE = 'OC003';
    END IF;
END $$;
