-- One event of a gateway's, whose number the caller has taken from the head.
CREATE OR REPLACE FUNCTION log_event(p_org uuid, p_session text, p_seq bigint, p_kind text, p_event text, p_now bigint,
    p_payload text)
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO session_event (org_id, session_id, seq, id, kind, version, time_ms, payload)
    VALUES (p_org, p_session, p_seq, p_event, p_kind, 1, p_now, p_payload);
    PERFORM project_events(p_org, p_session, p_seq, ARRAY[p_now], ARRAY[p_kind], ARRAY[p_payload]);
END $$;
