-- Wakes a session for what is pending, and opens an idle one, so that a prompt without an answer is taken
-- up again; so is one whose drain is just being interrupted, once that has ended. 'woken', 'running' (a drain has it
-- and nothing is pending, or it waits with a staged Revert: nothing changes) or 'missing'.
CREATE OR REPLACE FUNCTION wake_session(
    p_org uuid, p_session text, p_event text, p_stamp bigint, p_now bigint,
    OUT outcome text, OUT seq bigint, OUT location text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    head record;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.incarnation, h.location_id, h.open, h.ready, h.pending, h.staged_seq, h.interrupt_seq INTO head FROM session_head h
    WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    location := head.location_id;
    IF head.staged_seq > 0
        OR head.open AND head.pending = 0 AND NOT is_stopping(p_org, head.incarnation, head.interrupt_seq) THEN
        outcome := 'running';
        RETURN;
    END IF;
    -- Its first drain takes nothing over: the one before has ended, or there was none.
    -- One that sleeps stays asleep: nothing pending is due before its answer.
    UPDATE session_head h SET open = h.open OR NOT h.ready, handed_over = h.handed_over OR NOT h.ready
    WHERE h.org_id = p_org AND h.id = p_session;
    seq := log_event(p_org, p_session, 'wake.requested', p_event, p_stamp, p_now, '{}', 0, true);
    outcome := 'woken';
END $$;
