-- Whether `p_interrupt`, a session's newest interrupt, is of the drain that is open, which has not ended since. The caller
-- has the head's lock and has seen it open.
CREATE OR REPLACE FUNCTION is_stopping(p_org uuid, p_number bigint, p_interrupt bigint)
RETURNS boolean LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT EXISTS (SELECT FROM session_event e
            WHERE e.org_id = p_org AND e.incarnation = p_number AND e.seq = p_interrupt
                AND e.kind = 'interrupt.requested' AND e.payload::json#>>'{target,type}' = ANY ('{turn,drain}'))
        AND NOT EXISTS (SELECT FROM session_event e
            WHERE e.org_id = p_org AND e.incarnation = p_number AND e.seq > p_interrupt AND e.kind = 'drain.ended')
$$;
