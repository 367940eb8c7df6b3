-- Takes an input out of the inbox. 'cancelled', 'gone' (it is not pending, or never was: nothing changes)
-- or 'missing'.
CREATE OR REPLACE FUNCTION cancel_input(
    p_org uuid, p_session text, p_message text, p_event text, p_stamp bigint, p_now bigint,
    OUT outcome text, OUT seq bigint, OUT location text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    number bigint;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.location_id, h.incarnation INTO location, number FROM session_head h
    WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM session_input i WHERE i.org_id = p_org AND i.id = p_message
        AND i.incarnation = number AND i.status = 'admitted') THEN
        outcome := 'gone';
        RETURN;
    END IF;
    seq := log_event(p_org, p_session, 'input.cancelled', p_event, p_stamp, p_now,
        json_build_object('message', p_message)::text, -1);
    PERFORM spend_wakes(p_org, p_session);
    outcome := 'cancelled';
END $$;
