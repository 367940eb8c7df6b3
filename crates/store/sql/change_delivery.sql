-- Changes how a pending input joins running work; to steer wakes the session for it, unless a staged Revert
-- holds it. 'changed', 'conflict'
-- (it is not pending, or is so already) or 'missing' (the session, or an input of it with this id).
CREATE OR REPLACE FUNCTION change_delivery(
    p_org uuid, p_session text, p_message text, p_delivery text, p_event text, p_stamp bigint, p_now bigint,
    OUT outcome text, OUT seq bigint, OUT location text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    wakes boolean;
    number bigint;
    item record;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.location_id, h.incarnation, p_delivery = 'steer' AND h.staged_seq = 0 INTO location, number, wakes
    FROM session_head h
    WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    SELECT i.delivery, i.status INTO item FROM session_input i
    WHERE i.org_id = p_org AND i.id = p_message AND i.incarnation = number;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    IF item.status <> 'admitted' OR item.delivery = p_delivery THEN
        outcome := 'conflict';
        RETURN;
    END IF;
    seq := log_event(p_org, p_session, 'delivery.changed', p_event, p_stamp, p_now,
        json_build_object('message', p_message, 'delivery', p_delivery, 'wake', wakes)::text, 0, wakes);
    outcome := 'changed';
END $$;
