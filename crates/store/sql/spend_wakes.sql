-- Parks the wakes of a session in which nothing pending is awake: what was only stored starts no drain.
-- The caller has the head's lock, so that nobody admits meanwhile.
CREATE OR REPLACE FUNCTION spend_wakes(p_org uuid, p_session text)
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE session_head h SET parked_seq = greatest(h.parked_seq, h.wake_seq)
    WHERE h.org_id = p_org AND h.id = p_session AND NOT EXISTS (
        SELECT FROM session_input i WHERE i.org_id = p_org AND i.incarnation = h.incarnation
            AND i.status = 'admitted' AND i.wake_seq > h.parked_seq);
END $$;
