-- Asks a session to stop and then to go on with what steers it, and with a control that is next: what else is
-- queued stays parked. `outcome` and `seq` are interrupt_session's; `wake` is the number of the wake, NULL when
-- nothing is to go on.
CREATE OR REPLACE FUNCTION interrupt_and_resume(
    p_org uuid, p_session text, p_event text, p_wake_event text, p_stamp bigint, p_now bigint, p_by text DEFAULT NULL,
    OUT outcome text, OUT seq bigint, OUT location text, OUT wake bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    next record;
BEGIN
    SELECT i.outcome, i.seq, i.location INTO outcome, seq, location
    FROM interrupt_session(p_org, p_session, p_event, p_stamp, p_now, p_by) AS i;
    IF outcome = 'missing' THEN
        RETURN;
    END IF;
    SELECT i.kind, i.delivery INTO next FROM session_input i
    WHERE i.incarnation = (SELECT h.incarnation FROM session_head h WHERE h.org_id = p_org AND h.id = p_session)
        AND i.status = 'admitted'
    ORDER BY i.delivery = 'queue', i.admitted_seq LIMIT 1;
    IF NOT FOUND OR next.delivery = 'queue' AND next.kind IN ('prompt', 'synthetic') THEN
        RETURN;
    END IF;
    -- The interrupt has locked the head, if it changed anything.
    IF EXISTS (SELECT FROM session_head h WHERE h.org_id = p_org AND h.id = p_session AND h.staged_seq = 0) THEN
        wake := log_event(p_org, p_session, 'wake.requested', p_wake_event, p_stamp, p_now, '{"scope":"steer"}', 0, true);
    END IF;
END $$;
