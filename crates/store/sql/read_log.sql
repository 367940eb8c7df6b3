-- A page of a session's log in one statement, for gateways, which read on with every commit: at most `p_limit`
-- events and about page_bytes() bytes. `p_incarnation` 0 takes any session with this id; else only that one. Raises
-- OC003 without the session.
CREATE OR REPLACE FUNCTION read_log(p_org uuid, p_session text, p_incarnation bigint, p_after bigint, p_limit bigint)
RETURNS TABLE (seq bigint, id text, kind text, version integer, time_ms bigint, claim bigint, payload text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT l.seq, l.id, l.kind, l.version, l.time_ms, l.claim, l.payload
        FROM read_logs(p_org, ARRAY[p_session], ARRAY[p_incarnation], ARRAY[p_after], p_limit) AS l;
    -- Every session has its first event, so only an empty page needs the question.
    IF NOT FOUND AND NOT EXISTS (SELECT FROM session_head h WHERE h.org_id = p_org AND h.id = p_session
        AND p_incarnation IN (0, h.incarnation)) THEN
        RAISE EXCEPTION 'no session %', p_session USING ERRCODE = 'OC003';
    END IF;
END $$;
