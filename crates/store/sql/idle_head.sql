-- Sets a head to what its whole log says of a session at which nobody works: what waits is parked, as an interrupt leaves
-- it.
CREATE OR REPLACE FUNCTION idle_head(p_org uuid, p_session text, p_number bigint)
RETURNS void LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    wake bigint;
    stop bigint;
BEGIN
    SELECT coalesce(max(e.seq) FILTER (WHERE e.kind = 'wake.requested' OR (e.payload::json->>'wake')::boolean), 0),
        coalesce(max(e.seq) FILTER (WHERE e.kind = 'interrupt.requested'), 0) INTO wake, stop
    FROM session_event e WHERE e.org_id = p_org AND e.incarnation = p_number
        AND e.kind IN ('wake.requested', 'interrupt.requested', 'prompt.admitted', 'control.admitted', 'delivery.changed');
    UPDATE session_head h SET wake_seq = wake, parked_seq = wake, interrupt_seq = stop,
        pending = (SELECT count(*) FROM session_input i
            WHERE i.org_id = p_org AND i.incarnation = p_number AND i.status = 'admitted')
    WHERE h.org_id = p_org AND h.id = p_session;
END $$;
