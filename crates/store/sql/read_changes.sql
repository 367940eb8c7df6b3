-- The changes of a session's files after `p_after`, oldest first, without those that were reverted for good: all of them,
-- or those that the turns of one message made. A page of at most `p_limit` rows and about page_bytes() bytes. Raises
-- OC003 without the session.
CREATE OR REPLACE FUNCTION read_changes(p_org uuid, p_session text, p_message text, p_after bigint, p_limit bigint)
RETURNS TABLE (seq bigint, turn_id text, base boolean, tree text, parent text, files text, more bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT r.seq, r.turn_id, r.base, r.tree, r.parent, r.files, r.more
    FROM (SELECT w.*, sum(octet_length(w.files)) OVER (ORDER BY w.seq
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
        FROM (SELECT c.* FROM workspace_change c
            WHERE c.org_id = p_org AND c.seq > p_after AND c.incarnation =
                    (SELECT h.incarnation FROM session_head h WHERE h.org_id = p_org AND h.id = p_session)
                AND CASE WHEN c.turn_id IS NULL THEN p_message IS NULL ELSE EXISTS (
                    SELECT FROM provider_turn t JOIN message m ON m.org_id = t.org_id AND m.id = t.message_id
                    WHERE t.org_id = p_org AND t.id = c.turn_id
                        AND (p_message IS NULL OR p_message IN (m.id, m.parent_id))) END
            ORDER BY c.seq LIMIT p_limit) AS w) AS r
    WHERE coalesce(r.bytes_before, 0) < page_bytes() ORDER BY r.seq;
    IF NOT FOUND AND NOT EXISTS (SELECT FROM session_head h WHERE h.org_id = p_org AND h.id = p_session) THEN
        RAISE EXCEPTION 'no session %', p_session USING ERRCODE = 'OC003';
    END IF;
END $$;
