-- A page of a session's log in one statement, for gateways, which read on with every commit: at most `p_limit`
-- events and about page_bytes() bytes. `p_incarnation` 0 takes any session with this id; else only that one. Raises
-- OC003 without the session, and OC004 when its event `p_after` has not the id `p_after_id`: the database came back without
-- some commits (docs/decisions/0092). The build before gives no `p_after_id`.
CREATE OR REPLACE FUNCTION read_log(p_org uuid, p_session text, p_incarnation bigint, p_after bigint, p_limit bigint,
    p_after_id text DEFAULT NULL)
RETURNS TABLE (seq bigint, id text, kind text, version integer, time_ms bigint, claim bigint, payload text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    RETURN QUERY SELECT l.seq, l.id, l.kind, l.version, l.time_ms, l.claim, l.payload
        FROM read_logs(p_org, ARRAY[p_session], ARRAY[p_incarnation], ARRAY[p_after], p_limit,
            ARRAY[p_after_id]) AS l;
    -- Every session has its first event, so only an empty page needs the questions.
    IF FOUND THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM session_head h WHERE h.org_id = p_org AND h.id = p_session
        AND p_incarnation IN (0, h.incarnation)) THEN
        RAISE EXCEPTION 'no session %', p_session USING ERRCODE = 'OC003';
    END IF;
    IF p_after_id IS NOT NULL AND NOT EXISTS (SELECT FROM session_head h JOIN session_event k
            ON k.org_id = p_org AND k.incarnation = h.incarnation AND k.seq = p_after AND k.id = p_after_id
        WHERE h.org_id = p_org AND h.id = p_session) THEN
        RAISE EXCEPTION 'session % has another event %', p_session, p_after USING ERRCODE = 'OC004';
    END IF;
END $$;
