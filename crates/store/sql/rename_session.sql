-- Gives a session a title. Its event's number; NULL without the session.
CREATE OR REPLACE FUNCTION rename_session(
    p_org uuid, p_session text, p_event text, p_stamp bigint, p_now bigint, p_payload text)
RETURNS bigint LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    seq bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    UPDATE session_head h SET next_seq = h.next_seq + 1, last_id = greatest(h.last_id, p_stamp)
    WHERE h.org_id = p_org AND h.id = p_session RETURNING h.next_seq - 1 INTO seq;
    IF FOUND THEN
        PERFORM log_event(p_org, p_session, seq, 'session.renamed', p_event, p_now, p_payload);
    END IF;
    RETURN seq;
END $$;
