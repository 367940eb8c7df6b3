-- Asks a session to stop. Applies to the open turn, the open drain, or the wakes before it; a session
-- with none of them is left as it is ('idle'). One that sleeps is stirred. One that was asked already and has not stopped yet keeps that interrupt,
-- unless somebody has woken it since. 'missing' when there is none.
CREATE OR REPLACE FUNCTION interrupt_session(
    p_org uuid, p_session text, p_event text, p_stamp bigint, p_now bigint, p_by text DEFAULT NULL,
    OUT outcome text, OUT seq bigint, OUT location text)
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    head record;
    open_turn text;
    target json;
BEGIN
    PERFORM set_config('oc.org', p_org::text, true);
    SELECT h.incarnation, h.open, h.ready, h.location_id, h.interrupt_seq, h.wake_seq INTO head
    FROM session_head h WHERE h.org_id = p_org AND h.id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    location := head.location_id;
    IF NOT head.ready AND NOT head.open THEN
        outcome := 'idle';
        RETURN;
    END IF;
    IF head.open AND head.wake_seq < head.interrupt_seq
        AND is_stopping(p_org, head.incarnation, head.interrupt_seq) THEN
        seq := head.interrupt_seq;
        outcome := 'applied';
        RETURN;
    END IF;
    SELECT t.id INTO open_turn FROM provider_turn t
    WHERE t.org_id = p_org AND t.incarnation = head.incarnation AND t.status <> 'settled'
        AND t.kind <> 'title' -- it runs beside a turn, and ends by itself
    ORDER BY t.seq DESC LIMIT 1;
    IF NOT head.open THEN
        target := '{"type":"parked"}';
    ELSIF open_turn IS NULL THEN
        target := '{"type":"drain"}';
    ELSE
        target := json_build_object('type', 'turn', 'turn', open_turn);
    END IF;
    seq := log_event(p_org, p_session, 'interrupt.requested', p_event, p_stamp, p_now,
        json_strip_nulls(json_build_object('target', target, 'by', p_by::json))::text);
    UPDATE session_head h SET interrupt_seq = seq, parked_seq = seq, asleep = false
    WHERE h.org_id = p_org AND h.id = p_session;
    outcome := 'applied';
END $$;
