-- The synthetic input that waits for a staged Revert to end, and that nobody has woken the session for.
CREATE OR REPLACE FUNCTION held_inputs(p_org uuid, p_session text) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT i.id FROM session_head h JOIN session_input i ON i.incarnation = h.incarnation
    WHERE h.org_id = p_org AND h.id = p_session AND h.staged_seq > 0
        AND i.status = 'admitted' AND i.kind = 'synthetic' AND i.wake_seq = 0
        AND is_held(p_org, h.incarnation, h.staged_seq, i.admitted_seq)
    ORDER BY i.admitted_seq
$$;
