-- Removes a context entry; wakes nobody. 'removed', 'gone' (there is none: nothing changes) or 'missing'.
CREATE OR REPLACE FUNCTION remove_entry(
    p_org uuid, p_session text, p_key text, p_event text, p_stamp bigint, p_now bigint, p_payload text,
    OUT outcome text, OUT seq bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    number bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.incarnation INTO number FROM session_head h WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM session_entry e WHERE e.org_id = p_org AND e.incarnation = number
        AND e.key = p_key) THEN
        outcome := 'gone';
        RETURN;
    END IF;
    seq := log_event(p_org, p_session, 'entry.removed', p_event, p_stamp, p_now, p_payload);
    outcome := 'removed';
END $$;
