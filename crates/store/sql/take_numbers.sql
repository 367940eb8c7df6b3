-- Takes the next `p_count` numbers of a session's log for events of a gateway's: the first, and the session's
-- incarnation; neither without the session. It adds `p_admitted` to what waits, and wakes the session with `p_wakes`.
-- Locks the head.
CREATE OR REPLACE FUNCTION take_numbers(p_org uuid, p_session text, p_count integer, p_stamp bigint,
    p_admitted integer, p_wakes boolean, OUT number bigint, OUT first bigint)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE session_head h SET next_seq = h.next_seq + p_count, pending = h.pending + p_admitted,
        wake_seq = CASE WHEN p_wakes THEN h.next_seq ELSE h.wake_seq END, last_id = greatest(h.last_id, p_stamp),
        -- The next admission counts the bytes that wait.
        inbox_room = CASE WHEN p_admitted > 0 THEN 0 ELSE h.inbox_room END
    WHERE h.org_id = p_org AND h.id = p_session
    RETURNING h.incarnation, h.next_seq - p_count INTO number, first;
END $$;
