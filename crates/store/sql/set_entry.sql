-- Sets a context entry; wakes nobody. 'set', 'same' (it has this value: nothing changes), 'full' (there are
-- `p_most` others) or 'missing'.
CREATE OR REPLACE FUNCTION set_entry(
    p_org uuid, p_session text, p_key text, p_value text, p_most integer, p_event text, p_stamp bigint,
    p_now bigint, p_payload text, OUT outcome text, OUT seq bigint)
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
    IF EXISTS (SELECT FROM session_entry e WHERE e.org_id = p_org AND e.incarnation = number
        AND e.key = p_key AND e.value = p_value) THEN
        outcome := 'same';
        RETURN;
    END IF;
    IF (SELECT count(*) FROM session_entry e WHERE e.org_id = p_org AND e.incarnation = number
        AND e.key <> p_key) >= p_most THEN
        outcome := 'full';
        RETURN;
    END IF;
    seq := log_event(p_org, p_session, 'entry.set', p_event, p_stamp, p_now, p_payload);
    outcome := 'set';
END $$;
